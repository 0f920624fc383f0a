"""What a provider reported for one call, in one normal form."""

from __future__ import annotations

from typing import TypeVar

import msgspec

_T = TypeVar("_T")


def write_always(default: _T) -> _T:
    """Return the default of a field that is written even where it has this value.

    Other fields with a default are left out. Readers of stores and exports rely on these.
    """
    value: _T = msgspec.field(default_factory=lambda: default)
    return value


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything one request is billed for, in tokens; `input`, `cache_read`, `cache_write` and `output` never overlap.

    input:       prompt tokens billed at the plain input price (neither read from nor written to a cache).
    cache_read:  prompt tokens read from the provider's cache.
    cache_write: prompt tokens written to it at a write price; 0 where the provider has none.
    cache_write_1h: of `cache_write`, tokens whose entries live an hour (Anthropic); they cost more.
    output:      completion tokens, reasoning included.
    usd:         the cost the recording states, in USD, if it states one.
    first_prompt: tokens of the prompt as the client sent it, where the provider asked models several times for one
                 request (server-side compaction, an advisor) and the counts above are the sum; 0 where there was one.
    played:      whether `elision lab playback` made the response: nobody was billed.
    others:      the parts of the counts above that other models are billed for.

    Providers differ: OpenAI's `prompt_tokens` include cache reads and writes, Anthropic's `input_tokens` exclude both.
    Use `from_inclusive` or the plain constructor accordingly; `ContextManager.record` takes either.
    """

    input: int = write_always(0)
    cache_read: int = write_always(0)
    cache_write: int = write_always(0)
    output: int = write_always(0)
    usd: float | None = None
    cache_write_1h: int = 0
    first_prompt: int = 0
    played: bool = False
    others: tuple[ModelUsage, ...] = ()

    def __post_init__(self) -> None:
        for name in ("input", "cache_read", "cache_write", "output", "cache_write_1h", "first_prompt"):
            if getattr(self, name) < 0:
                raise ValueError(f"usage: {name} is negative ({getattr(self, name)})")
        if self.cache_write_1h > self.cache_write:
            raise ValueError(f"usage: cache_write_1h ({self.cache_write_1h}) is more than {self.cache_write} written")

    @property
    def prompt(self) -> int:
        """All prompt tokens of the call."""
        return self.input + self.cache_read + self.cache_write

    @property
    def sent_prompt(self) -> int:
        """Tokens of the prompt as the client sent it."""
        return self.first_prompt or self.prompt

    def __add__(self, other: Usage) -> Usage:
        """Of both calls; `usd` where both state one. No single prompt was sent for the sum."""
        return Usage(
            input=self.input + other.input,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            output=self.output + other.output,
            usd=None if self.usd is None or other.usd is None else self.usd + other.usd,
            cache_write_1h=self.cache_write_1h + other.cache_write_1h,
            others=(*self.others, *other.others),
            played=self.played or other.played,
        )

    @classmethod
    def from_inclusive(
        cls,
        *,
        prompt: int,
        output: int,
        cache_read: int = 0,
        cache_write: int = 0,
        usd: float | None = None,
        cache_write_1h: int = 0,
        played: bool = False,
    ) -> Usage:
        """From counts whose prompt total already includes cache reads and writes (OpenAI, LiteLLM, ATIF, Codex)."""
        plain = max(0, prompt - cache_read - cache_write)
        return cls(
            input=plain,
            cache_read=cache_read,
            cache_write=cache_write,
            output=output,
            usd=usd,
            cache_write_1h=min(cache_write_1h, cache_write),
            played=played,
        )


class ModelUsage(msgspec.Struct, frozen=True):
    """What one model is billed for, of a call that several models worked on."""

    model: str
    usage: Usage
