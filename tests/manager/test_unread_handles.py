"""Placeholders name handles only where the request lets the model recall; a loss of recall is reported once."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from elision import Advanced
from elision.manager import ContextManager, ContextView
from elision.manager.advanced_options import gather_options
from elision.manager.recall_tools import NOTE_NO_RECALL, NOTE_UNREAD_HANDLES
from elision.stores.memory import MemoryStore
from tests.manager.agents import make_history

EAGER = "masking(window=2, schedule=every-turn)"
BASH = [{"type": "function", "function": {"name": "bash", "parameters": {}}}]
RECALL_BY_MCP = {"type": "function", "function": {"name": "mcp__elision__recall_hidden", "parameters": {}}}
#: As Codex sends the tools of a server, and as Claude Code sends those that its model has to search for.
NAMESPACE = {"type": "namespace", "name": "mcp__elision", "tools": [{"type": "function", "name": "recall_hidden"}]}
OTHER_NAMESPACE = {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn"}]}
DEFERRED = [{"name": "ToolSearch"}, {"name": "DeferredToolPlaceholder", "defer_loading": True}]
OURS = ContextManager(store="memory:").tool_definitions("openai")


def run(tools: Any = None, strategy: str = EAGER, shape: str = "openai", **options: Any) -> list[ContextView]:
    """Return the views of an agent that sends `view.request`."""
    with ContextManager(strategy, store="memory:", **gather_options(options)) as context:
        views = [context.prepare(make_history(shape, steps), tools=tools) for steps in range(6)]
        for view in views:
            assert view.request
        return views


def run_messages_only(tools: Any) -> list[ContextView]:
    """Return the views of an agent that sends `view.messages` with tools of its own."""
    with ContextManager(EAGER, store="memory:") as context:
        views = []
        for steps in range(6):
            views.append(context.prepare(make_history("openai", steps), tools=tools))
            assert views[-1].messages
        return views


def find_notes(views: list[ContextView]) -> list[tuple[int, str]]:
    """Return each note about recall with the call at which it comes."""
    known = (NOTE_NO_RECALL, NOTE_UNREAD_HANDLES)
    return [(call, note) for call, view in enumerate(views) for note in view.diagnostics.notes if note in known]


def names_handles(view: ContextView) -> bool:
    return "[t1.1 " in json.dumps(view.sent.messages)


@pytest.mark.parametrize("views", [run(None), run_messages_only(None), run_messages_only(BASH)])
def test_without_tools_in_the_request_no_placeholder_names_a_handle(views: list[ContextView]) -> None:
    """The caller gave no tools, or sends only the messages: nothing could open a handle, and a note says so once."""
    assert find_notes(views) == [(3, NOTE_NO_RECALL)]
    assert "hidden" in json.dumps(views[-1].sent.messages)
    assert not any(names_handles(view) or view.sent.added_tools for view in views)


@pytest.mark.parametrize("tools", [[], BASH, OURS])
def test_where_placeholders_name_handles_the_request_has_the_tools(tools: list[Any]) -> None:
    """A caller that sends `view.request` has nothing to add: the recall tools are in it, once."""
    views = run(tools)
    assert find_notes(views) == []
    assert names_handles(views[-1])
    sent = [tool["function"]["name"] for tool in views[-1].request["tools"]]
    assert [name for name in sent if name.startswith("elision")] == ["elision_recall", "elision_search"]


def test_the_loss_is_logged_once_a_session(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody has to read the diagnostics to learn that the model cannot recall."""
    with caplog.at_level(logging.WARNING, logger="elision.manager"):
        run(None)
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [NOTE_NO_RECALL]


