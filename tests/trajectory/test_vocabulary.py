"""Encoders: the reference, and the fast one, which never changes a count."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from dataclasses import replace
from itertools import product

import pytest
from benchmarks.recordings import SAMPLES
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import SpecError
from elision.formats.registry import read_runs
from elision.trajectory import vocabulary
from elision.trajectory.tokens import VocabularyCounter
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.vocabulary import (
    PROBE,
    VOCABULARIES,
    Encoder,
    GigatokenEncoder,
    TiktokenEncoder,
    load_fastest_encoder,
)
from tests.soak import sample_cases

NAMES = list(VOCABULARIES)
_ENCODERS: dict[str, tuple[Encoder, Encoder]] = {}


def load_encoders(name: str) -> tuple[Encoder, Encoder]:
    """The reference and the fast encoder of `name`, loaded once; skips where gigatoken is not installed."""
    pytest.importorskip("gigatoken")
    if name not in _ENCODERS:
        _ENCODERS[name] = (TiktokenEncoder(name), GigatokenEncoder(name))
    return _ENCODERS[name]


def count_characters_in_context(encoder: Encoder, characters: range) -> dict[str, int]:
    """The count of a text that has a character next to letters, digits, space, punctuation and line ends, by it."""
    counts = {}
    for number in characters:
        one = chr(number)
        if vocabulary._SETTLED.fullmatch(one):
            counts[one] = encoder.count(
                f"a{one}b 12{one}3 {one} A{one}B{one}{one}a ={one}\n{one}'s'{one} .{one}\r\n  {one}"
            )
    return counts


@pytest.mark.parametrize("name", NAMES)
def test_the_fast_encoder_counts_recorded_texts_the_same(name: str) -> None:
    """Every text of the sample runs has one count, whoever counts it."""
    reference, fast = load_encoders(name)
    runs = [run for run in read_runs(SAMPLES) if isinstance(run, Trajectory)]
    texts = {message.text for run in runs for message in run.head.messages}
    for turn in (turn for run in runs for turn in run.turns):
        texts |= {turn.text, turn.reasoning, *(action.arguments for action in turn.actions)}
        texts |= {observation.text for observation in turn.observations}
    assert len(texts) > 100
    assert [text for text in texts if reference.count(text) != fast.count(text)] == []


@pytest.mark.parametrize("name", NAMES)
@given(
    st.lists(
        st.one_of(
            st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
            st.sampled_from(
                ["'s", "'LL", "'ſ", "<|endoftext|>", "   ", "\r\n", "\n\n\n", "ſ", "İ", "K", "👩‍👩‍👧", "一" * 9]
            ),
            st.sampled_from([" " * 3_000, "a" * 3_000, "\n" * 3_000, "1" * 3_000, "=-" * 3_000, "\u0301" * 500]),
        ),
        max_size=12,
    ).map("".join)
)
def test_the_fast_encoder_counts_any_text_the_same(name: str, text: str) -> None:
    """Any text has one count: any script, unassigned characters, control tokens, long runs."""
    reference, fast = load_encoders(name)
    assert fast.count(text) == reference.count(text)


@pytest.mark.parametrize("name", NAMES)
def test_settled_characters_are_split_the_same(name: str) -> None:
    """The characters that the fast encoder takes for settled are of one class to both."""
    reference, fast = load_encoders(name)
    for block in (range(0x3000), range(0x3000, 0xD800, 7), range(0xE000, 0x10000), range(0x1F000, 0x1FB00)):
        assert count_characters_in_context(fast, block) == count_characters_in_context(reference, block)


@pytest.mark.parametrize("letter", ["\u088f", "\ua7ce", "\U00018dd8"])
def test_letters_newer_than_the_reference_are_left_to_it(monkeypatch: pytest.MonkeyPatch, letter: str) -> None:
    """A text with a letter that only the fast encoder's Unicode knows is counted by the reference."""
    reference, fast = load_encoders("cl100k")
    monkeypatch.setattr(fast, "_count_words", None)
    text = f"word{letter}word"
    assert fast.count(text) == reference.count(text)


