"""Runs of lines that an earlier observation has, the lines that name them, and line numbers kept apart."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from elision.strategies import repeated_lines
from elision.strategies.fold_ledger import SourceNames, name_turn, write_reference
from elision.strategies.repeated_lines import (
    LineIndex,
    LineNumber,
    fold_observation,
    fold_text,
    keep_saving_runs,
    split_lines,
)
from elision.trajectory.plan import Edit, FoldedRun, Gutter
from elision.trajectory.tokens import make_counter
from tests.strategies.unfolding import cut_number, unfold_text
from tests.work import assert_linear

CODE = [f"    self.field_{number} = compute_value(source, {number * 7})" for number in range(40)]
SOURCE = "\n".join(CODE)
count_tokens = make_counter().count


def fold(text: str, source: str = SOURCE) -> Edit | None:
    index = LineIndex()
    index.add_observation((3, 1), source)
    found = fold_observation(index, (5, 2), text, count_tokens)
    if found is not None:
        assert unfold_text(found, {(3, 1): source}) == text
    return found


def number_lines(form: str, lines: list[str], start: int) -> str:
    return "\n".join(form.format(number, line) for number, line in enumerate(lines, start))


def test_a_repeated_run_becomes_one_line() -> None:
    """The rest of the observation is unchanged, and unfolding gives the text back."""
    found = fold("before\n" + "\n".join(CODE[10:22]) + "\nafter\n")
    assert found is not None
    assert found.text == "before\n[same as lines 11–22 of t3.1]\nafter\n"
    assert found.runs == (FoldedRun(1, 12, (3, 1), 10),)


def test_two_runs_of_one_source() -> None:
    """What lies between them stays, whatever their order in the source."""
    found = fold("\n".join([*CODE[20:30], "new", *CODE[:8], ""]))
    assert found is not None
    assert found.text == "[same as lines 21–30 of t3.1]\nnew\n[same as lines 1–8 of t3.1]\n"


def test_a_result_that_repeats_another_whole_is_one_reference() -> None:
    """However few its lines: JSON has one. Of several the newest one that shows it all counts."""
    found = fold(SOURCE)
    assert found is not None
    assert (found.text, found.runs) == ("[same as t3.1]", (FoldedRun(0, 40, (3, 1), 0, is_whole=True),))
    line = "value " * 400
    index = LineIndex()
    for key in ((1, 1), (2, 1), (4, 1)):
        index.add_observation(key, line)
    assert fold_observation(index, (2, 2), line, count_tokens) == Edit(
        (2, 2), "fold", "[same as t2.1]", (FoldedRun(0, 1, (2, 1), 0, is_whole=True),)
    )
    index.add_observation((4, 1), line, (FoldedRun(0, 1, (2, 1), 0, is_whole=True),))
    index.remove_observation((2, 1))
    assert fold_observation(index, (5, 1), line, count_tokens, SourceNames(name_turn)) == Edit(
        (5, 1), "fold", "[same as turn 1]", (FoldedRun(0, 1, (1, 1), 0, is_whole=True),)
    )
    index.remove_observation((1, 1))
    assert fold_observation(index, (5, 1), line, count_tokens) is None


def test_nothing_is_folded_that_does_not_repeat() -> None:
    """Too few lines, too few characters, too few tokens, or other text."""
    assert fold("\n".join(CODE[:4])) is None
    assert fold("\n".join("x" * 30), "\n".join("x" * 30)) is None
    assert fold("\n" * 300, "\n" * 300) is None
    assert fold(SOURCE.replace("field", "fields")) is None


@pytest.mark.parametrize("ends", ["\r\n", "\x0c\n", "\u2028\n"])
def test_line_ends_belong_to_the_lines(ends: str) -> None:
    """A run has the same line ends as its source, or is none."""
    text = ends.join(CODE)
    assert fold(text) is None
    assert fold(text + ends, text) is not None


@pytest.mark.parametrize("form", ["{:6}\t{}", "{}:{}", "{}|{}", "{:6}→{}", "src/app.py:{}:{}"])
def test_line_numbers_hide_no_repeat(form: str) -> None:
    """A listing repeats plain text and other listings, with exact bytes; the line names the numbers a reader needs."""
    plain, listing = "\n".join(CODE[10:30]), number_lines(form, CODE, 85)
    prefix = "src/app.py:" if "app" in form else ""
    numbered = fold(listing)
    assert numbered is not None
    assert numbered.text == f"[same as lines 1–40 of t3.1, here numbered {prefix}85–124]"
    without = fold(plain, listing)
    assert without is not None
    assert without.text == f"[same as lines numbered {prefix}95–114 of t3.1]"
    moved = fold(number_lines(form, CODE[5:30], 993), listing)
    assert moved is not None
    assert moved.text == f"[same as lines numbered {prefix}90–114 of t3.1, here {prefix}993–1017]"
    again = fold(number_lines(form, CODE[5:30], 90), listing)
    assert again is not None
    assert again.text == f"[same as lines numbered {prefix}90–114 of t3.1]"


def test_numbers_that_occur_twice_name_no_lines() -> None:
    """A result that shows two files, or one twice: its lines are counted from its top, which the line says."""
    other = [f"    other_{number} = {number * 11}" for number in range(40)]
    source = number_lines("{:6}\t{}", other, 1) + "\n" + number_lines("{:6}\t{}", CODE, 1)
    found = fold("\n".join(CODE[10:30]), source)
    assert found is not None
    assert found.text == "[same as lines 51–70 from the top of t3.1]"
    moved = fold(number_lines("{:6}\t{}", CODE[10:30], 501), source)
    assert moved is not None
    assert moved.text == "[same as lines 51–70 from the top of t3.1, here numbered 501–520]"


LISTING, MOVED = (number_lines("{:6}\t{}", CODE, start) for start in (1, 3))


@pytest.mark.parametrize(
    ("source", "text", "shown"),
    [
        # A heading and a listing repeat: the numbers of the listing are not those of the lines.
        (f"src/app.py:\n{LISTING}", f"src/app.py:\n{LISTING}\nend", "[same as lines 1–41 from the top of t3.1]\nend"),
        # The first lines of the source are no lines 1 to 40 of the file that it shows then.
        (f"{SOURCE}\n     1\tx = 1\n     2\ty = 2", SOURCE, "[same as lines 1–40 from the top of t3.1]"),
        # A reader cannot tell a line number from a number that a line begins with.
        (f"{MOVED}\n  3 files changed", "\n".join(CODE[:20]), "[same as lines 1–20 from the top of t3.1]"),
    ],
)
def test_lines_with_and_without_numbers(source: str, text: str, shown: str) -> None:
    """Where both are in a source its lines are counted from its top."""
    found = fold(text, source)
    assert found is not None
    assert found.text == shown


def test_other_forms_of_numbers() -> None:
    """A listing of one tool repeats that of another one."""
    found = fold(number_lines("{}:{}", CODE, 5), number_lines("{:6}\t{}", CODE, 5))
    assert found is not None
    assert found.text == "[same as lines numbered 5–44 of t3.1]"


def test_hits_that_moved_by_a_constant() -> None:
    """A search after an edit finds the same lines, each three further down."""
    hits = [(number * number, line) for number, line in enumerate(CODE, 4)]
    before, after = ("\n".join(f"src/app.py:{number + shift}:{line}" for number, line in hits) for shift in (0, 3))
    found = fold(after, before)
    assert found is not None
    assert found.text == "[same as lines numbered src/app.py:16–1849 of t3.1, here src/app.py:19–1852]"


def test_numbers_that_jump_are_no_run() -> None:
    """Where numbers do not follow each other nothing could restore them."""
    lines = number_lines("{:6}\t{}", CODE[:20], 5).split("\n") + number_lines("{:6}\t{}", CODE[20:], 90).split("\n")
    found = fold("\n".join(lines))
    assert found is not None
    assert [(run.start, run.lines) for run in found.runs] == [(0, 20), (20, 20)]


def test_text_that_looks_like_a_reference() -> None:
    """Unfolding goes by the runs and not by what lines look like."""
    odd = "[same as lines 1–40 of t3.1]"
    found = fold("\n".join([odd, *CODE[:12], odd, odd]))
    assert found is not None
    assert found.text == "\n".join([odd, "[same as lines 1–12 of t3.1]", odd, odd])


def test_the_newest_of_equal_sources_counts() -> None:
    """And a longer run wins over a newer one."""
    index = LineIndex()
    index.add_observation((2, 1), SOURCE)
    index.add_observation((4, 1), SOURCE)
    index.add_observation((6, 1), "\n".join(CODE[:20]))
    assert [run.source for run in index.find_runs((7, 1), SOURCE)] == [(4, 1)]
    index.remove_observation((4, 1))
    assert [run.source for run in index.find_runs((7, 1), SOURCE)] == [(2, 1)]


def test_a_short_run_hides_no_longer_one() -> None:
    """Where a run has too few characters, its last lines may begin another that has enough."""
    index = LineIndex(least_lines=3, least_characters=100)
    index.add_observation((1, 1), "\n".join(["a", "b", "c", "d"]))
    index.add_observation((2, 1), "\n".join(["c", "d", *CODE[:5]]))
    text = "\n".join(["a", "b", "c", "d", *CODE[:5]])
    assert [(run.start, run.lines, run.source) for run in index.find_runs((3, 1), text)] == [(2, 7, (2, 1))]


def test_only_earlier_observations_are_sources() -> None:
    """What is found again for an older observation stands before it."""
    index = LineIndex()
    index.add_observation((4, 1), SOURCE)
    assert index.find_runs((4, 1), SOURCE) == []
    assert index.find_runs((3, 9), SOURCE) == []
    assert len(index.find_runs((4, 2), SOURCE)) == 1


def test_folded_lines_are_no_source() -> None:
    """A folded observation holds what it still shows; its other lines are found in their own source."""
    index = LineIndex()
    index.add_observation((2, 1), SOURCE)
    new = [f"{line}  # changed" for line in CODE[:10]]
    text = "\n".join([*CODE[:20], *new])
    index.add_observation((3, 1), text, index.find_runs((3, 1), text))
    assert [(run.source, run.source_start, run.lines) for run in index.find_runs((4, 1), text)] == [
        ((2, 1), 0, 20),
        ((3, 1), 20, 10),
    ]


def test_removing_leaves_nothing() -> None:
    """Memory follows what the view shows; the oldest observations go where it shows too much."""
    index = LineIndex(line_limit=100)
    for turn in range(1, 6):
        index.add_observation((turn, 1), SOURCE)
    assert [(turn, 1) in index for turn in range(1, 6)] == [False, False, False, True, True]
    assert index.line_count == 80
    index.remove_observation((4, 1))
    index.remove_observation((5, 1))
    index.remove_observation((5, 1))
    assert index.line_count == 0
    assert index.find_runs((6, 1), SOURCE) == []
    assert index._find_blocks_at_once().places == {}


def test_blocks_that_were_let_go_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the sessions that looked last keep them; what an idle one finds does not depend on that."""
    monkeypatch.setattr(repeated_lines, "_INDEXES_KEPT", 2)
    indexes = [LineIndex() for _ in range(3)]
    for index in indexes:
        index.add_observation((1, 1), SOURCE)
        index.add_observation((2, 1), "\n".join(["new", *CODE[5:]]))
        index.add_observation((3, 1), SOURCE)
        index.remove_observation((3, 1))
    wanted = "\n".join([*CODE[:4], "between", *CODE[10:20]])
    first = [index.find_runs((4, 1), wanted) for index in indexes]
    kept = repeated_lines._blocks_by_index
    assert [index in kept for index in indexes] == [False, True, True]
    assert [index.find_runs((4, 1), wanted) for index in indexes] == first
    assert [(run.start, run.lines, run.source) for run in first[0]] == [(5, 10, (2, 1))]


