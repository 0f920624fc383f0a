"""Token counts: exact, offline, cached, or an estimate that says so; and the provider's count of what we count."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import PriceError, SpecError
from elision.trajectory import tokens
from elision.trajectory.price_lookup import LONGEST_NAME, find_price_set, find_prices, find_tokenizer
from elision.trajectory.price_table import load_price_table, parse_price_table
from elision.trajectory.tokens import (
    GROWN_TOKENS,
    OURS,
    TOKENS_PER_CALL,
    TOKENS_PER_MESSAGE,
    UNSEEN_TOKENS,
    EstimatingCounter,
    Sizer,
    Tokenizer,
    TokenScale,
    VocabularyCounter,
    make_counter,
)
from elision.trajectory.turn import Action, Head, Opaque, Text, Turn
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


def grown(factor: float, unseen: int = 0) -> TokenScale:
    """A scale that saw a prompt grow at a provider that counts `factor` tokens for ours, and `unseen` ones beside."""
    scale = TokenScale()
    for counted in (1_000, 2_000, 8_000):
        scale.add_report(counted, unseen + round(factor * counted), extends=True)
    return scale


def test_nothing_is_known_before_a_report() -> None:
    """Our count is taken until the provider reported one."""
    assert TokenScale().convert_to_billed(700) == TokenScale().convert_to_counted(700) == 700
    assert TokenScale().rate == 1.0


def test_the_expected_rate_holds_until_growth_is_known() -> None:
    """What is known of a model beforehand is the scale until prompts have grown by enough."""
    scale = TokenScale(expected_rate=1.6)
    assert (scale.convert_to_billed(1_000), scale.convert_to_counted(1_600), scale.convert_part(100)) == (
        1_600,
        1_000,
        160,
    )
    scale.add_report(1_000, 1_250, extends=False)
    assert scale.convert_to_billed(1_100) == 1_250 + 160
    scale.add_report(1_000 + GROWN_TOKENS, 1_250 + round(1.25 * GROWN_TOKENS), extends=True)
    assert scale.rate == pytest.approx(1.25)
    assert scale.convert_part(100) == 125


@pytest.mark.parametrize("factor", [0.9, 1.0, 1.25, 2.6])
@pytest.mark.parametrize("unseen", [0, 5_000])
def test_growth_says_how_a_provider_counts(factor: float, unseen: int) -> None:
    """Prompts that grow tell the provider's count from what the client keeps to itself, which does not grow."""
    scale = grown(factor, unseen)
    assert scale.rate == pytest.approx(factor)
    for counted in (8_000, 9_000, 30_000, 4_000):
        assert scale.convert_to_billed(counted) == pytest.approx(unseen + factor * counted, abs=2)


def test_one_report_corrects_as_far_as_it_says() -> None:
    """After one report longer prompts have what it had beyond our count, shorter ones their share of it."""
    scale = TokenScale()
    scale.add_report(1_000, 1_200, extends=False)
    assert (scale.convert_to_billed(1_000), scale.convert_to_billed(1_500), scale.convert_to_billed(500)) == (
        1_200,
        1_700,
        600,
    )
    assert scale.correction == 200


def test_a_rewritten_prompt_says_nothing_of_growth() -> None:
    """Only a prompt that begins with the one before grew."""
    scale = TokenScale()
    scale.add_report(9_000, 9_000, extends=False)
    scale.add_report(4_000, 8_000, extends=False)
    assert scale.rate == 1.0
    assert scale.convert_to_billed(4_000) == 8_000


def test_odd_reports_stay_within_bounds() -> None:
    """A report that makes little sense moves the scale no further than any tokenizer goes."""
    scale = TokenScale()
    scale.add_report(1_000, 1_000, extends=True)
    assert scale.add_report(1_000 + GROWN_TOKENS, UNSEEN_TOKENS, extends=True)
    assert scale.rate == 4.0
    assert scale.convert_to_billed(0) >= 0


@pytest.mark.parametrize(
    ("counted", "billed"),
    [(30_000, 10), (30_000, 7_499), (1_000, 249), (30_000, 4 * 30_000 + UNSEEN_TOKENS + 1), (1_000, 10**9)],
)
def test_a_report_that_cannot_be_is_not_used(counted: int, billed: int) -> None:
    """What a proxy reports instead of a prompt leaves the scale where it was, before and after a report that can be."""
    scale = TokenScale()
    assert not scale.add_report(counted, billed, extends=False)
    assert scale == TokenScale()
    scale = grown(1.25)
    before = replace(scale)
    assert not scale.add_report(counted, billed, extends=True)
    assert scale == before


@pytest.mark.parametrize("counted", [1_000, 30_000, 200_000])
@pytest.mark.parametrize(("share", "unseen"), [(0.25, 0), (0.5, 0), (1.0, 49_000), (2.6, 40_000), (4.0, 0)])
def test_a_report_that_can_be_is_used(counted: int, share: float, unseen: int) -> None:
    """Tokenizers differ, and clients keep long system prompts and tools to themselves."""
    scale = TokenScale()
    assert scale.add_report(counted, unseen + round(share * counted), extends=False)
    assert scale.billed_tokens == unseen + round(share * counted)


def test_short_prompts_say_little_and_are_believed() -> None:
    """A small difference is no nonsense: messages have a price of their own, and pictures are estimated."""
    assert TokenScale().add_report(GROWN_TOKENS - 1, 1, extends=False)


