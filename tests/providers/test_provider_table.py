"""The table of APIs, and what holds for every record in it."""

from __future__ import annotations

from typing import get_args

import pytest

from elision.errors import SpecError
from elision.providers.provider_table import (
    DEFAULT_PROVIDER,
    PROVIDERS,
    DialectName,
    find_provider,
    find_provider_or_default,
)


def test_the_type_names_what_the_table_has() -> None:
    """A user's type checker knows every API, and no other."""
    assert set(get_args(DialectName)) == {"auto", *PROVIDERS}


def test_a_name_is_found() -> None:
    """An unknown one is refused with those that there are; no name, and `auto`, are the API of many servers."""
    assert find_provider("anthropic").name == "anthropic"
    assert find_provider_or_default("auto") is find_provider_or_default("") is DEFAULT_PROVIDER
    for find in (find_provider, find_provider_or_default):
        with pytest.raises(SpecError, match=r"no dialect 'bison'; there are: openai, .*, gemini"):
            find("bison")


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_record_names_one_api(name: str) -> None:
    """Its reader of live messages has its name, and no other API claims the tools that it writes."""
    provider = PROVIDERS[name]
    assert provider.live.name == provider.name == name
    tool = provider.render_tool({"name": "ls", "description": "List.", "input_schema": {"type": "object"}})
    assert [other.name for other in PROVIDERS.values() if other.defines_tool(tool)] == [name]


def test_a_path_belongs_to_one_api() -> None:
    """The patterns of two APIs never fit one path."""
    for path in (
        b"/chat/completions",
        b"/responses",
        b"/messages",
        b"/messages/count_tokens",
        b"/models/m:generateContent",
    ):
        owners = [other.name for other in PROVIDERS.values() if any(each.fullmatch(path) for each in other.paths)]
        assert len(owners) == 1


def test_a_usage_is_read_by_its_own_api() -> None:
    """The first record of the table whose sign a usage has reads it."""
    usages = {
        "openai": {"prompt_tokens": 7, "completion_tokens": 1},
        "openai-responses": {"input_tokens": 7, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 0}},
        "anthropic": {"input_tokens": 7, "output_tokens": 1},
        "gemini": {"promptTokenCount": 7, "candidatesTokenCount": 1},
    }
    for name, usage in usages.items():
        owner = next(each for each in PROVIDERS.values() if not each.usage_signs.isdisjoint(usage))
        assert owner.name == name
        read = owner.parse_usage(usage)
        assert read is not None
        assert read.prompt == 7
