"""A summary covers a call that the provider ran together with its result, or neither."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from elision.strategies.policy import ServerCalls
from elision.trajectory.content import Opaque, Text
from elision.trajectory.turn import Turn
from tests.properties.builders import long_text, run_session, step


def call(id: str) -> Opaque:
    return Opaque("server_tool_use", 5, {"type": "server_tool_use", "id": id, "name": "web_search", "input": {}})


def result(id: str) -> Opaque:
    kind = "web_search_tool_result"
    return Opaque(kind, 5, {"type": kind, "tool_use_id": id, "content": []})


def turns(**parts: Any) -> list[Turn]:
    """Eight turns with long results; parts: what turn `t3` says besides, and so on."""
    made = [step(index, text=long_text(index, 300)) for index in range(1, 9)]
    return [replace(turn, content=(Text("So."), *parts.get(f"t{turn.index}", ()))) for turn in made]


#: The result comes with the next answer, behind the results of the client's own calls.
ADJACENT = {"t4": (call("a"),), "t5": (result("a"),)}


def limit(covers: int, **parts: Any) -> int:
    calls = ServerCalls()
    for turn in turns(**parts):
        calls.add_turn(turn)
    return calls.limit_summary(covers)


def test_calls_that_are_answered_in_their_turn_limit_nothing() -> None:
    """As nearly all are; a call without a result limits nothing either."""
    assert [limit(covers, t3=(call("a"), result("a")), t5=(call("b"),)) for covers in range(9)] == list(range(9))


def test_a_summary_ends_before_the_call_or_behind_the_result() -> None:
    """Whatever turns stand between them."""
    assert [limit(covers, t3=(call("a"),), t6=(result("a"),)) for covers in range(9)] == [0, 1, 2, 2, 2, 2, 6, 7, 8]


def test_calls_that_overlap_are_kept_together() -> None:
    """What limits the one may reach into the other."""
    parts = {"t2": (call("a"),), "t4": (result("a"), call("b")), "t6": (result("b"),)}
    assert [limit(covers, **parts) for covers in range(1, 8)] == [1, 1, 1, 1, 1, 6, 7]


@pytest.mark.parametrize(
    ("strategy", "lines"),
    [
        ("summarization(every=4, tail=4, schedule=every-turn)", 0),
        ("hybrid(window=2, summarize_at=40, tail=30, budget=budget(6000, reserved=0), schedule=every-turn)", 100),
    ],
)
def test_no_strategy_parts_them(strategy: str, lines: int) -> None:
    """By count of turns, or where the budget asks for it; the newest turn is never covered."""
    said = [(Text(long_text(number, lines)),) if lines else () for number in range(9)]
    calls = [replace(turn, content=(*turn.content, *said[turn.index])) for turn in turns(**ADJACENT)]
    covered: list[int] = []
    run_session(strategy, calls, watch=lambda session: covered.append(session.state.covered_turns))
    assert max(covered) > 0
    assert 4 not in covered
