"""The strategies of the papers over a list of turns: equal to what a context manager decides."""

from __future__ import annotations

import copy
import json
import logging
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import SettingError, SpecError
from elision.manager import ContextManager
from elision.testing.builders import call, result, step, turn, user
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.tokens import make_counter
from elision.turns import HYBRID_TEXT, TurnsSummary, _make_length_test, hybrid, mask, summarize, two_tier
from tests.published_managers import apply_observation_masking, mask_observations

TASK = "Find the slow module."
#: Placeholder of the documents' one-liner.
OMITTED = "[omitted]"


def make_turns(count: int, lines: int = 12) -> list[tuple[str, str, str]]:
    return [
        (
            f"thought {number}",
            "look at the next one",
            "\n".join(f"line {line} of file {number}" for line in range(lines)),
        )
        for number in range(1, count + 1)
    ]


def write_brief(request: SummaryRequest) -> str:
    """Say little: the turns of these tests have no paths, names or numbers that a summary would have to keep."""
    return f"Turns {request.turns[0].index} to {request.turns[-1].index} were read, the task is: {request.task}"


class Writer:
    """A summarizer that keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[SummaryRequest] = []

    def __call__(self, request: SummaryRequest) -> str:
        self.requests.append(request)
        return write_brief(request)


# -- the published functions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 15, 40])
def test_mask_is_the_published_one_liner(count: int) -> None:
    """`mask_observations(turns, current_turn=len(turns), m)` counts from 0, so that the newest m stay visible."""
    turns = make_turns(count)
    assert mask(turns, window=10, placeholder=OMITTED) == mask_observations(turns, len(turns), m=10)


def test_the_longer_published_function_spares_two_turns() -> None:
    """`apply_observation_masking` takes turns 0 and 1 for the prompts, which a list of turns does not hold.

    Apart from those two, and from the number in its placeholder, which counts from 0, it hides what `mask` hides.
    """
    turns = make_turns(15)
    theirs = apply_observation_masking(turns, len(turns), window_size_m=10)
    ours = mask(turns, window=10, placeholder=OMITTED)
    hidden_by_them = [number for number, turn in enumerate(theirs) if turn[2].endswith("omitted for brevity]")]
    hidden_by_us = [number for number, turn in enumerate(ours) if turn[2] == OMITTED]
    assert hidden_by_us == [0, 1, 2, 3, 4]
    assert hidden_by_them == [2, 3, 4]


def test_summarize_is_the_published_function_in_one_call() -> None:
    """`llm_summarize`: nothing before N + M turns; then a summary of all but M, and those M in full."""
    turns = make_turns(31)
    assert summarize(turns[:30], every=21, tail=10, summarizer=write_brief) == turns[:30]
    summary, *kept = summarize(turns, every=21, tail=10, summarizer=write_brief, task=TASK)
    assert isinstance(summary, TurnsSummary)
    # `covers_turns: (last_summary_idx, current_turn - m)` there.
    assert summary.covers == 21
    assert summary.content == f"Turns 1 to 21 were read, the task is: {TASK}"
    assert kept == turns[21:]


def test_no_turn_is_lost_between_two_summaries() -> None:
    """The published manager shows the newest M only; here every turn is in the summary or in the list."""
    boundaries = set()
    for count in range(1, 40):
        found = summarize(make_turns(count), every=5, tail=3, summarizer=write_brief, summary_max_tokens=50)
        covered = found[0].covers if isinstance(found[0], TurnsSummary) else 0
        assert found[bool(covered) :] == make_turns(count)[covered:]
        boundaries.add(covered)
    assert boundaries == {0, 5, 10, 15, 20, 25, 30, 35}


def test_hybrid_masks_first_and_summarizes_later() -> None:
    """Masks before turn 43, then a summary of turns 1 to 33, written from unmasked turns, and the masked rest."""
    turns = make_turns(50)
    writer = Writer()
    assert hybrid(turns[:42], summarizer=writer) == mask(turns[:42], placeholder=HYBRID_TEXT)
    assert writer.requests == []
    summary, *kept = hybrid(turns, summarizer=writer, task=TASK)
    assert isinstance(summary, TurnsSummary)
    assert summary.covers == 33
    assert str(summary) == f"[Summary through turn 33:\nTurns 1 to 33 were read, the task is: {TASK}\n]"
    assert kept == mask(turns, placeholder=HYBRID_TEXT)[33:]
    (request,) = writer.requests
    assert [turn.observations[0].text for turn in request.turns] == [turn[2] for turn in turns[:33]]


def test_an_earlier_summary_is_not_written_again() -> None:
    """In a loop, the summary of the last result is given back: one request for each summary, whatever the length."""
    turns = make_turns(130)
    writer = Writer()
    previous = None
    for count in range(1, len(turns) + 1):
        found = hybrid(turns[:count], summarizer=writer, previous=previous)
        previous = found[0] if isinstance(found[0], TurnsSummary) else None
    assert [(request.turns[0].index, request.turns[-1].index) for request in writer.requests] == [
        (1, 33),
        (34, 66),
        (67, 99),
    ]
    assert found == hybrid(turns, summarizer=write_brief)


def test_a_summary_that_was_stored_as_text_is_as_good() -> None:
    """Content and covered turns are all that must be kept."""
    turns = make_turns(50)
    found = hybrid(turns[:45], summarizer=write_brief)
    assert isinstance(found[0], TurnsSummary)
    kept = json.loads(json.dumps([found[0].content, found[0].covers]))
    previous = TurnsSummary(content=kept[0], covers=kept[1])
    again = hybrid(turns, summarizer=write_brief, previous=previous)
    assert again == hybrid(turns, summarizer=write_brief)
    assert str(again[0]) == str(found[0])


# -- the engine ----------------------------------------------------------------------------------------------------


def show_context(context: ContextManager) -> list[tuple[str, str]]:
    """Return the kind and text of what the context of the next call shows of the turns."""
    source = context.turns.view().source
    assert source is not None
    return [(each.kind, each.text or each.source.text) for each in source.view.segments if each.turn or each.text]  # type: ignore[union-attr]


TURN = st.tuples(st.integers(0, 30), st.sampled_from([None, "look"]), st.booleans())


@given(
    sizes=st.lists(TURN, max_size=14),
    strategy=st.sampled_from(["masking", "summarization", "hybrid", "two-tier"]),
    window=st.integers(1, 4),
    tail=st.integers(1, 3),
    more=st.integers(1, 3),
)
def test_the_result_is_what_a_context_manager_decides(
    sizes: list[tuple[int, str | None, bool]], strategy: str, window: int, tail: int, more: int
) -> None:
    """At every length of every run: the same summary, the same placeholders, the same turns left."""
    options: dict[str, dict[str, int]] = {
        "masking": {"window": window},
        "summarization": {"every": more, "tail": tail},
        "hybrid": {"window": window, "summarize_at": tail + more, "tail": tail},
        "two-tier": {
            "keep_recent": window,
            "soft": 200 * more,
            "hard": 400 * more,
            "after_steps": 5,
            "summarize_min_turns": tail,
        },
    }
    shared = "schedule=every-turn, gist=0, summary_max_tokens=50" + (
        f", placeholder='{OMITTED}'" if strategy != "summarization" else ""
    )
    text = ", ".join(f"{name}={value}" for name, value in options[strategy].items())
    context = ContextManager(
        f"{strategy}({text}, {shared})", store="memory:", prices="uncached", summarizer=write_brief, recall="never"
    )
    context.turns.begin(TASK)
    turns: list[Any] = []
    for number, (lines, action, finished) in enumerate(sizes, start=1):
        observation = f"{number}\n" + f"words of part {number}\n" * lines if action and finished else None
        turns.append((f"thought {number}", action, observation))
        context.turns.add(*turns[-1])
        expected = show_context(context)
        assert show_turns(run_function(strategy, turns, options[strategy])) == expected


def run_function(strategy: str, turns: Sequence[Any], options: dict[str, Any]) -> list[Any]:
    if strategy == "masking":
        return mask(turns, placeholder=OMITTED, **options)
    if strategy == "summarization":
        return summarize(turns, summarizer=write_brief, summary_max_tokens=50, task=TASK, **options)
    if strategy == "two-tier":
        return two_tier(turns, placeholder=OMITTED, summarizer=write_brief, summary_max_tokens=50, task=TASK, **options)
    return hybrid(turns, placeholder=OMITTED, summarizer=write_brief, summary_max_tokens=50, task=TASK, **options)


def show_turns(found: Sequence[Any]) -> list[tuple[str, str]]:
    """Return a result as `show_context` has a context."""
    shown = []
    for each in found:
        if isinstance(each, TurnsSummary):
            shown.append(("summary", each._as_summary().block))
            continue
        _, _, observation = each
        shown.append(("assistant", ""))
        if observation is not None:
            shown.append(("placeholder" if observation == OMITTED else "observation", observation))
    return shown


@pytest.mark.parametrize(
    ("preset", "function"),
    [
        ("paper-masking", mask),
        ("paper-summarization", partial(summarize, summarizer=write_brief, summary_max_tokens=250, task=TASK)),
        ("paper-hybrid", partial(hybrid, summarizer=write_brief, task=TASK)),
        ("paper-two-tier", partial(two_tier, summarizer=write_brief, task=TASK)),
    ],
)
def test_the_defaults_are_the_published_presets(preset: str, function: Callable[..., list[Any]]) -> None:
    """Without options the functions show what a context manager with the preset of that name does."""
    context = ContextManager(preset, store="memory:", prices="uncached", summarizer=write_brief, recall="never")
    context.turns.begin(TASK)
    turns = make_turns(44)
    for count, each in enumerate(turns, start=1):
        context.turns.add(*each)
        expected = [text for _, text in show_context(context)]
        if count in (10, 11, 31, 43, 44):
            assert [text for _, text in show_turns(function(turns[:count]))] == expected


def test_two_tier_masks_by_results_and_summarizes_by_size() -> None:
    """The document's loop: masked first; a summary above `hard`, or above `soft` after the steps."""
    turns = make_turns(40)
    assert two_tier(turns, placeholder=OMITTED) == mask(turns, placeholder=OMITTED)
    small = partial(two_tier, turns, soft=900, summarizer=write_brief, summary_max_tokens=50)
    assert not isinstance(small(after_steps=40)[0], TurnsSummary)
    summary, *kept = small(after_steps=39)
    assert isinstance(summary, TurnsSummary)
    assert (summary.covers, len(kept)) == (30, 10)
    summary, *_ = small(hard=1_000, after_steps=99)
    assert isinstance(summary, TurnsSummary)


