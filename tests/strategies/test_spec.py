"""Strategies as text, and back."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import SpecError
from elision.strategies.decision_context import Budget
from elision.strategies.schedules import CacheAwareSchedule, EveryTurnSchedule, HindsightSchedule
from elision.strategies.selectors import Rule
from elision.strategies.spec import (
    PRESET_GUARDS,
    PRESETS,
    SCHEDULES,
    STRATEGIES,
    describe_strategy,
    find_preset,
    list_stated_options,
    parse_strategy,
)
from elision.strategies.strategy import Hybrid, Masking, Raw, Strategy, Summarization, TwoTier

texts = st.text(st.characters(exclude_categories=()), max_size=12)
counts = st.integers(1, 10**6)
shares = st.floats(0, 1, exclude_min=True)
budgets = st.none() | st.builds(
    Budget,
    tokens=st.none() | counts,
    max_context_pct=shares,
    reserved=st.integers(0, 10**6),
    min_window=counts,
    low=shares,
)
rules = st.builds(
    Rule,
    tool=texts,
    args=texts,
    tag=texts,
    keep=st.booleans(),
    after=st.none() | counts,
    below=counts,
)
shared: dict[str, Any] = {
    "schedule": st.sampled_from([EveryTurnSchedule(), CacheAwareSchedule(), HindsightSchedule()])
    | st.builds(CacheAwareSchedule, counts),
    "gist": st.integers(0, 10**6),
    "placeholder": texts.map(lambda text: text.replace("{", "{{").replace("}", "}}")),
    "handles": st.booleans(),
    "rules": st.lists(rules, max_size=3).map(tuple),
    "budget": budgets,
    "summary_max_tokens": st.integers(50, 10**6),
    "keep_user_tokens": st.integers(0, 10**6),
}
some_strategies: st.SearchStrategy[Strategy] = st.one_of(
    st.builds(Raw, **shared),
    st.builds(Masking, window=counts, **shared),
    st.builds(Summarization, every=counts, tail=counts, summarize_tokens=st.none() | counts, **shared),
    st.builds(
        Hybrid,
        window=counts,
        tail=st.integers(1, 50),
        summarize_at=st.integers(51, 99),
        summarize_tokens=st.none() | counts,
        **shared,
    ),
    st.builds(TwoTier, keep_recent=counts, soft=st.integers(1, 99), hard=st.integers(99, 999), **shared),
)


@given(some_strategies)
def test_round_trip(strategy: Strategy) -> None:
    """Every strategy has a text that is read as that strategy."""
    assert parse_strategy(describe_strategy(strategy)) == strategy


def test_the_issue_s_own_example() -> None:
    """The text that the design shows means what it says."""
    assert parse_strategy("hybrid(window=10, summarize_at=43, tail=10, schedule=cache-aware, gist=50)") == Hybrid()


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_bare_name_is_the_default(name: str) -> None:
    """A name alone, or with empty parentheses, is the strategy as it is by default."""
    assert parse_strategy(name) == parse_strategy(f" {name} ( ) ") == STRATEGIES[name]()
    assert describe_strategy(parse_strategy(name)) == name


def test_values_without_a_name() -> None:
    """Values without a name are a strategy's own options, in order."""
    assert parse_strategy("hybrid(5, 20, 4)") == Hybrid(window=5, summarize_at=20, tail=4)
    assert parse_strategy("masking(3, gist=0)") == Masking(window=3, gist=0)
    assert parse_strategy("masking(schedule=cache-aware(7))").schedule == CacheAwareSchedule(7)
    assert parse_strategy("masking(schedule=cache-aware(max_turns=7))").schedule == CacheAwareSchedule(7)


def test_rules_and_budget() -> None:
    """Rules stand in a list or alone, a budget as a number or by its options."""
    assert parse_strategy('masking(rules=[rule(tool="cat*", keep=true), rule(tag=x, after=2)])').rules == (
        Rule(tool="cat*", keep=True),
        Rule(tag="x", after=2),
    )
    assert parse_strategy("masking(rules=rule(below=20))").rules == (Rule(below=20),)
    assert parse_strategy("masking(budget=32_000)").budget == Budget(tokens=32_000)
    assert parse_strategy("masking(budget=budget(reserved=1800))").budget == Budget(reserved=1800)
    assert parse_strategy("masking(budget=none)").budget is None