@given(
    reports=st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6), st.booleans()), max_size=6),
    tokens=st.integers(0, 10**6),
    more=st.integers(0, 10**5),
)
def test_longer_prompts_are_never_billed_shorter(reports: list[tuple[int, int, bool]], tokens: int, more: int) -> None:
    """Whatever was reported, the scale is monotone, and what fits by our count fits by the provider's."""
    scale = TokenScale()
    for counted, billed, extends in reports:
        scale.add_report(counted, billed, extends=extends)
    assert 0 <= scale.convert_to_billed(tokens) <= scale.convert_to_billed(tokens + more) + 1
    fits = scale.convert_to_counted(scale.convert_to_billed(tokens))
    assert scale.convert_to_billed(max(0, fits)) <= scale.convert_to_billed(tokens) + 4


DAY = date(2026, 11, 20)


@pytest.mark.parametrize(
    ("name", "tokens", "sent_again"),
    [
        ("claude-sonnet-4", 1.20, True),
        ("litellm_proxy/anthropic/claude-sonnet-4-20250514", 1.20, True),
        ("claude-3-5-sonnet", 1.20, True),
        ("claude-opus-4-5-20251101", 1.25, True),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", 1.25, True),
        ("claude-sonnet-4.5", 1.25, True),
        ("claude-opus-4-7", 1.60, True),
        ("claude-opus-4-8-fast", 1.60, True),
        ("claude-sonnet-5", 1.60, True),
        ("deepseek/deepseek-chat", 1.08, True),
        ("gpt-5-mini", 1.0, False),
        ("kimi-k3", 1.0, True),
        ("claude-opus-5", 1.60, True),
        ("claude-opus-5-5", 1.60, True),
        ("claude_opus_4_5", 1.25, True),
        ("databricks-claude-sonnet-4-5", 1.25, True),
        ("cluade-opus-4-5", 1.25, True),
        ("gtp-5", 1.0, False),
        ("gemini-3-pro-preview", 1.0, False),
        ("a-model-that-nobody-knows", 1.0, False),
    ],
)
def test_a_name_finds_its_family(name: str, tokens: float, sent_again: bool) -> None:
    """Hosts, dates and dots in a name do not matter, nor a typing error; a model of no known family counts as we do."""
    found = find_tokenizer(name)
    assert (found.tokens_per_counted, found.output_sent_again) == (tokens, sent_again)


def test_a_name_without_end_counts_as_we_do() -> None:
    """A name of any length is answered, without work that grows with it."""
    assert find_tokenizer("claude-opus-4-5" * LONGEST_NAME) is OURS


def test_prices_know_their_tokenizer() -> None:
    """A model's price list counts as its model does; a set stands for no model."""
    assert find_prices("anthropic/claude-opus-4-8", on=DAY).tokenizer.name == "claude-4-7"
    assert find_prices("gpt-5", on=DAY).tokenizer.name == "gpt"
    assert {prices.tokenizer for prices in load_price_table().sets.values()} == {OURS}
    assert find_price_set("anthropic").tokenizer is OURS


def test_the_longest_beginning_decides() -> None:
    """claude-sonnet-4-5 is of the family that names it, not of claude-sonnet-4."""
    short, long = Tokenizer(name="a", models=("claude-sonnet-4",)), Tokenizer(name="b", models=("claude-sonnet-4-5",))
    assert long.measure_fit("claude-sonnet-4-5") > short.measure_fit("claude-sonnet-4-5") > 0
    assert long.measure_fit("claude-sonnet-4") == 0


def test_every_family_says_where_it_is_from() -> None:
    """Each has a source and a day, and no two of them have a name or a beginning in common."""
    families = load_price_table().tokenizers
    assert all(family.source and family.dated for family in families)
    assert len({family.name for family in families}) == len(families)
    starts = [start for family in families for start in family.models]
    assert len(set(starts)) == len(starts)


SMALL = """
dated = 2026-11-20
[sources]
fit = "a fit"
[providers]
[[tokenizer]]
name = "one"
models = ["One.5"]
tokens_per_counted = 1.5
output_sent_again = true
dated = 2026-11-23
sources = ["fit"]
"""


def test_a_family_is_read() -> None:
    """Names are folded as models' names are."""
    table = parse_price_table(SMALL)
    (family,) = table.tokenizers
    assert family == Tokenizer(
        name="one",
        models=("one-5",),
        tokens_per_counted=1.5,
        output_sent_again=True,
        source="a fit",
        dated="2026-11-23",
    )
    assert table.find_tokenizer("one.5-large") is family
    assert table.find_tokenizer("two") is OURS


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("= 1.5", "= 0", "tokenizer one: tokens_per_counted is 0.0; give a number from 0.25 to 4"),
        ("= 1.5", "= nan", "tokenizer one: tokens_per_counted is nan; give a number"),
        ("= 1.5", "= 1.5\nfactor = 2", "tokenizer one: `factor`: nothing has this name"),
        ("= true", "= 1", "tokenizer one: `output_sent_again`: 1 is of the wrong type; give true or false"),
        ('["fit"]', '["fits"]', "tokenizer one: `sources`: 'fits' is not known; give one of fit"),
    ],
)
def test_a_wrong_family_is_named(old: str, new: str, message: str) -> None:
    """An error names the family, and what to write instead."""
    assert old in SMALL
    with pytest.raises(PriceError) as caught:
        parse_price_table(SMALL.replace(old, new, 1))
    assert message in str(caught.value)