def test_two_tier_continues_from_the_last_summary() -> None:
    """In a loop each summary is requested once, and the result is that of the whole list at once."""
    turns = make_turns(60)
    writer = Writer()
    options: dict[str, Any] = {"soft": 900, "hard": 1_500, "after_steps": 20, "summary_max_tokens": 50}
    previous = None
    for count in range(1, len(turns) + 1):
        found = two_tier(turns[:count], summarizer=writer, previous=previous, **options)
        previous = found[0] if isinstance(found[0], TurnsSummary) else None
    whole = Writer()
    assert found == two_tier(turns, summarizer=whole, **options)
    assert [request.turns for request in writer.requests] == [request.turns for request in whole.requests] != []


def test_a_template_has_the_published_turn_number() -> None:
    """`[Turn {i} observation omitted for brevity]` there; turns are counted from 1 here."""
    template = "[Turn {turn} observation omitted for brevity]"
    turns = make_turns(15)
    theirs = apply_observation_masking(turns, len(turns), window_size_m=10)
    ours = mask(turns, window=10, placeholder=template)
    assert ours[3][2] == "[Turn 4 observation omitted for brevity]"
    assert theirs[3][2] == "[Turn 3 observation omitted for brevity]"
    with pytest.raises(SpecError, match="colour"):
        mask(turns, placeholder="[{colour}]")


