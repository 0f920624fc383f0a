"""Cache breakpoints in a client's own request."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from elision.providers.anthropic.breakpoints import LOOK_BACK, BreakpointPlace, add_breakpoints, choose_breakpoints
from elision.testing.request_rules import list_new_violations, list_violations

MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
SEALED = {"type": "thinking", "thinking": "", "signature": "c2Vh"}


def text(words: str = "x", **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def said(*blocks: Any) -> list[dict[str, Any]]:
    """A message a list of blocks, or a text; the user begins and roles take turns."""
    return [{"role": ("user", "assistant")[place % 2], "content": each} for place, each in enumerate(blocks)]


def request(*blocks: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "claude-opus-5", "max_tokens": 9, "messages": said(*blocks), **fields}


def test_wanted_places_come_first_and_four_are_all() -> None:
    """Most important first; the fifth is left out."""
    body = request(*([text()] for _ in range(6)))
    wanted = [(4, 0), (0, 0), (2, 0), (1, 0), (3, 0)]
    assert choose_breakpoints(body, wanted) == [BreakpointPlace(*each) for each in wanted[:4]]


def test_the_clients_own_are_counted_wherever_they_stand() -> None:
    """Tools, system prompt, messages, inside results, and automatic caching."""
    tools = [{"name": "ls", "input_schema": {"type": "object"}, "cache_control": MARK}]
    system = [text(cache_control=MARK)]
    body = request([text()], [text()], [text()], tools=tools, system=system)
    assert choose_breakpoints(body, [(0, 0), (1, 0), (2, 0)]) == [BreakpointPlace(0, 0), BreakpointPlace(1, 0)]
    assert choose_breakpoints({**body, "cache_control": MARK}, [(0, 0), (1, 0)]) == [BreakpointPlace(0, 0)]
    inside = {"type": "tool_result", "tool_use_id": "a", "content": [text(cache_control=MARK)]}
    full = request([text()], [text()], [inside, text(cache_control=MARK)], tools=tools, system=system)
    assert choose_breakpoints(full, [(0, 0)]) == []


def test_a_place_that_is_marked_needs_nothing() -> None:
    """The client's breakpoint serves as well as ours."""
    body = request([text(cache_control=MARK)], [text()], [text()])
    assert choose_breakpoints(body, [(0, 0), (1, 0), (1, 0)]) == [BreakpointPlace(1, 0)]


def test_thinking_and_blank_text_bear_no_mark() -> None:
    """The nearest block before them does, be it in another message; where there is none there is no mark."""
    body = request([text()], [SEALED, text()], [text(" ")])
    assert choose_breakpoints(body, [(1, 0)]) == [BreakpointPlace(0, 0)]
    assert choose_breakpoints(body, [(2, 0)]) == [BreakpointPlace(1, 1)]
    assert choose_breakpoints(request([text(" ")]), [(0, 0)]) == []
    assert choose_breakpoints(request(), [(0, 0), (7, 3)]) == []


def test_a_plain_text_becomes_a_block_and_other_messages_stay_the_same_objects() -> None:
    """Marking is an edit of one message; what the client holds is not changed."""
    body = request("List.", [text()], "Thanks.")
    after = add_breakpoints(body, choose_breakpoints(body, [(2, 0)]))
    assert after["messages"][2]["content"] == [text("Thanks.", cache_control=MARK)]
    assert all(ours is theirs for ours, theirs in zip(after["messages"][:2], body["messages"][:2], strict=True))
    assert body["messages"][2]["content"] == "Thanks."
    assert list_violations("anthropic", after) == []


def test_longer_lives_come_first() -> None:
    """A breakpoint in front of one that lives an hour must live as long, nested or automatic ones included."""
    inside = {"type": "tool_result", "tool_use_id": "a", "content": [text(cache_control=HOUR)]}
    for body in (
        request([text()], [text(cache_control=HOUR)], [text()]),
        request([text()], [text()], [inside, text()]),
    ):
        assert choose_breakpoints(body, [(0, 0), (2, len(body["messages"][2]["content"]) - 1)])[0] == BreakpointPlace(
            0, 0, "1h"
        )
    automatic = request([text()], [text()], cache_control=HOUR)
    assert choose_breakpoints(automatic, [(0, 0)]) == [BreakpointPlace(0, 0, "1h")]
    assert BreakpointPlace(0, 0, "1h").control == HOUR
    body = request([text()], [text(cache_control=HOUR)], [text()])
    assert choose_breakpoints(body, [(0, 0), (2, 0)]) == [BreakpointPlace(0, 0, "1h"), BreakpointPlace(2, 0)]


def test_a_stretch_longer_than_one_looks_back_is_parted() -> None:
    """A turn of many parallel calls would lose touch with the entry in front of it."""
    body = request([text()], [text() for _ in range(70)], [text()])
    found = choose_breakpoints(body, [(2, 0), (0, 0)])
    assert found[:2] == [BreakpointPlace(2, 0), BreakpointPlace(0, 0)]
    numbers = [0 if each.message == 0 else each.block + 1 if each.message == 1 else 71 for each in found]
    assert numbers[2:] == [71 - LOOK_BACK, 71 - 2 * LOOK_BACK]
    short = request([text()], [text() for _ in range(18)], [text()])
    assert len(choose_breakpoints(short, [(2, 0), (0, 0)])) == 2


def test_automatic_caching_is_the_end_of_the_last_stretch() -> None:
    """Where the client lets the service mark the end, ours stands at the frontier and what is free in between."""
    body = request([text()], [text() for _ in range(30)], [text()], cache_control=MARK)
    assert choose_breakpoints(body, [(0, 0)]) == [BreakpointPlace(0, 0), BreakpointPlace(1, 31 - LOOK_BACK - 1)]


_BLOCK = some.sampled_from(
    [text(), text(), text(" "), text(cache_control=MARK), text(cache_control=HOUR), SEALED, {"type": "image"}, {}]
)
_CONTENT = some.just("List.") | some.lists(_BLOCK, max_size=30)
_WHERE = some.tuples(some.integers(-1, 6), some.integers(-1, 31))


@given(
    contents=some.lists(_CONTENT, max_size=6),
    wanted=some.lists(_WHERE, max_size=6),
    fields=some.sampled_from(
        [{}, {"cache_control": MARK}, {"cache_control": HOUR}, {"system": [text(cache_control=MARK)]}]
    ),
)
def test_our_marks_break_no_rule(contents: list[Any], wanted: list[tuple[int, int]], fields: dict[str, Any]) -> None:
    """Whatever the client marked, and wherever we want ours: nothing is introduced, and nothing else is changed."""
    body = request(*contents, **fields)
    found = choose_breakpoints(body, wanted)
    after = add_breakpoints(body, found)
    assert list_new_violations("anthropic", body, after) == []
    assert len({(each.message, each.block) for each in found}) == len(found)
    for place in found:
        assert after["messages"][place.message]["content"][place.block]["cache_control"] == place.control
