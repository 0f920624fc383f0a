"""Whatever the run, the requests of the live door break no rule and no type that the client's own did not break."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elision.providers.provider import Api
from elision.trajectory.trajectory import Trajectory
from tests.manager.test_requests import APIS, MODELS, Client, follow
from tests.properties.trajectories import trajectories

#: Small windows: the runs are short.
SPECS = (
    "masking(window=1, schedule=every-turn, gist=0)",
    "hybrid(window=1, summarize_at=3, tail=1, summary_max_tokens=50, schedule=every-turn)",
    "summarization(every=2, tail=1, summary_max_tokens=50, schedule=every-turn)",
    "masking(window=1, schedule=every-turn)",
)


@pytest.mark.parametrize("api", APIS)
# Every example is a whole session, its requests held against the providers' types.
@settings(max_examples=max(12, settings().max_examples // 2))
@given(run=trajectories(most=7), spec=st.sampled_from(SPECS), model=st.integers(0, 1))
def test_nothing_is_introduced(api: Api, run: Trajectory, spec: str, model: int) -> None:
    """Odd texts, parallel and unanswered calls, talk between turns: our edits leave a request as sound as it was."""
    if run.turns:
        follow(Client(run, api), MODELS[api][model % len(MODELS[api])], spec)