def test_the_fast_encoder_is_renewed_when_it_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is bounded: it is loaded anew after it grew by so many bytes, and counts the same."""
    fast, loads = count_loads(monkeypatch)
    held = iter(range(0, 10_000, 400))
    monkeypatch.setattr(vocabulary._ResidentMemory, "read_bytes", lambda self: next(held) + 1)
    monkeypatch.setattr(vocabulary, "MAX_GROWN_BYTES", 1_000)
    monkeypatch.setattr(vocabulary, "_SLOW_SECONDS", -1.0)
    assert {fast.count("word " * 100) for _ in range(7)} == {100 + 1}
    assert loads == ["cl100k"] * 3


@pytest.mark.parametrize(("slow_seconds", "grown"), [(1e9, 0), (-1.0, 10 * 500 * 40)], ids=["known", "new"])
def test_what_other_threads_take_meanwhile_does_not_count(
    monkeypatch: pytest.MonkeyPatch, slow_seconds: float, grown: int
) -> None:
    """Known words cost nothing, and new ones ten bytes a character at most, however much the process grew."""
    fast, loads = count_loads(monkeypatch)
    held = iter(range(1, 10**12, 50_000_000))
    monkeypatch.setattr(vocabulary._ResidentMemory, "read_bytes", lambda self: next(held))
    monkeypatch.setattr(vocabulary, "_SLOW_SECONDS", slow_seconds)
    fast._grown_bytes = 0
    for _ in range(40):
        fast.count("word " * 100)
    assert fast._grown_bytes == grown
    assert loads == ["cl100k"]


def test_what_does_not_grow_the_fast_encoder_does_not_renew_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """To load it stops every thread for half a second: known words never cause that, however many there are."""
    fast, loads = count_loads(monkeypatch)
    fast.count("word " * 20_000)
    monkeypatch.setattr(fast, "_grown_bytes", 0)
    monkeypatch.setattr(vocabulary, "MAX_GROWN_BYTES", 10_000_000)
    for _ in range(500):
        fast.count("word " * 20_000)
    assert loads == ["cl100k"]


def test_of_short_texts_each_sixteenth_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands for the others, so that no number of them grows the encoder for ever."""
    fast, loads = count_loads(monkeypatch)
    monkeypatch.setattr(vocabulary, "_SHORT", 1_000)
    monkeypatch.setattr(vocabulary, "_SLOW_SECONDS", -1.0)
    held = iter(range(1, 10**6, 400))
    monkeypatch.setattr(vocabulary._ResidentMemory, "read_bytes", lambda self: next(held))
    assert {fast.count("word " * 100) for _ in range(40)} == {100 + 1}
    assert fast._grown_bytes == 2 * 16 * 400
    monkeypatch.setattr(vocabulary, "MAX_GROWN_BYTES", fast._grown_bytes - 1)
    fast.count("word")
    assert loads == ["cl100k"] * 2


def test_the_fast_encoder_is_renewed_where_memory_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a figure from the system, each character counts as the most that one costs."""
    fast, loads = count_loads(monkeypatch)
    monkeypatch.setattr(vocabulary._ResidentMemory, "read_bytes", lambda self: 0)
    monkeypatch.setattr(vocabulary, "MAX_GROWN_BYTES", 10_000)
    assert {fast.count("word " * 100) for _ in range(5)} == {100 + 1}
    assert loads == ["cl100k"] * 2


def test_no_thread_that_counts_meanwhile_loads_it_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who counts while it is being loaded anew uses the old one."""
    fast, loads = count_loads(monkeypatch)
    load = vocabulary._load_gigatoken

    def load_while_another_counts(name: str) -> vocabulary.Count:
        assert fast.count("another word") == 2
        return load(name)

    monkeypatch.setattr(vocabulary, "_load_gigatoken", load_while_another_counts)
    fast._grown_bytes = vocabulary.MAX_GROWN_BYTES + 1
    assert fast.count("one word") == 2
    assert loads == ["cl100k"] * 2


def test_other_threads_run_while_the_fast_encoder_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """They get the interpreter from it, and not only when the interpreter takes it away."""
    fast, _ = count_loads(monkeypatch)
    # To ask the system for memory would let them run as well.
    monkeypatch.setattr(vocabulary._ResidentMemory, "read_bytes", lambda self: 0)
    ran, begun = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: begun.wait() and ran.set())
    thread.start()
    texts = (f"{seed}".join(f"word{number}" for number in range(5_000)) for seed in range(100))
    taken_away_after = sys.getswitchinterval()
    sys.setswitchinterval(3_600)
    try:
        begun.set()
        assert any(ran.is_set() for text in texts if fast.count(text))
    finally:
        sys.setswitchinterval(taken_away_after)
        thread.join()