def test_blocks_are_found_one_source_a_step() -> None:
    """Who stops in between loses nothing, and the next one goes on."""
    index = LineIndex()
    for turn in range(1, 5):
        index.add_observation((turn, 1), "\n".join([str(turn), *CODE]))
    steps = index.find_blocks()
    next(steps)
    next(steps)
    steps.close()
    assert len(list(index.find_blocks())) == 2
    assert list(index.find_blocks()) == []


def test_added_again_replaces() -> None:
    """An amended observation is indexed as it is now."""
    index = LineIndex()
    index.add_observation((1, 1), SOURCE)
    index.add_observation((1, 1), "other")
    assert index.line_count == 1
    assert index.find_runs((2, 1), SOURCE) == []


@pytest.mark.parametrize("line", ["", "}", "x" * 50])
def test_equal_lines_are_matched_in_linear_time(line: str) -> None:
    """Thousands of equal lines, folded or too cheap to fold."""

    def match_lines(count: int) -> None:
        index = LineIndex()
        text = f"{line}\n" * count
        index.add_observation((1, 1), text)
        index.find_runs((2, 1), text + "end")
        index.remove_observation((1, 1))

    assert_linear(match_lines, 300)


def test_least_saving() -> None:
    """A run is kept where its tokens are so many more than those of its reference."""
    run = FoldedRun(0, 6, (3, 1), 0)
    text = "\n".join(CODE[:6])
    saved = count_tokens(text) - count_tokens(write_reference(run))
    assert keep_saving_runs(text, [run], count_tokens, least_saving=saved) == (run,)
    assert keep_saving_runs(text, [run], count_tokens, least_saving=saved + 1) == ()


