"""Settings: one value out of arguments, environment, a file, presets and defaults."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.config import Settings, effective_settings, load_settings
from elision.config.setting_keys import ALIASES, ALL_KEYS, CONFIG, KEYS, PREFIX, SPECIFIED_PREFIX
from elision.config.setting_readers import SUMMARY_PROVIDERS
from elision.errors import MissingExtra, SettingError
from elision.manager.advanced_options import gather_options
from elision.manager.context_options import Options
from elision.strategies.decision_context import Budget
from elision.strategies.guards import Guards
from elision.strategies.schedules import CacheAwareSchedule, EveryTurnSchedule
from elision.strategies.spec import PRESETS, STRATEGIES, parse_strategy
from elision.strategies.strategy import Hybrid, Masking, Raw
from elision.summarizers.factory import KINDS
from elision.summarizers.prompt import load_prompt
from elision.telemetry.logs import PassLog
from elision.telemetry.opentelemetry import OpenTelemetry
from elision.telemetry.prometheus import Prometheus

#: A folder without settings.
EMPTY = Path(__file__).parent / "nothing"


def of(folder: Path, toml: str = "", arguments: dict[str, Any] | None = None, **environ: str) -> Settings:
    """The settings of `environ`, written without the prefix, beside a `elision.toml`."""
    if toml:
        (folder / "elision.toml").write_text(toml, encoding="utf-8")
    return load_settings({PREFIX + name: value for name, value in environ.items()}, folder, **(arguments or {}))


def refused(folder: Path, toml: str = "", arguments: dict[str, Any] | None = None, **environ: str) -> str:
    with pytest.raises(SettingError) as caught:
        of(folder, toml, arguments, **environ)
    return str(caught.value)


def places(found: Settings) -> dict[str, str]:
    return {entry.key.name: entry.place for entry in found.entries}


def shown(found: Settings) -> dict[str, str]:
    return {entry.key.name: entry.value for entry in found.entries}


# -- defaults and sources ---------------------------------------------------------------------------------------------


def test_defaults(tmp_path: Path) -> None:
    """Nobody says anything: masking, no guards, the digest, and every place is the default."""
    found = of(tmp_path)
    assert found.strategy == Masking()
    assert found.guards == Guards()
    assert (found.summarizer, found.session, found.model, found.log) == ("digest", None, None, "none")
    assert shown(found) | {"max_context_pct": "0.85", "reserved": "1_000"} == shown(found)
    assert {place for place in places(found).values() if place} == {"default"}


def test_options_are_those_of_a_context_manager(tmp_path: Path) -> None:
    """They can be handed to one as they are; defaults are the same, but that a service keeps its sessions in a file."""
    options = of(tmp_path).options()
    mine, theirs = Options(**gather_options(options)), Options()
    assert mine.effective_strategy == theirs.effective_strategy
    differ = [each.name for each in fields(Options) if getattr(mine, each.name) != getattr(theirs, each.name)]
    assert set(differ) <= {"strategy", "store", "guards", "summarizer", "advanced"}
    assert replace(mine.advanced, cache=theirs.advanced.cache) == theirs.advanced
    assert mine.cache_control == theirs.cache_control
    assert theirs.guards in (None, mine.guards)
    assert theirs.summarizer in (None, mine.summarizer)


def test_every_setting_is_listed(tmp_path: Path) -> None:
    """Each setting has one entry, whatever the strategy."""
    for strategy in ("raw", "hybrid", "two-tier"):
        assert [entry.key for entry in of(tmp_path, STRATEGY=strategy).entries] == list(ALL_KEYS.values())


def test_the_environment(tmp_path: Path) -> None:
    """Each variable sets what it names, and is its place."""
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("{previous}\n{example}\n{turns}\n", encoding="utf-8")
    found = of(
        tmp_path,
        STRATEGY="hybrid",
        SCHEDULE="Cache-Aware(50)",
        PLACEHOLDER="[hidden]",
        GIST="7",
        MASKING_WINDOW="8",
        SUMMARY_TURNS="21",
        SUMMARY_TAIL="5",
        SUMMARY_TOKENS="9_000",
        KEEP_RECENT="4",
        SOFT_TOKENS="20_000",
        HARD_TOKENS="30_000",
        AFTER_STEPS="0",
        SUMMARY_MAX_TOKENS="800",
        TOKEN_BUDGET="120,000",
        MAX_CONTEXT_PCT="80%",
        RESERVED="2000",
        SOFT="0.7",
        LOW="0.6",
        MIN_WINDOW="2",
        MAX_TURNS="120",
        MAX_COST_USD="$2.50",
        PLATEAU_WINDOW="5",
        SUMMARIZER="anthropic:claude-haiku-4-5",
        SUMMARIZER_BASE_URL="http://127.0.0.1:9/",
        SUMMARY_PROMPT=str(prompt),
        SUMMARY_EXAMPLE="yes",
        SUMMARY_TEMPERATURE="0.3",
        SUMMARY_SECONDS="30",
        PRICES="qwen3-coder",
        DIALECT="anthropic",
        CACHE_CONTROL="client",
        CACHE_TTL="1h",
        RECALL="never",
        TOOLS="defer",
        TOKENS="estimate",
        BACKGROUND="yes",
        STORE="memory:",
        SESSION="task-42",
        MODEL="claude-sonnet-4-5",
        OBSERVATIONS="tools",
        THINKING="defer",
        REDACT_WITHOUT="jwt, password",
        REDACT_PATTERNS="ticket=TICKET-\\d+\nbadge=B[0-9]{6}",
        LOG="json",
        METRICS="prometheus",
    )
    budget = Budget(tokens=120_000, max_context_pct=0.8, reserved=2_000, soft=0.7, low=0.6, min_window=2)
    assert found.strategy == Hybrid(
        schedule=CacheAwareSchedule(50),
        placeholder="[hidden]",
        gist=7,
        window=8,
        summarize_at=21,
        tail=5,
        summarize_tokens=9_000,
        summary_max_tokens=800,
        budget=budget,
    )
    assert found.guards == Guards(max_turns=120, max_cost_usd=2.5, plateau_window=5)
    assert found.redaction.redact_text("TICKET-4711 and B123456") == "[redacted: ticket] and [redacted: badge]"
    assert found.redaction.without == {"jwt", "password"}
    options = found.options()
    assert options["summarizer"] == "anthropic:claude-haiku-4-5"
    assert found.summarizer_base_url == "http://127.0.0.1:9"
    assert (found.summary_prompt, found.summary_example, found.summary_temperature) == (str(prompt), "on", 0.3)
    assert found.prompt == load_prompt(prompt, "on")
    assert (options["summary_seconds"], options["prices"], options["recall"]) == (30.0, "qwen3-coder", "never")
    assert (options["dialect"], options["cache_control"], options["tokens"]) == ("anthropic", "client", "estimate")
    assert options["cache_ttl"] == "1h"
    assert options["background"] is True
    assert (options["session"], options["model"], options["store"]) == ("task-42", "claude-sonnet-4-5", "memory:")
    assert (options["observations"], options["thinking"], found.log) == ("tools", "defer", "json")
    assert [type(each) for each in options["on_event"]] == [PassLog, Prometheus]
    Options(**gather_options(options))
    unset = {"redact"}
    assert all(places(found)[name] == key.variable for name, key in KEYS.items() if name not in unset)


def test_the_file(tmp_path: Path) -> None:
    """Names in lower case, values of TOML's own types; the place is the line."""
    found = of(
        tmp_path,
        '# ours\nstrategy = """\nhybrid(\n  tail=5)"""\n"masking_window" = 10_000\nmax_turns = 7\nredact = false\n'
        '[redact_patterns]\nmax_cost_usd = "x"\n',
    )
    assert found.strategy == Hybrid(window=10_000, tail=5)
    assert found.guards.max_turns == 7
    assert found.redaction.redact_text("sk-ant-" + "a1" * 20).startswith("sk-ant")
    assert places(found) | {
        "strategy": "elision.toml:2",
        "summary_tail": "elision.toml:2",
        "masking_window": "elision.toml:5",
        "max_turns": "elision.toml:6",
        "redact_patterns": "elision.toml:8",
        "max_cost_usd": "default",
    } == places(found)


