"""Requests that are probably not what their caller means are noted once, with the fix."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from elision.errors import DialectError
from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.manager.prepared_calls import NOTE_DEFAULT_WRITER
from elision.manager.request_notes import NOTE_PLACEHOLDERS, NOTE_UNRELATED
from tests.manager.agents import SHAPES, make_history

EAGER = "masking(window=2, schedule=every-turn)"


def collect_notes(calls: Callable[[ContextManager], Any], **options: Any) -> list[str]:
    """Return the notes of all calls that `calls` makes, those about recall left out."""
    notes: list[str] = []
    strategy = options.pop("strategy", EAGER)
    with ContextManager(
        strategy,
        store="memory:",
        recall="never",
        on_event=lambda told: notes.extend(told.notes),
        **gather_options(options),
    ) as context:
        calls(context)
    return notes


@pytest.mark.parametrize("system", ["Be careful.", ["a", "b"]])
def test_messages_decide_the_shape_whatever_the_system_prompt(system: Any) -> None:
    """OpenAI chat with `system=` is OpenAI chat: its results are masked."""
    with ContextManager(EAGER, store="memory:") as context:
        view = context.prepare(make_history("openai", 6), system=system)
    assert (view.dialect, view.diagnostics.savings.masked) == ("openai", 4)


@pytest.mark.parametrize(
    ("given", "named"), [("anthropic", "openai"), ("openai", "anthropic"), ("openai", "openai-responses")]
)
def test_a_wrong_dialect_is_noted_once(given: Any, named: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The note names both dialects; messages of the named one are never noted."""

    def run(context: ContextManager) -> None:
        for steps in range(5):
            context.prepare(make_history(given, steps))

    with caplog.at_level(logging.WARNING, logger="elision.manager"):
        (note,) = collect_notes(run, dialect=named)
    assert f'dialect="{named}" is set' in note
    assert f'set dialect="{given}"' in note
    assert len(caplog.records) == 1
    assert collect_notes(run, dialect=given) == []


def test_only_new_messages_are_noted_once() -> None:
    """A caller that takes the context manager for a chat with memory learns that it needs the whole history."""

    def run(context: ContextManager) -> None:
        context.prepare(make_history("openai", 1))
        for step in range(2, 6):
            context.prepare(SHAPES["openai"](step))

    assert collect_notes(run) == [NOTE_UNRELATED]


def test_another_run_in_the_same_context_manager_is_noted() -> None:
    """It needs a session of its own; a history that its client compacted is no other run."""

    def run(context: ContextManager) -> None:
        context.prepare(make_history("openai", 3))
        context.prepare([{"role": "user", "content": "Something else."}])

    def compact(context: ContextManager) -> None:
        context.prepare(make_history("openai", 5))
        context.prepare([{"role": "user", "content": "Summary: much was done."}, *make_history("openai", 5)[-2:]])

    assert collect_notes(run) == [NOTE_UNRELATED]
    assert collect_notes(compact) == []


def test_placeholders_as_results_are_noted() -> None:
    """A view that is given back as the history of another session holds no results any more."""
    with ContextManager(EAGER, store="memory:") as context:
        shown = context.prepare(make_history("openai", 6)).messages

    def run(context: ContextManager) -> None:
        context.prepare(shown)
        context.prepare([*shown, *SHAPES["openai"](7)])

    assert collect_notes(run) == [NOTE_PLACEHOLDERS]
    assert collect_notes(lambda context: context.prepare(make_history("openai", 6))) == []


def test_functions_as_tools_are_noted() -> None:
    """They cannot be counted; the note names the first."""
    (note,) = collect_notes(lambda context: context.prepare(make_history("openai", 1), tools=[make_history]))
    assert "tools[0] is a function" in note
    assert "make_history" in note


@pytest.mark.parametrize("response", [None, {}])
def test_a_response_without_usage_is_noted_once(response: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The bill leaves its call out, so the log says so too."""

    def run(context: ContextManager) -> None:
        for steps in range(3):
            context.prepare(make_history("openai", steps))
            context.record(response)

    with caplog.at_level(logging.WARNING, logger="elision.manager"):
        (note,) = collect_notes(run)
    assert "reports no usage" in note
    assert len(caplog.records) == 1


def test_negative_usage_is_refused() -> None:
    """The error names the field."""
    with ContextManager(EAGER, store="memory:") as context:
        context.prepare(make_history("openai", 1))
        with pytest.raises(DialectError, match="prompt_tokens is -500"):
            context.record({"prompt_tokens": -500, "completion_tokens": 1})


def test_digests_in_place_of_summaries_are_noted_once(caplog: pytest.LogCaptureFixture) -> None:
    """A published strategy that summarizes, without a model: it is said with the first of two digests, and in the log.

    Not where the caller chose the digest, and not with a model."""

    def run(context: ContextManager) -> None:
        for steps in range(56):
            context.prepare(make_history("openai", steps))
        assert context.session.report().summaries.count == 2

    with caplog.at_level(logging.WARNING, logger="elision.manager"):
        assert collect_notes(run, strategy="paper-summarization") == [NOTE_DEFAULT_WRITER]
    assert [NOTE_DEFAULT_WRITER in record.getMessage() for record in caplog.records].count(True) == 1
    assert collect_notes(run, strategy="paper-summarization", summarizer="digest") == []
    assert collect_notes(run, strategy="paper-summarization", summarizer=lambda request: "Parts were listed.") == []
