"""What a context manager is told is checked where it is told, and a summarizer can be named in one word."""

from __future__ import annotations

import inspect
import json
import pydoc
import re
import time
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from elision import ContextManager
from elision.errors import SettingError, SpecError
from elision.manager.context_options import ContextOptions, Options
from elision.stores.memory import MemoryStore
from elision.strategies.guards import Guards
from elision.strategies.masking import Masking
from elision.trajectory.redact import Redaction


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
        ("rules", [{"tool": "plan"}], "rules: dict among them; give elision.Rule(...)"),
        ("rules", 5, "rules=5: give a list of elision.Rule(...)"),
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
        ("prices", 5, "prices=5: give the name of a set or of a model, or elision.Prices(...)"),
        ("dialect", ["openai"], "dialect=list: give auto, openai, openai-responses, anthropic or gemini"),
        ("summarizer", 5, "summarizer=5: give a text such as anthropic:MODEL, or a function of a request"),
        ("background", "yes", "background='yes': give True or False"),
        ("summary_seconds", "5", "summary_seconds='5': give seconds, above 0"),
        ("summary_seconds", float("nan"), "summary_seconds=nan: give seconds, above 0"),
        ("token_budget", "60000", "token_budget='60000': give tokens, 1 or more"),
        ("token_budget", -5, "token_budget=-5: give tokens, 1 or more"),
        ("token_budget", 0, "token_budget=0: give tokens, 1 or more"),
        ("reserved_for_response", -1, "reserved_for_response=-1: give tokens, 0 or more"),
        ("max_context_pct", 85, "max_context_pct=85: give a share above 0, up to 1"),
        ("max_context_pct", float("nan"), "max_context_pct=nan: give a share above 0, up to 1"),
        ("token_budget", True, "token_budget=True: give tokens, 1 or more"),
        ("reserved_for_response", 1.5, "reserved_for_response=1.5: give tokens, 0 or more"),
        ("max_context_pct", "85", "max_context_pct='85': give a share above 0, up to 1"),
        ("extractors", [print], "extractors=list: give a mapping of globs on the tool's name to functions"),
        ("extractors", {"bash": "x"}, "extractors['bash']: give a function under a glob on the tool's name"),
        ("recall", None, "recall=NoneType: give auto, caller or never"),
        ("recall", True, "recall=True: give auto, caller or never"),
        ("thinking", [], "thinking=list: give auto, defer, native, drop_block or ignore"),
        ("cache_control", "on", "cache_control='on': give auto, gaps or client"),
        ("over_budget", None, "over_budget=NoneType: give raise or send"),
        ("on_fault", "log", "on_fault='log': give send or raise"),
        ("tokens", None, "tokens=NoneType: give the name of a counter"),
        ("redaction", False, "redaction=False: give a Redaction"),
        ("clock", 5, "clock=5: give a function that returns seconds since the epoch"),
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


@pytest.mark.parametrize(
    ("strategy", "options", "said"),
    [
        ("masking", {"token_budget": 500}, "token_budget=500: a budget of 500 tokens leaves nothing behind 1000"),
        ("masking", {"token_budget": 1_100}, "token_budget=1100: a budget of 1100 tokens leaves nothing behind 1000"),
        ("masking(budget=1)", {}, "budget=1: a budget of 1 tokens leaves nothing behind 1000 reserved tokens"),
        ("masking", {"token_budget": 9_000, "reserved_for_response": 8_000}, "token_budget=9000: a budget of 9000"),
        ("masking", {"max_context_pct": 0.0001, "model": "gpt-5"}, "the window of 'gpt-5': a budget of "),
        (None, {}, "a strategy is a text such as masking(window=10) or a Strategy, not NoneType"),
        (5, {}, "a strategy is a text such as masking(window=10) or a Strategy, not int"),
        (Masking, {}, "a strategy is a text such as masking(window=10) or a Strategy, not type"),
        ("masking", {"tokens": "chars"}, "no token counter 'chars'; there are: "),
    ],
)
def test_what_cannot_work_is_refused_at_once(strategy: Any, options: dict[str, Any], said: str) -> None:
    """A budget in which no prompt has room, or what is no strategy: every pass would fail on it."""
    with pytest.raises(SpecError) as told:
        ContextManager(strategy, store="memory:", **options)
    assert str(told.value).startswith(said)