def test_names_without_handles() -> None:
    """The turn is named, and which of its results where it has several."""
    names = SourceNames(name_turn)
    assert fold_text(SOURCE, [FoldedRun(0, 40, (3, 1), 0)], names) == "[same as lines 1–40 of turn 3]"
    assert write_reference(FoldedRun(0, 40, (3, 2), 0), names) == "[same as lines 1–40 of result 2 of turn 3]"


def test_the_first_reference_names_the_call() -> None:
    """Further ones to the same source are short; each source is named once in a result."""
    index = LineIndex()
    index.add_observation((1, 1), SOURCE)
    index.add_observation((2, 1), SOURCE.replace("field", "entry"))
    entries = SOURCE.replace("field", "entry").split("\n")
    text = "\n".join([*CODE[20:30], "new", *entries[:8], "new", *CODE[:8], "new", *entries[30:]])
    names = SourceNames(describe_call=lambda key: f"read_file f{key[0]}.py")
    found = fold_observation(index, (3, 1), text, count_tokens, names)
    assert found is not None
    assert found.text.replace("new\n", "") == "\n".join(
        [
            "[same as lines 21–30 of t1.1 (read_file f1.py)]",
            "[same as lines 1–8 of t2.1 (read_file f2.py)]",
            "[same as lines 1–8 of t1.1]",
            "[same as lines 31–40 of t2.1]",
        ]
    )
    moved = FoldedRun(0, 5, (3, 1), 0, Gutter(7, 11, ":"), Gutter(1, 5, ":"))
    assert write_reference(moved, names) == "[same as lines numbered 1–5 of t3.1 (read_file f3.py), here 7–11]"