def test_pyproject(tmp_path: Path) -> None:
    """The table [tool.elision] of pyproject.toml serves as well, and its lines are told from those of other tables."""
    text = '[project]\nname = "x"\n\n[tool.other]\nmax_turns = 3\n\n[tool.elision]\nmax_turns = 9\n'
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    found = of(tmp_path)
    assert found.guards.max_turns == 9
    assert places(found)["max_turns"] == "pyproject.toml:8"


def test_somebody_else_s_pyproject(tmp_path: Path) -> None:
    """A pyproject.toml that does not speak of Elision is not even parsed."""
    (tmp_path / "pyproject.toml").write_text("[tool.broken\n", encoding="utf-8")
    assert of(tmp_path).strategy == Masking()


def test_a_named_file(tmp_path: Path) -> None:
    """ELISION_CONFIG names the file, from the working folder; then no other is read."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "agent.toml").write_text("max_turns = 4", encoding="utf-8")
    found = of(tmp_path, "max_turns = 5", CONFIG="deep/agent.toml")
    assert found.guards.max_turns == 4
    assert places(found)["max_turns"] == "deep/agent.toml:1"


def test_who_has_the_last_word(tmp_path: Path) -> None:
    """Arguments, then the environment, then the file, then the preset, then the default."""
    sources: list[dict[str, Any]] = [
        {},
        {"toml": "max_turns = 2\nstrategy = 'code'"},
        {"toml": "max_turns = 2\nstrategy = 'code'", "MAX_TURNS": "3"},
        {"toml": "max_turns = 2\nstrategy = 'code'", "MAX_TURNS": "3", "arguments": {"max_turns": 4}},
    ]
    found = [of(tmp_path, **source) for source in sources]
    assert [each.guards.max_turns for each in found] == [None, 2, 3, 4]
    assert [places(each)["max_turns"] for each in found] == [
        "default",
        "elision.toml:1",
        "ELISION_MAX_TURNS",
        "argument max_turns",
    ]


def test_none_switches_a_limit_off(tmp_path: Path) -> None:
    """`none` is a value of its own: it overrides what a preset or the file says."""
    assert of(tmp_path, "max_cost_usd = 1", STRATEGY="code", MAX_TURNS="none", MAX_COST_USD="None").guards == Guards()


def test_an_empty_variable_says_nothing(tmp_path: Path) -> None:
    """As compose files write it: the variable is there and empty."""
    assert of(tmp_path, "max_turns = 5", MAX_TURNS="", STRATEGY=" ").guards.max_turns == 5


def test_the_process_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without anything given, environment and working folder are the process's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ELISION_STRATEGY", "raw")
    (tmp_path / "elision.toml").write_text("max_turns = 6", encoding="utf-8")
    found = load_settings()
    assert (found.strategy, found.guards.max_turns) == (Raw(), 6)


# -- the strategy and what refines it ---------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
def test_presets(tmp_path: Path, preset: str) -> None:
    """A preset is its strategy, with its guards; what it says has it as its place, what it leaves out the default."""
    found = of(tmp_path, STRATEGY=preset)
    assert found.strategy == parse_strategy(preset)
    assert found.guards.max_turns == (120 if preset == "code" else None)
    stated = PRESETS[preset]
    for setting, option in (("masking_window", "window="), ("reserved", "reserved="), ("schedule", "schedule=")):
        expected = f"preset {preset}" if option in stated else "default"
        assert places(found)[setting] in (expected, ""), setting
    assert places(found)["low"] in ("default", "")


def test_a_preset_may_bring_settings_for_other_strategies(tmp_path: Path) -> None:
    """`chat` is masking, and its 18 turns are kept for strategies that make summaries."""
    entry = next(each for each in of(tmp_path, STRATEGY="chat").entries if each.key.name == "summary_turns")
    assert (entry.value, entry.place) == ("18", "preset chat")
    assert entry.note == "used if the strategy makes summaries by turns, as summarization and hybrid do"


def test_a_setting_refines_a_preset(tmp_path: Path) -> None:
    """A preset's options give way to a setting of any source, one by one."""
    found = of(tmp_path, "masking_window = 8\nreserved = 500", STRATEGY="chat")
    assert found.strategy == parse_strategy("chat(window=8, budget=budget(reserved=500))")


