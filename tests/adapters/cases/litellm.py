# mypy: ignore-errors
# What this imports is in an environment of its own.
"""What only LiteLLM has: a router, names in metadata, keys of a proxy, calls of other kinds, sync functions."""

from __future__ import annotations

import asyncio
import os

import litellm
from litellm import CustomLLM, ModelResponse, Router
from litellm.types.utils import CallTypes

from elision.adapters import litellm as adapter
from elision.adapters.litellm import ElisionCallback
from tests.adapters.scenarios import list_part

EAGER = "masking(window=3, schedule=every-turn)"


class Provider(CustomLLM):
    """Answers all; `requests` has the messages that it was sent, and `tools` their tools."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = []
        self.tools = []

    def completion(self, messages, optional_params, **others):
        self.requests.append(messages)
        self.tools.append(optional_params.get("tools"))
        usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
        choice = {"finish_reason": "stop", "message": {"role": "assistant", "content": "Done."}}
        return ModelResponse(choices=[choice], usage=usage)

    async def acompletion(self, messages, optional_params, **others):
        return self.completion(messages, optional_params)


def serve(callback) -> Provider:
    """Return the provider of the models `own/...`, behind a callback."""
    provider = Provider()
    litellm.custom_provider_map = [{"provider": "own", "custom_handler": provider}]
    litellm.callbacks = [callback]
    return provider


def make_messages(count: int):
    made = [{"role": "system", "content": "Be careful."}, {"role": "user", "content": "Go."}]
    for at in range(count):
        call = {"id": f"c{at}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        made.append({"role": "assistant", "content": None, "tool_calls": [call]})
        made.append({"role": "tool", "tool_call_id": f"c{at}", "content": list_part(at)})
    return made


def count_hidden(messages) -> int:
    return sum(str(message.get("content")).startswith("[") for message in messages if message["role"] == "tool")


async def check_a_router_is_served() -> None:
    with ElisionCallback(EAGER, store="memory:") as elision:
        provider = serve(elision)
        router = Router([{"model_name": "any", "litellm_params": {"model": "own/gpt-5", "api_key": "none"}}])
        await router.acompletion(model="any", messages=make_messages(8), metadata={"session_id": "s"})
        assert len(elision.sessions.open("s").turns) == 8
    assert count_hidden(provider.requests[0]) == 5


async def check_the_caller_s_messages_stay() -> None:
    messages = make_messages(8)
    before = list(messages)
    with ElisionCallback(EAGER, store="memory:") as elision:
        provider = serve(elision)
        await litellm.acompletion(model="own/gpt-5", messages=messages, litellm_session_id="s")
    assert all(one is two for one, two in zip(messages, before, strict=True))
    assert count_hidden(messages) == 0
    assert count_hidden(provider.requests[0]) == 5


async def check_a_history_without_a_name_is_known_by_its_beginning() -> None:
    with ElisionCallback(EAGER, store="memory:") as elision:
        serve(elision)
        for count in (0, 3, 8):
            await litellm.acompletion(model="own/gpt-5", messages=make_messages(count))
        assert len(elision.sessions) == 1
        other = [{"role": "user", "content": "Something else."}]
        await litellm.acompletion(model="own/gpt-5", messages=other)
        assert len(elision.sessions) == 2


async def check_keys_of_a_proxy_have_sessions_of_their_own() -> None:
    with ElisionCallback(EAGER, store="memory:") as elision:
        for key in ("one", "two"):
            kwargs = {"model": "gpt-5", "messages": make_messages(2), "litellm_session_id": "s"}
            kwargs["metadata"] = {"user_api_key_hash": key}
            await elision.async_pre_call_deployment_hook(kwargs, CallTypes.acompletion)
        assert sorted(elision.sessions._held) == ["one/s", "two/s"]


async def check_calls_of_other_kinds_pass() -> None:
    with ElisionCallback(EAGER, store="memory:") as elision:
        for kind in (CallTypes.aembedding, None):
            assert await elision.async_pre_call_deployment_hook({"input": ["a"], "model": "m"}, kind) is None
        assert await elision.async_pre_call_deployment_hook({"input": "a", "model": "m"}, CallTypes.aresponses) is None
        assert len(elision.sessions) == 0


async def check_anthropic_s_messages_are_prepared() -> None:
    """The function that has Anthropic's API takes what a service needs to clear results by itself."""
    messages = [{"role": "user", "content": "Go."}]
    for at in range(8):
        thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
        use = {"type": "tool_use", "id": f"c{at}", "name": "look", "input": {}}
        messages.append({"role": "assistant", "content": [thought, use]})
        result = {"type": "tool_result", "tool_use_id": f"c{at}", "content": list_part(at)}
        messages.append({"role": "user", "content": [result]})
    with ElisionCallback(EAGER, store="memory:") as elision:
        kwargs = {"model": "anthropic/claude-opus-5-5", "messages": messages, "litellm_session_id": "s"}
        changed = await elision.async_pre_call_deployment_hook(kwargs, CallTypes.anthropic_messages)
    assert changed["context_management"]["edits"], changed
    assert "context-management" in changed["extra_headers"]["anthropic-beta"]


async def check_nothing_is_offered_by_default() -> None:
    """Who answers no recall must not be asked for one."""
    with ElisionCallback(EAGER, store="memory:") as elision:
        provider = serve(elision)
        await litellm.acompletion(model="own/gpt-5", messages=make_messages(8), litellm_session_id="s")
        assert elision.answer_tool_call("s", "look", {}) is None
    assert provider.tools == [None]
    hidden = next(message for message in provider.requests[0] if message["role"] == "tool")["content"]
    assert not hidden.startswith("[t"), hidden


def check_sync_functions_are_not_touched() -> None:
    with ElisionCallback(EAGER, store="memory:") as elision:
        provider = serve(elision)
        litellm.completion(model="own/gpt-5", messages=make_messages(8), litellm_session_id="s")
    assert count_hidden(provider.requests[0]) == 0


def check_the_proxy_s_callback_is_made_of_settings() -> None:
    os.environ.update(AGENT_CONTEXT_STRATEGY=EAGER, AGENT_CONTEXT_STORE="memory:")
    callback = adapter.proxy
    assert callback is adapter.proxy
    kwargs = {"model": "gpt-5", "messages": make_messages(8), "litellm_session_id": "s"}
    changed = asyncio.run(callback.async_pre_call_deployment_hook(kwargs, CallTypes.acompletion))
    assert count_hidden(changed["messages"]) == 5
    assert not hasattr(adapter, "proxies")
    callback.close()
