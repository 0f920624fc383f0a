"""Sealed reasoning is as many tokens as its provider billed for it, by recorded responses."""

from __future__ import annotations

import pytest

from elision.providers.shared.json_reading import ANTHROPIC_SEAL, GEMINI_SEAL, OPENAI_SEAL, Seal, recognize_seal

#: Characters of a sealed item, and the reasoning tokens that the response's usage states. From the cassettes of
#: pydantic-ai; gpt-5 states multiples of 64, so that 0 may be anything below.
OPENAI = (
    (972, 10), (996, 35), (1_036, 40), (1_080, 26), (1_100, 29), (1_144, 54), (1_252, 47), (1_164, 0), (1_272, 64),
    (1_336, 64), (1_380, 64), (1_592, 64), (1_912, 128), (2_104, 192), (2_636, 192), (2_892, 256), (3_148, 320),
    (3_812, 448), (5_348, 704), (7_756, 1_024), (8_996, 1_280), (9_572, 1_792), (12_900, 1_920), (16_376, 2_496),
)  # fmt: skip
ANTHROPIC = ((300, 15), (320, 19), (408, 33), (532, 55), (540, 47), (588, 71))
GEMINI = ((280, 39), (388, 56), (388, 61), (428, 70), (460, 79), (488, 69), (724, 123), (44, 0))


@pytest.mark.parametrize(
    ("seal", "recorded"), [(OPENAI_SEAL, OPENAI), (ANTHROPIC_SEAL, ANTHROPIC), (GEMINI_SEAL, GEMINI)]
)
def test_sealed_reasoning_is_counted_as_it_was_billed(seal: Seal, recorded: tuple[tuple[int, int], ...]) -> None:
    """Within a twentieth in total, and within 80 tokens or a quarter for each item."""
    counted = [seal.count_tokens("x" * letters) for letters, _ in recorded]
    billed = [tokens for _, tokens in recorded]
    assert sum(counted) == pytest.approx(sum(billed), rel=0.05)
    for ours, theirs in zip(counted, billed, strict=True):
        assert abs(ours - theirs) <= max(80, 0.25 * theirs)


def test_an_empty_secret_has_no_tokens() -> None:
    """Nothing sealed is nothing billed."""
    assert OPENAI_SEAL.count_tokens("") == 0


def test_secrets_of_openai_are_recognized() -> None:
    """An agent that talks to several providers records no seal: OpenAI's begin alike."""
    assert recognize_seal("gAAAAABo") is OPENAI_SEAL
    assert recognize_seal("EqQBCkYI") is ANTHROPIC_SEAL
