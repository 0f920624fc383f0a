"""The published managers as oracles: random trajectories, at every call the context that they would send.

They are compared call by call. Where a published manager loses turns, or shows covered ones again, its context is built
anew from its own state, with its tail begun at its last summary.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from elision import turns as pure
from elision.manager import ContextManager
from elision.trajectory.plan import SummaryRequest
from tests import published_managers
from tests.published_documents import AnsweringModel, load_document, needs_documents
from tests.soak import SOAK

#: Random trajectories of all tests together: 40 in every run, 2,000 in a soak.
TRAJECTORIES: Final = 2_000 if SOAK else 40
SYSTEM, TASK = "SYSTEM PROMPT", "THE TASK"
WORDS: Final = (
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "theta",
    "iota",
    "kappa",
    "lambda",
    "nu",
    "omicron",
)

PublishedTurn = tuple[str, str, str]
SEEDS = st.integers(0, 2**32)


def share_trajectories(share: float) -> settings:
    """Return the profile of a test that has this share of all trajectories."""
    return settings(max_examples=round(share * TRAJECTORIES))


def make_turns(seed: int, count: int) -> list[PublishedTurn]:
    """Make turns of random words; each observation is longer than any placeholder."""
    chance = random.Random(seed)

    def say(least: int, most: int) -> str:
        return " ".join(chance.choices(WORDS, k=chance.randint(least, most)))

    return [(say(0, 25), say(1, 8), say(25, 90)) for _ in range(count)]


class SummaryLog:
    """Writes numbered summaries, and keeps the turns that each was to cover."""

    def __init__(self) -> None:
        self.requests: list[SummaryRequest] = []
        self.written = 0

    def __call__(self, asked: Any) -> str:
        if isinstance(asked, SummaryRequest):
            self.requests.append(asked)
        self.written += 1
        return f"Summary number {self.written} of the work so far."

    @property
    def covered(self) -> list[tuple[int, int]]:
        """The first and the newest turn of each request."""
        return [(request.turns[0].index, request.turns[-1].index) for request in self.requests]


def begin(strategy: str, writer: Any = "digest") -> ContextManager:
    context = ContextManager(strategy, store="memory:", prices="uncached", summarizer=writer, recall="never")
    context.turns.begin(TASK, system=SYSTEM)
    return context


def count_from_one(text: str) -> str:
    """Return a published text whose turns are counted from 0 with turns counted from 1, and with one heading."""
    text = text.replace("[Summary of turns ", "[Summary through turn ")
    return re.sub(r"\nTurn (\d+):", lambda number: f"\nTurn {int(number[1]) + 1}:", text)


def build_repaired_context(manager: Any, summary: str, window: int | None) -> str:
    """Return the context of a published manager that shows every turn after its last summary, and no other.

    window: newest turns whose observations are shown; None for all.
    """
    parts = [SYSTEM, TASK]
    if summary:
        parts.append(f"\n[Summary through turn {manager.last_summary_idx}:\n{summary}\n]")
    newest = len(manager.trajectory)
    for turn in manager.trajectory[manager.last_summary_idx :]:
        observation = turn["observation"]
        if window is not None and newest - turn["turn"] > window:
            observation = "[Observation omitted]"
        parts.append(
            f"\nTurn {turn['turn'] + 1}:\nReasoning: {turn['reasoning']}\nAction: {turn['action']}\n"
            f"Observation: {observation}\n"
        )
    return "\n".join(parts)


# -- whose code it is -----------------------------------------------------------------------------------------------


def copy_managers() -> SimpleNamespace:
    """The managers as this repository has them word for word."""
    return SimpleNamespace(
        mask_observations=published_managers.mask_observations,
        apply_observation_masking=published_managers.apply_observation_masking,
        masking=published_managers.ObservationMaskingContextManager,
        summarization=published_managers.LLMSummarizationContextManager,
        hybrid=published_managers.HybridContextManager,
    )


def load_managers() -> SimpleNamespace:
    """The managers as the documents have them."""
    hybrid, masking, summarization = map(load_document, ("000", "001", "003"))

    class WritingHybrid(hybrid.HybridContextManager):  # type: ignore[misc, name-defined]
        """The document leaves open how a summary is written."""

        def _generate_summary(self, turns: Any) -> str:
            summary: str = self.summarizer(turns)
            return summary

    def make_summarization(write: Any, n: int, m: int) -> Any:
        manager = summarization.LLMSummarizationContextManager(AnsweringModel(write), n, m)
        manager.user_prompt = TASK
        return manager

    return SimpleNamespace(
        mask_observations=masking.mask_observations,
        apply_observation_masking=masking.apply_observation_masking,
        masking=masking.ObservationMaskingContextManager,
        summarization=make_summarization,
        hybrid=WritingHybrid,
    )


@pytest.fixture(
    scope="module",
    params=[copy_managers, pytest.param(load_managers, marks=needs_documents)],
    ids=["copied", "document"],
)
def published(request: pytest.FixtureRequest) -> SimpleNamespace:
    managers: SimpleNamespace = request.param()
    return managers


# -- masking --------------------------------------------------------------------------------------------------------


@share_trajectories(0.2)
@given(seed=SEEDS, count=st.integers(1, 60), window=st.integers(1, 20))
def test_masking_follows_its_documents(published: SimpleNamespace, seed: int, count: int, window: int) -> None:
    """The formula, the one-liner, the function of the agent loop, and the class, byte for byte at every call."""
    turns = make_turns(seed, count)
    masked = pure.mask(turns, window=window)
    call = count + 1
    text = "[Observation omitted for brevity]"
    formula = [(r, a, o if i >= call - window else text) for i, (r, a, o) in enumerate(turns, start=1)]
    assert masked == formula
    assert pure.mask(turns, window=window, placeholder="[omitted]") == published.mask_observations(turns, count, window)
    # The loop's function counts system prompt and task as turns 0 and 1, and shows one turn more than the formula.
    looped = published.apply_observation_masking([("", "", ""), ("", "", ""), *turns], call, window)[2:]
    ours = pure.mask(turns, window=window + 1, placeholder="[Turn {turn}]")
    assert [o.startswith("[Turn ") for _, _, o in looped] == [o.startswith("[Turn ") for _, _, o in ours]
    # So does the class.
    theirs = published.masking(window_size_m=window)
    with begin(f"paper-masking(window={window + 1})") as context:
        for turn in turns:
            context.turns.add(*turn)
            theirs.add_turn(*turn)
            assert context.turns.view().text() == theirs.get_masked_context(SYSTEM, TASK)


# -- summaries ------------------------------------------------------------------------------------------------------


@share_trajectories(0.3)
@given(seed=SEEDS, count=st.integers(1, 70), every=st.integers(1, 25), tail=st.integers(1, 15))
def test_summarization_follows_its_document(
    published: SimpleNamespace, seed: int, count: int, every: int, tail: int
) -> None:
    """A summary at the same calls, of the same turns in full; the context is the class's, without its lost turns."""
    turns = make_turns(seed, count)
    theirs, writer = published.summarization(SummaryLog(), every, tail), SummaryLog()
    made = []
    with begin(f"paper-summarization(every={every}, tail={tail})", writer) as context:
        for turn in [*turns, None]:
            before = theirs.last_summary_idx
            if theirs.maybe_summarize() is not None:
                made.append((before + 1, theirs.last_summary_idx))
            text = context.turns.view().text()
            assert writer.covered == made
            summary = theirs.summaries[-1][1] if theirs.summaries else ""
            assert text == build_repaired_context(theirs, summary, None)
            if len(theirs.trajectory) - theirs.m <= theirs.last_summary_idx:
                assert text == count_from_one(theirs.get_context(SYSTEM, TASK))
            if turn is not None:
                theirs.add_turn(*turn)
                context.turns.add(*turn)
    check_requests(writer, turns)


