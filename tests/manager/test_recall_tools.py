"""The recall tools, put into requests by us: when, which bytes, beside whose, and never where a provider minds."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import pytest

from elision.errors import SettingError
from elision.manager import ContextManager, ContextView
from elision.manager.advanced_options import gather_options
from elision.manager.recall_tools import RECALL_TOOL_DEFINITIONS as RECALL
from elision.manager.recall_tools import define_recall_tools
from elision.stores.memory import MemoryStore
from elision.testing.request_rules import list_violations
from elision.trajectory.events import PassDecided, SessionOpened
from elision.trajectory.price_lookup import find_tokenizer
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.turn import Head
from tests.manager.agents import LONG, SHAPES, make_history

EAGER = "masking(window=2, schedule=every-turn)"
FOLDING = "summarization(every=3, tail=2, summary_max_tokens=100, schedule=every-turn)"
BOUND = "claude-opus-5-5"
TOOLS: dict[str, list[dict[str, Any]]] = {
    "openai": [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}],
    "openai-responses": [{"type": "function", "name": "bash", "parameters": {"type": "object"}, "strict": False}],
    "anthropic": [{"name": "bash", "input_schema": {"type": "object"}}],
}
OURS = ["elision_recall", "elision_search"]
SIZER = Sizer(make_counter())


#: Options with which the tools enter so. Thinking that is bound brings them at once.
ENTRIES: dict[str, dict[str, Any]] = {
    "first": {},
    "start": {"model": "claude-opus-5-5", "thinking": "drop_block"},
    "caller": {"recall": "caller"},
    "never": {"recall": "never"},
}


def manager(store: Any, entry: str = "first", strategy: str = EAGER, **options: Any) -> ContextManager:
    given = {"session": "s", "model": "claude-sonnet-4-5", **ENTRIES[entry], **options}
    return ContextManager(strategy, store=store, **gather_options(given))


def prepared(context: ContextManager, shape: str, steps: int, **more: Any) -> ContextView:
    return context.prepare(make_history(shape, steps), **{"tools": TOOLS[shape], **more})


def names(tools: Any) -> list[str]:
    return [tool.get("name") or tool["function"]["name"] for tool in tools or ()]


def thinking(step: int) -> list[dict[str, Any]]:
    """A turn whose thinking is signed, as Anthropic's newest models send it."""
    said, answered = SHAPES["anthropic"](step)
    thought = {"type": "thinking", "thinking": f"I look at {step}.", "signature": "c2lnbmVk"}
    return [{**said, "content": [thought, *said["content"]]}, answered]


@pytest.mark.parametrize("shape", TOOLS)
def test_with_the_first_placeholder_and_from_then_on(shape: str) -> None:
    """Not before anything is hidden; then behind the client's own, in its dialect, the same bytes at every call."""
    context = manager(MemoryStore(), dialect=shape)
    tools = TOOLS[shape]
    for steps in range(8):
        given = copy.deepcopy(tools)
        view = context.prepare(make_history(shape, steps), tools=tools)
        assert tools == given
        hidden = steps > 2
        assert view.offered is hidden
        assert view.added_tools == (define_recall_tools(shape) if hidden else [])
        assert view.tools == [*tools, *view.added_tools]
        assert all(one is other for one, other in zip(view.tools, tools, strict=False))
        assert ("[t1.1 " in json.dumps(view.messages)) is hidden


@pytest.mark.parametrize("shape", TOOLS)
def test_from_the_start(shape: str) -> None:
    """In every request, the first included, after the client's own tools."""
    context = manager(MemoryStore(), "start", dialect=shape)
    for steps in range(5):
        view = prepared(context, shape, steps)
        assert view.added_tools == define_recall_tools(shape)
        assert view.tools == view.request["tools"] == [*TOOLS[shape], *define_recall_tools(shape)]


@pytest.mark.parametrize("shape", TOOLS)
def test_never(shape: str) -> None:
    """No tool, and no placeholder that names a handle."""
    context = manager(MemoryStore(), "never")
    for steps in range(6):
        view = prepared(context, shape, steps)
        assert view.tools is TOOLS[shape]
        assert not view.offered
    assert "hidden" in json.dumps(view.messages)
    assert "[t1.1" not in json.dumps(view.messages)


def test_left_to_the_caller_it_is_as_it_was() -> None:
    """Placeholders name handles if the caller has recall tools, and `tools` is the very object that was given."""
    for tools, named in ((TOOLS["openai"], False), (define_recall_tools("openai"), True), (None, True)):
        view = prepared(manager(MemoryStore(), "caller"), "openai", 6, tools=tools)
        assert view.tools is tools
        assert ("[t1.1 " in json.dumps(view.messages)) is named
        assert view.added_tools == []


def test_with_the_first_summary() -> None:
    """What a summary covers can be read again as well."""
    context = manager(MemoryStore(), strategy=FOLDING)
    offered = [prepared(context, "openai", steps).offered for steps in range(8)]
    assert offered == [False] * 5 + [True] * 3