def test_all_at_once(tmp_path: Path) -> None:
    """Two settings that only together make sense do."""
    assert of(tmp_path, STRATEGY="hybrid", SUMMARY_TURNS="6", SUMMARY_TAIL="5").strategy == parse_strategy(
        "hybrid(summarize_at=6, tail=5)"
    )


def test_turns_of_either_strategy(tmp_path: Path) -> None:
    """N is `every` of one strategy and `summarize_at` of the other."""
    assert of(tmp_path, STRATEGY="summarization", SUMMARY_TURNS="30").strategy == parse_strategy(
        "summarization(every=30)"
    )
    assert of(tmp_path, STRATEGY="hybrid", SUMMARY_TURNS="30").strategy == parse_strategy("hybrid(summarize_at=30)")


#: Settings that refine the strategy, with a value that is right whatever the strategy.
REFINING = {
    "schedule": "every-turn",
    "placeholder": "[hidden]",
    "gist": "3",
    "masking_window": "8",
    "summary_turns": "18",
    "summary_tail": "4",
    "summary_tokens": "40000",
    "summary_max_tokens": "700",
    "keep_recent": "5",
    "soft_tokens": "20000",
    "after_steps": "30",
    "token_budget": "60000",
}


@given(
    strategy=st.sampled_from([*STRATEGIES, *PRESETS]),
    names=st.sets(st.sampled_from([*REFINING])),
)
def test_a_setting_without_use_is_kept_and_explained(strategy: str, names: set[str]) -> None:
    """Whatever the strategy, each setting is either in force, or shown as it was given with a note on its use."""
    variables = {name.upper(): REFINING[name] for name in names}
    entries = {each.key.name: each for each in of(EMPTY, STRATEGY=strategy, **variables).entries}
    for name in names:
        assert entries[name].value.replace("_", "") == REFINING[name]
        assert entries[name].place == PREFIX + name.upper()
        assert not entries[name].note or entries[name].note.startswith("used if the strategy ")


def test_a_setting_without_use(tmp_path: Path) -> None:
    """In a file, in the environment or in code: the note says which strategies use it."""
    notes = [
        {each.key.name: each.note for each in found.entries if each.note}
        for found in (
            of(tmp_path, STRATEGY="summarization", MASKING_WINDOW="5"),
            of(tmp_path, arguments={"strategy": "summarization", "masking_window": 5}),
            of(tmp_path, "strategy = 'summarization'\nmasking_window = 5"),
        )
    ]
    assert notes == [{"masking_window": "used if the strategy masks by turns, as masking and hybrid do"}] * 3


def test_a_strategy_from_a_higher_source_sets_it_aside(tmp_path: Path) -> None:
    """Who chooses another strategy for a trial need not tidy up the file: what has no effect is noted."""
    found = of(tmp_path, "strategy = 'hybrid'\nmasking_window = 8\ntoken_budget = 5000", STRATEGY="raw")
    assert found.strategy == Raw()
    notes = {entry.key.name: entry.note for entry in found.entries if entry.note}
    assert notes == {
        "masking_window": "used if the strategy masks by turns, as masking and hybrid do",
        "token_budget": "used if the strategy hides anything",
    }


def test_an_option_in_the_text_and_a_setting(tmp_path: Path) -> None:
    """The higher source counts; in one source the two must agree."""
    assert of(tmp_path, "masking_window = 8", STRATEGY="masking(window=5)").strategy == Masking(window=5)
    assert of(tmp_path, "strategy = 'masking(window=5)'", MASKING_WINDOW="8").strategy == Masking(window=8)
    (tmp_path / "elision.toml").unlink()
    assert of(tmp_path, STRATEGY="masking(window=5)", MASKING_WINDOW="5").strategy == Masking(window=5)
    assert refused(tmp_path, STRATEGY="masking(window=5)", MASKING_WINDOW="8") == (
        "ELISION_MASKING_WINDOW says 8, but ELISION_STRATEGY says window=5; keep one of them"
    )


