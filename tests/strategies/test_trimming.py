"""Results that rules shorten as they arrive, in a session."""

from __future__ import annotations

import pytest

from elision.engine import Log, LogSetup, decide, hold_view, make_plain_terms, run_pass
from elision.errors import BudgetError
from elision.strategies.rules import RuleOutcome
from elision.strategies.spec import describe_strategy, parse_strategy
from elision.strategies.trimming import trim_result
from elision.trajectory.events import PassDecided, SessionOpened
from elision.trajectory.turn import Head, Observation, Turn
from tests.properties.builders import (
    PLAIN,
    SIZER,
    begin_session,
    call,
    long_text,
    result,
    run_session,
    step,
    turn,
    user,
    write_brief_summary,
)

INSTALLED = "\n".join(f"Collecting package-{number}>=1.{number}" for number in range(40))
LONG = long_text(1, lines=400)
ENDS = "raw(rules=rule(ends=200))"
RECALL = {"name": "elision_recall", "description": "Reads again.", "input_schema": {"type": "object"}}


def run(index: int, text: str, tool: str = "bash", **arguments: str) -> Turn:
    return turn(index, (call(tool, **(arguments or {"command": "make"})), result(text, tool)))


def show(log: Log) -> list[tuple[str, str]]:
    """How each result is shown in the newest view: as what, and the text where it is not its own."""
    assert log.newest_call is not None
    segments = log.newest_call.view.segments
    return [(each.kind, each.text) for each in segments if isinstance(each.source, Observation)]


def test_a_new_result_is_shortened_in_its_first_request() -> None:
    """It stays so, no cache is lost, and the note names the handle."""
    log = run_session('raw(rules=rule(trim="packages"))', [run(1, f"go\n{INSTALLED}\ndone"), run(2, "ok")])
    shown = "go\n[40 lines of package manager routine left out: t1.1]\ndone"
    assert show(log) == [("trimmed", shown), ("observation", "")]
    assert log.state.epoch == 1
    assert [event.call for event in log.events if isinstance(event, PassDecided) and event.trims] == [2]
    assert log.bill.spent_usd < log.bill.raw_spent_usd
    assert log.state.find_observation((1, 1)).text == f"go\n{INSTALLED}\ndone"


def test_nothing_is_shortened_unless_a_rule_says_so() -> None:
    """No default of a strategy trims; a rule acts on the tools that it names alone."""
    for spec in ("masking", "hybrid", 'masking(rules=rule(tool="pip*", trim="packages"))'):
        assert not run_session(spec, [run(1, INSTALLED), run(2, LONG)]).state.trimmed


def test_what_was_sent_whole_stays_whole() -> None:
    """A result that a request held already is shortened no more: that would cost the cache."""
    log = begin_session(ENDS)
    log.add_turn(run(1, LONG))
    hold_view(log, "the store is gone", make_plain_terms())
    log.add_turn(run(2, LONG))
    run_pass(decide(log, make_plain_terms()), write_brief_summary)
    assert [kind for kind, _ in show(log)] == ["observation", "trimmed"]


def test_the_budget_goes_by_what_is_shown() -> None:
    """A result that is far larger than the budget is shortened, and nothing else is hidden for it."""
    turns = [*(step(number, long_text(number, lines=10)) for number in range(1, 6)), run(6, LONG * 20)]
    rules = ', rules=[rule(tool="bash", args="make", ends=500)]'
    budget = "budget=budget(tokens=9000, reserved=100)"
    without = run_session(f"masking({budget})", turns)
    assert any(kind in ("placeholder", "clipped") for kind, _ in show(without))
    log = run_session(f"masking({budget}{rules})", turns)
    assert [kind for kind, _ in show(log)] == ["observation"] * 5 + ["trimmed"]


def test_a_pass_that_is_broken_off_leaves_nothing() -> None:
    """An error is raised, and the results are as they were."""
    spec = "masking(budget=budget(tokens=1000, reserved=100), rules=rule(ends=200))"
    strict = begin_session(spec, start=Head(messages=(user("word " * 5_000),)))
    strict.add_turn(run(1, LONG))
    before = [segment.kind for segment in strict.state.track.segments]
    with pytest.raises(BudgetError):
        run_pass(decide(strict, make_plain_terms()), write_brief_summary)
    assert [segment.kind for segment in strict.state.track.segments] == before
    assert not strict.state.trimmed


def test_a_pass_whose_summary_never_comes_leaves_nothing() -> None:
    """The next one shortens as if it had been the first."""
    log = begin_session('summarization(every=3, tail=1, schedule=every-turn, rules=rule(args="make", ends=200))', PLAIN)
    for number in range(1, 4):
        run_pass(decide(log, make_plain_terms()), write_brief_summary)
        log.add_turn(step(number, long_text(number, lines=60)))
    run_pass(decide(log, make_plain_terms()), write_brief_summary)
    log.add_turn(run(4, LONG))
    events, segments = list(log.events), list(log.state.track.segments)
    steps = decide(log, make_plain_terms())
    next(steps)
    assert (4, 1) in log.state.trimmed
    steps.close()
    assert (4, 1) not in log.state.trimmed
    assert log.events == events
    assert [segment.kind for segment in log.state.track.segments] == [segment.kind for segment in segments]
    run_pass(decide(log, make_plain_terms()), write_brief_summary)
    assert show(log)[-1][0] == "trimmed"


