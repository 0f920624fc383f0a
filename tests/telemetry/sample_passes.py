"""Diagnostics for the tests of telemetry: written by hand, generated, and taken from a real run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from elision.engine import Log
from elision.strategies.guards import Guards
from elision.telemetry.diagnostics import Costs, Diagnostics, Fault, Hidden, Savings, Summarized
from elision.trajectory.plan import Stop, StopHint
from elision.trajectory.turn import Turn
from tests.properties.builders import run_session

#: A pass that did and met everything there is.
FULL = Diagnostics(
    session="task-42",
    branch="task-42",
    call=1,
    turns=17,
    before=30_000,
    after=12_000,
    raw=45_000,
    reason="rewrite pays",
    phase="summarizing",
    epoch=3,
    masked=(
        Hidden(handle="t3.1", tool="bash", tokens=900, left=40),
        Hidden(handle="t4.1", tool="bash", tokens=100, left=30),
    ),
    clipped=(Hidden(handle="t17.1", tool="read", tokens=50_000, left=9_000),),
    folded=(Hidden(handle="t16.1", tool="read", tokens=3_000, left=60),),
    unfolded=("t12.1", "t14.1"),
    summarized=Summarized(
        first=1,
        last=9,
        tokens=8_000,
        left=600,
        usd=0.02,
        route="fresh",
        seconds=2.5,
        model="claude-haiku-4-5",
        input=8_500,
        cached=500,
        output=580,
    ),
    summaries=1,
    summary_tokens=600,
    rewrites={"mask": 1, "summary": 1},
    costs=Costs(ours=0.5, raw=0.8, summarizer=0.02, recalls=0.01, billed=0.52),
    savings=Savings(
        observation_tokens=40_000,
        hidden_tokens=33_000,
        masked_tokens=12_000,
        folded_tokens=2_940,
        masked=2,
        folded=1,
        visible=5,
        covered=9,
    ),
    stop=Stop(guard="max_turns", limit=17, value=17),
    hint=StopHint(turns=5, why="all of them failed"),
    faults=(
        Fault(kind="store", cause="StoreError", what="database is locked"),
        Fault(kind="summarizer", cause="timeout", what="no answer"),
    ),
    recalls=2,
    seconds=2.75,
    summarizer_seconds=2.5,
    model="claude-sonnet-4-5",
)
#: One that did nothing.
QUIET = Diagnostics(
    session="task-42", branch="task-42", call=2, turns=18, before=12_400, after=12_400, raw=45_400, reason="cap on raw",
    phase="summarizing", epoch=3,
    seconds=0.002, model="claude-sonnet-4-5", rewrites={"mask": 1, "summary": 1}, recalls=2,
    costs=Costs(ours=0.55, raw=0.9, summarizer=0.02, recalls=0.01),
)  # fmt: skip


def make_later(told: Diagnostics, **changes: Any) -> Diagnostics:
    return replace(told, call=told.call + 1, **changes)


_words = st.text(max_size=12) | st.sampled_from(["mask", "timeout", "rewrite pays", "max_turns", "fork", "fresh"])
_tokens = st.integers(0, 10**7)
_hidden = st.builds(Hidden, handle=_words, tool=_words, tokens=_tokens, left=_tokens, text=_words)
_usd = st.floats(0, 1e6)
#: Anything that a pass may say, sense or not.
any_pass = st.builds(
    Diagnostics,
    session=_words,
    branch=_words,
    call=st.integers(0, 99),
    turns=_tokens,
    before=_tokens,
    after=_tokens,
    raw=_tokens,
    reason=_words,
    phase=st.sampled_from(["raw", "masking", "summarizing"]),
    epoch=st.integers(1, 50),
    masked=st.lists(_hidden, max_size=3).map(tuple),
    clipped=st.lists(_hidden, max_size=2).map(tuple),
    folded=st.lists(_hidden, max_size=2).map(tuple),
    unfolded=st.lists(_words, max_size=2).map(tuple),
    summarized=st.none()
    | st.builds(Summarized, first=_tokens, last=_tokens, tokens=_tokens, left=_tokens, usd=_usd, route=_words),
    rewrites=st.dictionaries(_words, st.integers(0, 99), max_size=3),
    costs=st.builds(Costs, ours=_usd, raw=_usd, summarizer=_usd, recalls=_usd),
    stop=st.none() | st.builds(Stop, guard=_words, limit=_usd, value=_usd),
    hint=st.none() | st.builds(StopHint, turns=_tokens, why=_words),
    history=_words,
    faults=st.lists(st.builds(Fault, kind=_words, cause=_words, what=_words), max_size=3).map(tuple),  # type: ignore[arg-type]
    recalls=_tokens,
    seconds=st.floats(0, 1e4),
    model=_words,
)


def run_passes(strategy: str, turns: tuple[Turn, ...], **guards: Any) -> list[Diagnostics]:
    """The diagnostics of a run as the engine makes it, call by call."""
    watch = Guards(**guards).start_watch()
    found: list[Diagnostics] = []

    def told(session: Log) -> None:
        for turn in session.state.turns[watch.turns :]:
            watch.add_turn(turn)
        assert session.newest_call is not None
        books, decided = session.money, session.newest_call.decided
        observations = session.state.find_observation
        found.append(
            Diagnostics(
                session="run",
                branch="run",
                call=len(found) + 1,
                turns=len(session.state.turns),
                before=session.newest_call.view.tokens,
                after=session.newest_call.view.tokens,
                raw=session.state.raw_track.tokens,
                reason=decided.reason,
                epoch=session.state.epoch,
                masked=tuple(
                    Hidden(
                        handle=f"t{mask.key[0]}.{mask.key[1]}",
                        tool=observations(mask.key).tool,
                        tokens=session.sizer.count_observation(observations(mask.key)),
                        left=session.sizer.count_text(mask.text),
                    )
                    for mask in decided.masks
                ),
                rewrites={"mask": session.state.epoch - 1},
                costs=Costs(ours=books.spent_usd, raw=books.raw_spent_usd, summarizer=books.summaries.usd),
                stop=watch.find_stop(books.spent_usd),
                hint=watch.find_hint(),
                seconds=0.001,
                model="claude-sonnet-4-5",
            )
        )

    run_session(strategy, turns, watch=told)
    return found