def test_presets() -> None:
    """Presets are what design 3 says, and may be changed by name."""
    assert parse_strategy("swe-agent") == Hybrid(window=10, summarize_at=43, tail=10)
    assert parse_strategy("openhands") == Hybrid(window=58, summarize_at=80, tail=58)
    assert parse_strategy("chat") == Masking(window=6, budget=Budget(reserved=1_800))
    assert parse_strategy("code") == Hybrid(window=12, tail=5, summarize_at=10, summarize_tokens=9_000)
    assert parse_strategy("swe-agent(gist=0, schedule=every-turn)") == Hybrid(gist=0, schedule=EveryTurnSchedule())


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("MASKING(window=3)", "masking(window=3)"),
        ("Two-Tier(schedule=Every-Turn)", "two-tier(schedule=every-turn)"),
        ("Paper-Masking(window=5)", "paper-masking(window=5)"),
        ("paper-masking(5)", "paper-masking(window=5)"),
    ],
)
def test_names_in_any_letter_case(text: str, same: str) -> None:
    """Strategies, presets and schedules are found however they are written."""
    assert parse_strategy(text) == parse_strategy(same)


@given(n=st.integers(2, 100))
def test_a_default_gives_way_to_what_is_stated(n: int) -> None:
    """A text that states N alone is a strategy whatever N is, and describes itself so that it is read again."""
    found = parse_strategy(f"hybrid(summarize_at={n})")
    assert isinstance(found, Hybrid)
    assert found.tail == (10 if n > 10 else max(1, n // 2))
    assert parse_strategy(describe_strategy(found)) == found
    assert parse_strategy(f"two-tier(hard={1_000 * n})").soft == min(32_000, 1_000 * n)  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ["maskin", "supersede", "5", '"masking"', "[masking]"])
def test_an_unknown_strategy_lists_what_exists(text: str) -> None:
    """Whoever misspells a strategy is told all of them, presets too."""
    with pytest.raises(SpecError) as caught:
        parse_strategy(text)
    assert all(name in str(caught.value) for name in (*STRATEGIES, *PRESETS))


@pytest.mark.parametrize("text", ["masking(schedule=hourly)", "masking(schedule=3)", "masking(schedule=none)"])
def test_an_unknown_schedule_lists_what_exists(text: str) -> None:
    """Whoever misspells a schedule is told all of them."""
    with pytest.raises(SpecError) as caught:
        parse_strategy(text)
    assert all(name in str(caught.value) for name in SCHEDULES)


def test_an_unknown_option_lists_what_exists() -> None:
    """Whoever misspells an option is told those of that strategy, schedule, budget or rule."""
    with pytest.raises(
        SpecError, match=r"strategy masking has no option 'windw'; did you mean window\? There are: .*gist"
    ):
        parse_strategy("masking(windw=3)")
    with pytest.raises(SpecError, match=r"has no option 'm'; there are: max_turns"):
        parse_strategy("masking(schedule=cache-aware(m=3))")
    with pytest.raises(SpecError, match=r"has no option 'pct'; there are: tokens, max_context_pct"):
        parse_strategy("masking(budget=budget(pct=1))")
    with pytest.raises(SpecError, match=r"has no option 'name'; there are: tool, args, tag"):
        parse_strategy("masking(rules=rule(name=x, keep=true))")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("masking(window=-1)", r"masking\(window=-1\): give a whole number, 1 or more"),
        ("masking(window=0)", "1 or more"),
        ("masking(window=2.5)", "give a whole number"),
        ("masking(window=nan)", "give a whole number"),
        ("masking(window=true)", r"masking\(window=true\): give a whole number"),
        ("masking(fold=yes)", r"masking\(fold=yes\): give true or false"),
        ('raw(trim="packages")', "no option 'trim'; there are"),
        ('masking(rules=rule(trim="packages"))', "rule has no option 'trim'; there are"),
        ("masking(rules=rule(ends=500))", "rule has no option 'ends'; there are"),
        ("hybrid(probation=5)", "no option 'probation'; there are"),
        ("hybrid(digest_facts=80)", "no option 'digest_facts'; there are"),
        ("masking(reserved=5)", r"write budget=budget\(reserved=…\)"),
        ("masking(max_turns=5)", r"write schedule=cache-aware\(max_turns=…\)"),
        ("masking(budget=budget(max_tokens=5))", "^budget has no option 'max_tokens'"),
        ("masking(lifetime=1h)", "cannot read '1h' in .*: give a number, a word, or a text in quotes"),
        ("masking window=3", r"'window' comes after the end of .*; options have brackets: masking\(window=10\)"),
        ("masking(window=none)", "give a whole number"),
        ("masking(gist=-1)", "gist=-1"),
        ("masking(handles=maybe)", "give true or false"),
        ("masking(placeholder=3)", "give a text"),
        ("masking(summary_max_tokens=10)", "50 or more"),
        ("summarization(every=0)", "every=0"),
        ("summarization(tail=0)", "tail=0"),
        ("hybrid(summarize_at=10, tail=10)", "summarize_at must exceed tail"),
        ("hybrid(summarize_at=1)", "the newest turn stays out of a summary; give 2 turns or more"),
        ("hybrid(summarize_tokens=0)", "summarize_tokens=0"),
        ("hybrid(summarize_tokens=many)", "give a whole number or none"),
        ("two-tier(soft=9, hard=8)", "soft must not exceed hard"),
        ("two-tier(after_steps=-1)", "after_steps=-1"),
        ("masking(schedule=cache-aware(0))", "give turns, 1 or more"),
        ("masking(schedule=cache-aware(x))", "give a whole number"),
        ("masking(budget=0)", "1 or more"),
        ("masking(budget=budget(max_context_pct=nan))", "give a number"),
        ("masking(budget=budget(max_context_pct=0))", "above 0, up to 1"),
        ("masking(budget=budget(max_context_pct=1.01))", "above 0, up to 1"),
        ("masking(budget=budget(low=1e999))", "above 0, up to 1"),
        ("masking(budget=budget(reserved=-1))", "0 or more"),
        ("masking(budget=budget(min_window=0))", "1 or more"),
        ("masking(budget=large)", "budget: give tokens"),
        ("masking(rules=5)", r"rules: give rule\("),
        ("masking(rules=rule())", "has no effect"),
        ("masking(rules=rule(after=0))", "the newest turn is never masked"),
        ("masking(rules=rule(below=-1))", "0 or more"),
        ("masking(rules=rule(tool=3, keep=true))", "give a text"),
        ("masking(rules=rule(keep=yes))", "give true or false"),
        ("masking(window=3, window=3)", "'window' is given twice"),
        ("masking(3, window=3)", "'window' is given twice"),
        ("masking(1, 2)", "2 values without a name"),
        ("raw(1)", "1 values without a name"),
        ("masking(window=raw())", None),
        ("masking(window=raw(1))", "has no meaning here"),
    ],
)
def test_values_without_meaning(text: str, message: str | None) -> None:
    """A value that has no meaning is an error that names the option and what to give."""
    with pytest.raises(SpecError, match=message):
        parse_strategy(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "(",
        ")",
        "masking(",
        "masking)",
        "masking(window=)",
        "masking(window=3",
        "masking(window=3))",
        "masking window=3",
        "masking(,)",
        "masking[3]",
        "masking(window==3)",
        "masking(placeholder='open)",
        "masking(3;4)",
        "1.2.3",
        "masking(window=3px)",
        "masking(window=" + "9" * 5_000 + ")",
        "masking(" * 5_000,
        "[" * 5_000,
        "masking(rules=" + "[" * 5_000 + "]" * 5_000 + ")",
    ],
)
def test_broken_text(text: str) -> None:
    """A text that is no spec is a SpecError, whatever it is."""
    with pytest.raises(SpecError):
        parse_strategy(text)