# -- work -------------------------------------------------------------------------------------------------------------


def count_function_calls(run: Callable[[], object], owner: str = "") -> int:
    """Return how many Python functions `run` calls; only those of the class `owner`, if it is given."""
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_qualname.startswith(owner)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def test_mask_calls_two_functions_a_turn() -> None:
    """Turns that are three texts are neither read as Turns nor counted in tokens; their length is tested, no more."""
    turns = make_turns(1_000)
    mask(turns)
    assert count_function_calls(lambda: mask(turns)) <= 2 * 1_000 + 100


def test_without_a_gist_no_word_is_indexed() -> None:
    """What the agent knows matters to gists only: masking without any looks at no turn's words."""

    def run(gist: int) -> None:
        with ContextManager(f"paper-masking(gist={gist})", store="memory:", prices="uncached") as context:
            context.turns.begin(TASK)
            for each in make_turns(15):
                context.turns.add(*each)
            context.turns.view()

    assert count_function_calls(lambda: run(gist=20), "KnownIdentifiers") > 10
    # The table itself is made, and stays empty.
    assert count_function_calls(lambda: run(gist=0), "KnownIdentifiers") <= 1


@given(
    text=st.lists(st.sampled_from(["word", "/", "//a", "!", "{}", " ", "\n", "\t", "\x1c", "\x0b", "é", "7"])).map(
        "".join
    ),
    placeholder=st.sampled_from(["[omitted]", "x", "[Observation omitted for brevity]"]),
)
def test_the_quick_test_of_length_is_exact(text: str, placeholder: str) -> None:
    """It says what counting the tokens says, for white space and slashes of every kind."""
    count = make_counter("o200k").count
    assert _make_length_test(placeholder)(text) == (count(text) > count(placeholder))


