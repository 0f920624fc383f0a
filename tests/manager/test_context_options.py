"""What a context manager is told is checked where it is told, and a summarizer can be named in one word."""

from __future__ import annotations

import inspect
import pydoc
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from elision import Advanced, Cache, ContextManager
from elision.config import KEYS
from elision.errors import SettingError, SpecError
from elision.manager.advanced_options import gather_options
from elision.manager.context_options import ContextOptions, Options
from elision.stores.memory import MemoryStore
from elision.strategies.guards import Guards
from elision.strategies.strategy import Masking


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
        ("guards", {"max_turns": 3}, "guards=dict: give elision.Guards(...)"),
        ("on_event", [3], "on_event: int among them; give functions"),
        ("on_event", 3, "on_event=3: give a function, or several"),
        ("pin", "system", "pin='system': give a function of a message"),
        (
            "session",
            5,
            "session=5: give one line of at most 400 characters, not ending in ~ and a number as branches do",
        ),
        (
            "session",
            "a~2",
            "session='a~2': give one line of at most 400 characters, not ending in ~ and a number as branches do",
        ),
        (
            "session",
            "a\nb",
            "session='a\\nb': give one line of at most 400 characters, not ending in ~ and a number as branches do",
        ),
        ("parent", None, "parent=NoneType: give one line of at most 400 characters"),
        ("observations", "all", "observations='all': give tools, user or auto"),
        ("model", None, "model=NoneType: give the model's name"),
        ("prices", 5, "prices=5: give the name of a set or of a model, or elision.trajectory.prices.Prices(...)"),
        ("dialect", ["openai"], "dialect=list: give auto, openai, openai-responses, anthropic or gemini"),
        ("summarizer", 5, "summarizer=5: give a text such as anthropic:MODEL, or a function of a request"),
        ("background", "yes", "background='yes': give True or False"),
        ("summary_seconds", "5", "summary_seconds='5': give seconds, above 0"),
        ("summary_seconds", float("nan"), "summary_seconds=nan: give seconds, above 0"),
        ("token_budget", "60000", "token_budget='60000': give tokens, 1 or more"),
        ("token_budget", -5, "token_budget=-5: give tokens, 1 or more"),
        ("token_budget", 0, "token_budget=0: give tokens, 1 or more"),
        ("token_budget", True, "token_budget=True: give tokens, 1 or more"),
        ("extractors", [print], "extractors=list: give a mapping of globs on the tool's name to functions"),
        ("extractors", {"bash": "x"}, "extractors['bash']: give a function under a glob on the tool's name"),
        ("recall", None, "recall=NoneType: give auto, caller or never"),
        ("recall", True, "recall=True: give auto, caller or never"),
        ("thinking", [], "thinking=list: give auto, defer, native, drop_block or ignore"),
        ("cache_control", "on", "control='on': give auto, gaps or client"),
        ("over_budget", None, "over_budget=NoneType: give raise or send"),
        ("on_fault", "log", "on_fault='log': give send or raise"),
        ("tokens", None, "tokens=NoneType: give the name of a counter"),
        ("redaction", False, "redaction=False: give a Redaction"),
        ("clock", 5, "clock=5: give a function that returns seconds since the epoch"),
        ("summariser", "digest", "there is no option 'summariser'; did you mean summarizer?"),
        ("window", 3, """there is no option 'window'; put it in the strategy: "masking(window=...)\""""),
        ("rules", [], """there is no option 'rules'; put it in the strategy: "masking(rules=...)\""""),
        (
            "max_context_pct",
            85,
            "there is no option 'max_context_pct'; put it in the strategy: "
            '"masking(budget=budget(max_context_pct=...))"',
        ),
        ("familiy", "f", "there is no option 'familiy'; did you mean family? It is in advanced=Advanced(family=...)"),
        ("colour", 5, f"there is no option 'colour'; there are: {', '.join(ContextOptions.__annotations__)}"),
    ],
)
def test_a_wrong_value_is_told_at_once(option: str, value: object, said: str) -> None:
    """Behind the boundary of a pass it would only mean that every request is sent unchanged."""
    options: dict[str, Any] = {option: value}
    with pytest.raises(SettingError) as told:
        ContextManager(store="memory:", **gather_options(options))
    assert str(told.value) == said


