"""The client that works through a recorded run."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elision.errors import ElisionError
from elision.providers.provider import Api
from elision.testing.builders import step, trajectory, turn
from elision.testing.exchange import ReceivedRequest
from elision.testing.follower import Follower
from elision.testing.recorded_provider import RESPONSE_FORMATS, RecordedProvider
from elision.trajectory.trajectory import Trajectory
from tests.properties.trajectories import trajectories

APIS: tuple[Api, ...] = (*RESPONSE_FORMATS,)


def ask(provider: RecordedProvider, follower: Follower) -> tuple[ReceivedRequest, dict[str, object]]:
    body = json.dumps({"model": "m", "max_tokens": 9, **follower.request}).encode()
    received, answer = provider.answer_request(follower.api, {}, body)
    return received, dict(answer.body)


@pytest.mark.parametrize("api", APIS)
# Every example is a whole conversation, each request of it held against the providers' types.
@settings(max_examples=max(12, settings().max_examples // 8))
@given(run=trajectories(most=6))
def test_any_run_is_followed_to_its_end(api: Api, run: Trajectory) -> None:
    """Parallel, unanswered and silent turns, odd texts, talk: every request is sound and gets its own turn."""
    provider, follower = RecordedProvider([run]), Follower(run, api)
    while not follower.done:
        number = follower.turn
        received, body = ask(provider, follower)
        assert received.problems == ()
        assert received.turn == number
        follower.take(body)


@given(st.sampled_from(APIS))
def test_an_answer_of_another_run_is_noticed(api: Api) -> None:
    """What was not recorded as this turn raises, with the run's name."""
    provider = RecordedProvider([trajectory(turn(1, text="Another run."), id="b")])
    follower = Follower(trajectory(step(1), id="a"), api)
    _, body = ask(provider, follower)
    with pytest.raises(ElisionError, match="run 'a': what came as turn 1"):
        follower.take(body)
