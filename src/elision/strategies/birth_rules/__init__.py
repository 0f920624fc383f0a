"""Rules that shorten a result as it arrives: what they leave out is named, counted and can be recalled."""

from elision.strategies.birth_rules.trim_table import TRIMS, trim_at_birth

__all__ = ["TRIMS", "trim_at_birth"]