def test_the_tail_gives_way(tmp_path: Path) -> None:
    """Where a summary would cover nothing the tail becomes half of N, whatever set the two, and a note says so."""
    for variables, tail, note in (
        ({"STRATEGY": "hybrid", "SUMMARY_TURNS": "10"}, 5, "5 instead of 10, since summary_turns is 10"),
        (
            {"STRATEGY": "hybrid", "SUMMARY_TURNS": "3", "SUMMARY_TAIL": "8"},
            1,
            "1 instead of 8, since summary_turns is 3",
        ),
        ({"STRATEGY": "hybrid", "SUMMARY_TAIL": "50"}, 21, "21 instead of 50, since summarize_at is 43"),
        ({"STRATEGY": "hybrid(summarize_at=8)"}, 4, "4 instead of 10, since summarize_at is 8"),
        ({"STRATEGY": "code", "SUMMARY_TURNS": "4"}, 2, "2 instead of 5, since summary_turns is 4"),
        ({"STRATEGY": "code(summarize_at=4)"}, 2, "2 instead of 5, since summarize_at is 4"),
    ):
        found = of(tmp_path, **variables)
        assert shown(found)["summary_tail"] == str(tail)
        assert {each.note for each in found.entries if each.note} == {note}
    kept = of(tmp_path, STRATEGY="summarization", SUMMARY_TURNS="10")
    assert kept.strategy == parse_strategy("summarization(every=10, tail=10)")
    assert not any(each.note for each in kept.entries)


def test_two_tier_by_settings(tmp_path: Path) -> None:
    """Its thresholds have variables; SUMMARY_TOKENS is its hard one, and soft gives way."""
    found = of(
        tmp_path, STRATEGY="two-tier", KEEP_RECENT="4", SOFT_TOKENS="10000", HARD_TOKENS="20000", AFTER_STEPS="0"
    )
    assert found.strategy == parse_strategy("two-tier(keep_recent=4, soft=10_000, hard=20_000, after_steps=0)")
    found = of(tmp_path, STRATEGY="two-tier", SUMMARY_TOKENS="9000")
    assert found.strategy == parse_strategy("two-tier(soft=9_000, hard=9_000)")
    assert {each.note for each in found.entries if each.note} == {"9000 instead of 32000, since summary_tokens is 9000"}
    found = of(tmp_path, STRATEGY="two-tier", SUMMARY_TOKENS="none")
    assert found.strategy == parse_strategy("two-tier")
    assert {each.note for each in found.entries if each.note} == {"two-tier always has a hard threshold"}


def test_summary_tokens_of_summarization(tmp_path: Path) -> None:
    """Every strategy that makes summaries takes SUMMARY_TOKENS."""
    found = of(tmp_path, STRATEGY="summarization", SUMMARY_TOKENS="9000")
    assert found.strategy == parse_strategy("summarization(summarize_tokens=9000)")


def test_two_settings_for_one_option(tmp_path: Path) -> None:
    """Of two sources the higher one counts; one source of two minds is refused, with both places."""
    assert refused(tmp_path, STRATEGY="two-tier", SUMMARY_TOKENS="40000", HARD_TOKENS="50000") == (
        "ELISION_HARD_TOKENS says 50000, but ELISION_SUMMARY_TOKENS says 40000; keep one of them"
    )
    assert refused(tmp_path, "strategy = 'two-tier'\nsummary_tokens = 40_000\nhard_tokens = 50_000") == (
        "elision.toml:3 says 50000, but elision.toml:2 says 40000; keep one of them"
    )
    found = of(tmp_path, "strategy = 'two-tier'\nsummary_tokens = 40_000", HARD_TOKENS="50000")
    assert found.strategy == parse_strategy("two-tier(hard=50_000)")
    notes = {each.key.name: each.note for each in found.entries if each.note}
    assert notes == {"summary_tokens": "ELISION_HARD_TOKENS says hard too"}


def test_names_of_the_specification(tmp_path: Path) -> None:
    """The names that it has for three settings are read too, as the variable's or the file's own place."""
    found = of(tmp_path, "summarization_turn_threshold = 30", STRATEGY="hybrid", RESERVED_FOR_RESPONSE="1500")
    assert found.strategy == parse_strategy("hybrid(summarize_at=30, budget=budget(reserved=1500))")
    assert places(found)["reserved"] == "ELISION_RESERVED_FOR_RESPONSE"
    assert places(found)["summary_turns"] == "elision.toml:1"
    assert refused(tmp_path, RESERVED="1000", RESERVED_FOR_RESPONSE="1500") == (
        "ELISION_RESERVED_FOR_RESPONSE says 1500, but ELISION_RESERVED says 1000; keep one of them"
    )


@pytest.mark.parametrize("name", ["MASKING", "Hybrid(window=8)", "Paper-Hybrid", "CODE"])
def test_strategies_in_any_letter_case(tmp_path: Path, name: str) -> None:
    """As the variable of another program may have it."""
    assert of(tmp_path, STRATEGY=name).strategy == parse_strategy(name.lower())
    assert of(tmp_path, STRATEGY=name).guards == of(tmp_path, STRATEGY=name.lower()).guards