@pytest.mark.parametrize(
    ("strategy", "options", "said"),
    [
        ("masking", {"token_budget": 500}, "token_budget=500: a budget of 500 tokens leaves nothing behind 1000"),
        ("masking", {"token_budget": 1_100}, "token_budget=1100: a budget of 1100 tokens leaves nothing behind 1000"),
        ("masking(budget=1)", {}, "budget=1: a budget of 1 tokens leaves nothing behind 1000 reserved tokens"),
        ("masking(budget=budget(reserved=8_000))", {"token_budget": 9_000}, "token_budget=9000: a budget of 9000"),
        ("masking(budget=budget(max_context_pct=0.0001))", {"model": "gpt-5"}, "the window of 'gpt-5': a budget of "),
        (None, {}, "a strategy is a text such as masking(window=10) or a Strategy, not NoneType"),
        (5, {}, "a strategy is a text such as masking(window=10) or a Strategy, not int"),
        (Masking, {}, "a strategy is a text such as masking(window=10) or a Strategy, not type"),
        ("masking", {"tokens": "chars"}, "no token counter 'chars'; there are: "),
    ],
)
def test_what_cannot_work_is_refused_at_once(strategy: Any, options: dict[str, Any], said: str) -> None:
    """A budget in which no prompt has room, or what is no strategy: every pass would fail on it."""
    with pytest.raises(SpecError) as told:
        ContextManager(strategy, store="memory:", **gather_options(options))
    assert str(told.value).startswith(said)


def test_the_smallest_budget_that_leaves_something_is_taken() -> None:
    """One token is a budget; whether a prompt fits is asked of each prompt."""
    ContextManager(store="memory:", token_budget=1_178).close()
    with pytest.raises(SpecError):
        ContextManager(store="memory:", token_budget=1_177)


def test_a_budget_beyond_all_numbers_is_no_limit() -> None:
    """Some give the largest number they can think of."""
    with ContextManager(store="memory:", token_budget=10**400) as context:
        assert not context.prepare([{"role": "user", "content": "x"}]).diagnostics.faults


@pytest.mark.parametrize("name", ["a~", "a~b", "~", "a~2b", "2~ 2", "a~1234567890"])
def test_a_name_with_a_tilde_is_a_name(name: str) -> None:
    """Only what ends as the key of a branch does is refused."""
    with ContextManager(store="memory:", session=name) as context:
        assert context.session.name == name


@pytest.mark.parametrize("store", [None, 5, object(), b"memory:", ["memory:"], {}, Path("a.db"), MemoryStore])
def test_a_store_must_be_one(store: Any) -> None:
    """With what is none nothing would be kept, and no request would ever be made smaller."""
    with pytest.raises(
        SettingError, match=r"store=.*: give a URL such as sqlite:///agent.db \(`memory:` keeps nothing\), or a Store"
    ):
        ContextManager(store=store)


async def answer_later(*_: object) -> None:
    """What a caller may give by mistake."""


class AnswersLater:
    async def __call__(self, *_: object) -> None:
        """The same as an object."""


@pytest.mark.parametrize("function", [answer_later, AnswersLater(), partial(answer_later, 1)])
@pytest.mark.parametrize("option", ["pin", "clock", "on_event", "extractors"])
def test_a_function_that_nobody_awaits_is_refused(option: str, function: Any) -> None:
    """A coroutine is true: an async `pin` would pin every message, so that nothing is ever hidden."""
    value = {"bash": function} if option == "extractors" else [function] if option == "on_event" else function
    options: dict[str, Any] = {option: value}
    with pytest.raises(SettingError, match=r"an async function, which is not awaited here; give a plain one"):
        ContextManager(store="memory:", **gather_options(options))


def test_what_is_gone_through_again_is_no_iterator() -> None:
    """The second pass would find it empty."""
    listeners: Any = iter([])
    with pytest.raises(SettingError, match="on_event=list_iterator: give "):
        ContextManager(store="memory:", on_event=listeners)