def test_a_long_name_counts_in_what_a_run_saves() -> None:
    """A run that saves too little with the name of the call is kept once that is named already."""
    few, many = FoldedRun(30, 5, (3, 1), 30), FoldedRun(0, 20, (3, 1), 0)
    names = SourceNames(describe_call=lambda key: "read_file " + "long/" * 40)
    saved = count_tokens("\n".join(CODE[30:35])) - count_tokens(write_reference(few))
    assert keep_saving_runs(SOURCE, [few], count_tokens, names, saved - 10) == ()
    assert keep_saving_runs(SOURCE, [many, few], count_tokens, names, saved - 10) == (many, few)


def test_lines_are_counted_as_they_are_shown() -> None:
    """In a source that is folded itself each reference is one line, which is what a reader can count."""
    index = LineIndex()
    index.add_observation((1, 1), SOURCE)
    new = [f"    entry_{number} = compute_entry({number * 11})" for number in range(20)]
    text = "\n".join(["top", *CODE[:20], "middle", *CODE[20:], *new])
    found = fold_observation(index, (2, 1), text, count_tokens)
    assert found is not None
    shown = found.text.split("\n")
    index.add_observation((2, 1), text, found.runs)
    again = fold_observation(index, (3, 1), "\n".join(new), count_tokens)
    assert again is not None
    assert again.text == "[same as lines 5–24 of t2.1]"
    assert shown[4:24] == new
    assert unfold_text(again, {(2, 1): text}) == "\n".join(new)


def test_a_run_is_a_value() -> None:
    """Gutters are part of it, so that the log alone restores the text."""
    found = fold(number_lines("{:6}\t{}", CODE, 5))
    assert found is not None
    assert found.runs == (FoldedRun(0, 40, (3, 1), 0, Gutter(5, 44, "\t", "", 6)),)