# -- shapes --------------------------------------------------------------------------------------------------------

Step = namedtuple("Step", "reasoning action observation")


def test_every_shape_comes_back_as_it_was_given() -> None:
    """Tuples, named tuples, lists, mappings with other keys, Turns, and several results of one turn."""
    long = "a line of text\n" * 20
    named = {"name": "bash", "arguments": {"command": "ls"}}
    turns: list[Any] = [
        ("why", "ls", long),
        Step("why", "ls", long),
        ["why", "ls", long],
        {"turn": 3, "reasoning": "why", "action": "ls", "observation": long, "timestamp": 5.0},
        step(9, long),
        ("why", [named, named], [long, "short"]),
        {"reasoning": "I only think."},
        ("newest", "ls", long),
    ]
    found = mask(turns, window=1, placeholder=OMITTED)
    assert found[0] == ("why", "ls", OMITTED)
    assert found[1] == Step("why", "ls", OMITTED)
    assert isinstance(found[1], Step)
    assert found[2] == ["why", "ls", OMITTED]
    assert found[3] == {"turn": 3, "reasoning": "why", "action": "ls", "observation": OMITTED, "timestamp": 5.0}
    assert (found[4].index, found[4].observations[0].text) == (9, OMITTED)
    # A result that is not longer than its placeholder stays.
    assert found[5] == ("why", [named, named], [OMITTED, "short"])
    assert found[6:] == turns[6:]


def test_nothing_given_is_changed() -> None:
    """The functions are pure: the caller's list and every turn in it stay as they are."""
    turns = [{"reasoning": r, "action": a, "observation": o} for r, a, o in make_turns(50)]
    before = copy.deepcopy(turns)
    first = hybrid(turns, summarizer=write_brief)
    assert turns == before
    assert hybrid(iter(turns), summarizer=write_brief) == first


