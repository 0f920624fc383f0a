"""Summaries: the prompt for a model that writes them, and the digest that needs none."""

from elision.summarizers.digest import digest
from elision.summarizers.prompt import INSTRUCTIONS, prompt

__all__ = ["INSTRUCTIONS", "digest", "prompt"]
