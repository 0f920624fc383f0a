"""How a change is written: one style, wherever people read one."""

from __future__ import annotations

import re

import pytest

from elision.manager import ContextManager
from elision.telemetry.context_report import format_signed, format_signed_percent
from tests.cli import stored


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [(-0.746, 1, "−74.6 %"), (0.0123, 1, "+1.2 %"), (-0.0003, 2, "−0.03 %"), (-0.0001, 1, "+0.0 %")],
)
def test_a_change_has_a_sign_and_a_space(share: float, digits: int, text: str) -> None:
    """The minus is as wide as the plus, and what is nothing once it is rounded has none."""
    assert format_signed_percent(share, digits) == text
    assert format_signed(100 * share, digits) == text.removesuffix(" %")


def test_a_context_prints_its_change() -> None:
    """As reports write it."""
    messages = stored.opening()
    with ContextManager(stored.EAGER, model=stored.MODEL, store="memory:") as context:
        for number in range(1, 9):
            context.prepare(messages, tools=[])
            messages += stored.looked(number)
        text = str(context)
    assert re.search(r"\([−+]\d+\.\d %\)", text), text
