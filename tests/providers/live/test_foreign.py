"""Messages of agent frameworks are told from those of providers, by their shape."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessage

from elision.errors import DialectError
from elision.manager import ContextManager
from elision.providers.live.client_messages import describe_foreign, is_known
from elision.providers.provider_table import find_provider

Json = dict[str, Any]
#: As the packages wrote them in November 2026 (langchain-core 1.8, pydantic-ai 2.62), nulls and times left out.
FOREIGN: list[tuple[str, Json]] = [
    ("LangChain", {"content": "hi", "additional_kwargs": {}, "response_metadata": {}, "type": "human"}),
    ("LangChain", {"content": "s", "additional_kwargs": {}, "response_metadata": {}, "type": "system"}),
    ("LangChain", {"content": "a", "additional_kwargs": {}, "type": "AIMessageChunk", "tool_call_chunks": []}),
    ("LangChain", {"content": "r", "additional_kwargs": {}, "type": "tool", "tool_call_id": "c", "status": "success"}),
    ("LangChain", {"type": "tool", "data": {"content": "r", "tool_call_id": "c"}}),
    ("LangChain", {"type": "human", "content": "hi"}),
    ("Pydantic AI", {"kind": "request", "parts": [{"content": "hi", "part_kind": "user-prompt"}]}),
    ("Pydantic AI", {"kind": "response", "parts": [{"content": "x", "part_kind": "text"}], "usage": {}}),
    ("parts (Gemini", {"id": "1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}),
    ("Converse", {"role": "assistant", "content": [{"text": "x"}, {"toolUse": {"toolUseId": "t", "name": "f"}}]}),
    ("Converse", {"role": "user", "content": [{"toolResult": {"toolUseId": "t", "content": [{"text": "r"}]}}]}),
]
#: What providers take, and clients' own additions to it.
OWN: list[Json] = [
    {"role": "user", "parts": [{"text": "hi"}]},
    {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
    {"role": "user", "content": "hi"},
    {"role": "user", "content": "hi", "additional_kwargs": {}, "parts": [{"text": "hi"}]},
    {"role": "assistant", "content": None, "tool_calls": []},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r", "toolResult": {}}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "item_of_next_year", "data": {}},
    {"role": "user", "content": [{"text": "no type"}]},
    {"role": "user", "parts": []},
    {},
]


@pytest.mark.parametrize(("whose", "message"), FOREIGN)
def test_a_framework_s_message_is_recognized(whose: str, message: Json) -> None:
    """Named, with what to give instead."""
    told = describe_foreign(message)
    assert whose in told
    assert "; give " in told or "; send " in told


@pytest.mark.parametrize("message", OWN)
def test_nothing_that_a_provider_takes_is_foreign(message: Json) -> None:
    """Additional fields, items that nobody knows yet, and plain mistakes are the provider's to judge."""
    assert describe_foreign(message, "parts") == ""


@pytest.mark.parametrize(
    ("message", "in_chat", "in_items"),
    [
        ({"role": "user", "content": "hi"}, True, True),
        ({"role": "developer"}, True, True),
        ({"type": "reasoning", "summary": []}, False, True),
        ({"type": "item_of_next_year"}, False, True),
        ({"type": "message", "content": "hi"}, False, False),
        ({"role": "bot", "content": "hi"}, False, False),
        ({"role": ["user"]}, False, False),
        ({}, False, False),
    ],
)
def test_a_message_is_known_by_its_role_or_an_item_by_its_type(message: Json, in_chat: bool, in_items: bool) -> None:
    """The type counts where messages are items."""
    assert is_known(message, find_provider("openai").live) == in_chat
    assert is_known(message, find_provider("openai-responses").live) == in_items


@pytest.mark.parametrize(
    ("message", "is_own"),
    [({"role": "model", "parts": []}, True), ({"parts": []}, True), ({"role": "assistant", "parts": []}, False)],
)
def test_each_api_has_roles_of_its_own(message: Json, is_own: bool) -> None:
    """Gemini's model is no assistant, and a content without a role is the user's."""
    assert is_known(message, find_provider("gemini").live) == is_own


@pytest.mark.parametrize(
    ("package", "whose"),
    [
        ("langchain_core.messages.human", "LangChain"),
        ("pydantic_ai.messages", "Pydantic AI"),
        ("llama_index.core.base.llms.types", "LlamaIndex"),
        ("agent_framework._types", "Microsoft Agent Framework"),
        ("smolagents.models", "smolagents"),
        ("inspect_ai.model._chat_message", "Inspect"),
    ],
)
def test_a_framework_s_object_is_recognized_by_its_package(package: str, whose: str) -> None:
    """Whatever it is dumped to: its type is named, and so is what to do. A class that extends it is one too."""
    kind = type(
        "Message", (), {"__module__": package, "model_dump": lambda self, **_: {"role": "user", "content": "x"}}
    )
    own = type("MyMessage", (kind,), {})
    for value, name in ((kind(), "Message"), (own(), "MyMessage")):
        context = ContextManager(store="memory:")
        with pytest.raises(
            DialectError, match=rf"messages\[0\] is a {name} of {whose}; (use|translate .*) elision.adapters"
        ):
            context.prepare([value])


def test_a_provider_s_object_is_read() -> None:
    """What has `model_dump` and is the provider's own type, and what a proxy's package makes of it."""
    own = ChatCompletionMessage(role="assistant", content="Which refund?")
    kind = type("Message", (), {"__module__": "litellm.types.utils", "model_dump": lambda self, **_: dict(OWN[2])})
    view = ContextManager(store="memory:").prepare([kind(), own, kind()])
    assert view.diagnostics.turns == 1
    assert view.messages[1] is own
