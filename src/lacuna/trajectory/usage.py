"""What a provider reported for one call, in one normal form."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one call; the four prompt-side and output counts never overlap.

    input:       prompt tokens billed at the plain input price (neither read from nor written to a cache).
    cache_read:  prompt tokens read from the provider's cache.
    cache_write: prompt tokens written to it at a write price; 0 where the provider has none.
    output:      completion tokens, reasoning included.
    usd:         the cost the recording states, in USD, if it states one.

    Providers differ: OpenAI's `prompt_tokens` include cache reads and writes, Anthropic's `input_tokens` exclude both.
    Use `inclusive` or the plain constructor accordingly.
    """

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    usd: float | None = None

    def __post_init__(self) -> None:
        for name in ("input", "cache_read", "cache_write", "output"):
            if getattr(self, name) < 0:
                raise ValueError(f"usage: {name} is negative ({getattr(self, name)})")

    @property
    def prompt(self) -> int:
        """All prompt tokens of the call."""
        return self.input + self.cache_read + self.cache_write

    def __add__(self, other: Usage) -> Usage:
        """Of both calls; `usd` where both state one."""
        return Usage(
            input=self.input + other.input,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            output=self.output + other.output,
            usd=None if self.usd is None or other.usd is None else self.usd + other.usd,
        )

    @classmethod
    def inclusive(
        cls, *, prompt: int, output: int, cache_read: int = 0, cache_write: int = 0, usd: float | None = None
    ) -> Usage:
        """From counts whose prompt total already includes cache reads and writes (OpenAI, LiteLLM, ATIF, Codex)."""
        plain = max(0, prompt - cache_read - cache_write)
        return cls(input=plain, cache_read=cache_read, cache_write=cache_write, output=output, usd=usd)
