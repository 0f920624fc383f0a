"""Requests of a small agent in the shapes of all three APIs, and what a provider answers, as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from elision.providers.provider import Api
from elision.providers.streaming.sse import format_event
from elision.testing import response_anthropic, response_openai_chat, response_openai_responses
from elision.testing.exchange import Refusal, ReplySpec
from elision.testing.recorded_run import RecordedReply
from elision.trajectory.turn import Action
from elision.trajectory.usage import Usage

Json = dict[str, Any]

APIS: tuple[Api, ...] = ("openai", "openai-responses", "anthropic")
PATHS: dict[Api, str] = {
    "openai": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
}
LIST_FIELDS: dict[Api, str] = {"openai": "messages", "openai-responses": "input", "anthropic": "messages"}
#: Models whose thinking is bound to nothing.
MODELS: dict[Api, str] = {"openai": "gpt-5.2", "openai-responses": "gpt-5.2", "anthropic": "claude-sonnet-4-5"}
#: Hides as early as it may.
EAGER = "masking(window=2, schedule=every-turn)"
#: From so many steps on something is hidden.
HIDING_STEPS = 6
#: A part of every placeholder.
PLACEHOLDER_PART = b"tokens hidden"


def make_result(step: int, word: str = "value", lines: int = 60) -> str:
    """A result that is worth hiding. word: stands in each of its lines."""
    return "\n".join(f"line {line}: {word} {step * 1_000 + line * 7}" for line in range(lines))


def make_history(
    api: Api, steps: int, task: str = "Mend the parser.", word: str = "value", lines: int = 60
) -> list[Json]:
    """The messages of a call behind so many steps."""
    said: list[Json] = [{"role": "user", "content": task}]
    for step in range(1, steps + 1):
        said += _make_step(api, step, make_result(step, word, lines))
    return said


def _make_step(api: Api, step: int, result: str) -> list[Json]:
    id, given = f"call_{step}", {"command": f"cat f{step}.py"}
    if api == "anthropic":
        use = {"type": "tool_use", "id": id, "name": "bash", "input": given}
        answer = {"type": "tool_result", "tool_use_id": id, "content": result}
        return [
            {"role": "assistant", "content": [{"type": "text", "text": f"Step {step}."}, use]},
            {"role": "user", "content": [answer]},
        ]
    if api == "openai-responses":
        call = {"type": "function_call", "call_id": id, "name": "bash", "arguments": json.dumps(given)}
        return [call, {"type": "function_call_output", "call_id": id, "output": result}]
    function = {"name": "bash", "arguments": json.dumps(given)}
    called = [{"id": id, "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": f"Step {step}.", "tool_calls": called},
        {"role": "tool", "tool_call_id": id, "content": result},
    ]


def make_tools(api: Api) -> list[Json]:
    """The one tool of the agent."""
    schema = {"type": "object", "properties": {"command": {"type": "string"}}}
    if api == "anthropic":
        return [{"name": "bash", "input_schema": schema}]
    function = {"name": "bash", "parameters": schema}
    return [{"type": "function", "function": function}] if api == "openai" else [{"type": "function", **function}]


def make_body(
    api: Api,
    steps: int,
    *,
    stream: bool = False,
    task: str = "Mend the parser.",
    word: str = "value",
    lines: int = 60,
) -> bytes:
    """A request behind so many steps, with odd white space, so that whoever writes it anew is caught."""
    said = make_history(api, steps, task, word, lines)
    told = {"model": MODELS[api], "max_tokens": 99, LIST_FIELDS[api]: said, "tools": make_tools(api)}
    return json.dumps(told | ({"stream": True} if stream else {}), separators=(" , ", " :  ")).encode()


def is_streamed(raw: bytes) -> bool:
    """Whether a request asks for a stream, however it is spaced."""
    return b'"stream":true' in raw.replace(b" ", b"")


# -- what a provider says ------------------------------------------------------------------------------------------


def make_reply(text: str = "All is done.", calls: Sequence[tuple[str, str, Mapping[str, Any]]] = ()) -> RecordedReply:
    """calls: (id, name, arguments)."""
    made = tuple(Action(id=id, name=name, arguments=json.dumps(given)) for id, name, given in calls)
    return RecordedReply(number=1, text=text, calls=made)


def render_whole(api: Api, said: RecordedReply | None = None, *, id: str = "1") -> bytes:
    """A plain answer's body."""
    told, shape = (
        _make_spec(api, said, id),
        {"openai": response_openai_chat, "openai-responses": response_openai_responses},
    )
    return json.dumps(shape.get(api, response_anthropic).build_body(told)).encode()  # type: ignore[attr-defined]


def render_frames(api: Api, said: RecordedReply | None = None, *, id: str = "1") -> list[bytes]:
    """A streamed answer's events."""
    told = _make_spec(api, said, id)
    if api == "openai":
        return [
            *(format_event(_encode_event(each)) for each in response_openai_chat.build_events(told)),
            format_event(b"[DONE]"),
        ]
    module = response_anthropic if api == "anthropic" else response_openai_responses
    return [format_event(_encode_event(each), each["type"]) for each in module.build_events(told)]


def render_refusal(api: Api, status: int) -> bytes:
    """The body of a provider's error."""
    return json.dumps(Refusal(status=status, message=f"No, {status}.").build_body(api)).encode()


def _make_spec(api: Api, said: RecordedReply | None, id: str) -> ReplySpec:
    usage = Usage(input=1_000, output=20)
    return ReplySpec(reply=said or make_reply(), usage=usage, model=MODELS[api], id=id, include_usage=api == "openai")


def _encode_event(event: Json) -> bytes:
    return json.dumps(event).encode()
