"""Rules per tool, argument, tag and size."""

from __future__ import annotations

import pytest

from elision.errors import SpecError
from elision.strategies.selectors import Rule, RuleTable
from elision.trajectory.turn import Action, Observation, Turn
from tests.properties.builders import call, find_mask_calls, head, long_text, result, run_session, step, steps, turn


def first(*rules: Rule, **options: object) -> tuple[RuleTable, Turn, Observation]:
    one = step(1, "some output", **options)  # type: ignore[arg-type]
    return RuleTable(rules), one, one.observations[0]


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        (Rule(tool="bash", keep=True), True),
        (Rule(tool="ba*", keep=True), True),
        (Rule(tool="BASH", keep=True), False),
        (Rule(tool="cat", keep=True), False),
        (Rule(args="make step-?", keep=True), True),
        (Rule(args="*step*", tool="bash", keep=True), True),
        (Rule(args="step", keep=True), False),
        (Rule(tag="mine", keep=True), True),
        (Rule(tag="mine", tool="cat", keep=True), False),
        (Rule(tag="yours", keep=True), False),
    ],
)
def test_patterns(rule: Rule, matches: bool) -> None:
    """A rule holds where every pattern given matches, arguments being compared as decoded."""
    rules, one, observation = first(rule, tags=frozenset({"mine"}))
    assert rules.apply_rules(one, observation).keep is matches


def test_arguments_of_a_text_protocol() -> None:
    """A bare command is compared as it stands."""
    action = Action(id="", name="bash", arguments="cat a.py", implicit=True)
    spoken = Turn(
        index=1, actions=(action,), observations=(Observation(action_id="", tool="bash", content=(), role="user"),)
    )
    assert Rule(args="cat *", keep=True).matches(spoken, spoken.observations[0])


def test_an_argument_pattern_needs_a_call() -> None:
    """Where the call is unknown, nothing is known of its arguments."""
    alone = Turn(index=1, observations=(Observation(action_id="", tool="bash", content=(), role="user"),))
    assert not Rule(args="*a*", keep=True).matches(alone, alone.observations[0])


def test_tags_speak_for_themselves() -> None:
    """SWE-agent's own tags mean something without any rule."""
    rules, one, observation = first(tags=frozenset({"keep_output"}))
    assert rules.apply_rules(one, observation).keep
    rules, one, observation = first(tags=frozenset({"remove_output"}))
    assert rules.apply_rules(one, observation).after == 1
    rules, one, observation = first(tags=frozenset({"tool_output"}))
    assert rules.apply_rules(one, observation).after is None


def test_pins_are_kept() -> None:
    """A pinned result, and every result of a pinned turn, is kept."""
    rules, one, observation = first(pinned=True)
    assert rules.apply_rules(one, observation).keep
    whole = turn(1, (call(), result("x")), pinned=True)
    assert RuleTable().apply_rules(whole, whole.observations[0]).keep


def test_the_strictest_counts() -> None:
    """Of several rules keep wins, the largest size counts, and the first `after`, a user's before a tag's."""
    rules, one, observation = first(
        Rule(below=10),
        Rule(after=5),
        Rule(below=30),
        Rule(after=2),
        tags=frozenset({"remove_output"}),
    )
    ruling = rules.apply_rules(one, observation)
    assert (ruling.keep, ruling.after, ruling.below) == (False, 5, 30)


@pytest.mark.parametrize("options", [{}, {"tool": "x"}, {"after": 0}, {"below": -1}, {"after": -3, "keep": True}])
def test_rules_without_meaning(options: dict[str, object]) -> None:
    """A rule that says nothing, or would touch the newest turn, is refused."""
    with pytest.raises(SpecError):
        Rule(**options)  # type: ignore[arg-type]


def test_keep() -> None:
    """Kept results are never masked."""
    assert find_mask_calls(
        run_session('masking(window=1, schedule=every-turn, rules=rule(args="*step-2", keep=true))', steps(5))
    ) == {
        (1, 1): 3,
        (3, 1): 5,
        (4, 1): 6,
    }


def test_after() -> None:
    """`after` replaces the window: sooner, or later."""
    session = run_session(
        'masking(window=3, schedule=every-turn, rules=[rule(args="*step-1", after=1), rule(args="*step-2", after=5)])',
        steps(8),
    )
    calls = find_mask_calls(session)
    assert (calls[1, 1], calls[2, 1], calls[3, 1]) == (3, 8, 7)


def test_after_with_two_tier() -> None:
    """`after` holds for strategies that count results, too."""
    session = run_session('two-tier(keep_recent=4, schedule=every-turn, rules=rule(args="*step-1", after=1))', steps(8))
    assert find_mask_calls(session)[1, 1] == 3


def test_after_with_a_strategy_that_has_no_window() -> None:
    """`after` refines every strategy that hides anything (design 3)."""
    strategy = 'summarization(every=30, tail=2, schedule=every-turn, rules=rule(args="*step-1", after=1))'
    session = run_session(strategy, steps(5))
    assert find_mask_calls(session) == {(1, 1): 3}


def test_below() -> None:
    """What is smaller than the size given is never touched; the rest is."""
    turns = [step(1, "short " * 40), step(2, long_text(2, 20)), step(3, "x"), step(4, "x")]
    assert find_mask_calls(
        run_session("masking(window=1, gist=0, schedule=every-turn, rules=rule(below=120))", turns)
    ) == {(2, 1): 4}


def test_remove_output() -> None:
    """A result tagged remove_output goes as soon as its turn is no longer the newest."""
    turns = [step(1, tags=frozenset({"remove_output"})), *(step(index) for index in (2, 3))]
    assert find_mask_calls(run_session("masking(window=9, schedule=every-turn)", turns, start=head())) == {(1, 1): 3}
