"""What a hurried user does wrong is answered by a sentence with the fix: an error, a note, a fault, or the log.

Each row is one misuse and a part of its sentence. What `print(view)` says counts as well.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import os
import pickle
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from elision import Advanced, Cache, ContextManager, Guards, Rule, Sessions, open_store
from elision.manager.advanced_options import gather_options
from elision.strategies.strategy import Masking
from elision.telemetry.diagnostics import Diagnostics

Json = dict[str, Any]
EAGER = "masking(window=2, schedule=every-turn)"
SUMMARIZING = "summarization(every=3, tail=2, schedule=every-turn)"
#: Opens a context manager whose diagnostics are collected.
Open = Callable[..., ContextManager]
Misuse = Callable[[Open], Any]
ROWS: dict[str, tuple[str, Misuse]] = {}


def turn(number: int, words: int = 300) -> list[Json]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"result {number} " * words},
    ]


def history(turns: int, words: int = 300, task: str = "task") -> list[Json]:
    return [{"role": "user", "content": task}, *(message for n in range(turns) for message in turn(n, words))]


def answered(sentence: str) -> Callable[[Misuse], Misuse]:
    """Register a misuse. sentence: a part of what it is answered with."""

    def register(misuse: Misuse) -> Misuse:
        assert misuse.__name__ not in ROWS
        ROWS[misuse.__name__] = (sentence, misuse)
        return misuse

    return register


def refused(name: str, sentence: str, misuse: Misuse) -> None:
    assert name not in ROWS
    ROWS[name] = (sentence, misuse)


# -- messages ----------------------------------------------------------------------------------------------------------


@answered("Keep your own list and append to it")
def feeds_the_view_back(opened: Open) -> None:
    context, messages = opened(EAGER), history(0)
    for number in range(8):
        messages = context.prepare([*messages, *turn(number)]).messages


@answered("view.messages is only for the request")
def feeds_the_view_back_in_another_process(opened: Open) -> None:
    view = opened(EAGER).prepare(history(8))
    opened(EAGER).prepare([*view.messages, *turn(9)])


@answered("give prepare() the whole history each time")
def only_new_messages(opened: Open) -> None:
    context = opened(EAGER)
    context.prepare(history(1))
    for number in range(1, 8):
        context.prepare(turn(number))


@answered("give each agent its own session")
def two_agents_in_one_manager(opened: Open) -> None:
    context, one, other = opened(EAGER), history(0, task="A"), history(0, task="B")
    for number in range(4):
        one += turn(number)
        other += turn(number, 200)
        context.prepare(one)
        context.prepare(other)


@answered("give each task its own session")
def one_session_name_for_another_task(opened: Open) -> None:
    store = open_store("memory:")
    opened(EAGER, store=store, session="agent").prepare(history(6))
    opened(EAGER, store=store, session="agent").prepare(history(5, task="Another task."))


@answered("give each task its own session")
def one_session_name_for_each_night(opened: Open) -> None:
    store = open_store("memory:")
    opened(EAGER, store=store, session="agent").prepare(history(6))
    opened(EAGER, store=store, session="agent").prepare(history(0))


@answered("give each task its own session")
def one_session_name_in_two_managers(opened: Open) -> None:
    store = open_store("memory:")
    one, other = (opened(EAGER, store=store, session="agent") for _ in range(2))
    for number in range(2, 5):
        one.prepare(history(number))
        other.prepare(history(number, task="Another task."))


@answered("messages[5] calls a tool, and no result follows it")
def leaves_out_a_result(opened: Open) -> None:
    messages = history(8)
    del messages[6]
    opened(EAGER).prepare(messages)


@answered("messages[1].tool_calls[0] has arguments that are a dict")
def gives_arguments_as_values(opened: Open) -> None:
    messages = history(6)
    messages[1]["tool_calls"][0]["function"]["arguments"] = {"a": float("nan")}
    opened(EAGER).prepare(messages)


@answered("never edit messages that were sent")
def changes_messages_of_the_view(opened: Open) -> None:
    context, messages = opened(EAGER), history(6)
    for message in context.prepare(messages).messages:
        if message["role"] == "tool":
            message["content"] = "XXX"
    context.prepare(messages)


@answered("let Elision shorten it")
def trims_its_own_list(opened: Open) -> None:
    context = opened(EAGER)
    for number in range(3, 20):
        context.prepare([history(0)[0], *history(number)[1:][-6:]])


@answered("the messages begin another history")
def adds_turns_and_prepares(opened: Open) -> None:
    context = opened(EAGER)
    context.turns.begin("task")
    context.turns.add("I look.", {"name": "f"}, "result " * 100)
    context.prepare(history(4))


for value in ("hello", b"hello", history(0)[0], None, 5):
    kind = type(value).__name__
    sentence = f'DialectError: messages is a {kind}, not a list of messages: give such as [{{"role": "user"'
    refused(f"messages_are_a_{kind}", sentence, lambda o, v=value: o().prepare(v))  # type: ignore[misc]
refused("the_whole_request", 'prepare(body["messages"]', lambda o: o().prepare({"messages": history(1)}))  # type: ignore[arg-type]
refused("no_messages", "messages is empty", lambda o: o().prepare([]))
refused("a_message_is_a_text", "messages[0] is", lambda o: o().prepare(["hello"]))
refused("a_bedrock_message", "AnthropicBedrock", lambda o: o().prepare(BEDROCK))
refused("an_unknown_argument", "unexpected keyword argument", lambda o: o().prepare(history(1), stream=True))
refused("tools_are_functions", "give the API's definition of print", lambda o: o().prepare(history(4), tools=[print]))
refused("tools_are_a_dict", "tools is a dict", lambda o: o().prepare(history(4), tools={"f": {}}))
BEDROCK = [
    {"role": "user", "content": [{"text": "hi"}]},
    {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}]},
]


@pytest.mark.parametrize("content", [b"x" * 3000, {"result": 5}, 5])
def test_content_that_no_provider_takes(content: Any) -> None:
    """It is named with its place, in the diagnostics of the call."""
    messages = history(6)
    messages[2]["content"] = content
    with ContextManager(EAGER, store="memory:") as context:
        notes = [note for count in range(3, 14, 2) for note in context.prepare(messages[:count]).diagnostics.notes]
    assert any(f"messages[2].content is a {type(content).__name__}" in note for note in notes)


@answered('dialect="openai" is set')
def anthropic_messages_as_openai(opened: Open) -> None:
    messages: list[Json] = [{"role": "user", "content": "task"}]
    for number in range(4):
        call = {"type": "tool_use", "id": f"c{number}", "name": "f", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "result " * 300}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    opened(EAGER, advanced=Advanced(dialect="openai")).prepare(messages)


@answered('dialect="anthropic" is set')
def openai_messages_as_anthropic(opened: Open) -> None:
    opened(EAGER, advanced=Advanced(dialect="anthropic")).prepare(history(6))


# -- calls and responses -----------------------------------------------------------------------------------------------


@answered("await context.prepare_async() there")
def prepares_in_an_event_loop(opened: Open) -> None:
    async def agent() -> None:
        opened(EAGER).prepare(history(4))

    asyncio.run(agent())


@answered("has no attribute 'messages'")
def forgets_to_await(opened: Open) -> None:
    coming = opened(EAGER).prepare_async(history(3))
    try:
        coming.messages  # type: ignore[attr-defined]  # noqa: B018
    finally:
        coming.close()


@answered("open it again")
def prepares_after_close(opened: Open) -> None:
    context = opened(EAGER)
    context.prepare(history(2))
    context.close()
    context.prepare(history(4))


@answered("open it again")
def closes_the_shared_store(opened: Open) -> None:
    store = open_store("memory:")
    context = opened(EAGER, store=store)
    context.prepare(history(2))
    store.close()
    context.prepare(history(3))


@answered("no usage recorded: give record() each response")
def never_records(opened: Open) -> None:
    context = opened(EAGER)
    context.prepare(history(2))
    context.prepare(history(3))


def record(opened: Open, *usages: Any) -> None:
    context = opened(EAGER)
    context.prepare(history(2))
    for usage in usages:
        context.record(usage)
    context.prepare(history(3))


USAGE = {"prompt_tokens": 500, "completion_tokens": 100}
refused("records_a_text", "give the response or its usage", lambda o: record(o, "ok"))
refused("records_nothing", "give record() the response", lambda o: record(o, None))
refused("records_a_stream", "of a stream the last chunk", lambda o: record(o, iter([1])))
refused("records_twice", "usage was recorded twice", lambda o: record(o, USAGE, USAGE))
refused("records_less_than_nothing", "prompt_tokens is -500", lambda o: record(o, {**USAGE, "prompt_tokens": -500}))
refused(
    "records_another_request", "reports so far off are not used", lambda o: record(o, {**USAGE, "prompt_tokens": 10**7})
)
refused(
    "records_before_it_prepares", "while no call was prepared", lambda o: (o().record(USAGE), o().prepare(history(1)))
)
refused("reads_a_call_outside_its_block", "use it in a `with`", lambda o: o().call(history(1)).view)
refused("summarizes_with_masking", "choose a strategy that does", lambda o: o("masking").compact(summary=True))
refused("adds_results_without_calls", "give an action for each", lambda o: o().turns.add("", "ls", ["a", "b"]))
refused("adds_an_action_that_is_none", "an action is a text or", lambda o: o().turns.add("", 5, "b"))
refused("adds_a_result_that_is_none", "an observation is a text", lambda o: o().turns.add("", "ls", 5))
refused("tags_with_a_number", "give a text, or a list of texts", lambda o: o().turns.add("", "ls", "b", tags=5))


def recall(opened: Open, handle: str) -> None:
    context = opened(EAGER)
    context.prepare(history(6))
    context.session.recall(handle)


refused("recalls_by_the_calls_id", "handles look like t12.1", lambda o: recall(o, "c1"))
refused("recalls_a_turn_that_is_not_there", "keeps nothing under t99.1", lambda o: recall(o, "t99.1"))
refused("recalls_a_result_that_is_not_there", "has 1 results, not 7", lambda o: recall(o, "t1.7"))
refused("recalls_from_an_empty_session", "has no turns yet", lambda o: o().session.recall("t1.1"))
refused("reports_on_an_empty_session", "no call yet", lambda o: print(o()))


@answered("give prepare() the request's tools=")
def hides_what_cannot_be_recalled(opened: Open) -> None:
    opened(EAGER).prepare(history(6))


@answered("shadow mode")
def forgets_the_shadow_mode(opened: Open) -> None:
    opened(EAGER, shadow=True).prepare(history(6))


@answered("stop: ")
def does_not_look_at_the_guards(opened: Open) -> None:
    context = opened("masking", guards=Guards(max_turns=3))
    for number in range(6):
        context.prepare(history(number))


@answered("nothing eligible")
def has_a_window_beyond_all_runs(opened: Open) -> None:
    opened("masking(window=10000)").prepare(history(50, 3))


@answered("neither pickled nor copied")
def pickles_the_manager(opened: Open) -> None:
    pickle.dumps(opened())


@answered("neither pickled nor copied")
def copies_the_manager(opened: Open) -> None:
    copy.deepcopy(opened())


@answered("opened before this process was forked")
def forks_the_process(opened: Open) -> None:
    context = opened(EAGER, store=f"sqlite:///{Path('a.db').resolve()}")
    context.prepare(history(3))
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, str(context.prepare(history(4))).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    raise AssertionError(os.read(reader, 9999).decode())


@answered("was not closed, so its last records are not stored")
def never_closes(opened: Open) -> None:
    context = ContextManager(EAGER, store=f"sqlite:///{Path('a.db').resolve()}", session="x")
    context.prepare(history(4))
    store = context._opened.store
    del context
    store.close()


# -- what is called back -----------------------------------------------------------------------------------------------


def fail(*_: object) -> Any:
    raise ValueError("mine")


def summarize(opened: Open, writer: Any) -> None:
    context = opened(SUMMARIZING, summarizer=writer)
    for number in range(1, 12):
        context.prepare(history(number))


async def answer_later(*_: object) -> bool:
    return True


refused("a_summarizer_returns_messages", "summarizer", lambda o: summarize(o, lambda request: [history(0)]))
refused("a_summarizer_takes_two_arguments", "missing 1 required", lambda o: summarize(o, lambda a, b: "x"))
refused("a_pin_is_async", "give a plain one", lambda o: Advanced(pin=answer_later))  # type: ignore[arg-type]
refused("a_listener_is_async", "give a plain one", lambda o: ContextManager(store="memory:", on_event=answer_later))  # type: ignore[arg-type]


@answered("a listener failed")
def has_a_listener_that_fails(opened: Open) -> None:
    opened(EAGER, on_event=fail).prepare(history(1))


@answered("pin failed: TypeError")
def has_a_pin_that_fails(opened: Open) -> None:
    opened(EAGER, advanced=Advanced(pin=lambda message: "x" in message["content"])).prepare(history(6))


@answered("return seconds")
def has_a_clock_of_milliseconds(opened: Open) -> None:
    opened(advanced=Advanced(clock=lambda: 1_700_000_000_000.0)).prepare(history(3))


@answered("clock went back")
def has_a_clock_that_goes_back(opened: Open) -> None:
    times: Iterator[float] = iter(range(10**9, 0, -1000))
    context = opened(advanced=Advanced(clock=lambda: next(times)))
    context.prepare(history(3))
    context.prepare(history(4))


# -- options -----------------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[str, Json]] = {
    "a_dialect_with_a_typo": ("give auto, openai", {"dialect": "antropic"}),
    "a_window_as_an_option": ('put it in the strategy: "masking(window=...)"', {"window": 5}),
    "rules_as_an_option": (
        'put it in the strategy: "masking(rules=...)"',
        {"rules": [Rule(tool="plan", keep=True)]},
    ),
    "a_budget_in_thousands": ("give a larger budget", {"token_budget": 100}),
    "a_budget_as_a_text": ("give tokens, 1 or more", {"token_budget": "60000"}),
    "a_share_in_percent": ('"masking(budget=budget(max_context_pct=...))"', {"max_context_pct": 85}),
    "a_model_as_summarizer": ("openai:MODEL", {"summarizer": "gpt-5-mini"}),
    "a_list_of_strategies": ("a strategy is a text such as", {"strategy": ["masking", "hybrid"]}),
    "a_class_as_strategy": ("a strategy is a text such as", {"strategy": Masking}),
    "a_strategy_with_a_typo": ("did you mean", {"strategy": "maskin(window=5)"}),
    "a_strategy_in_capitals": ("did you mean window?", {"strategy": "Masking( Window = 5 )"}),
    "prices_as_a_dict": ("elision.trajectory.prices.Prices(...)", {"prices": {"input": 3, "output": 15}}),
    "prices_with_a_typo": ("claude", {"prices": "claud-sonet-4-5"}),
    "guards_as_a_dict": ("give elision.Guards(...)", {"guards": {"max_turns": 3}}),
    "advanced_as_a_dict": ("give elision.Advanced(...)", {"advanced": {"dialect": "openai"}}),
    "a_cache_as_a_text": ("give elision.Cache(...)", {"cache": "1h"}),
    "a_path_as_store": ("did you mean sqlite:///agent.db", {"store": "agent.db"}),
    "a_path_object_as_store": ("give a URL such as sqlite:///agent.db", {"store": Path("x.db")}),
    "two_slashes": ("three slashes begin one from here", {"store": "sqlite://agent.db"}),
    "a_folder_that_is_not_there": ("make it first", {"store": "sqlite:////no/such/dir/a.db"}),
    "a_store_of_another_product": ("give one of: memory:", {"store": "redis://localhost"}),
    "recall_as_a_flag": ("give auto, caller or never", {"recall": True}),
    "a_session_of_two_lines": ("give one line", {"session": "a\nb"}),
    "an_option_with_a_typo": ("did you mean summarizer?", {"summariser": "digest"}),
}
for name, (sentence, options) in WRONG.items():
    given = {"store": "memory:", **options}
    refused(name, sentence, lambda o, given=given: ContextManager(**gather_options(given)))  # type: ignore[misc]
for name, option in {"dialect": "dialect", "cache_ttl": "cache=Cache(ttl", "background": "background"}.items():
    moved: Any = {name: "1h"}
    refused(f"{name}_as_an_option", f"advanced=Advanced({option}=...)", lambda o, m=moved: ContextManager(**m))  # type: ignore[misc]
refused(
    "a_store_by_position",
    "write ContextManager('masking', store=",
    lambda o: ContextManager("masking", "sqlite:///a.db"),
)  # type: ignore[arg-type]
refused("an_hour_with_a_typo", "give client or 1h", lambda o: Cache(ttl="1hour"))  # type: ignore[arg-type]
refused("a_pool_with_a_session", "give it to open()", lambda o: Sessions(store="memory:", session="x"))
refused("a_pool_session_without_a_name", "needs a name", lambda o: Sessions(store="memory:").open(""))
refused("a_rule_on_the_newest_turn", "give 1 turn or more", lambda o: Rule(tool="raed_file", after=0))
refused("a_setting_that_is_none", "there is no option 'windwo'", lambda o: ContextManager.from_env({}, windwo=3))


@answered("close names: claude-sonnet-4-5")
def names_a_model_with_a_typo(opened: Open) -> None:
    opened(model="claud-sonet-4-5").prepare(history(2))


@answered("give less, or leave it out")
def has_a_budget_above_the_window(opened: Open) -> None:
    opened(token_budget=2_000_000, model="claude-sonnet-4-5").prepare(history(3))


@answered("choose hybrid, or leave it out")
def has_a_summarizer_for_masking(opened: Open) -> None:
    opened("masking", summarizer=lambda request: "x").prepare(history(3))


@answered("is kept in")
def names_no_store(opened: Open) -> None:
    with ContextManager(EAGER) as context:
        context.prepare(history(1))


@pytest.mark.parametrize("name", ROWS)
def test_a_misuse_is_answered_by_a_sentence(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """None is silent."""
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO)
    seen: list[Diagnostics] = []
    contexts: list[ContextManager] = []

    def opened(strategy: Any = "masking", **options: Any) -> ContextManager:
        contexts.append(ContextManager(strategy, **{"store": "memory:", "on_event": seen.append, **options}))
        return contexts[-1]

    sentence, misuse = ROWS[name]
    said: list[str] = []
    try:
        misuse(opened)
    except Exception as error:  # noqa: BLE001 - whatever is raised is the answer
        said.append(f"{type(error).__name__}: {error}")
    for context in contexts:
        context.close()
    for done in seen:
        said += [done.describe(), *done.notes, *(fault.what for fault in done.faults)]
    said += [caplog.text, capsys.readouterr().out]
    assert sentence in "\n".join(said)


@pytest.mark.parametrize(
    "messages",
    [
        partial(iter, history(6)),
        partial(tuple, history(6)),
        lambda: json.loads(re.sub(r'"c\d+"', '"call_1"', json.dumps(history(6)))),
        lambda: json.loads(re.sub(r'"c\d+"', '""', json.dumps(history(6)))),
    ],
    ids=["an iterator", "a tuple", "one id for all calls", "empty ids"],
)
def test_what_looks_wrong_and_is_taken_as_it_is_meant(messages: Callable[[], Any]) -> None:
    """Nothing has to be said of it: the view is that of a list with ids of its own."""
    with ContextManager(EAGER, store="memory:") as context:
        view = context.prepare(messages())
        assert view.diagnostics.savings.masked == 4
        assert context.session.recall("t1.1").startswith("result 0 ")


def test_a_system_prompt_is_sent_where_an_api_has_no_field_for_it() -> None:
    """OpenAI's chat completions take it as the first message, so `**view.request` has it there."""
    with ContextManager(EAGER, store="memory:") as context:
        view = context.prepare(history(1), system="Be brief.")
    assert view.request == {"messages": [{"role": "system", "content": "Be brief."}, *view.messages]}
