"""What providers reject is never introduced: breakpoints, bound thinking, pairs; the client's own wishes stay."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from elision import Advanced, Cache
from elision.manager import ContextManager, ContextView
from elision.manager.advanced_options import gather_options
from elision.manager.outgoing_request import IncomingRequest
from elision.providers.anthropic.bound_thinking import DROP_BETA
from elision.providers.anthropic.breakpoints import find_breakpoints
from elision.providers.anthropic.server_clearing import CLEARING_BETA
from elision.stores.memory import MemoryStore
from elision.testing.request_rules import list_new_violations, list_violations
from tests.manager.agents import SHAPES, Message, make_history

EAGER = "masking(window=2, fold=false, schedule=every-turn)"
SUMMARIZING = "hybrid(window=2, fold=false, summarize_at=6, tail=2, summary_max_tokens=120, schedule=every-turn)"
#: Results of these histories are alike: they are folded, and each pass moves the lines to where they are shown next.
FOLDED = "masking(window=2, schedule=every-turn)"
BOUND = "claude-opus-5-5"
NAMES = {"text": "openai"}


def body(view: ContextView, model: str = "m") -> dict[str, Any]:
    return {"model": model, "max_tokens": 100, **view.request}


@pytest.mark.parametrize("strategy", [EAGER, SUMMARIZING, FOLDED, "masking(window=3)"])
@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_is_introduced(shape: str, strategy: str) -> None:
    """At every call the request breaks no rule that the client's own did not break."""
    context = ContextManager(strategy, advanced=Advanced(dialect=NAMES.get(shape, shape)))  # type: ignore[arg-type]
    for steps in range(20):
        messages = make_history(shape, steps)
        view = context.prepare(messages)
        field = "input" if shape == "openai-responses" else "messages"
        before = {"model": "m", "max_tokens": 100, field: messages}
        assert not list_new_violations(NAMES.get(shape, shape), before, body(view))
    assert view.diagnostics.epoch > 1 or strategy.startswith("masking(window=3)")


@pytest.mark.parametrize("taken", range(5))
def test_breakpoints_stay_within_four(taken: int) -> None:
    """The client's own breakpoints stay where they are; ours take what is left of four, the end of the prompt first."""
    context = ContextManager(EAGER, advanced=Advanced(dialect="anthropic"))
    for steps in range(12):
        messages = copy.deepcopy(make_history("anthropic", steps))
        for message in messages[2 : 2 + taken * 2 : 2]:
            message["content"][0]["cache_control"] = {"type": "ephemeral"}
        own = len(find_breakpoints({"messages": messages}))
        view = context.prepare(messages)
        marks = find_breakpoints(body(view))
        assert len(marks) <= 4
        assert not list_violations("anthropic", body(view))
        if own < 4:
            assert "cache_control" in view.messages[-1]["content"][-1]


def test_automatic_caching_counts() -> None:
    """A client that lets the provider mark the end itself has one breakpoint less to give."""
    context = ContextManager(EAGER, advanced=Advanced(dialect="anthropic"))
    automatic = {"cache_control": {"type": "ephemeral"}}
    for steps in range(8):
        view = context.prepare(make_history("anthropic", steps), request=automatic)
        assert not list_violations("anthropic", {**body(view), **automatic})


def thinking(step: int) -> list[Message]:
    said, answer = SHAPES["anthropic"](step)
    thought = {"type": "thinking", "thinking": f"thought {step}", "signature": "c2lnbmF0dXJl"}
    return [{**said, "content": [thought, *said["content"]]}, answer]


def thoughtful(steps: int) -> list[Message]:
    return [*make_history("anthropic", 0), *(message for step in range(1, steps + 1) for message in thinking(step))]


