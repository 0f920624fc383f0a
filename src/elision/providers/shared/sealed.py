"""Reasoning that only its provider can read: it is sent back and billed again, as many tokens as it was billed first.

A request has its text sealed, in base64, and not its tokens. Beyond an envelope of constant length the text grows with
them. Both numbers are fitted to the reasoning tokens that providers reported for the sealed items of 101 recorded
responses (`tests/providers/shared/test_sealed.py` has a part of them).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from elision.providers.shared.json_reading import Json
from elision.trajectory.content import Opaque


@dataclass(frozen=True, slots=True)
class Seal:
    """How a provider seals reasoning.

    envelope: characters of a secret that holds no reasoning. letters_per_token: further characters for each token.
    """

    envelope: int
    letters_per_token: float

    def count_tokens(self, secret: str) -> int:
        """Return about how many tokens of reasoning `secret` holds."""
        return max(0, round((len(secret) - self.envelope) / self.letters_per_token))


OPENAI_SEAL: Final = Seal(envelope=1_000, letters_per_token=6.2)
ANTHROPIC_SEAL: Final = Seal(envelope=240, letters_per_token=5.2)
GEMINI_SEAL: Final = Seal(envelope=70, letters_per_token=5.3)
#: OpenAI's secrets are Fernet tokens, which all begin alike.
_OPENAI_START: Final = "gAAAA"


def recognize_seal(secret: str) -> Seal:
    """Return the seal of `secret`, recorded by an agent that talks to several providers."""
    return OPENAI_SEAL if secret.startswith(_OPENAI_START) else ANTHROPIC_SEAL


def make_sealed(kind: str, part: Json, secret: str, seal: Seal) -> Opaque:
    """Keep reasoning that only the provider can read."""
    return Opaque(kind, seal.count_tokens(secret), part)
