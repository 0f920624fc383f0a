"""What a study says in sentences."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import msgspec

from elision.lab.elongation import OPENHANDS, assume_turns
from elision.lab.report import wording
from elision.lab.results import Composition, Row, Study
from elision.strategies.spec import parse_strategy
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.prices import Bill
from elision.trajectory.trajectory import Problem
from tests.lab.report.studies import EVERY_TURN, HINDSIGHT, HYBRID, MASKING, RAW, empty, row, study


def test_headline_names_the_recommended_strategy() -> None:
    """Against raw, and against the same strategy at every turn; hybrid is cheaper, and is not named first."""
    assert wording.write_headline(study()) == (
        "Masking costs $4.00 instead of $5.00 as recorded (−20 %). Masking at every turn costs $7.50 (+50 %)."
    )


def test_headline_without_the_recommended_strategy() -> None:
    """The cheapest that can be run; hindsight is cheaper but cannot."""
    assert (
        wording.write_headline(study((RAW, HYBRID, HINDSIGHT)))
        == "Hybrid costs $2.50 instead of $5.00 as recorded (−50 %)."
    )
    own = study((RAW, "masking(window=5)"))
    assert wording.write_headline(own) == "masking(window=5) costs $3.50 instead of $5.00 as recorded (−30 %)."


def test_recommendation_says_what_is_cheapest() -> None:
    """Why the recommended one is, and what a cheaper one needs; nothing where it is not compared."""
    assert wording.write_recommendation(study()) == (
        "Recommended: masking; it needs no model, and recall gives back what it hid. Lowest cost here: hybrid at $2.50,"
        " including $0.250 for 4 summaries by a model."
    )
    alone = wording.write_recommendation(study((RAW, MASKING)))
    assert alone == "Recommended: masking; it needs no model, and recall gives back what it hid."
    assert wording.write_recommendation(study((RAW, HYBRID))) is None


def test_prices_in_full() -> None:
    """Date, models, every rate there is, and where more is paid."""
    assert wording.describe_prices(find_price_set("anthropic")) == (
        "Prices of 2026-11-20: anthropic (most Claude models), $3 input, $3.75 cache write, $0.30 cache read,"
        " $15 output per million tokens"
    )
    assert "$0.125 cache read" in wording.describe_prices(find_price_set("openai"))
    assert "cache write" not in wording.describe_prices(find_price_set("openai"))
    assert wording.describe_prices(find_price_set("qwen3-coder")).endswith("; more above 32,000 tokens")


def test_headline_prefers_evidence_among_equals() -> None:
    """Of strategies that cost nearly the same the one with more facts visible is named."""
    cheap = row(HYBRID)
    near = replace(
        row("two-tier"),
        bill=msgspec.structs.replace(cheap.bill, usd=cheap.bill.usd * 1.03),
        summarizer=cheap.summarizer,
    )
    near = replace(near, evidence_found=97)
    both = replace(study((HYBRID, "two-tier")), rows=(row(HYBRID), near))
    assert wording.write_headline(both).startswith("two-tier ")


def _costing(strategy: str, to_raw: float, found: int) -> Row:
    """A run that cost `to_raw` of two dollars, of whose thousand items `found` were kept."""
    bill = Bill(usd=2.0 * to_raw)
    return replace(row(strategy), bill=bill, summarizer=Bill(), raw_usd=2.0, evidence_items=1_000, evidence_found=found)


def _named_first(*rows: Row) -> set[str]:
    """What is named first, over all orders of the same rows."""
    orders = [replace(study(tuple(each.strategy for each in order)), rows=order) for order in permutations(rows)]
    return {best.strategy for order in orders if (best := wording.find_featured(order)) is not None}


def test_featured_does_not_depend_on_order() -> None:
    """Of strategies that keep the same whole percent the cheapest is named, whatever the order of the options."""
    rows = (_costing("raw", 1.0, 1000), _costing("a", 0.52, 952), _costing("b", 0.50, 948), _costing("c", 0.51, 900))
    assert _named_first(*rows) == {"b"}
    assert _named_first(_costing("b", 0.5, 950), _costing("a", 0.5, 950)) == {"a"}


def test_featured_is_not_dearer_than_raw_where_one_is_cheaper() -> None:
    """Within five percent of the cheapest, but above sending everything: never named first."""
    rows = (_costing("raw", 1.0, 1000), _costing("hybrid", 0.99, 900), _costing("summarization", 1.02, 1000))
    assert _named_first(*rows) == {"hybrid"}
    both = replace(study(("raw", "hybrid", "summarization")), rows=rows)
    assert wording.write_headline(both) == "Hybrid costs $1.98 instead of $2.00 as recorded (−1 %)."


def test_featured_is_live() -> None:
    """Neither raw nor a hindsight schedule is named first, however cheap."""
    assert _named_first(_costing("raw", 1.0, 1000), _costing(HINDSIGHT, 0.1, 1000), _costing("a", 0.9, 10)) == {"a"}


def test_headline_where_nothing_is_saved() -> None:
    """The recommended strategy is named all the same, and a loss is called one."""
    assert wording.write_headline(study((RAW, EVERY_TURN))) == (
        "masking (every turn) saves nothing here: it costs $7.50, and as recorded the runs cost $5.00 (+50 %)."
    )
    rows = (_costing("raw", 1.0, 1000), _costing("masking", 1.0, 1000))
    assert wording.write_headline(replace(study(("raw", "masking")), rows=rows)) == (
        "Masking saves nothing here: it costs what was paid, $2.00."
    )


def test_headline_of_little() -> None:
    """Raw alone, nothing at all, and runs that cost nothing each have a sentence."""
    assert wording.write_headline(study((RAW,))) == "As recorded these runs cost $5.00."
    assert wording.write_headline(empty()) == "No run was replayed."
    free = replace(study((HYBRID,)), rows=(replace(row(HYBRID), raw_usd=0.0),))
    assert wording.write_headline(free) == "Hybrid costs $1.00."


def test_allowance() -> None:
    """How many extra turns would eat the saving, and what share of the run that is; none where nothing is saved."""
    assert wording.describe_break_even(row(HYBRID)) == "14 extra turns (+35 %)"
    assert wording.describe_break_even(row(EVERY_TURN)) is None


def test_interruption() -> None:
    """A broken-off study says how much of it is there, and warns where strategies saw different runs."""
    assert wording.describe_interruption(study()) is None
    half = replace(study(), finished=False)
    assert wording.describe_interruption(half) == "Interrupted: 2 runs finished, the others are missing."
    uneven = replace(half, rows=half.rows[:-1])
    assert "not every strategy saw the same runs" in str(wording.describe_interruption(uneven))


def test_notes_label_an_estimate() -> None:
    """An inexact counter is called an estimate; an exact one is named."""
    assert any("estimate" in note for note in wording.list_notes(replace(study(), counter="estimate")))
    assert not any("estimate" in note for note in wording.list_notes(study()))
    assert "o200k" in wording.describe_scope(study())


def test_notes_say_how_a_plan_is_found_with_a_look_back() -> None:
    """Where one is computed."""
    assert any("look" in note for note in wording.list_notes(replace(study(), look_back=True)))
    assert not any("look" in note for note in wording.list_notes(study()))
    without = tuple(replace(each, hindsight_usd=None) for each in study().rows)
    assert not any("look" in note for note in wording.list_notes(replace(study(), look_back=True, rows=without)))


def test_notes_speak_of_what_is_there() -> None:
    """Summaries are mentioned where there are some, the split by rates where prices have tiers."""
    assert any("summaries" in note for note in wording.list_notes(study()))
    assert not any("summaries" in note for note in wording.list_notes(study((RAW, MASKING))))
    assert any(
        "lowest tier" in note for note in wording.list_notes(replace(study(), prices=find_price_set("qwen3-coder")))
    )


def test_notes_warn_of_many_misses() -> None:
    """Above the share at which live agents solved less; not of raw, nor of a few turns."""
    plain = study((RAW, MASKING))
    assert wording.warn_of_misses(plain) is None
    above = replace(row(MASKING), turns=1_000, regret_turns=36)
    warned = wording.warn_of_misses(replace(plain, rows=(row(RAW), above)))
    assert warned is not None
    assert warned.startswith("Warning: many turns miss a fact: masking 3.6 %. Above 3.5 %")
    assert warned in wording.list_notes(replace(plain, rows=(row(RAW), above)))
    for few in (replace(above, regret_turns=35), replace(above, turns=99)):
        assert wording.warn_of_misses(replace(plain, rows=(row(RAW), few))) is None


def test_problems_are_grouped() -> None:
    """Equal reasons are one line with a count; ten lines at most, and the rest counted."""
    same = [Problem(file="a.jsonl", line=line, reason="no JSON") for line in (3, 4, 5)]
    others = [Problem(file="b.jsonl", line=None, reason=f"reason {number}") for number in range(12)]
    lines, more = wording.summarize_problems((*same, *others))
    assert lines[0] == "a.jsonl:3: no JSON (3 times)"
    assert (len(lines), more) == (10, 3)


def _assume(what: Study, text: str) -> Study:
    """`what` with the turns of `text`, and rows whose cost follows from them."""
    specs = {RAW: "raw", EVERY_TURN: "masking(schedule=every-turn)", MASKING: "masking", HYBRID: "hybrid"}
    turns = assume_turns(text, {label: parse_strategy(specs.get(label, "two-tier")) for label in what.strategies})
    rows = tuple(
        replace(each, extended_usd=(each.usd * turns.factors[each.strategy].low, each.usd * 1.1))
        if each.strategy in turns.factors
        else each
        for each in what.rows
    )
    return replace(what, rows=rows, turns=turns)


def test_turns_by_default() -> None:
    """The measured range by kind, and what was not measured."""
    assert wording.describe_turns(study()) is None
    assert wording.describe_turns(_assume(study((RAW, MASKING, HYBRID, "two-tier")), "")) == (
        "Turns as measured live, against raw: masking −11 to +15 %; hybrid −8 %; not known for two-tier"
        " (SWE-agent with five models; hybrid with one). --elongation measured prices those of one model."
    )


def test_turns_of_openhands() -> None:
    """Runs of OpenHands name its measurement, in the sentence and in the note on summaries; of both, both."""
    found = _assume(study((RAW, MASKING, HYBRID)), "")
    own = replace(found, turns=assume_turns("", {MASKING: parse_strategy("masking")}, (OPENHANDS,)))
    assert wording.describe_turns(own) == (
        "Turns as measured live, against raw: masking +58 %; not known for hybrid (OpenHands with one model)."
        " --elongation measured prices those of one model."
    )
    summarized = replace(own, rows=tuple(replace(each, summaries=1) for each in own.rows))
    assert (
        "Turns of real runs of OpenHands, against everything sent: +127 % masking with window=5, +10 % masking with "
        "window=36, +35 % summarization (Gemini 2.5 Flash, 500 tasks)."
    ) in " ".join(wording.list_notes(summarized))
    assert "Qwen3" not in " ".join(wording.list_notes(summarized))


def test_turns_as_measured_or_given() -> None:
    """The factors, and the cheapest strategy with them, which the headline adds if it is another one."""
    found = _assume(study((RAW, MASKING, HYBRID)), "measured")
    assert wording.describe_turns(found) == (
        "Turns as measured live with one model on 50 instances, against raw: masking −5 %; hybrid −8 %."
        " Lowest cost then: hybrid at $2.30."
    )
    headline = wording.write_headline(study((RAW, MASKING, HYBRID)))
    assert wording.write_headline(found) == f"{headline} With the turns as measured live, hybrid costs least: $2.30."
    assert wording.write_headline(_assume(study((RAW, MASKING, HYBRID)), "")) == headline
    two = _assume(study((RAW, EVERY_TURN, MASKING)), f"{MASKING}=1.5,{EVERY_TURN}=2")
    assert wording.describe_turns(two) == (
        "Turns as assumed, against raw: masking (every turn) +100 %; masking +50 %. Lowest cost then: masking at $6.00."
    )


def test_five_models_stand_for_the_effect_of_summaries() -> None:
    """Where there are summaries, the measured changes are listed, and no single number."""
    notes = " ".join(wording.list_notes(study()))
    assert "against masking: +17.9 % Gemini 2.5 Flash, +15.2 % Qwen3-Coder 480B, +1.4 % Qwen3-32B (thinking)" in notes
    assert "−17.5 % Qwen3-32B" in notes
    assert "masking:" not in " ".join(wording.list_notes(study((RAW, MASKING))))


def test_composition() -> None:
    """One format, several, none."""
    one = Composition(reader="swe-agent", observations=830, reasoning=90, actions=80, head=5_000)
    other = Composition(reader="pi", observations=500, reasoning=300, actions=100, user=100)
    assert wording.describe_composition(replace(study(), compositions=(one,))) == (
        "Of the turns' tokens: 83 % tool results, 9 % reasoning and text, 8 % tool calls."
    )
    assert wording.describe_composition(replace(study(), compositions=(one, other))) == (
        "Of the turns' tokens: 66 % tool results, 20 % reasoning and text, 9 % tool calls, 5 % user messages."
        " Tool results by format: swe-agent 83 %, pi 50 %."
    )
    assert wording.describe_composition(study()) is None