def test_schedule_and_placeholder(tmp_path: Path) -> None:
    """The published behaviour of any strategy but for folding is three variables away."""
    found = of(tmp_path, SCHEDULE="Every-Turn", GIST="0", PLACEHOLDER="[Observation omitted for brevity]")
    assert replace(found.strategy, fold=False) == parse_strategy("paper-masking")
    assert shown(found) | {"schedule": "every-turn", "gist": "0"} == shown(found)
    assert of(tmp_path, STRATEGY="paper-masking", PLACEHOLDER="none").strategy.placeholder == ""
    assert of(tmp_path, STRATEGY="hybrid", SCHEDULE="every-turn").strategy.schedule == EveryTurnSchedule()
    assert "hindsight needs a recorded run" in refused(tmp_path, SCHEDULE="hindsight")
    assert "no schedule 'hourly'" in refused(tmp_path, SCHEDULE="hourly")


def test_metrics(tmp_path: Path) -> None:
    """All managers of a process share one collector; without the setting there is none."""
    assert "on_event" not in of(tmp_path).options()
    one, other = (of(tmp_path, METRICS="Prometheus").options()["on_event"] for _ in range(2))
    assert one == other
    assert [type(each) for each in of(tmp_path, METRICS="opentelemetry").options()["on_event"]] == [OpenTelemetry]
    assert "give one of: none, prometheus, opentelemetry" in refused(tmp_path, METRICS="statsd")


def test_metrics_without_their_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    effective_settings._share_collector.cache_clear()
    with pytest.raises(MissingExtra, match="prometheus"):
        of(tmp_path, METRICS="prometheus").options()


def test_a_strategy_object(tmp_path: Path) -> None:
    """An argument may be a strategy itself; then it is complete, and only other arguments refine it."""
    mine = Masking(window=3)
    assert of(tmp_path, arguments={"strategy": mine}, MASKING_WINDOW="9").strategy == mine
    assert "give a strategy or its text, not int" in refused(tmp_path, arguments={"strategy": 5})


def test_the_digest_asks_no_model(tmp_path: Path) -> None:
    """An address without a model to serve is an error, unless a higher source chose the digest."""
    assert "give a summarizer too" in refused(tmp_path, SUMMARIZER_BASE_URL="http://localhost:1")
    toml = 'summarizer = "openai:x"\nsummarizer_base_url = "http://localhost:1"'
    assert of(tmp_path, toml, SUMMARIZER="digest").summarizer_base_url is None
    assert of(tmp_path, toml).summarizer_base_url == "http://localhost:1"


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "mend"),
    [
        ("MASKING_WINDOW", "0", "give a whole number of turns, 1 or more"),
        ("MASKING_WINDOW", "ten", "give a whole number of turns, 1 or more"),
        ("MASKING_WINDOW", "1.5", "give a whole number of turns, 1 or more"),
        ("RESERVED", "-1", "give a whole number of tokens, 0 or more"),
        ("TOKEN_BUDGET", "1e5", "give a whole number of tokens, 1 or more, or none"),
        ("MAX_CONTEXT_PCT", "85", "give a share above 0 and up to 1, such as 0.85, or 85 %"),
        ("MAX_CONTEXT_PCT", "nan", "give a share"),
        ("MAX_COST_USD", "-3", "give US dollars, above 0, or none"),
        ("MAX_COST_USD", "inf", "give US dollars"),
        ("PLATEAU_WINDOW", "1", "give a whole number of turns, 2 or more, or none"),
        ("BACKGROUND", "maybe", "give true or false"),
        ("STORE", "sqlit:///x", "give one of: memory:, sqlite:///FILE"),
        ("STORE", "agent.db", "give one of: memory:, sqlite:///FILE"),
        ("SUMMARIZER", "claude-haiku-4-5", "give digest, or one of anthropic:MODEL"),
        ("SUMMARIZER", "openai:", "give digest, or one of anthropic:MODEL"),
        ("SUMMARIZER_BASE_URL", "localhost:80", "give an address that begins with http:// or https://"),
        ("THINKING", "maybe", "give one of: auto, defer, native, drop_block, ignore"),
        ("LOG", "yaml", "give one of: none, text, json"),
        ("PRICES", "gold", "give a set (anthropic"),
        ("SUMMARY_SECONDS", "0", "give seconds, above 0"),
        ("REDACT_PATTERNS", "no mark", "give lines of the form name=expression"),
        ("REDACT_PATTERNS", "bad=(", "does not compile"),
        ("REDACT_WITHOUT", "everything", "no kind 'everything'"),
        ("STRATEGY", "hybird", "no strategy 'hybird'"),
        ("STRATEGY", "masking(window=0)", "give a whole number, 1 or more"),
        ("SUMMARY_MAX_TOKENS", "10", "give a whole number of tokens, 50 or more"),
    ],
)
def test_values_without_meaning(tmp_path: Path, name: str, value: str, mend: str) -> None:
    """A value is checked at once; the error names the place and the mend."""
    text = refused(tmp_path, **{name: value})
    assert text.startswith(f"{PREFIX}{name}: ")
    assert mend in text


