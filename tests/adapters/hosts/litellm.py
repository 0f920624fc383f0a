# mypy: ignore-errors
# What this imports is in an environment of its own.
"""LiteLLM's SDK in a loop of one's own, with histories in JSON files. Its hooks are called by the async functions only.

The hook is called once for a process, as `hook(settings)`, and returns `(callbacks, answer)`: the callbacks for
`litellm.callbacks`, and a function `answer(session, tool, arguments)` that returns the result of a call of the
adapter's tools, or None for other tools.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import litellm
from litellm import CustomLLM, ModelResponse
from litellm.integrations.custom_logger import CustomLogger
from litellm.litellm_core_utils.logging_worker import GLOBAL_LOGGING_WORKER

from tests.adapters.recording import Answer, Call, Message, digest_image, take_turns
from tests.adapters.scenarios import PIXEL, SYSTEM, Run, describe_failure, list_part
from tests.adapters.stage import FrameworkHost, Stage

_PROVIDER = "scripted"
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": {"part": {"type": "integer"}}, "required": ["part"]},
        },
    }
    for name, description in (
        ("look", "Lists a part."),
        ("fail", "Lists a part that cannot be read."),
        ("picture", "Shows a part."),
    )
]


def read_message(message: Any) -> list[Message]:
    """Return the neutral form of a chat message."""
    made = Message(message["role"], answers=message.get("tool_call_id", ""))
    content = message.get("content") or ""
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        if part["type"] == "text":
            made.text += part["text"]
        elif part["type"] == "image_url":
            made.images.append(digest_image(part["image_url"]["url"].partition(",")[2].encode()))
    for call in message.get("tool_calls") or ():
        arguments = json.loads(call["function"]["arguments"])
        made.calls.append(Call(call["id"], call["function"]["name"], arguments))
    for block in message.get("thinking_blocks") or ():
        made.thinking.append((block["thinking"], block["signature"]))
    return [made]


class ScriptedProvider(CustomLLM):
    """A provider that plays the scripts of several models, told apart by their key."""

    def __init__(self, players: dict[str, Any]) -> None:
        super().__init__()
        self.players = players

    def _answer(self, messages: Any, options: Any, key: str) -> Answer:
        tools = [tool["function"] for tool in options.get("tools") or ()]
        seen = [each for message in messages for each in read_message(message)]
        answer: Answer = self.players[key].answer(
            seen, [{"name": tool["name"], "parameters": tool["parameters"]} for tool in tools]
        )
        if answer.overflow:
            raise litellm.ContextWindowExceededError(answer.refusal, model="scripted", llm_provider=_PROVIDER)
        return answer

    async def acompletion(self, messages: Any, api_key: Any, optional_params: Any, *_: Any, **others: Any) -> Any:
        answer = self._answer(messages, optional_params, str(api_key))
        message = {"role": "assistant", "content": answer.text or None, "tool_calls": _make_calls(answer) or None}
        choice = {"finish_reason": "tool_calls" if answer.calls else "stop", "message": message}
        return ModelResponse(choices=[choice], usage=_make_usage(answer))

    async def astreaming(
        self, messages: Any, api_key: Any, optional_params: Any, *_: Any, **others: Any
    ) -> AsyncIterator[Any]:
        answer = self._answer(messages, optional_params, str(api_key))
        plain = {"text": "", "index": 0, "is_finished": False, "finish_reason": "", "usage": None, "tool_use": None}
        if answer.text:
            yield {**plain, "text": answer.text}
        for at, call in enumerate(_make_calls(answer)):
            yield {**plain, "tool_use": {**call, "index": at}}
        ending = "tool_calls" if answer.calls else "stop"
        yield {**plain, "is_finished": True, "finish_reason": ending, "usage": _make_usage(answer)}


def _make_calls(answer: Answer) -> list[Any]:
    return [
        {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": json.dumps(call.arguments)}}
        for call in answer.calls
    ]


def _make_usage(answer: Answer) -> Any:
    return {
        "prompt_tokens": answer.usage.prompt,
        "completion_tokens": answer.usage.output,
        "total_tokens": answer.usage.prompt + answer.usage.output,
        "prompt_tokens_details": {"cached_tokens": answer.usage.cached},
    }


class _TapBefore(CustomLogger):
    """Notes the messages before the adapter."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.recorder = stage.recorder

    async def async_pre_call_deployment_hook(self, kwargs: Any, call_type: Any) -> None:
        self.recorder.note_given(kwargs["litellm_session_id"], kwargs["messages"])