def test_recall_that_is_not_served_is_not_offered() -> None:
    """With recall off there are no tools, whatever the other options."""
    for entry in ("first", "start"):
        view = prepared(manager(MemoryStore(), entry, recall="never"), "openai", 6)
        assert not view.offered
        assert "[t1.1" not in json.dumps(view.messages)


@pytest.mark.parametrize("entry", ["first", "start"])
def test_the_client_s_own_tool_counts(entry: str) -> None:
    """Where the client defines one of our names itself, ours stay away: names must be unique."""
    own = [*TOOLS["openai"], define_recall_tools("openai")[0]]
    context = manager(MemoryStore(), entry)
    for steps in range(6):
        view = prepared(context, "openai", steps, tools=own)
        assert view.tools is own
        assert not view.offered
    # Once it has none of its own, the next thing that is hidden brings ours.
    assert prepared(context, "openai", 7).offered
    assert prepared(context, "openai", 8, tools=own).tools is own


@pytest.mark.parametrize("entry", ["first", "start"])
def test_the_same_bytes_in_any_process(entry: str, tmp_path: Path) -> None:
    """Opened anew before every call, under other settings even, a session has the tools that it had."""
    url = f"sqlite:////{str(tmp_path / 'a.db').lstrip('/')}"
    whole = manager(MemoryStore(), entry)
    for steps in range(7):
        expected = prepared(whole, "anthropic", steps)
        with manager(url, entry, recall="never" if steps % 2 else "auto") as context:
            view = prepared(context, "anthropic", steps)
        assert json.dumps(view.messages) == json.dumps(expected.messages)
        assert json.dumps(view.tools) == json.dumps(expected.tools)
    assert view.offered


def test_what_was_settled_stays() -> None:
    """A session that was begun without the tools never gets them."""
    store = MemoryStore()
    prepared(manager(store, "never"), "openai", 2)
    later = manager(store, "start")
    assert not prepared(later, "openai", 6).offered
    assert "[t1.1" not in json.dumps(prepared(later, "openai", 7).messages)


def test_the_definitions_of_the_time_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later version that words them otherwise leaves those of a session as they were."""
    store = MemoryStore()
    before = prepared(manager(store, "first"), "openai", 5).added_tools
    later = ({"name": "elision_recall", "description": "", "input_schema": {}},)
    monkeypatch.setattr("elision.manager.shared_log.RECALL_TOOL_DEFINITIONS", later)
    assert prepared(manager(store, "first"), "openai", 6).added_tools == before
    assert len(prepared(manager(store, "first", session="other"), "openai", 6).added_tools) == 1


def test_a_fork_has_them_if_they_stood_where_it_parts() -> None:
    """And one that parts before them gets them with its own first placeholder."""
    context = manager(MemoryStore())
    for steps in range(7):
        prepared(context, "openai", steps)
    stop = {"role": "user", "content": "Stop."}
    late = context.prepare([*make_history("openai", 5), stop, *SHAPES["openai"](7)], tools=TOOLS["openai"])
    assert (late.diagnostics.history, late.offered, entered(late)) == ("fork", True, False)
    messages = [*make_history("openai", 1), {"role": "user", "content": "Wait."}, *SHAPES["openai"](8)]
    early = context.prepare(messages, tools=TOOLS["openai"])
    assert (early.diagnostics.history, early.offered) == ("fork", False)
    messages += [*SHAPES["openai"](9), *SHAPES["openai"](10)]
    assert entered(context.prepare(messages, tools=TOOLS["openai"]))


def entered(view: ContextView) -> bool:
    """Whether the diagnostics say that the tools enter with this call."""
    return any("recall tools enter" in note for note in view.diagnostics.notes)


def test_the_log_says_when() -> None:
    """One decision brings them, and what was opened says which they are."""
    store = MemoryStore()
    context = manager(store)
    for steps in range(6):
        prepared(context, "openai", steps)
    (opened,) = [event for event in store.events("s") if isinstance(event, SessionOpened)]
    assert (opened.offer, [tool["name"] for tool in opened.tools]) == ("first", OURS)
    passes = [event for event in store.events("s") if isinstance(event, PassDecided)]
    assert [event.offers for event in passes] == [False] * 3 + [True, False, False]


@pytest.mark.parametrize("thinks", ["auto", "native"])
def test_bound_thinking_that_the_provider_clears_behind(thinks: str) -> None:
    """The provider's placeholders name no handle, and tools may not change behind thinking: they never enter."""
    context = manager(MemoryStore(), model=BOUND, thinking=thinks, dialect="anthropic")
    for steps in range(6):
        view = prepared(context, "anthropic", steps)
        assert view.tools is TOOLS["anthropic"]
        assert any("recall is not offered" in note for note in view.diagnostics.notes)
    assert "[t1.1" not in json.dumps(view.messages)


@pytest.mark.parametrize("thinks", ["defer", "drop_block"])
def test_bound_thinking_from_the_start(thinks: str) -> None:
    """Tools that are there from call 1 on are part of what is thought behind."""
    context = manager(MemoryStore(), model=BOUND, thinking=thinks, dialect="anthropic")
    messages = make_history("anthropic", 0)
    for step in range(1, 6):
        view = context.prepare(messages, tools=TOOLS["anthropic"])
        assert names(view.tools) == ["bash", *OURS]
        messages = [*messages, *thinking(step)]