def test_bound_thinking_is_left_to_the_server() -> None:
    """Messages stay the very objects, and the server is told to clear up to our frontier, which only moves on."""
    context = ContextManager(EAGER, model=BOUND)
    cleared = []
    for steps in range(9):
        messages = thoughtful(steps)
        view = context.prepare(messages)
        assert all(one is other for one, other in zip(view.messages, messages, strict=True))
        edits = view.extra.get("context_management", {}).get("edits", [])
        cleared.append(steps - edits[0]["keep"]["value"] if edits else 0)
        assert view.betas == ((CLEARING_BETA,) if edits else ())
    assert cleared == [0, 0, 0, 1, 2, 3, 4, 5, 6]
    assert view.diagnostics.notes


def written(steps: int) -> list[Message]:
    """A run whose first result, and every third, is a word."""
    messages = thoughtful(steps)
    for place in range(2, len(messages), 6):
        (block,) = messages[place]["content"]
        messages[place] = {**messages[place], "content": [{**block, "content": "Written."}]}
    return messages


def test_short_results_do_not_keep_the_server_from_clearing() -> None:
    """What is too short for a placeholder goes with the hidden results around it."""
    context = ContextManager(EAGER, model=BOUND)
    cleared = []
    for steps in range(9):
        view = context.prepare(written(steps))
        edits = view.extra.get("context_management", {}).get("edits", [])
        cleared.append(steps - edits[0]["keep"]["value"] if edits else 0)
    assert cleared == [0, 0, 0, 0, 2, 3, 3, 5, 6]


@pytest.mark.parametrize("strategy", [EAGER, SUMMARIZING])
def test_a_protected_result_holds_the_server_back_and_the_notes_say_so(strategy: str) -> None:
    """What must stay is never cleared; what is hidden behind it stays too, and nobody is told otherwise."""
    context = ContextManager(f"{strategy[:-1]}, rules=rule(tool=look, keep=true))", model=BOUND)
    for steps in range(9):
        messages = thoughtful(steps)
        if steps:
            said = messages[1]["content"]
            messages[1] = {**messages[1], "content": [*said[:-1], {**said[-1], "name": "look"}]}
        view = context.prepare(messages)
    assert view.extra == {}
    assert "5 of 5" in view.diagnostics.notes[0]


def test_a_client_s_own_clearing_stays() -> None:
    """Where the client manages the context itself, nothing is added, and the notes say so."""
    own = {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}
    context = ContextManager(EAGER, model=BOUND)
    for steps in range(6):
        view = context.prepare(thoughtful(steps), request=own)
    assert view.extra == {}
    assert "client" in view.diagnostics.notes[0]


def test_bound_thinking_may_be_waited_for() -> None:
    """`defer` edits nothing in front of thinking, says why, and goes on once the agent thinks no more."""
    context = ContextManager(
        EAGER,
        model=BOUND,
        advanced=Advanced(thinking="defer", cache=Cache(control="client")),
    )
    for steps in range(6):
        messages = thoughtful(steps)
        view = context.prepare(messages)
        assert view.messages == messages
    assert view.diagnostics.reason.startswith("deferred: thinking in turn 5")
    for step in range(6, 10):
        messages += SHAPES["anthropic"](step)
        view = context.prepare(messages)
    assert [each.handle for each in view.diagnostics.masked] == ["t7.1"]


def test_thinking_may_be_dropped_by_option() -> None:
    """`drop_block` edits, and asks in every request from then on; the client's own settings of thinking stay."""
    context = ContextManager(EAGER, model=BOUND, advanced=Advanced(thinking="drop_block"))
    asked = {"thinking": {"type": "adaptive", "display": "omitted"}}
    for steps in range(6):
        view = context.prepare(thoughtful(steps), request=asked)
        hidden = steps > 2
        assert view.betas == ((DROP_BETA,) if hidden else ())
        if hidden:
            assert view.extra["thinking"]["display"] == "omitted"
            assert view.extra["thinking"]["block_binding"]["prefix_mismatch_behavior"] == "drop_block"


def test_models_that_bind_nothing_are_edited_as_usual() -> None:
    """An older model's thinking passes with its message; old results in front of it are hidden."""
    context = ContextManager(EAGER, model="claude-sonnet-4-5", advanced=Advanced(cache=Cache(control="client")))
    for steps in range(6):
        view = context.prepare(thoughtful(steps))
    assert view.diagnostics.masked
    assert view.extra == {}
    assert view.messages[1]["content"][0]["thinking"] == "thought 1"