def test_toml_types(tmp_path: Path) -> None:
    """True is no number and a number is no text."""
    assert refused(tmp_path, "masking_window = true").startswith(
        "elision.toml:1: True is not a valid masking_window; give a whole"
    )
    assert "give a text" in refused(tmp_path, "session = 5")
    assert "give names" in refused(tmp_path, "redact_without = [1]")


def test_a_budget_that_its_reserve_eats(tmp_path: Path) -> None:
    """What cannot work at any model is said before there is one."""
    assert refused(tmp_path, TOKEN_BUDGET="1000").startswith("ELISION_TOKEN_BUDGET: a budget of 1000 tokens")
    assert refused(tmp_path, STRATEGY="masking(budget=1000)").startswith("ELISION_STRATEGY: a budget of 1000")


def test_options_that_contradict_each_other(tmp_path: Path) -> None:
    """A strategy that cannot be built names the settings that asked for it."""
    text = refused(tmp_path, STRATEGY="hybrid", SUMMARY_TURNS="1")
    assert text == (
        "ELISION_SUMMARY_TURNS: hybrid(summarize_at=1): the newest turn stays out of a summary; give 2 turns or more"
    )
    text = refused(tmp_path, STRATEGY="hybrid(summarize_at=10, tail=10)")
    assert text.startswith("ELISION_STRATEGY: hybrid(summarize_at=10, tail=10): summarize_at must exceed tail")


def test_unknown_names(tmp_path: Path) -> None:
    """An unknown name is an error with the nearest one, written as it is written there; its value is not shown."""
    assert refused(tmp_path, MASKING_WINDW="hunter2") == (
        "ELISION_MASKING_WINDW: no such setting; did you mean ELISION_MASKING_WINDOW?"
    )
    assert refused(tmp_path, "\n\nmasking_windw = 3") == (
        "elision.toml:3: no setting 'masking_windw'; did you mean masking_window?"
    )
    assert refused(tmp_path, "fold = 5") == (
        "elision.toml:1: no setting 'fold'; it is an option of strategies: strategy = \"masking(fold=…)\""
    )
    assert refused(tmp_path, '[elision]\nmodel = "gpt-5"') == (
        "elision.toml:1: no table [elision] is known; only [gateway] has settings in elision.toml"
    )
    assert refused(tmp_path, "strategy = masking").endswith("Invalid value (at line 1, column 12); a text needs quotes")
    assert "did you mean store?" in refused(tmp_path / "..", arguments={"stores": "memory:"})


def test_unlike_anything(tmp_path: Path) -> None:
    """Where no name is near all are listed; a credential is told where it belongs."""
    known = refused(tmp_path, "zzz = 1")
    assert all(name in known for name in KEYS)
    (tmp_path / "elision.toml").unlink()
    with pytest.raises(SettingError, match="AGENT_CONTEXT_ZZZ: no such setting; there are: AGENT_CONTEXT_STRATEGY, "):
        load_settings({"AGENT_CONTEXT_ZZZ": "1"}, tmp_path)
    with pytest.raises(SettingError, match="the provider's own client reads them"):
        load_settings({"AGENT_CONTEXT_OPENAI_API_KEY": "sk-x"}, tmp_path)
    assert "variables are written in capitals" in refused(tmp_path, max_turns="1")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A broken, absent or doubtful file is an error that names it."""
    assert "elision.toml: Invalid value (at line 1" in refused(tmp_path, "max_turns = =")
    twice = 'strategy = "raw"\nstrategy = "hybrid"'
    assert "elision.toml:2: strategy is set twice; keep one of them" in refused(tmp_path, twice)
    twice = "[gateway]\nport = 1\n[gateway]\nport = 2"
    assert "elision.toml:3: [gateway] is set twice; keep one of them" in refused(tmp_path, twice)
    (tmp_path / "elision.toml").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in refused(tmp_path)
    assert "no.toml: cannot be read" in refused(tmp_path, CONFIG="no.toml")
    (tmp_path / "pyproject.toml").write_text("[tool.elision]\nmax_turns = 3\n", encoding="utf-8")
    assert "keep one of them" in refused(tmp_path, "max_turns = 2")
    (tmp_path / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
    assert "no table [tool.elision]" in refused(tmp_path, CONFIG="pyproject.toml")


def test_summarizers_are_those_that_exist() -> None:
    """What may be given is what the library can make."""
    assert set(KINDS) == {"digest", *SUMMARY_PROVIDERS}


# -- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@db.example/agents",
        "postgresql://me:hunter2@db.example:5432/agents?sslmode=require",
        "postgresql://db.example/agents?user=me&password=hunter2&sslmode=require",
        "postgresql://me:p@ss/hunter2@db.example/agents",
    ],
)
def test_passwords_are_not_shown(tmp_path: Path, url: str) -> None:
    """A password in a store's address is used, and shown nowhere."""
    found = of(tmp_path, STORE=url)
    assert found.store == url
    assert "hunter2" not in repr(found)
    assert "***" in shown(found)["store"]
    assert "db.example" in shown(found)["store"]
    assert "hunter2" not in refused(tmp_path, STORE=url.replace("postgresql", "postgrs"))


def test_a_secret_in_the_wrong_place(tmp_path: Path) -> None:
    """A key that was put where a name belongs is not shown either."""
    key = "sk-ant-" + "a1B2" * 10
    assert key not in "".join(shown(of(tmp_path, MODEL=key)).values())
    assert key not in refused(tmp_path, SUMMARIZER=key)


# -- any text ---------------------------------------------------------------------------------------------------------


