"""Names of OpenAI's models, which both of its APIs serve."""

from __future__ import annotations

import re
from typing import Final

OPENAI_MODELS: Final = re.compile(r"(gpt|o\d|chatgpt|codex|computer-use)\b")
# OpenAI's models that think first: no temperature, and what they think counts as output.
_REASONING: Final = re.compile(r"(?:o\d|gpt-[5-9])(?!.*chat)")


def is_reasoning_model(model: str) -> bool:
    """Return whether `model` is one of OpenAI's that think first, by its name."""
    return bool(_REASONING.match(model))