@pytest.mark.parametrize("dialect", ["openai", "openai-responses", "anthropic"])
def test_a_text_protocols_results_are_hidden_in_every_dialect(dialect: str) -> None:
    """Where an agent acts in plain text, the user's messages that answer it are what becomes placeholders."""
    strategy = "masking(window=1, gist=0, schedule=every-turn)"
    with ContextManager(
        strategy,
        store="memory:",
        advanced=Advanced(dialect=dialect, observations="user"),
    ) as context:  # type: ignore[arg-type]
        messages: list[dict[str, object]] = [{"role": "user", "content": "Count."}]
        for number in range(5):
            view = context.prepare(messages)
            messages.append({"role": "assistant", "content": f"I look.\n```bash\ncat f{number}.py\n```"})
            messages.append({"role": "user", "content": f"line {number}\n" * 200})
        sizes = [len(str(message["content"])) for message in view.messages if message["role"] == "user"]
    assert [size > 1_000 for size in sizes] == [False, False, False, False, True]


def test_breakpoints_may_wait_until_something_is_hidden() -> None:
    """With "gaps" a request in which nothing is hidden or folded is the client's own, and a later one is marked."""
    with ContextManager(FOLDED, store="memory:", advanced=Advanced(cache=Cache(control="gaps"))) as context:
        for steps in range(8):
            messages = make_history("anthropic", steps)
            view = context.prepare(messages)
            marked = find_breakpoints(view.request)
            savings = view.diagnostics.savings
            assert bool(marked) == bool(savings.masked or savings.folded)
            if not marked:
                assert all(sent is own for sent, own in zip(view.messages, messages, strict=True))
        assert marked


@pytest.mark.parametrize("strategy", [EAGER, FOLDED, "masking(window=4)", SUMMARIZING])
def test_a_call_that_is_made_again_is_the_same_request(strategy: str) -> None:
    """A client's retry, in this process or the next one, has its cache breakpoints where they stood."""
    store = MemoryStore()
    for steps in range(10):
        messages = make_history("anthropic", steps)
        with ContextManager(strategy, session="s", store=store, advanced=Advanced(dialect="anthropic")) as context:
            first, retried = context.prepare(messages), context.prepare(messages)
        with ContextManager(strategy, session="s", store=store, advanced=Advanced(dialect="anthropic")) as context:
            restarted = context.prepare(messages)
        assert find_breakpoints(body(first))
        assert first.request == retried.request == restarted.request


def test_no_summary_is_asked_for_where_none_could_be_sent() -> None:
    """Where the provider clears by itself our messages stay whole: a hybrid masks, and pays for no summary."""
    asked: list[object] = []

    def write(request: object) -> str:
        asked.append(request)
        return "A summary."

    options = {"model": BOUND, "dialect": "anthropic", "store": "memory:", "summarizer": write, "token_budget": 9_000}
    with ContextManager(SUMMARIZING, **gather_options(options)) as context:  # type: ignore[arg-type]
        for steps in range(16):
            view = context.prepare(make_history("anthropic", steps), request={"thinking": {"type": "adaptive"}})
    assert view.extra["context_management"]["edits"]
    assert view.diagnostics.savings.masked >= 12
    assert (view.diagnostics.summaries, view.diagnostics.costs.summarizer, asked) == (0, 0.0, [])


def test_places_behind_what_the_client_left_out_are_its_own() -> None:
    """Messages that it no longer sends have no place in its request, nor are they its first ones."""
    given = [{"role": "user", "content": str(number)} for number in range(8)]
    call = IncomingRequest(messages=given, end=8, left_out=range(2, 5))
    assert [call.find_origin(place) for place in (0, 1, 5, 7)] == [0, 1, 2, 4]
    assert (call.drop_left_out(given), call.first_messages) == ([*given[:2], *given[5:]], given[:2])
    whole = IncomingRequest(messages=given, end=8)
    assert (whole.find_origin(7), whole.first_messages) == (7, given[:3])
