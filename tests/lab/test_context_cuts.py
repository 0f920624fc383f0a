"""Where a recording agent condensed its own history, and what stayed."""

from __future__ import annotations

from collections.abc import Sequence

from elision.lab.run_as_recorded import ContextCut, find_cuts
from elision.trajectory.trajectory import Compaction, Trajectory
from elision.trajectory.turn import Head, Turn, make_content
from elision.trajectory.usage import Usage

HEAD = 500


def make_run(prompts: Sequence[int], *compactions: Compaction, model: str = "some-model") -> Trajectory:
    """Turns of 100 tokens each, with these billed prompts; 0 for none recorded."""
    turns = tuple(
        Turn(
            index=index,
            content=make_content("."),
            usage=Usage(input=prompt, output=1) if prompt else None,
            model=model,
        )
        for index, prompt in enumerate(prompts, start=1)
    )
    return Trajectory(id="run", head=Head(), turns=turns, model=model, compactions=compactions)


def cut(run: Trajectory) -> ContextCut:
    (found,) = find_cuts(run, lambda turn: 100, lambda: HEAD).cuts
    return found


def test_the_prompt_says_how_many_turns_stayed() -> None:
    """The head, a summary of 50 tokens and two turns fill a prompt of 750."""
    found = cut(make_run([500, 600, 700, 800, 750], Compaction(before=5, summary="s" * 200)))
    assert (found.through, found.tokens, found.source) == (2, 50, "recorded")
    assert found.words.text == "s" * 200


def test_the_recordings_own_word_is_taken_where_the_prompt_agrees() -> None:
    """It keeps a turn fewer than would fit best, and the rest is what stands for the others: first turns, a frame."""
    found = cut(make_run([500, 600, 700, 800, 750], Compaction(before=5, summary="s" * 200, kept_from=4)))
    assert (found.through, found.tokens) == (3, 150)


def test_a_word_that_the_prompt_denies_is_not_taken() -> None:
    """Four turns and a summary do not fit into this prompt."""
    found = cut(make_run([500, 600, 700, 800, 750], Compaction(before=5, summary="s" * 200, kept_from=1)))
    assert found.through == 2


def test_a_fall_of_the_bill_is_a_cut_without_a_record() -> None:
    """The prompt fell by more than a tenth, and stayed so."""
    found = cut(make_run([500, 600, 700, 800, 900, 600, 700]))
    assert (found.before, found.source) == (6, "inferred")
    assert found.through == 4


def test_one_short_prompt_is_no_cut() -> None:
    """A side question of the same model is one short prompt; then the conversation goes on as it was."""
    assert not find_cuts(make_run([500, 600, 700, 300, 900, 1000]), lambda turn: 100, lambda: HEAD).cuts


def test_without_a_bill_the_recordings_word_stands() -> None:
    """What it says stayed does; a summary that names nothing stands for all turns."""
    assert cut(make_run([0] * 5, Compaction(before=5, summary="s", kept_from=3))).through == 2
    assert cut(make_run([0] * 5, Compaction(before=5, summary="s"))).through == 4


def test_what_nothing_explains_is_unclear() -> None:
    """Cleared results, or a compaction of an unknown kind, without a bill: nothing is guessed."""
    for kind in ("cleared", "unknown"):
        found = find_cuts(make_run([0] * 5, Compaction(before=5, kind=kind)), lambda turn: 100, lambda: HEAD)
        assert not found.cuts
        assert [each.before for each in found.unclear] == [5]