@share_trajectories(0.3)
@given(seed=SEEDS, count=st.integers(1, 70), window=st.integers(1, 15), new=st.integers(3, 40), tail=st.integers(1, 15))
def test_hybrid_follows_its_document(
    published: SimpleNamespace, seed: int, count: int, window: int, new: int, tail: int
) -> None:
    """The same calls, turns and texts; the pure function makes them of the list alone, at once and turn by turn."""
    at = new + tail
    turns = make_turns(seed, count)
    theirs, writer = published.hybrid(SummaryLog(), window, at, tail), SummaryLog()
    covered, incremental, whole = [], SummaryLog(), SummaryLog()
    options: dict[str, Any] = {"window": window, "summarize_at": at, "tail": tail}
    previous = None
    with begin(f"paper-hybrid(window={window}, summarize_at={at}, tail={tail})", writer) as context:
        for number, turn in enumerate([*turns, None]):
            theirs.maybe_create_summary()
            view = context.turns.view()
            if theirs.last_summary_idx > (covered[-1][1] if covered else 0):
                covered.append((covered[-1][1] + 1 if covered else 1, theirs.last_summary_idx))
            assert writer.covered == covered
            assert (view.diagnostics.phase == "summarizing") == (theirs.phase == "summarizing")
            summary = theirs.summaries[-1]["content"] if theirs.summaries else ""
            assert view.text() == build_repaired_context(theirs, summary, window)
            if theirs.phase == "masking":
                assert view.text() == count_from_one(theirs.get_context(SYSTEM, TASK))
            if number % 10 == 0 or turn is None:
                shown = pure.hybrid(turns[:number], summarizer=incremental, previous=previous, **options)
                previous = shown[0] if shown and isinstance(shown[0], pure.TurnsSummary) else None
            if turn is not None:
                theirs.add_turn(*turn)
                context.turns.add(*turn)
    check_requests(writer, turns)
    assert pure.hybrid(turns, summarizer=whole, **options) == shown
    assert whole.covered == incremental.covered == covered


