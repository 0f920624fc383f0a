"""Names of models that several APIs have."""

from __future__ import annotations

import re
from typing import Final

OPENAI_MODELS: Final = re.compile(r"(gpt|o\d|chatgpt|codex|computer-use)\b")
