"""What a context manager is told is checked where it is told, and a summarizer can be named in one word."""

from __future__ import annotations

from typing import Any

import pytest

from lacuna import ContextManager
from lacuna.errors import SettingError, SpecError


def test_a_named_summarizer_finds_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key stands in the provider's usual variable; without it the error names that variable."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(SpecError, match="set OPENAI_API_KEY"):
        ContextManager(store="memory:", summarizer="openai:gpt-5-mini")
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    ContextManager(store="memory:", summarizer="openai:gpt-5-mini").close()


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("guards", {"max_turns": 3}, "guards: a dict; give lacuna.Guards(...)"),
        ("rules", [{"tool": "plan"}], "rules: a dict among them; give lacuna.Rule(...)"),
        ("on_event", [3], "on_event: a int among them; give functions"),
        ("pin", "system", "pin: a str; give a function of a message"),
    ],
)
def test_a_wrong_value_is_told_at_once(option: str, value: object, said: str) -> None:
    """Behind the boundary of a pass it would only mean that every request goes out as it came."""
    options: dict[str, Any] = {option: value}
    with pytest.raises(SettingError) as told:
        ContextManager(store="memory:", **options)
    assert str(told.value) == said
