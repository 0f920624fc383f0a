"""Whose history a request goes on with, over a real socket: agents side by side, keys, undo, fork, compaction."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from elision.providers.provider import Api
from elision.testing.builders import step, trajectory
from elision.testing.follower import Follower
from elision.testing.playback import Playback
from elision.trajectory.trajectory import Trajectory
from tests.e2e.agents import APIS
from tests.e2e.doors import Wire, gateway

LEFT = trajectory(*(step(n, f"left {n}\n" + "a left line\n" * 40) for n in range(1, 9)), id="left")
RIGHT = trajectory(*(step(n, f"right {n}\n" + "a right line\n" * 40) for n in range(1, 9)), id="right")


def opened(api: Api, wire: Wire, url: str, key: str = "any") -> Any:
    return wire.claude(url, key) if api == "anthropic" else wire.openai(url, key)


def asked(api: Api, client: Any, request: Any, run: str = "") -> Any:
    """The answer as JSON."""
    if api == "anthropic":
        fields = {"content": {"__all__": {"type", "text", "id", "name", "input"}}}
        answer = client.messages.create(model=run or "claude-sonnet-5", max_tokens=500, **request)
        return answer.model_dump(mode="json", include=fields)
    if api == "openai":
        return client.chat.completions.create(model=run or "gpt-5", **request).model_dump(mode="json")
    return client.responses.create(model=run or "gpt-5", **request).model_dump(mode="json", exclude_none=True)


@pytest.mark.parametrize("api", APIS)
def test_agents_with_the_same_first_words_do_not_mix(api: Api) -> None:
    """Two at once that begin alike: each request upstream holds what one of them said, and never the other's."""
    failed: list[BaseException] = []

    def work(run: Trajectory, url: str, wire: Wire) -> None:
        try:
            follower = Follower(run, api)
            with opened(api, wire, url) as client:
                while not follower.done:
                    follower.take(asked(api, client, follower.request, f"run:{run.id}"))
        except BaseException as error:
            failed.append(error)
            raise

    wires = Wire(), Wire()
    with Playback([LEFT, RIGHT]) as provider, gateway(provider.url) as door:
        threads = [
            threading.Thread(target=work, args=(run, door.url, wire))
            for run, wire in zip((LEFT, RIGHT), wires, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed
    assert provider.violations == []
    for request in provider.requests:
        other = b"a right line" if request.run == "left" else b"a left line"
        assert other not in request.raw
    # Behind the first answer alone nobody knows which of two equal requests is whose.
    left, right = (set(wire.sessions[1:]) for wire in wires)
    assert len(left) == len(right) == 1
    assert left != right


def _worked(api: Api, client: Any, follower: Follower, until: int) -> None:
    while follower.turn < until:
        follower.take(asked(api, client, follower.request, "run:left"))


@pytest.mark.parametrize("api", APIS)
def test_an_undo_goes_on_in_its_session(api: Api) -> None:
    """A client that takes its last steps back goes on where it was, and what stays hidden stays the same bytes."""
    wire = Wire()
    with Playback(LEFT) as provider, gateway(provider.url) as door, opened(api, wire, door.url) as client:
        follower = Follower(LEFT, api)
        _worked(api, client, follower, 7)
        again = Follower(LEFT, api)
        _replay(again, provider, api, 5)
        before = [request for request in provider.requests if request.turn == 5]
        while not again.done:
            again.take(asked(api, client, again.request, "run:left"))
    assert provider.violations == []
    redone = [request for request in provider.requests if request.turn == 5]
    assert len(redone) == len(before) + 1
    # What was hidden meanwhile may be hidden here as well; nothing of the later turns is.
    assert b"left 5" not in redone[-1].raw
    assert len({name.partition("~")[0] for name in wire.sessions if name}) == 1


def _replay(follower: Follower, provider: Playback, api: Api, until: int) -> None:
    """Bring a follower to a turn without asking through the gateway."""
    wire = Wire()
    with opened(api, wire, provider.url) as client:
        _worked(api, client, follower, until)


@pytest.mark.parametrize("api", APIS)
def test_a_fork_leaves_the_first_alone(api: Api) -> None:
    """Two clients that go on from one history, in turns, are answered each from its own."""
    wire = Wire()
    with Playback([LEFT]) as provider, gateway(provider.url) as door, opened(api, wire, door.url) as client:
        one = Follower(LEFT, api)
        _worked(api, client, one, 4)
        two = Follower(LEFT, api)
        _replay(two, provider, api, 4)
        for number in range(4, 9):
            one.take(asked(api, client, one.request, "run:left"))
            request = two.request
            request["input" if api == "openai-responses" else "messages"].append(
                {"role": "user", "content": f"Another way, {number}."}
            )
            if api == "anthropic":
                request["messages"][-2:] = [_joined(*request["messages"][-2:])]
            two.take(asked(api, client, request, "run:left"))
    assert provider.violations == []
    for request in provider.requests:
        assert request.status == 200


def _joined(first: Any, second: Any) -> Any:
    return {**first, "content": [*first["content"], {"type": "text", "text": second["content"]}]}


@pytest.mark.parametrize("api", APIS)
def test_a_compaction_by_the_client_goes_on(api: Api) -> None:
    """A client that replaced its own history but for its end is still the same session, and its requests are sound."""
    wire = Wire()
    with Playback(LEFT) as provider, gateway(provider.url) as door, opened(api, wire, door.url) as client:
        follower = Follower(LEFT, api)
        _worked(api, client, follower, 7)
        history = follower._history
        follower._history = [{"role": "user", "content": "Summary of all that was done."}, *history[-4:]]
        while not follower.done:
            follower.take(asked(api, client, follower.request, "run:left"))
    assert provider.violations == []
    assert len({name.partition("~")[0] for name in wire.sessions if name}) == 1