@pytest.mark.parametrize(
    ("tools", "options"),
    [
        (None, {"recall": "caller"}),
        (None, {"recall": "never"}),
        (BASH, {"recall": "never"}),
        ([RECALL_BY_MCP], {}),
        ([RECALL_BY_MCP], {"recall": "caller"}),
        ([NAMESPACE], {"recall": "caller"}),
        (DEFERRED, {"recall": "caller"}),
        (BASH, {"shadow": True}),
        (None, {"shadow": True}),
        (None, {"strategy": "masking(window=2, schedule=every-turn, handles=false)"}),
        (None, {"strategy": 'masking(window=2, schedule=every-turn, placeholder="[gone]")'}),
        (None, {"strategy": "raw"}),
        # The provider clears by itself: no placeholder of ours is sent.
        (BASH, {"model": "claude-opus-5-5", "dialect": "anthropic", "shape": "anthropic"}),
    ],
)
def test_nothing_is_noted_where_recall_is_the_caller_s_or_not_wanted(tools: Any, options: dict[str, Any]) -> None:
    """The caller offers recall itself or turned it off, or no placeholder is sent."""
    assert find_notes(run(tools, **options)) == []


@pytest.mark.parametrize("tools", [[RECALL_BY_MCP], [*BASH, NAMESPACE], DEFERRED])
def test_tools_of_a_server_read_handles(tools: list[Any]) -> None:
    """In any form: by name, in a namespace, or to be loaded by the model, where only the caller knows what there is."""
    view = run(tools, recall="caller")[-1]
    assert names_handles(view)
    assert view.sent.added_tools == ()


def test_tools_to_be_loaded_are_not_trusted_without_the_caller_s_word() -> None:
    """They may be any: the recall tools enter."""
    view = run(DEFERRED)[-1]
    assert names_handles(view)
    assert len(view.sent.added_tools) == 2


def test_what_the_caller_changes_after_the_first_placeholder_changes_no_handle() -> None:
    """A server that was late: what was written without handles stays so."""
    with ContextManager(EAGER, store="memory:", recall="caller") as context:
        views = [context.prepare(make_history("openai", steps), tools=BASH) for steps in range(4)]
        views += [context.prepare(make_history("openai", steps), tools=[*BASH, NAMESPACE]) for steps in (4, 5)]
    assert not any(map(names_handles, views))


@pytest.mark.parametrize("tools", [BASH, [*BASH, OTHER_NAMESPACE]])
def test_tools_of_the_caller_without_recall_are_noted(tools: list[Any]) -> None:
    """A caller that promised recall tools and has none gets placeholders without handles, and a note."""
    views = run(tools, recall="caller")
    assert find_notes(views) == [(3, NOTE_NO_RECALL)]
    assert not names_handles(views[-1])


def test_tools_that_vanish_after_the_first_placeholder_are_noted() -> None:
    """What a placeholder says is fixed, so a request that has lost the tools is reported instead."""
    with ContextManager(EAGER, store="memory:") as context:
        views = [context.prepare(make_history("openai", steps), tools=BASH) for steps in range(4)]
        views += [context.prepare(make_history("openai", steps)) for steps in (4, 5)]
    assert find_notes(views) == [(4, NOTE_UNREAD_HANDLES)]


def test_what_was_learned_of_the_caller_holds_in_another_process() -> None:
    """The log keeps whether placeholders name handles, so a restart does not bring them back."""
    store = MemoryStore()
    for steps in range(6):
        context = ContextManager(EAGER, store=store, session="s")
        if steps < 3:
            assert context.prepare(make_history("openai", steps), tools=BASH).messages
        view = context.prepare(make_history("openai", steps), tools=BASH)
        context.close()
    assert not names_handles(view)


def test_the_same_in_a_loop_by_hand() -> None:
    """The tools are those of the head there."""
    for tools, notes in (([], 1), (ContextManager(store="memory:").tool_definitions("anthropic"), 0)):
        with ContextManager(EAGER, store="memory:", advanced=Advanced(dialect="anthropic")) as context:
            context.turns.begin("Mend it.", tools=tools)
            views = []
            for step in range(6):
                views.append(context.turns.view())
                context.turns.add(action="ls", observation=f"{step} " + "file.py " * 200)
        assert len(find_notes(views)) == notes
