"""Outcome extractors: what happened in a masked observation, in a few words."""

from elision.strategies.extractors.outcome import LABEL_CHARS, RESULT_CHARS, Extractor, Outcome
from elision.strategies.extractors.registry import BUILT_IN, Extractors

__all__ = ["BUILT_IN", "LABEL_CHARS", "RESULT_CHARS", "Extractor", "Extractors", "Outcome"]
