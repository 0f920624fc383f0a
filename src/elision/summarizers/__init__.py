"""Summaries: the prompt for a model that writes them, and the digest that needs none."""

from elision.summarizers.digest import write_digest
from elision.summarizers.prompt import INSTRUCTIONS, build_prompt

__all__ = ["INSTRUCTIONS", "build_prompt", "write_digest"]