def check_requests(writer: SummaryLog, turns: list[PublishedTurn]) -> None:
    """Hold each request against the turns that it covers: in full, with the summary before it."""
    for number, request in enumerate(writer.requests):
        first, last = writer.covered[number]
        assert [turn.observations[0].text for turn in request.turns] == [turn[2] for turn in turns[first - 1 : last]]
        assert request.previous == (f"Summary number {number} of the work so far." if number else "")


# -- two tiers ------------------------------------------------------------------------------------------------------


def list_thresholds(sizes: list[int], soft: int, hard: int, steps: int) -> Iterator[str]:
    """Yield what the document's loop finds at each call, whose masked context has that size: hard, soft or nothing."""
    for finished, size in enumerate(sizes):
        if size > hard:
            yield "hard"
        elif size > soft and finished > steps:
            yield "soft"
        else:
            yield ""


#: Turns outside the newest results from which on a summary makes the context smaller.
WORTHWHILE: Final = 12


@share_trajectories(0.2)
@given(
    seed=SEEDS,
    words=st.sampled_from([60, 300, 900]),
    keep=st.integers(1, 8),
    hard=st.integers(2_000, 9_000),
    share=st.floats(0.3, 1.0),
    steps=st.integers(WORTHWHILE + 8, 40),
)
def test_two_tier_follows_its_document(seed: int, words: int, keep: int, hard: int, share: float, steps: int) -> None:
    """The first summary is made at the document's call, by its threshold: masked first, then compared with both."""
    chance = random.Random(seed)
    soft = int(share * hard)
    turns = [
        (" ".join(chance.choices(WORDS, k=30)), "look", " ".join(chance.choices(WORDS, k=words))) for _ in range(50)
    ]
    text = "two-tier(keep_recent={}, soft={}, hard={}, after_steps={}, summarize_min_turns=1, summary_max_tokens=50, "
    text += "schedule=every-turn, gist=0, placeholder='[Masked]')"
    sizes, reasons = [], []
    with (
        begin(text.format(keep, soft, hard, steps), SummaryLog()) as context,
        begin(text.format(keep, 10**9, 10**9, 0)) as masked,
    ):
        for turn in turns:
            diagnostics = context.turns.view().diagnostics
            sizes.append(masked.turns.view().diagnostics.after)
            reasons.append(diagnostics.reason if diagnostics.summarized else "")
            if reasons[-1]:
                break
            context.turns.add(*turn)
            masked.turns.add(*turn)
    expected = list(list_thresholds(sizes, soft, hard, steps))
    first = next((call for call, name in enumerate(expected) if name), None)
    # Above `hard` from the beginning on, there is nothing yet that a summary would make smaller.
    assume(first is None or first - keep >= WORTHWHILE)
    assert reasons == [f"above {name}" if name else "" for name in expected]