def test_the_smallest_budget_that_leaves_something_is_taken() -> None:
    """One token is a budget; whether a prompt fits is asked of each prompt."""
    ContextManager(store="memory:", token_budget=1_178, reserved_for_response=1_000).close()
    with pytest.raises(SpecError):
        ContextManager(store="memory:", token_budget=1_177, reserved_for_response=1_000)


def test_a_budget_beyond_all_numbers_is_no_limit() -> None:
    """Some give the largest number they can think of."""
    with ContextManager(store="memory:", token_budget=10**400) as context:
        assert not context.prepare([{"role": "user", "content": "x"}]).diagnostics.faults


@pytest.mark.parametrize("name", ["a~", "a~b", "~", "a~2b", "2~ 2", "a~1234567890"])
def test_a_name_with_a_tilde_is_a_name(name: str) -> None:
    """Only what ends as the key of a branch does is refused."""
    with ContextManager(store="memory:", session=name) as context:
        assert context.session == name


@pytest.mark.parametrize("store", [None, 5, object(), b"memory:", ["memory:"], {}, Path("a.db"), MemoryStore])
def test_a_store_must_be_one(store: Any) -> None:
    """With what is none nothing would be kept, and no request would ever be made smaller."""
    with pytest.raises(SettingError, match=r"store=.*: give a URL \(`memory:` keeps nothing\) or a Store"):
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
        ContextManager(store="memory:", **options)


@pytest.mark.parametrize("option", ["on_event", "rules"])
def test_what_is_gone_through_again_is_no_iterator(option: str) -> None:
    """The second pass would find it empty."""
    options: dict[str, Any] = {option: iter([])}
    with pytest.raises(SettingError, match=f"{option}=list_iterator: give "):
        ContextManager(store="memory:", **options)


def test_a_context_tells_which_session_it_is() -> None:
    """In a debugger and in logs."""
    with ContextManager(store="memory:", session="task-42") as context:
        context.add_turn("I look.", "ls", "a.py")
        assert repr(context) == "<ContextManager session='task-42' turns=1>"


#: An option in the class docstring, and as a row of the table in the documentation.
DOCUMENTED = re.compile(r"^ *- `(\w+)` \(default `(.+?)`\): \S", re.MULTILINE)
ROW = re.compile(r"^\| `(\w+)` \| `(.+?)` \| \S", re.MULTILINE)
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"


def show_default(value: object) -> str:
    """Return a default as the documentation writes it."""
    if value is time.time:
        return "time.time"
    if isinstance(value, Redaction):
        return "Redaction()"
    return json.dumps(value) if isinstance(value, str) else repr(value)


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
    assert list(parameters) == [option.name for option in fields(Options) if option.init]
    assert {name: parameter.default for name, parameter in parameters.items()} == {
        name: getattr(own, name) for name in parameters
    }
    assert {name for name, parameter in parameters.items() if parameter.kind is not parameter.KEYWORD_ONLY} == {
        "strategy"
    }
    assert {"strategy", *ContextOptions.__annotations__} == set(parameters)
    text = pydoc.plain(pydoc.render_doc(ContextManager))
    assert all(f"{name}: " in text for name in parameters)


@pytest.mark.parametrize("source", ["docstring", "page"])
def test_every_option_is_documented_with_its_default(source: str) -> None:
    """The class docstring and the table of the documentation name all options in the order of the signature."""
    if source == "docstring":
        documented = DOCUMENTED.findall(ContextManager.__doc__ or "")
    else:
        section = (
            PAGE.read_text(encoding="utf-8").partition("### Options of the context manager")[2].partition("## ")[0]
        )
        documented = ROW.findall(section)
    parameters = inspect.signature(ContextManager).parameters
    assert documented == [(name, show_default(parameter.default)) for name, parameter in parameters.items()]


def test_both_documentations_say_the_same() -> None:
    """The table and the docstring have one text for each option, so that neither can age alone."""
    docstring = " ".join((ContextManager.__doc__ or "").split())
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if ROW.match(line):
            _, name, default, meaning, _ = (cell.strip() for cell in line.split("|"))
            assert f"- {name} (default {default}): {meaning}." in docstring