@given(name=st.sampled_from([key.variable for key in ALL_KEYS.values()]), value=st.text(max_size=30))
def test_any_value(name: str, value: str) -> None:
    """Whatever a variable holds is either a setting or an error that names it."""
    try:
        said = repr(load_settings({name: value}, Path("/nowhere")))
    except SettingError as error:
        said = str(error)
    assert said.startswith(("Settings(", name))


@given(
    st.dictionaries(st.sampled_from([*ALL_KEYS, "zzz"]), st.one_of(st.integers(), st.booleans(), st.text(max_size=9)))
)
def test_any_argument(arguments: dict[str, Any]) -> None:
    """So is whatever an argument holds."""
    try:
        found = load_settings({}, Path("/nowhere"), **arguments)
    except SettingError:
        return
    assert all(entry.place == f"argument {entry.key.name}" for entry in found.entries if entry.key.name in arguments)


#: Each setting -> two values for it that differ.
VALUES = {
    "strategy": ("raw", "hybrid"),
    "schedule": ("every-turn", "cache-aware"),
    "placeholder": ("[gone]", "[left out]"),
    "summary_tail": ("3", "4"),
    "max_context_pct": ("0.5", "60%"),
    "soft": ("0.7", "75%"),
    "low": ("0.5", "0.6"),
    "token_budget": ("50_000", "60,000"),
    "max_cost_usd": ("$2", "3.5"),
    "summarizer": ("digest", "openai:gpt-5-mini"),
    "summarizer_base_url": ("http://127.0.0.1:9", "http://127.0.0.1:10"),
    "summary_prompt": ("one.txt", "two.txt"),
    "summary_example": ("on", "off"),
    "summary_temperature": ("0", "1.5"),
    "store": ("memory:", "sqlite:///here.db"),
    "session": ("one", "two"),
    "model": ("gpt-5", "claude-opus-5-5"),
    "prices": ("openai", "anthropic"),
    "redact_without": ("jwt", "password"),
    "redact_patterns": ("a=b+", "a=c+"),
    "gateway_host": ("127.0.0.1", "localhost"),
    "gateway_admin_token": ("0123456789abcdef", "fedcba9876543210"),
    "gateway_secret": ("0123456789abcdef", "fedcba9876543210"),
    "gateway_upstream_openai": ("http://127.0.0.1:9", "none"),
    "gateway_upstream_anthropic": ("http://127.0.0.1:9", "none"),
    "gateway_upstream_gemini": ("http://127.0.0.1:9", "none"),
    "gateway_session_max_cost_usd": ("2", "3"),
    "gateway_key_max_cost_usd": ("2", "3"),
}


def list_values(name: str) -> tuple[str, str]:
    """Two values of a setting: its words, if it is a choice or a flag, or else numbers."""
    if name in VALUES:
        return VALUES[name]
    for pair in (("50", "60"), ("true", "false")):
        with suppress(ValueError):
            ALL_KEYS[name].read(pair[0])
            return pair
    with pytest.raises(ValueError, match="give one of: ") as refusal:
        ALL_KEYS[name].read("?")
    first, second, *_ = str(refusal.value).removeprefix("give one of: ").split(", ")
    return first, second


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that settings name."""
    folder = tmp_path_factory.mktemp("prompts")
    for name in ("one.txt", "two.txt"):
        (folder / name).write_text("{previous}{example}{turns}", encoding="utf-8")
    return folder


@pytest.mark.parametrize("prefix", [PREFIX, SPECIFIED_PREFIX])
def test_every_setting_has_two_variables(prefix: str, prompts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ELISION_X and AGENT_CONTEXT_X set the same; both at once may only say the same, or the error names both."""
    monkeypatch.chdir(prompts)
    for name, key in ALL_KEYS.items():
        value, other = list_values(name)
        company = {"ELISION_SUMMARIZER": "openai:gpt-5"} if name == "summarizer_base_url" else {}
        both = [f"{each}{name.upper()}" for each in sorted((PREFIX, SPECIFIED_PREFIX), key=lambda it: it != prefix)]
        expected = load_settings(company, prompts, **{name: value})
        for environ in ({both[0]: value}, dict.fromkeys(both, value)):
            found = load_settings(environ | company, prompts)
            assert places(found)[name] in environ
            assert replace(found, entries=()) == replace(expected, entries=())
            assert shown(found) == shown(expected)
        with pytest.raises(SettingError) as refusal:
            load_settings({both[0]: value, both[1]: other} | company, prompts)
        assert all(f"{variable} says" in str(refusal.value) for variable in both)
        assert not (key.secret and (value in str(refusal.value) or other in str(refusal.value)))


def test_two_files_named_by_both_variables(tmp_path: Path) -> None:
    """The file of settings has two variables too; the error names both."""
    (tmp_path / "a.toml").write_text("max_turns = 3\n", encoding="utf-8")
    for variable in ("ELISION_CONFIG", "AGENT_CONTEXT_CONFIG"):
        assert load_settings({variable: "a.toml"}, tmp_path).guards.max_turns == 3
    with pytest.raises(SettingError, match=r"ELISION_CONFIG says a.toml, but AGENT_CONTEXT_CONFIG says b.toml; keep"):
        load_settings({"ELISION_CONFIG": "a.toml", "AGENT_CONTEXT_CONFIG": "b.toml"}, tmp_path)


