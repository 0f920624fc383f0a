"""Clearing on the server, held at our frontier, against a server that clears as documented."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from elision.providers.anthropic.server_clearing import (
    CLEARING_BETA,
    CLEARING_EDIT,
    ClearingReport,
    add_clearing_edit,
    build_clearing_edit,
    count_uses_to_clear,
    has_own_edits,
    keep_references,
    list_tool_uses,
    parse_clearing_report,
)
from elision.trajectory.plan import Edit, FoldedRun
from elision.trajectory.turn import Action
from tests.properties.builders import result, step


def _kept(uses: int, asked: dict[str, Any] | None) -> set[int]:
    """What the server leaves alone of so many uses, oldest first: 0-based."""
    kept = uses if asked is None else asked["keep"]["value"]
    return set(range(max(uses - kept, 0), uses))


def test_the_frontier_is_the_longest_run_of_oldest_uses_that_are_hidden() -> None:
    """A result that stays holds the frontier."""
    assert count_uses_to_clear([True, True, False, True]) == 2
    assert count_uses_to_clear([False, True, True]) == 0
    assert count_uses_to_clear([]) == 0


def test_what_is_too_short_to_hide_goes_with_what_is_hidden() -> None:
    """It holds no frontier, and is cleared only where something hidden stands behind it."""
    assert count_uses_to_clear([None, True, None, True, None]) == 4
    assert count_uses_to_clear([None, None]) == 0
    assert count_uses_to_clear([None, False, True]) == 0
    assert count_uses_to_clear([True, None, False, True]) == 1


def test_keep_grows_with_the_history_so_that_the_cut_stands_still() -> None:
    """Each new call adds one to `keep`; what is cleared stays the same."""
    for count in range(5, 30):
        asked = build_clearing_edit(uses=count, cleared=5)
        assert asked is not None
        assert asked["keep"] == {"type": "tool_uses", "value": count - 5}
        assert _kept(count, asked) == set(range(5, count))
    assert build_clearing_edit(uses=3, cleared=0) is None


@given(hidden=some.lists(some.sampled_from([True, False, None]), max_size=40))
def test_nothing_is_cleared_that_we_do_not_hide(hidden: list[bool | None]) -> None:
    """But for what is only too short to hide; all that we hide before the first result that stays is cleared."""
    asked = build_clearing_edit(uses=len(hidden), cleared=count_uses_to_clear(hidden))
    kept = _kept(len(hidden), asked)
    gone = set(range(len(hidden))) - kept
    assert all(hidden[place] is not False for place in gone)
    first_kept = next((place for place, hides in enumerate(hidden) if hides is False), len(hidden))
    assert not any(hidden[place] and place < first_kept for place in kept)


def test_the_types_take_what_is_asked() -> None:
    """As the provider's own package states context management."""
    beta = pytest.importorskip("anthropic.types.beta")
    pydantic = pytest.importorskip("pydantic")
    managing = add_clearing_edit({}, build_clearing_edit(uses=9, cleared=4))
    assert managing is not None
    # What it holds is checked when it is read, by the adapter, which must live that long.
    adapter = pydantic.TypeAdapter(beta.BetaContextManagementConfigParam)
    found = adapter.validate_python(managing["context_management"], strict=True)
    (asked,) = list(found["edits"])
    assert asked["type"] == CLEARING_EDIT
    assert asked["keep"] == {"type": "tool_uses", "value": 5}
    anthropic_beta = pytest.importorskip("anthropic.types.anthropic_beta_param")
    assert CLEARING_BETA in str(anthropic_beta.AnthropicBetaParam)


def test_the_clients_own_edits_stay() -> None:
    """Ours stands behind them; one that clears tool uses already is kept as it is, and so is on-demand compaction."""
    ours = build_clearing_edit(uses=9, cleared=4)
    thinking = {"type": "clear_thinking_20251015", "keep": "all"}
    after = add_clearing_edit({"context_management": {"edits": [thinking]}}, ours)
    assert after is not None
    assert after["context_management"]["edits"] == [thinking, ours]
    assert add_clearing_edit({"context_management": {"edits": [{"type": CLEARING_EDIT}]}}, ours) is None
    assert add_clearing_edit({"compaction": {"type": "summarize"}}, ours) is None
    assert add_clearing_edit({}, None) is None


def test_nothing_is_cleared_that_a_later_result_refers_to() -> None:
    """The cut goes back to a place that separates no reference from its source; one without a call stays."""
    uses = [(1, 1), (2, 1), None, (3, 1), (4, 1), (5, 1)]
    fold = Edit((4, 1), "fold", "x", (FoldedRun(0, 5, (2, 1), 0), FoldedRun(6, 5, (3, 1), 0)))
    later = Edit((5, 1), "fold", "x", (FoldedRun(0, 5, (1, 2), 0),))
    assert [keep_references(cleared, uses, [fold, later]) for cleared in range(7)] == [0, 1, 1, 1, 1, 5, 6]
    chain = Edit((2, 1), "fold", "x", (FoldedRun(0, 5, (1, 1), 0),))
    assert keep_references(4, uses, [chain, fold]) == 0


@pytest.mark.parametrize(
    ("fields", "has_edits"),
    [
        ({}, False),
        ({"context_management": None}, False),
        ({"context_management": {"edits": "x"}}, False),
        ({"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}, False),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, True),
        ({"context_management": {"edits": [{"type": "compact_20260112"}]}}, True),
        ({"context_management": [{"type": "compaction", "compact_threshold": 9}]}, True),
        ({"compaction": {"type": "summarize"}}, True),
    ],
)
def test_what_the_client_has_the_provider_edit(fields: dict[str, Any], *, has_edits: bool) -> None:
    """Results cleared or a history compacted; cleared thinking holds no results."""
    assert has_own_edits(fields) == has_edits


def test_uses_are_counted_as_they_were_made() -> None:
    """Results of parallel calls that came in another order, a call still open, one made in plain text."""
    listed, read, said = (Action(id=id, name="ls") for id in ("a", "b", ""))
    parallel = replace(step(1), actions=(listed, read), observations=(result("of b", id="b"), result("of a", id="a")))
    open_call = replace(step(2), actions=(listed, replace(said, implicit=True)), observations=())
    assert list_tool_uses([parallel, open_call]) == [(1, 2), (1, 1), None]
    twice = replace(step(3), actions=(listed, listed), observations=(result("1", id="a"), result("2", id="a")))
    assert list_tool_uses([twice]) == [(3, 1), (3, 2)]


@pytest.mark.parametrize(
    ("response", "found"),
    [
        (
            {
                "context_management": {
                    "applied_edits": [
                        {"type": "clear_thinking_20251015", "cleared_thinking_turns": 2, "cleared_input_tokens": 10},
                        {"type": CLEARING_EDIT, "cleared_tool_uses": 4, "cleared_input_tokens": 900},
                    ]
                }
            },
            ClearingReport(cleared_uses=4, cleared_thinking_turns=2, cleared_tokens=910),
        ),
        ({"type": "message_delta", "context_management": {"applied_edits": []}}, ClearingReport()),
        ({"context_management": None}, None),
        ({"context_management": {"applied_edits": "x"}}, None),
        ({"context_management": {"applied_edits": [1, {"cleared_tool_uses": -1}]}}, ClearingReport()),
        ({}, None),
    ],
)
def test_what_the_server_cleared(response: dict[str, Any], found: ClearingReport | None) -> None:
    """Of a response or a stream's last delta; junk says nothing."""
    assert parse_clearing_report(response) == found