def test_words_of_the_user_survive_a_summary() -> None:
    """Turns may have messages of the user after them: those stay word for word, beside the summary."""
    turns = [
        turn(number, (call("look"), result("only words\n" * 20)), said=[user("Hurry up.")] if number == 2 else [])
        for number in range(1, 10)
    ]
    summary, *kept = summarize(turns, every=4, tail=4, summarizer=write_brief, summary_max_tokens=50)
    assert isinstance(summary, TurnsSummary)
    assert summary.kept_messages == ("Hurry up.",)
    assert kept == turns[summary.covers :]
    stored = TurnsSummary(content=summary.content, covers=summary.covers)
    assert summarize(turns, every=4, tail=4, previous=stored)[0] == summary


def test_an_empty_placeholder_describes_what_happened() -> None:
    """Without a handle: there is no store that could return the result."""
    (reasoning, action, observation), *_ = mask(make_turns(3, lines=40), window=1, placeholder="")
    assert (reasoning, action) == ("thought 1", "look at the next one")
    assert observation.startswith("[action: look at the next one -> ")
    assert "t1.1" not in observation
    assert observation.endswith("tokens hidden]")


def test_a_pinned_result_is_never_masked() -> None:
    """A Turn may say so."""
    turns = [step(1), step(2), step(3)]
    pinned = step(1, pinned=True)
    assert mask([pinned, *turns[1:]], window=1)[0] == pinned
    assert mask(turns, window=1)[0].observations != turns[0].observations


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_refused_summary_leaves_the_turns(caplog: pytest.LogCaptureFixture) -> None:
    """An answer that is none must not replace anything; the log says what was wrong."""
    turns = make_turns(31)
    with caplog.at_level(logging.WARNING, logger="elision.turns"):
        assert summarize(turns, summarizer=lambda request: "") == turns
    assert "1 of the summaries were refused, and the turns stay; the last, of call 32: it is empty" in caplog.text


def test_an_error_of_the_summarizer_is_the_callers() -> None:
    def fail(request: SummaryRequest) -> str:
        raise RuntimeError("no network")

    with pytest.raises(RuntimeError, match="no network"):
        summarize(make_turns(31), summarizer=fail)


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        ([("a", "b", "c"), "text"], r"turns\[1\] is a str and no turn: give \(reasoning, action, observation\)"),
        ([("a", "b")], r"turns\[0\] is a tuple and no turn"),
        ([{"role": "user"}], r"turns\[0\] is a dict and no turn"),
        ([(1, "b", "c")], r"turns\[0\]: reasoning is a int: give a text"),
        ([("a", "b", 3)], r"an observation is a text, not int"),
        ([("a", "b", ["x", "y"])], r"turn 1 has 2 observations for 1 actions"),
        ([TurnsSummary(content="x", covers=2)], r"turns\[0\] is a summary: give all turns as they were"),
    ],
)
def test_what_is_no_turn_is_refused_by_place(turns: list[Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        mask(turns)
    with pytest.raises(SettingError, match=message):
        hybrid(turns)


@pytest.mark.parametrize("covers", [9, 0, -1])
def test_a_summary_of_other_turns_is_refused(covers: int) -> None:
    previous = TurnsSummary(content="x", covers=covers)
    with pytest.raises(SettingError, match=f"previous covers turns 1 to {covers}, and 5 turns are given"):
        summarize(make_turns(5), previous=previous)


def test_options_are_checked() -> None:
    with pytest.raises(SpecError, match="window"):
        mask([], window=0)
    with pytest.raises(SpecError, match="summarize_at must exceed tail"):
        hybrid([], summarize_at=5, tail=5)
    with pytest.raises(SpecError, match="no summarizer"):
        summarize([], summarizer="wizard")


def test_the_package_does_not_load_it() -> None:
    """`import elision` stays quick."""
    code = "import sys, elision; print('elision.turns' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
