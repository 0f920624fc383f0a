"""What is wrong with a request, with and without the providers' packages."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.providers.provider import Api
from elision.providers.provider_table import find_provider
from elision.testing import request_checks
from elision.testing.builders import anthropic_messages, openai_messages, responses_items, steps, trajectory
from elision.testing.recorded_provider import RESPONSE_FORMATS
from elision.testing.request_checks import find_problems

APIS = tuple(RESPONSE_FORMATS)
RUN = trajectory(*steps(3))


def sound(api: Api) -> dict[str, Any]:
    if api == "openai":
        return {"model": "m", "messages": openai_messages(RUN)}
    if api == "openai-responses":
        return {"model": "m", "input": responses_items(RUN)}
    if api == "gemini":
        contents: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": "Mend the parser."}]}]
        for index in range(3):
            call = {"functionCall": {"name": "bash", "args": {"cmd": f"make {index}"}}}
            answer = {"functionResponse": {"name": "bash", "response": {"output": "done"}}}
            contents += [{"role": "model", "parts": [call]}, {"role": "user", "parts": [answer]}]
        return {"model": "m", "contents": contents, "generationConfig": {"maxOutputTokens": 9}}
    system, messages = anthropic_messages(RUN)
    return {"model": "m", "max_tokens": 9, "system": system, "messages": messages}


@pytest.mark.parametrize("api", APIS)
def test_what_our_renderers_say_is_sound(api: Api) -> None:
    """The builders' messages pass the types and the rules of their provider."""
    assert find_problems(api, sound(api)) == []


def test_a_tool_need_not_say_that_it_is_strict() -> None:
    """Responses takes a function without `strict`, which some clients never send, and no tool without a name."""
    tool = {"type": "function", "name": "bash", "parameters": {"type": "object", "properties": {}}}
    request = sound("openai-responses")
    assert find_problems("openai-responses", {**request, "tools": [tool]}) == []
    assert find_problems("openai-responses", {**request, "tools": [{**tool, "strict": "yes"}]})
    assert find_problems("openai-responses", {**request, "tools": [{"type": "function", "parameters": {}}]})


@pytest.mark.parametrize("api", APIS)
def test_without_the_packages_the_outline_is_checked(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no package is installed, needed fields and the rules still are."""

    def absent(name: str) -> Any:
        raise ImportError(name)

    request_checks._load_validator.cache_clear()
    monkeypatch.setattr(importlib, "import_module", absent)
    try:
        assert find_problems(api, sound(api)) == []
        assert find_problems(api, {"model": "m"})
        field = find_provider(api).list_field
        history = sound(api)[field]
        # Gemini takes calls that nothing follows.
        assert find_problems(api, {**sound(api), field: history[:-1] if api != "gemini" else history[2:]})
    finally:
        request_checks._load_validator.cache_clear()


@given(
    st.sampled_from(APIS),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(("role", "content", "type", "text", "id")), inner)
        ),
    ),
)
def test_no_json_breaks_the_check(api: Api, value: Any) -> None:
    """Whatever stands where the history belongs, the answer is a list of sentences."""
    field = "input" if api == "openai-responses" else "messages"
    for body in ({"model": "m", "max_tokens": 9, field: value}, {"model": "m", "max_tokens": 9, field: [value]}):
        assert all(isinstance(each, str) for each in find_problems(api, body))