def test_a_mistyped_variable_is_an_error_and_one_of_others_is_not(tmp_path: Path) -> None:
    """ELISION_ begins names of other things too: what Kubernetes says of a service, what `elision wrap` sets."""
    with pytest.raises(SettingError, match=r"ELISION_STRATGY: no such setting; did you mean ELISION_STRATEGY?"):
        load_settings({"ELISION_STRATGY": "raw"}, tmp_path)
    others = {
        "ELISION_HOME": "x",
        "ELISION_GATEWAY_URL": "http://127.0.0.1:9",
        "ELISION_MCP_TOKEN": "s3cret",
        "ELISION_SERVICE_HOST": "10.0.0.1",
        "ELISION_SERVICE_PORT": "80",
        "ELISION_SERVICE_PORT_HTTP": "80",
        "ELISION_PORT": "tcp://10.0.0.1:80",
        "ELISION_PORT_80_TCP": "tcp://10.0.0.1:80",
        "ELISION_PORT_80_TCP_PROTO": "tcp",
        "ELISION_PORT_80_TCP_PORT": "80",
        "ELISION_PORT_80_TCP_ADDR": "10.0.0.1",
        "ELISION_GATEWAY_SERVICE_HOST": "10.0.0.1",
        "ELISION_GATEWAY_SERVICE_PORT": "8377",
        "ELISION_GATEWAY_PORT": "tcp://10.0.0.1:8377",
        "ELISION_GATEWAY_PORT_8377_TCP_PORT": "8377",
        "ELISION_SOAK": "1",
    }
    assert shown(load_settings(others, tmp_path)) == shown(load_settings({}, tmp_path))


@pytest.mark.parametrize("spelled", [str.upper, str.lower])
def test_a_variable_without_our_prefix_has_no_effect(spelled: Callable[[str], str], tmp_path: Path) -> None:
    """MODEL, STORE, LOG and the like are other programs' variables: they are not read, whatever they hold."""
    plain = load_settings({}, tmp_path)
    for name in (*ALL_KEYS, *ALIASES, CONFIG):
        found = load_settings({spelled(name): "gpt-4"}, tmp_path)
        assert (shown(found), places(found)) == (shown(plain), places(plain)), name


# -- prompts for summaries ---------------------------------------------------------------------------------------------


def test_a_prompt_file_is_checked_with_the_settings(tmp_path: Path) -> None:
    """A file that is missing, or lacks a marker, is refused by variable, file and line, whoever writes summaries."""
    missing = refused(tmp_path, SUMMARY_PROMPT=str(tmp_path / "none.txt"))
    assert missing.startswith("ELISION_SUMMARY_PROMPT: ")
    assert "none.txt: cannot be read: No such file or directory; give the path of a text file" in missing
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("{previous}\n\n{histroy}\n", encoding="utf-8")
    wrong = refused(tmp_path, SUMMARY_PROMPT=str(prompt))
    assert f"ELISION_SUMMARY_PROMPT: {prompt}:3: no marker {{histroy}}; there are {{previous}}" in wrong
    prompt.write_text("{previous}\n{turns}\n", encoding="utf-8")
    both = refused(tmp_path, SUMMARY_PROMPT=str(prompt), SUMMARY_EXAMPLE="on")
    assert both.startswith("ELISION_SUMMARY_PROMPT, ELISION_SUMMARY_EXAMPLE: ")
    assert "no line has {example}; add it, or set summary_example=off" in both


def test_a_prompt_beside_the_digest_has_a_note(tmp_path: Path) -> None:
    """Nobody reads the prompt then: it is kept, and the note says when it would be used."""
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("{previous}\n{turns}\n", encoding="utf-8")
    entries = {
        entry.key.name: entry.note
        for entry in of(tmp_path, SUMMARY_PROMPT=str(prompt), SUMMARY_TEMPERATURE="0.5").entries
    }
    assert entries["summary_prompt"] == "used if a model writes summaries; the digest asks none"
    assert entries["summary_temperature"] == "used if a model writes summaries; the digest asks none"
    assert entries["summary_example"] == ""
    model = of(tmp_path, SUMMARY_PROMPT=str(prompt), SUMMARIZER="openai:gpt-5-mini")
    assert not any(entry.note for entry in model.entries)


@pytest.mark.parametrize("value", ["-0.1", "2.1", "nan", "warm"])
def test_a_temperature_is_0_to_2(tmp_path: Path, value: str) -> None:
    assert "give a temperature, 0 to 2, or none" in refused(tmp_path, SUMMARY_TEMPERATURE=value)
    assert of(tmp_path, SUMMARY_TEMPERATURE="none").summary_temperature is None


def test_who_writes_summaries_is_described(tmp_path: Path) -> None:
    """In one line, without secrets; and whether the strategy has summaries at all."""
    assert of(tmp_path).describe_summarizer() == "off"
    assert of(tmp_path, STRATEGY="hybrid").describe_summarizer() == "by the digest, without a model"
    written = of(
        tmp_path,
        STRATEGY="hybrid",
        SUMMARIZER="openai:qwen3-coder",
        SUMMARIZER_BASE_URL="http://agent:hunter2@localhost:8000/v1",
        SUMMARY_EXAMPLE="on",
        SUMMARY_TEMPERATURE="0.2",
    ).describe_summarizer()
    assert written == ("by openai:qwen3-coder at http://agent:***@localhost:8000/v1, example on, temperature 0.2")
