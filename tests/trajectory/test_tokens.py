"""Token counts: exact, offline, cached, quick; or an estimate that says so."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import SpecError
from elision.trajectory import tokens
from elision.trajectory.content import Opaque, Text
from elision.trajectory.tokens import (
    TOKENS_PER_CALL,
    TOKENS_PER_MESSAGE,
    EstimatingCounter,
    Sizer,
    VocabularyCounter,
    make_counter,
)
from elision.trajectory.turn import Action, Head, Turn
from tests.soak import leave_to_soak
from tests.work import assert_linear


@pytest.mark.parametrize(
    ("text", "o200k", "cl100k"),
    [
        ("", 0, 0),
        ("hello world", 2, 2),
        ("tiktoken is great!", 6, 6),
        ("antidisestablishmentarianism", 6, 6),
        ("2 + 2 = 4", 7, 7),
        ("お誕生日おめでとう", 8, 9),
    ],
)
def test_published_counts(text: str, o200k: int, cl100k: int) -> None:
    """The counts that OpenAI's cookbook prints ("How to count tokens with tiktoken")."""
    assert (make_counter("o200k").count(text), make_counter("cl100k").count(text)) == (o200k, cl100k)


@pytest.mark.parametrize("name", ["o200k", "cl100k"])
def test_special_tokens_are_text(name: str) -> None:
    """A recorded text cannot shrink its own count by naming a control token, nor raise an error."""
    assert make_counter(name).count("<|endoftext|>") > 1
    assert make_counter(name).count("<|endofprompt|>" * 10) > 10


# Each loads the vocabulary for every measurement.
@pytest.mark.parametrize("piece", leave_to_soak(["x", "观", "=-", " ", "a1"], "=-", " ", "a1"))
def test_a_long_text_without_spaces_takes_linear_time(piece: str) -> None:
    """Minified code and blobs, which the plain pattern is quadratic on, are counted piece by piece."""
    assert_linear(lambda size: VocabularyCounter("o200k").count(piece * (size // len(piece))), 4_000)


def test_pieces_change_little() -> None:
    """A long text is counted in pieces: at most a token is added at each seam."""
    text = "the quick brown fox jumps over the lazy dog\n" * 10_000
    line = make_counter().count("the quick brown fox jumps over the lazy dog\n")
    assert 10_000 * line <= make_counter().count(text) <= 10_000 * line + 2 * len(text) // 100_000


@given(st.text(st.characters(exclude_categories=()), max_size=200))
def test_any_text_has_a_count(text: str) -> None:
    """Lone surrogates, controls and unassigned characters count too; the same text always the same."""
    assert make_counter().count(text) == VocabularyCounter.count(make_counter(), text)  # type: ignore[arg-type]
    assert (make_counter().count(text) == 0) == (text == "")
    assert (EstimatingCounter().count(text) == 0) == (text == "")


def test_counts_are_cached_by_content() -> None:
    """A text is counted once, long ones included."""
    vocabulary = VocabularyCounter("cl100k")
    for text in ("a", "b" * 1_000, "a", "b" * 1_000):
        vocabulary.count(text)
    assert len(vocabulary._known_counts) == 2


def test_vocabularies_are_not_fetched() -> None:
    """Counting opens no connection: the vocabularies ship with the package."""
    program = (
        "import socket\n"
        "def refuse(*args, **options): raise AssertionError('a connection')\n"
        "socket.socket.connect = refuse; socket.getaddrinfo = refuse\n"
        "from elision.trajectory.tokens import make_counter\n"
        "print(make_counter('o200k').count('hello world'), make_counter('cl100k').count('hello world'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "2"]


def test_an_unknown_counter() -> None:
    """An unknown name is an error that lists what exists."""
    with pytest.raises(SpecError, match="no token counter 'gpt2'; there are: o200k, cl100k, estimate"):
        make_counter("gpt2")


def test_the_estimate_says_that_it_is_one() -> None:
    """Only the estimate calls itself inexact."""
    assert [make_counter(name).is_exact for name in ("o200k", "cl100k", "estimate")] == [True, True, False]
    assert make_counter("estimate").name == "estimate"


def test_the_estimate_knows_wide_characters() -> None:
    """Four ASCII characters a token, but one token for each other character: CJK is not off by 3-4 times."""
    assert EstimatingCounter().count("abcde") == 2
    assert EstimatingCounter().count("观察结果") == 4
    text = "观察结果很长,但是没有空格" * 50
    assert EstimatingCounter().count(text) == pytest.approx(make_counter().count(text), rel=0.5)


def test_sizes_of_messages() -> None:
    """Frames, opaque parts, reasoning, calls and tools count; an implicit call stands in the text already."""
    sizer = Sizer(make_counter())
    call = Action(id="a", name="bash", arguments='{"command": "ls"}')
    implicit = Action(id="", name="bash", arguments="ls", implicit=True)
    said = Turn(index=1, content=(Text("hello world"), Opaque("image", tokens=85)), actions=(implicit,))
    assert sizer.count_assistant(said) == TOKENS_PER_MESSAGE + 2 + 85
    acting = Turn(index=1, reasoning="hello world", actions=(call, call))
    one = TOKENS_PER_CALL + sizer.count("bash") + sizer.count(call.arguments)
    assert sizer.count_assistant(acting) == TOKENS_PER_MESSAGE + 2 + 2 * one
    assert sizer.count_text("hello world") == TOKENS_PER_MESSAGE + 2
    assert sizer.count_tools(Head()) == 0
    assert sizer.count_tools(Head(tools=({"name": "bash"},))) > 3


def test_the_default_counter_is_the_named_one() -> None:
    """However it is asked for there is one vocabulary, so that no text is counted twice and none loaded twice."""
    assert make_counter() is make_counter("o200k") is make_counter(name="o200k")


def test_kept_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that lives for long keeps the newer counts alone; what was forgotten is counted again, the same."""
    monkeypatch.setattr(tokens, "TEXTS_KEPT", 100)
    fresh = VocabularyCounter("o200k")
    texts = [f"text number {number} of many" for number in range(1_000)]
    first = [fresh.count(text) for text in texts]
    assert len(fresh._known_counts) <= 100
    asked: list[str] = []
    monkeypatch.setattr(fresh._encoder, "count", lambda text: asked.append(text) or 7)
    assert fresh.count(texts[-1]) == first[-1]
    assert fresh.count(texts[0]) == 7
    assert asked == [texts[0]]


def test_kept_counts_take_a_few_megabytes() -> None:
    """A process that counts ever new texts soon holds as much for them as it ever will."""

    class Encoder:
        def count(self, text: str) -> int:
            return len(text) * 1_000

    counter = VocabularyCounter("o200k", lambda name: Encoder())
    tracemalloc.start()
    try:
        for number in range(100_000):
            counter.count(f"{number} is the number of a text that is long enough for its digest")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(counter._known_counts) <= tokens.TEXTS_KEPT
    assert held < 8_000_000