def test_the_fast_encoder_needs_no_arrays() -> None:
    """What gigatoken brings for tables costs half a second and 74 MB, so it is not imported."""
    pytest.importorskip("gigatoken")
    code = (
        "import sys\nsys.modules |= {'awkward': None, 'numpy': None}\n"
        "from elision.trajectory.vocabulary import GigatokenEncoder\nprint(GigatokenEncoder('cl100k').count('word'))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"


def test_large_texts_of_new_words_are_left_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their first words are tried, a few times; the next text is tried again, and the counts are the same."""
    fast, _ = count_loads(monkeypatch)
    text = "".join(f"word{number:05} " for number in range(100_000))
    expected = fast.count(text)
    sizes: list[int] = []
    count = fast._count_piece
    monkeypatch.setattr(fast, "_count_piece", lambda piece: sizes.append(len(piece)) or count(piece))
    monkeypatch.setattr(vocabulary, "_SLOW_SECONDS", -1.0)
    assert fast.count(text) == fast.count(text) == expected
    assert sizes == [vocabulary._TRIED] * vocabulary._MOST_SLOW * 2
    sizes.clear()
    monkeypatch.setattr(vocabulary, "_SLOW_SECONDS", 1e9)
    assert fast.count(text) == expected
    assert sizes == [vocabulary._TRIED, vocabulary.LONGEST_COUNTED] * 10


def test_megabytes_of_one_character_are_short_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are counted in blocks that are alike, and alike ones once; what stands around them is not cut."""
    fast, _ = count_loads(monkeypatch)
    asked: list[str] = []
    monkeypatch.setattr(fast, "_count_piece", lambda piece: asked.append(piece) or len(piece))
    text = "one  two" + " " * 1_000_000 + "three"
    assert fast.count(text) == len(text)
    assert max(map(len, asked)) < 2 * vocabulary._BLOCK
    assert len(asked) < 40
    assert asked[0].startswith("one  two ")
    assert asked[-1].endswith("three")


@pytest.mark.parametrize(("character", "name"), sample_cases(product(" \t\n-=a0ä", NAMES), 3))
def test_blocks_of_one_character_cost_the_same(character: str, name: str) -> None:
    """A run of 50,000 has as many tokens as it has uncut, within two."""
    reference = TiktokenEncoder(name)
    whole = len(reference._encoding.encode_ordinary(character * 50_000))
    assert abs(reference.count(character * 50_000) - whole) <= 2


def count_loads(monkeypatch: pytest.MonkeyPatch) -> tuple[GigatokenEncoder, list[str]]:
    """A fast encoder, and the names of what was loaded for it so far; skips where gigatoken is not installed."""
    pytest.importorskip("gigatoken")
    loads: list[str] = []
    # However short a text is, it is measured.
    monkeypatch.setattr(vocabulary, "_SHORT", 0)
    load = vocabulary._load_gigatoken
    monkeypatch.setattr(vocabulary, "_load_gigatoken", lambda name: loads.append(name) or load(name))
    return GigatokenEncoder("cl100k"), loads


@pytest.mark.parametrize("name", NAMES)
def test_the_probe_is_counted_right(name: str) -> None:
    """What the probe must count is what the reference counts."""
    assert TiktokenEncoder(name).count(PROBE) == VOCABULARIES[name].probe_tokens


def test_an_encoder_that_counts_differently_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A release that counts the probe differently is left alone, and the log says so."""
    monkeypatch.setattr(vocabulary, "_load_gigatoken", lambda name: len)
    with caplog.at_level(logging.WARNING, "elision.trajectory"):
        assert isinstance(load_fastest_encoder("cl100k"), TiktokenEncoder)
    assert "gigatoken cannot be used: SpecError: it counts" in caplog.text


def test_counting_without_the_fast_encoder(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Where gigatoken is not installed tiktoken counts, without a word."""
    monkeypatch.setitem(sys.modules, "gigatoken", None)
    monkeypatch.setitem(sys.modules, "gigatoken.gigatoken_rs", None)
    assert isinstance(load_fastest_encoder("cl100k"), TiktokenEncoder)
    assert not caplog.text


def test_a_damaged_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary whose bytes are not the published ones is refused: wrong counts would be believed."""
    damaged = replace(VOCABULARIES["cl100k"], digest="0" * 64)
    monkeypatch.setattr(vocabulary, "VOCABULARIES", {"cl100k": damaged})
    with pytest.raises(SpecError, match=r"cl100k_base\.tiktoken\.gz is damaged; reinstall"):
        VocabularyCounter("cl100k").count("a")