def test_as_many_lines_as_are_allowed_are_kept() -> None:
    """One more, and the oldest observation goes."""
    index = LineIndex(line_limit=80)
    index.add_observation((1, 1), SOURCE)
    index.add_observation((2, 1), SOURCE)
    assert ((1, 1) in index, index.line_count) == (True, 80)
    index.add_observation((3, 1), "one")
    assert ((1, 1) in index, index.line_count) == (False, 41)


def test_a_text_is_split_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many results repeat a large one: it stays split for those that come next."""
    split: list[str] = []
    plain = repeated_lines.split_lines
    monkeypatch.setattr(repeated_lines, "split_lines", lambda text: split.append(text) or plain(text))
    index = LineIndex()
    index.add_observation((1, 1), source := "\n".join(f"{number}: {line}" for number in range(20) for line in CODE))
    texts = [f"read {turn}\n" + "\n".join(CODE[turn : turn + 12]) for turn in range(8)]
    for turn, text in enumerate(texts, start=2):
        fold_observation(index, (turn, 1), text, count_tokens)
        index.add_observation((turn, 1), text)
    assert sorted(each for each in split if each) == sorted([source, *texts])


def test_texts_that_stay_split_take_so_many_bytes_at_most() -> None:
    """The ones that were used last stay; a text that takes more than all of them may is split all the same."""
    first, second, third = ("\n".join([mark] * 20) for mark in "abc")
    kept = repeated_lines._SplitTexts(3_000)
    found = [kept.split(text) for text in (first, second)]
    assert kept.split(first) is found[0]
    kept.split(third)
    assert kept.split(first) is found[0]
    assert kept.split(second) is not found[1]
    assert kept.split("d" * 3_001).bodies == repeated_lines.split_lines("d" * 3_001).bodies
    assert kept.split(first) is not found[0]


@pytest.mark.parametrize(
    "line", ["    self.f_{0} = compute({1})", "{1:6}\tx{0}", "a.py:{1}:    v_{0} = 1", "{1:05}", "→ {0} {1}"]
)
def test_what_stays_split_is_as_large_as_it_is_estimated(line: str) -> None:
    """Code, listings with numbers, short lines and other scripts: up to a fifth more than the limit."""
    texts = ["\n".join(line.format(text, number) for number in range(1, 1_000)) for text in range(40)]
    tracemalloc.start()
    try:
        kept = repeated_lines._SplitTexts(1_000_000)
        for text in texts:
            kept.split(text)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] <= 1_200_000
    finally:
        tracemalloc.stop()


NUMBERED = ("def run(self):", "    return 1", "", "class Other:")


@pytest.mark.parametrize("form", ["{}:{}", "{:6}\t{}", "{:6}→{}", "{}|{}", "src/app.py:{}:{}", "Line {}:{}", "{:4}:{}"])
def test_numbers_are_kept_apart(form: str) -> None:
    """The bodies are the code, and number and body make the line again."""
    lines = [form.format(number, line) for number, line in enumerate(NUMBERED, 98)]
    found = split_lines("\n".join(lines))
    assert tuple(found.bodies) == NUMBERED
    gutter = found.find_gutter(0, len(lines))
    assert gutter is not None
    assert (gutter.first, gutter.last) == (98, 101)
    for number, line in enumerate(lines, 98):
        assert cut_number(gutter, line) == (number, NUMBERED[number - 98])


def test_only_newlines_end_lines() -> None:
    """Form feeds, carriage returns and Unicode's own separators are text."""
    assert list(split_lines("a\fb\rc\u2028d\r\ne\x85f\n").bodies) == ["a\fb\rc\u2028d\r", "e\x85f", ""]


def test_numbers_that_cannot_be_written_again_are_text() -> None:
    """Leading zeros and digits without end belong to the line."""
    lines = ["0012:a", "9" * 5_000 + ":b", "12:c"]
    found = split_lines("\n".join(lines))
    assert found.bodies[0] == "0012:a"
    assert found.bodies[1] is not None
    assert found.numbers == {2: LineNumber("", 12, ":")}
    assert found.find_gutter(0) is None


def test_long_lines_are_hashed() -> None:
    """A line of a megabyte takes little memory, and equals itself alone."""
    one, same, other = split_lines("\n".join(["x" * 10**6, "x" * 10**6, "x" * 10**6 + "y"])).bodies
    assert one == same != other
    assert isinstance(one, bytes)
    assert len(one) == 16
