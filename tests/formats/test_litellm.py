"""What `prompt_tokens` include differs by version; a run's own numbers tell."""

from __future__ import annotations

from elision.formats.recorded_fields import PromptTokens
from elision.trajectory.usage import Usage


def test_reads_and_writes_inside() -> None:
    """Where every part fits into its whole, prompt tokens include cache reads and writes."""
    raw = {"prompt_tokens": 100, "completion_tokens": 5, "cache_read_tokens": 60, "cache_write_tokens": 30}
    usage = PromptTokens.detect([raw]).parse_usage(raw, usd=0.5)
    assert usage == Usage(input=10, cache_read=60, cache_write=30, output=5, usd=0.5)


def test_writes_beside_are_found_over_the_run() -> None:
    """One call whose parts exceed its prompt tokens shows that writes stand beside them, in every call of the run."""
    small = {"prompt_tokens": 100, "completion_tokens": 5, "cache_read_tokens": 60, "cache_write_tokens": 30}
    tell = {"prompt_tokens": 64, "completion_tokens": 5, "cache_read_tokens": 60, "cache_write_tokens": 500}
    counted = PromptTokens.detect([small, tell])
    assert counted.parse_usage(small) == Usage(input=40, cache_read=60, cache_write=30, output=5)
    assert counted.parse_usage(tell) == Usage(input=4, cache_read=60, cache_write=500, output=5)


def test_reads_beside() -> None:
    """More read than prompted: neither is included."""
    raw = {"input_tokens": 4, "output_tokens": 1, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 10}
    assert PromptTokens.detect([raw]).parse_usage(raw) == Usage(input=4, cache_read=90, cache_write=10, output=1)


def test_names_of_other_providers() -> None:
    """Cached tokens are found in OpenAI's details and under DeepSeek's own name; 0 and null are no answer."""
    counted = PromptTokens()
    openai = {"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}}
    deepseek = {"prompt_tokens": 10, "completion_tokens": 1, "cache_read_input_tokens": 0, "prompt_cache_hit_tokens": 8}
    assert counted.parse_usage(openai) == counted.parse_usage(deepseek) == Usage(input=2, cache_read=8, output=1)


def test_nothing_recorded_is_no_usage() -> None:
    """A missing, empty or zero usage is none, not a free call."""
    counted = PromptTokens.detect([None, {}, "x"])
    assert [counted.parse_usage(raw) for raw in (None, {}, {"prompt_tokens": 0}, "x")] == [None] * 4