tokens = st.sampled_from(
    [
        *STRATEGIES,
        *SCHEDULES,
        *PRESETS,
        "window",
        "rules",
        "rule",
        "budget",
        "keep",
        *"()[],=-",
        "3",
        "-1",
        "0.5",
        '"x"',
        "true",
        "none",
        "nan",
    ]
)


@given(st.text(st.characters(exclude_categories=()), max_size=40) | st.lists(tokens, max_size=25).map("".join))
def test_garbage_never_breaks_the_reader(text: str) -> None:
    """Any text is a strategy or an error of ours."""
    with suppress(SpecError):
        assert isinstance(parse_strategy(text), Strategy)


def test_hindsight_is_for_recordings() -> None:
    """A live session cannot know the future, and is told so."""
    with pytest.raises(SpecError, match="needs a recorded run"):
        parse_strategy("masking(schedule=hindsight)").start_policy()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hybrid", set()),
        ("hybrid(8, tail=5)", {"window", "tail"}),
        ("Code(window=8)", {"window"}),
        ("paper-masking(5)", {"window"}),
        ("chat", set()),
        ("masking(budget=9000)", {"budget.tokens"}),
        ("masking(gist=0, budget=budget(reserved=5, low=0.5))", {"gist", "budget.reserved", "budget.low"}),
        ("masking(7, gist=9)", {"window", "gist"}),
    ],
)
def test_stated(text: str, expected: set[str]) -> None:
    """What a text states itself is told from what comes with a preset or a default."""
    assert list_stated_options(text) == expected