def test_folds_count_the_lines_of_what_is_left() -> None:
    """A repeat of a shortened result names its lines as they are shown, and is shown again where its source goes."""
    text = "\n".join(["begin", *INSTALLED.split("\n"), *(f"{chr(97 + n)}-word of {n * n}" * 3 for n in range(26))])
    spec = (
        'masking(window=9, gist=0, fold=true, rules=[rule(trim="packages"), rule(args="first", after=2)], '
        "schedule=every-turn)"
    )
    turns = [run(1, text, command="first"), run(2, text, command="second")]
    log = run_session(spec, turns, PLAIN)
    (first, trimmed), (second, folded) = show(log)
    assert (first, second) == ("trimmed", "folded")
    shown = trimmed.count("\n") + 1
    note = "[40 lines of package manager routine left out: t2.1]"
    assert folded == f"begin\n{note}\n[same as lines 3–{shown} of t1.1 (bash first)]"
    log.add_turn(run(3, "ok"))
    run_pass(decide(log, make_plain_terms()), write_brief_summary)
    assert [kind for kind, _ in show(log)] == ["placeholder", "trimmed", "observation"]
    assert show(log)[1][1] == trimmed.replace("t1.1", "t2.1")


def test_a_mask_saves_what_is_shown() -> None:
    """A result that rules left little of is not masked by a placeholder that is longer."""
    log = run_session('masking(window=1, schedule=every-turn, rules=rule(trim="packages"))', [run(1, INSTALLED)])
    assert show(log) == [("trimmed", "[40 lines of package manager routine left out: t1.1]")]
    for number in range(2, 6):
        log.add_turn(run(number, "ok"))
        run_pass(decide(log, make_plain_terms()), write_brief_summary)
    assert show(log)[0][0] == "trimmed"


@pytest.mark.parametrize(("offer", "named"), [("start", True), ("first", False), ("caller", True)])
def test_handles_only_where_they_can_be_read(offer: str, named: bool) -> None:
    """The recall tools never enter for a trim: that would cost the cache. Without them long results stay whole."""
    tools = () if offer == "caller" else (RECALL,)
    spec = 'masking(rules=[rule(trim="packages"), rule(tool="bash", args="long", ends=200)])'
    log = Log.fold((), LogSetup(parse_strategy(spec), PLAIN, SIZER))
    log.record_event(SessionOpened(strategy=spec, offer=offer, tools=tools))
    for each in (run(1, INSTALLED), run(2, LONG, command="long")):
        run_pass(decide(log, make_plain_terms()), write_brief_summary)
        log.add_turn(each)
    run_pass(decide(log, make_plain_terms()), write_brief_summary)
    (_, text), (kind, _) = show(log)
    assert text == f"[40 lines of package manager routine left out{': t1.1' if named else ''}]"
    assert kind == ("trimmed" if named else "observation")


def count(text: str) -> int:
    return SIZER.count(text)


NOISE = RuleOutcome(trims=("packages",))


def test_recalled_results_are_whole() -> None:
    """By tool, by a host's name for it, and by command."""
    for tool, arguments in (
        ("elision_recall", {"handle": "t1.1"}),
        ("mcp__elision__recall_hidden", {"handle": "t1.1"}),
        ("bash", {"command": "elision recall t1.1"}),
    ):
        one = run(1, INSTALLED, tool, **arguments)
        assert trim_result(NOISE, one, one.observations[0], count, "t1.1") is None


def test_files_that_were_read_lose_their_middle_alone() -> None:
    """A log file is read for what it says."""
    one = run(1, INSTALLED, "read_file", path="install.log")
    assert trim_result(NOISE, one, one.observations[0], count, "t1.1") is None
    both = RuleOutcome(trims=("packages",), ends=100)
    shown = trim_result(both, one, one.observations[0], count, "t1.1")
    assert shown is not None
    assert "lines left out: t1.1]" in shown


@pytest.mark.parametrize("ruling", [RuleOutcome(trims=("packages",), keep=True), RuleOutcome(ends=50, verbatim=True)])
def test_protected_results_are_whole(ruling: RuleOutcome) -> None:
    """What a rule keeps, or keeps verbatim."""
    one = run(1, INSTALLED)
    assert trim_result(ruling, one, one.observations[0], count, "t1.1") is None


def test_text_that_no_encoder_takes_is_whole() -> None:
    """It would be sent in another form than it is compared in."""
    one = run(1, INSTALLED + "\ud800")
    assert trim_result(NOISE, one, one.observations[0], count, "t1.1") is None


def test_text_form() -> None:
    """The options can be written and read."""
    spec = 'raw(rules=[rule(trim="passing-tests"), rule(tool="bash", ends=4000)])'
    assert describe_strategy(parse_strategy(spec)) == spec
