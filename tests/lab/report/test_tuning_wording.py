"""What a tuning says of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elision.lab.report import tuning_wording as wording
from elision.lab.report.report import Provenance
from elision.lab.report.tuning_report import write_settings
from elision.lab.tuning.tuning_result import TunedPoint
from tests.lab.report.tunings import RULED, make_row, tuning

MADE_BY = Provenance(version="0.1.0", date="2026-11-22", command="elision tune runs")


def test_the_headline_compares_with_the_default() -> None:
    """In dollars and in percent; or it says that the default is the best."""
    assert wording.write_headline(tuning()) == "Summarization 21/5 costs $7.50 instead of $8.70 by default (−14 %)."
    best = wording.write_headline(replace(tuning(), recommended="masking"))
    assert best == "The default is the best point found: Masking 10, $8.70 (−13 % vs recorded)."


def test_the_verdict_says_whether_it_holds() -> None:
    """By the same rule as the choice, on the runs to judge."""
    held = wording.write_verdict(tuning())
    assert held.startswith("On the 3 runs kept to judge it costs $3.20 instead of $3.50 by default (−9 %)")
    assert held.endswith("It holds.")
    points = tuple(
        replace(point, judge=make_row(3.6, 98, 1, 4)) if point.text == tuning().recommended else point
        for point in tuning().points
    )
    assert "The choice is not confirmed: keep the default" in wording.write_verdict(replace(tuning(), points=points))
    assert wording.write_verdict(replace(tuning(), judge_runs=(("a", "b"),))).endswith("So few runs prove little.")


def test_a_tuning_that_was_not_judged_says_why() -> None:
    """No runs kept, or an interruption."""
    points = tuple(replace(point, judge=None) for point in tuning().points)
    assert "--judge-share 0" in wording.write_verdict(replace(tuning(), points=points))
    assert "interrupted" in wording.write_verdict(replace(tuning(), points=points, finished=False))


def test_the_rule_of_thumb_is_beside_it() -> None:
    """With both parts, and with Elision's schedule."""
    assert wording.describe_rule_of_thumb(tuning()) == (
        "Rule of thumb published for SWE-agent, hybrid 10/43/10, every-turn, no gist: +130 % vs recorded, "
        "+125 % to judge; the same numbers with Elision's schedule: −10 %."
    )
    assert wording.describe_rule_of_thumb(replace(tuning(), rule_of_thumb="")) is None


@pytest.mark.parametrize(("missing", "turns", "warned"), [(36, 1_000, True), (35, 1_000, False), (36, 99, False)])
@pytest.mark.parametrize("is_judged", [True, False])
def test_many_misses_are_warned_of(missing: int, turns: int, warned: bool, is_judged: bool) -> None:
    """At the recommended point, by the runs to judge or else those of the search; not of few turns, nor of others."""
    found = tuning()
    high = make_row(3.2, 98, missing, 4)

    def change(point: TunedPoint) -> TunedPoint:
        if point.text != found.recommended:
            return replace(point, fit=replace(point.fit, turns=100, regret_turns=100))
        row = replace(high, turns=turns)
        fit = replace(point.fit, turns=1_000, regret_turns=0)
        return replace(point, fit=fit, judge=row) if is_judged else replace(point, fit=row, judge=None)

    notes = wording.list_notes(replace(found, points=tuple(map(change, found.points))))
    warnings = [note for note in notes if note.startswith("Warning:")]
    expected = (
        "Warning: 3.6 % of the turns miss a fact at the recommended point. Above 3.5 % live agents solved fewer tasks "
        "(OpenHands, nine windows)."
    )
    assert warnings == ([expected] if warned else [])


def test_turns_are_of_the_scaffold() -> None:
    """OpenHands' where most runs are of it; for all others what five models of SWE-agent did."""
    found = tuning()
    points = tuple(replace(point, fit=replace(point.fit, summaries=2)) for point in found.points)
    notes = " ".join(wording.list_notes(replace(found, points=points)))
    assert "Turns of real runs with summaries, against masking: +17.9 % Gemini 2.5 Flash, " in notes
    notes = " ".join(wording.list_notes(replace(found, points=points, rule_of_thumb="published for OpenHands")))
    assert "+35 % summarization (Gemini 2.5 Flash, 500 tasks)" in notes
    assert "by model" not in notes


def test_the_break_even_is_against_the_default() -> None:
    """Per run, and beside what summaries did to real runs; none where nothing is saved."""
    found = tuning()
    points = tuple(
        replace(point, fit=replace(point.fit, runs=8, turns=400, late_usd=0.03, summaries=2))
        if point.text == found.recommended
        else point
        for point in found.points
    )
    text = wording.describe_break_even(replace(found, points=points))
    assert text is not None
    assert text.startswith("Break-even: 5.0 extra turns a run (+10 %) would cost what it saves")
    assert "Turns of real runs with summaries, against masking: +17.9 % Gemini 2.5 Flash, " in text
    assert wording.describe_break_even(replace(found, recommended="masking")) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raw", "raw"),
        ("masking", "masking 10"),
        ("masking(window=5, gist=0, schedule=every-turn)", "masking 5, every-turn, no gist"),
        ("hybrid(gist=100)", "hybrid 10/43/10, gist 100"),
        (RULED, "masking 10, read after 20"),
        ('masking(rules=[rule(tool="bash", args="cd * && cat *", after=5)])', "masking 10, cd && cat after 5"),
        ("masking(rules=[rule(after=2), rule(tool=bash, after=3)])", "masking 10, 2 rules"),
    ],
)
def test_a_point_in_few_words(text: str, words: str) -> None:
    """Defaults go without saying."""
    assert wording.describe_point(text) == words


def test_a_long_frontier_is_thinned() -> None:
    """Both ends and the recommended point stay."""
    found = tuning()
    points = tuple(
        replace(
            found.points[0], text=f"masking(window={number})", fit=make_row(number, number), names=(), on_frontier=True
        )
        for number in range(1, 60)
    )
    long = replace(found, points=(*found.references, *points), recommended="masking(window=32)")
    listed = [point.text for point in wording.choose_listed(long)]
    assert len(listed) <= wording.LISTED + 1
    assert {"masking(window=1)", "masking(window=32)"} <= set(listed)
    assert listed[-1] == long.frontier[-1].text


def test_notes_name_what_limits_the_figures() -> None:
    """Only where it does."""
    assert not any("estimated" in note for note in wording.list_notes(tuning()))
    assert any("estimated" in note for note in wording.list_notes(replace(tuning(), counter="estimate")))
    assert any("2 points left out" in note for note in wording.list_notes(replace(tuning(), unfit=2)))


def test_a_study_says_what_changed() -> None:
    """Reused, new, gone."""
    found = wording.describe_study(replace(tuning(), study="s.jsonl", reused=40, added=1, gone=2))
    assert found == "s.jsonl: 40 evaluations reused; 1 run new or changed, replayed again; 2 runs no longer there."
    assert wording.describe_study(tuning()) is None


def test_a_point_beyond_the_cap_is_warned_of() -> None:
    """In any run of either part; a point that keeps the cap is not."""
    found = tuning()
    assert wording.describe_excess(found) is None
    for part in ("fit", "judge"):
        points = tuple(
            replace(point, **{part: replace(getattr(point, part), worst_ratio=1.27)})
            if point.text == found.recommended
            else point
            for point in found.points
        )
        beyond = replace(found, points=points)
        text = wording.describe_excess(beyond)
        assert text is not None
        assert "had cost 1.27 × sending everything, beyond the 1.10 ×" in text
        assert text in write_settings(beyond, MADE_BY)