def test_presets_with_guards() -> None:
    """The preset `code` allows at most 120 turns; a text that names no preset brings no guards."""
    assert PRESET_GUARDS[find_preset("code(window=8)")].max_turns == 120
    assert [find_preset(text) for text in ("hybrid", "raw", "swe-agent")] == ["", "", "swe-agent"]
    assert set(PRESET_GUARDS) <= set(PRESETS)


class Counted(str):
    """A text that counts the characters that are copied out of it."""

    copied = 0

    def __getitem__(self, key: Any) -> str:
        part = super().__getitem__(key)
        self.copied += len(part)
        return part


def test_reading_takes_as_long_as_the_text() -> None:
    """A long text is not copied once for each of its words."""
    text = Counted(f"masking(window=1, rules=[{', '.join(['rule(keep=true)'] * 500)}])")
    assert len(parse_strategy(text).rules) == 500
    assert text.copied < 2 * len(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hybird", "no strategy 'hybird'; did you mean hybrid? There are: raw, "),
        ("Maskin", "no strategy 'Maskin'; did you mean masking? There are: raw, "),
        ("swe_agent", "no strategy 'swe_agent'; did you mean swe-agent? There are: raw, "),
        ("qqq", "no strategy 'qqq'; there are: raw, "),
        ("masking(schedule=everyturn)", "no schedule 'everyturn'; did you mean every-turn? There are: every-turn, "),
        ("masking(windwo=1)", "strategy masking has no option 'windwo'; did you mean window? There are: "),
        ("masking(window=10", "')' is missing in 'masking(window=10', at its end"),
        ("masking(window=10 gist", "')' is missing in 'masking(window=10 gist', before 'gist'"),
        ("masking(window=", "a value is missing in 'masking(window=', at its end"),
        ("masking(window=,)", "a value is missing in 'masking(window=,)', before ','"),
        ("(" + "x" * 9_000, f"a value is missing in '({'x' * 199}'…, before '('"),
    ],
)
def test_an_error_names_the_place_and_what_is_meant(text: str, said: str) -> None:
    """The nearest name that exists, the word in front of which something is missing; long texts are cut."""
    with pytest.raises(SpecError) as told:
        parse_strategy(text)
    assert str(told.value).startswith(said)


@pytest.mark.parametrize("given", [None, 5, ["masking"], b"masking"])
def test_what_is_no_text_is_refused(given: Any) -> None:
    """With its type and an example."""
    with pytest.raises(SpecError, match=r"a strategy is a text such as masking\(window=10\), not "):
        parse_strategy(given)