def test_no_tools_in_the_middle_of_bound_thinking() -> None:
    """A run whose beginning nobody saw was thought behind other tools: ours stay away, and it is said."""
    context = manager(MemoryStore(), model=BOUND, dialect="anthropic", thinking="defer")
    messages = [*make_history("anthropic", 0), *(message for step in range(1, 6) for message in thinking(step))]
    view = context.prepare(messages, tools=TOOLS["anthropic"])
    assert not view.offered
    assert any("recall is not offered" in note for note in view.diagnostics.notes)


def test_another_model_in_the_middle() -> None:
    """Asked to go on where thinking is bound, a session whose tools stand keeps them; whose do not, waits."""
    standing, waiting = manager(MemoryStore()), manager(MemoryStore())
    messages = [*make_history("anthropic", 0), *(message for step in range(1, 6) for message in thinking(step))]
    assert standing.prepare(messages, tools=TOOLS["anthropic"]).offered
    assert standing.prepare(messages, tools=TOOLS["anthropic"], model=BOUND).offered
    waiting.prepare(messages[:5], tools=TOOLS["anthropic"])
    assert not waiting.prepare(messages, tools=TOOLS["anthropic"], model=BOUND).offered
    assert waiting.prepare([*messages, *thinking(6)], tools=TOOLS["anthropic"]).offered


@pytest.mark.parametrize("shape", TOOLS)
def test_requests_with_them_are_valid(shape: Any) -> None:
    """The provider's own rules take the tools as we shape them."""
    context = manager(MemoryStore(), dialect=shape)
    view = prepared(context, shape, 5)
    assert view.offered
    body = {"model": "m", **view.request, **({"max_tokens": 9} if shape == "anthropic" else {})}
    assert list(list_violations(shape, body)) == []


@pytest.mark.parametrize("dialect", ["openai", "openai-responses", "anthropic"])
def test_by_hand(dialect: Any) -> None:
    """The same for turns that are added by hand."""
    context = manager(MemoryStore(), dialect=dialect)
    context.turns.begin("Mend the parser.", tools=TOOLS[dialect])
    for step in range(5):
        view = context.turns.view()
        assert view.offered is (step > 2)
        context.turns.add("", f"cat f{step}", f"{step}\n{LONG}")
    assert view.tools == [*TOOLS[dialect], *define_recall_tools(dialect)]


def test_in_shadow_the_request_stays_as_it_came() -> None:
    """What the tools would cost is counted; they are not put in."""
    view = prepared(manager(MemoryStore(), shadow=True), "openai", 6)
    assert view.tools is TOOLS["openai"]
    assert not view.offered


def test_the_pass_is_told() -> None:
    """The diagnostics of the call in which they enter say so, and what it made of the prompt."""
    context = manager(MemoryStore())
    views = [prepared(context, "openai", steps) for steps in range(6)]
    assert [entered(view) for view in views] == [False, False, False, True, False, False]
    told = [view.diagnostics for view in views]
    saved = sum(each.tokens - each.left for each in told[3].masked)
    sizer = SIZER.count_as(find_tokenizer(told[3].model))
    assert told[3].after == told[3].before - saved + sizer.count_tools(Head(tools=RECALL))


def test_a_word_that_is_none() -> None:
    """Options are checked when they are given."""
    with pytest.raises(SettingError, match="recall='later': give auto, caller or never"):
        manager(MemoryStore(), recall="later")


def test_tools_for_a_framework() -> None:
    """Name, description and raw JSON Schema, with what answers a call: the same as `handle_tool_call`."""
    with ContextManager("masking(window=2, schedule=every-turn)", store="memory:") as context:
        context.prepare(make_history("openai", 6))
        recall, search = context.session.recall_tools()
        defined = [tool["function"] for tool in context.tool_definitions("openai")]
        assert [(tool.name, tool.description, tool.schema) for tool in (recall, search)] == [
            (each["name"], each["description"], each["parameters"]) for each in defined
        ]
        given = {"handle": "t1.1", "head": 1}
        assert recall.call(given) == recall.call(json.dumps(given)) == context.handle_tool_call(recall.name, given)
        assert asyncio.run(recall.call_async(given)) == recall.call(given)
        assert "t3.1" in search.call({"query": "2931"})
        assert recall.call({"handle": "t99"}).startswith("[not found: ")
        with pytest.raises(AttributeError):
            recall.name = "other"  # type: ignore[misc]


def test_a_framework_may_change_its_schema() -> None:
    """Each has its own: some frameworks add to the one they are given."""
    with ContextManager(store="memory:") as context:
        context.session.recall_tools()[0].schema["properties"].clear()
        assert "handle" in context.session.recall_tools()[0].schema["properties"]
        assert "handle" in context.tool_definitions("anthropic")[0]["input_schema"]["properties"]
