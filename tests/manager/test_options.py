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
        ("guards", {"max_turns": 3}, "guards: dict; give lacuna.Guards(...)"),
        ("rules", [{"tool": "plan"}], "rules: dict among them; give lacuna.Rule(...)"),
        ("on_event", [3], "on_event: int among them; give functions"),
        ("pin", "system", "pin: str; give a function of a message"),
        ("on_event", 3, "on_event: int among them; give functions"),
        ("session", 5, "session='5': give one line of at most 400 characters"),
        ("parent", None, "parent='None': give one line of at most 400 characters"),
        ("observations", "all", "observations='all': give tools, user or auto"),
        ("summariser", "digest", "there is no option 'summariser'; perhaps 'summarizer' is meant"),
        (
            "window",
            3,
            "there is no option 'window'; perhaps what refines a strategy stands in its text: masking(window=10)",
        ),
    ],
)
def test_a_wrong_value_is_told_at_once(option: str, value: object, said: str) -> None:
    """Behind the boundary of a pass it would only mean that every request goes out as it came."""
    options: dict[str, Any] = {option: value}
    with pytest.raises(SettingError) as told:
        ContextManager(store="memory:", **options)
    assert str(told.value) == said


def test_a_store_must_be_one() -> None:
    """None is no store: nothing would be kept, and no request would ever be made smaller."""
    with pytest.raises(SettingError, match="store: NoneType; give a URL"):
        ContextManager(store=None)  # type: ignore[arg-type]


def test_a_context_tells_which_session_it_is() -> None:
    """In a debugger and in logs."""
    with ContextManager(store="memory:", session="task-42") as context:
        context.add_turn("I look.", "ls", "a.py")
        assert repr(context) == "<ContextManager session='task-42' turns=1>"