def test_a_context_tells_which_session_it_is() -> None:
    """In a debugger and in logs."""
    with ContextManager(store="memory:", session="task-42") as context:
        context.turns.add("I look.", "ls", "a.py")
        assert repr(context) == "<ContextManager session='task-42' turns=1>"


def test_the_schedule_knows_the_turns_of_a_guard() -> None:
    """Where a run must end is where rewrites must have paid; a schedule that names its own end keeps it."""

    def find_schedule(strategy: str, guards: Guards | None = None) -> str:
        return str(Options(strategy=strategy, guards=guards, store="memory:").effective_strategy.schedule)

    assert find_schedule("masking", Guards(max_turns=40)) == "cache-aware(max_turns=40)"
    assert find_schedule("code") == "cache-aware(max_turns=120)"
    assert find_schedule("masking(schedule=cache-aware(max_turns=9))", Guards(max_turns=40)).endswith("=9)")
    assert find_schedule("masking(schedule=every-turn)", Guards(max_turns=40)) == "every-turn"
    assert find_schedule("masking", Guards(max_cost_usd=1.0)) == "cache-aware"


def test_the_signature_has_every_option_with_its_default() -> None:
    """`help`, `inspect.signature` and editors list the options by name; a call still takes no other."""
    parameters = inspect.signature(ContextManager).parameters
    own = Options()
    assert list(parameters) == [option.name for option in fields(Options) if option.metadata]
    assert {name: parameter.default for name, parameter in parameters.items()} == {
        name: getattr(own, name) for name in parameters
    }
    assert {name for name, parameter in parameters.items() if parameter.kind is not parameter.KEYWORD_ONLY} == {
        "strategy"
    }
    assert {"strategy", *ContextOptions.__annotations__} == set(parameters)
    text = pydoc.plain(pydoc.render_doc(ContextManager))
    assert all(f"{name}: " in text for name in parameters)


def test_type_checkers_know_the_options_that_there_are() -> None:
    """They read `ContextOptions`, and everything else reads the table: names and types are the same."""
    known = {row.name: row.type for row in fields(Options) if row.metadata and row.name != "strategy"}
    assert dict.fromkeys(known) == dict.fromkeys(ContextOptions.__annotations__)
    assert get_type_hints(ContextOptions) == {name: get_type_hints(Options)[name] for name in known}


@pytest.mark.parametrize("table", [Options, Advanced, Cache])
def test_every_option_has_a_meaning_and_one_place(table: type) -> None:
    """The docstring that users read has a line for each; an option is in one table only."""
    documented = {Options: ContextManager}.get(table, table).__doc__ or ""
    tables: list[Any] = [Options, Advanced, Cache]
    for row in fields(table):
        if row.metadata:
            assert f"- `{row.name}` (default `" in documented
            assert [row.name in {each.name for each in fields(one)} for one in tables].count(True) == 1
    assert len(ContextOptions.__annotations__) <= 12


@pytest.mark.parametrize("table", [Options, Advanced])
def test_an_option_that_is_a_setting_has_its_meaning(table: type) -> None:
    """The table of settings is the only place that states it."""
    shared = {row.name: row.metadata["meaning"] for row in fields(table) if row.name in KEYS}
    assert len(shared) >= 6
    assert shared == {name: KEYS[name].meaning for name in shared}


def test_what_advanced_sets_goes_before_what_settings_say() -> None:
    """Where a field is at its default, the setting counts; so it is inside `cache`."""
    settings = {"AGENT_CONTEXT_DIALECT": "anthropic", "AGENT_CONTEXT_CACHE_TTL": "1h", "AGENT_CONTEXT_STORE": "memory:"}
    given = Advanced(observations="user", cache=Cache(control="client"))
    with ContextManager.from_env(settings, advanced=given) as context:
        found = context._opened.options.advanced
    assert (found.dialect, found.observations, found.cache) == ("anthropic", "user", Cache(control="client", ttl="1h"))


def test_advanced_shows_what_differs_from_the_defaults() -> None:
    """In a debugger, and in the signature that `help` shows."""
    assert repr(Advanced(dialect="openai", background=True)) == "Advanced(dialect='openai', background=True)"
    assert repr(Advanced()) == "Advanced()"
