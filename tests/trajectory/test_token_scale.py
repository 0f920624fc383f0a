"""One scale: the provider's count of what we count."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.trajectory.tokens import GROWN_TOKENS, UNSEEN_TOKENS, TokenScale


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
    for tokens in (8_000, 9_000, 30_000, 4_000):
        assert scale.convert_to_billed(tokens) == pytest.approx(unseen + factor * tokens, abs=2)


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