class _TapAfter(_TapBefore):
    """Notes the messages that the adapter sends."""

    async def async_pre_call_deployment_hook(self, kwargs: Any, call_type: Any) -> None:
        self.recorder.note_sent(kwargs["litellm_session_id"], kwargs["messages"], read_message)


class Host(FrameworkHost):
    PACKAGES = ("litellm",)
    USAGE = "cached"
    MISSING: ClassVar = {"sub_agents": "it has no agents"}

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        callbacks, self.answer = stage.attach() or ([], lambda session, tool, arguments: None)
        litellm.callbacks = [_TapBefore(stage), *callbacks, _TapAfter(stage)]
        self.players: dict[str, Any] = {}
        litellm.custom_provider_map = [{"provider": _PROVIDER, "custom_handler": ScriptedProvider(self.players)}]

    async def run(self, run: Run) -> str:
        self.players[run.thread] = self.stage.make_player(run)
        messages = self._load_history(run)
        messages.append({"role": "user", "content": run.prompt})
        while True:
            said = await self._complete(run, messages)
            messages.append(said)
            for call in said.get("tool_calls") or ():
                arguments = json.loads(call["function"]["arguments"])
                result = self.answer(run.thread, call["function"]["name"], arguments)
                if result is None:
                    result = _use_tool(call["function"]["name"], arguments["part"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            self._find_file(run.thread).write_text(json.dumps(messages), encoding="utf-8")
            if not said.get("tool_calls"):
                # What came back is given to callbacks beside the loop.
                await GLOBAL_LOGGING_WORKER.flush()
                return str(said["content"])

    async def _complete(self, run: Run, messages: list[Any]) -> Any:
        options: Any = {"model": f"{_PROVIDER}/{run.model}", "api_key": run.thread}
        if self.stage.service:
            options = {"model": f"anthropic/{run.model}", "api_key": "none", "api_base": self.stage.service}
        response = await litellm.acompletion(
            messages=messages,
            tools=_TOOLS,
            litellm_session_id=run.thread,
            num_retries=0,
            stream=run.stream,
            stream_options={"include_usage": True} if run.stream else None,
            **options,
        )
        if run.stream:
            response = litellm.stream_chunk_builder([chunk async for chunk in response])
        return response.choices[0].message.model_dump(exclude_none=True)

    def _find_file(self, thread: str) -> Any:
        return self.stage.folder / f"{thread}.json"

    def _load_history(self, run: Run) -> list[Any]:
        if run.begin == "new":
            return [{"role": "system", "content": SYSTEM}]
        source = run.source if run.begin == "fork" else run.thread
        messages: list[Any] = json.loads(self._find_file(source).read_text(encoding="utf-8"))
        if run.begin == "fork":
            return messages[: take_turns([each for message in messages for each in read_message(message)], run.turns)]
        return messages

    async def read_history(self, thread: str) -> list[Message]:
        messages = json.loads(self._find_file(thread).read_text(encoding="utf-8"))
        return [each for message in messages for each in read_message(message)]


def _use_tool(tool: str, part: int) -> Any:
    if tool == "fail":
        return f"Error: {describe_failure(part)}"
    if tool == "look":
        return list_part(part)
    url = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
    return [{"type": "text", "text": list_part(part)}, {"type": "image_url", "image_url": {"url": url}}]
