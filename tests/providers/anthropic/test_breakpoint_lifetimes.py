"""Lifetimes of a client's own breakpoints, changed."""

from __future__ import annotations

from typing import Any

import pytest

from elision.providers.anthropic.breakpoint_lifetimes import change_message, make_control

MINUTES = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


def text(**more: Any) -> dict[str, Any]:
    return {"type": "text", "text": "Look.", **more}


def test_a_breakpoint_gets_the_lifetime_of_its_place() -> None:
    """Up to a block an hour, five minutes after it; what else a breakpoint says stays."""
    message = {"role": "user", "content": [text(cache_control=MINUTES), text(), text(cache_control={**HOUR, "x": 1})]}
    found = change_message(message, lambda block: block < 1)
    assert [block.get("cache_control") for block in found["content"]] == [HOUR, None, {**MINUTES, "x": 1}]
    assert message["content"][0]["cache_control"] == MINUTES


def test_breakpoints_in_results_are_changed() -> None:
    """A block of a tool result may bear a breakpoint too."""
    result = {"type": "tool_result", "tool_use_id": "a", "content": [text(cache_control=MINUTES)]}
    found = change_message({"role": "user", "content": [result]}, lambda _: True)
    assert found["content"][0]["content"][0]["cache_control"] == HOUR


@pytest.mark.parametrize(
    "content",
    ["Look.", [text()], [text(cache_control=HOUR)], [text(cache_control={**MINUTES, "ttl": "1h"})], None, [3]],
)
def test_what_is_right_is_the_same_object(content: Any) -> None:
    """Where nothing changes, the message is the one that was given."""
    message = {"role": "user", "content": content}
    assert change_message(message, lambda _: True) is message


def test_controls() -> None:
    """Five minutes are what a breakpoint without a lifetime means."""
    assert make_control(lives_an_hour=True) == HOUR
    assert make_control(lives_an_hour=False) == MINUTES
