"""Answers as providers give them: parts in any order, streamed or whole, and what a client makes of the bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import anthropic
import httpx2
import openai

from elision.providers.provider import Api
from elision.testing import response_anthropic, response_openai_responses
from elision.testing.exchange import split_text

Json = dict[str, Any]
RECALL = "elision_recall"
USAGES: dict[str, tuple[str, ...]] = {
    "anthropic": ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
    "openai": ("prompt_tokens", "completion_tokens", "total_tokens"),
    "openai-responses": ("input_tokens", "output_tokens", "total_tokens"),
}


@dataclass(frozen=True, kw_only=True)
class ResponsePart:
    """kind: text, thinking, tool, recall, or hosted (a tool that the provider runs)."""

    kind: str
    id: str
    text: str = ""

    @property
    def name(self) -> str:
        return RECALL if self.kind == "recall" else "bash"

    @property
    def input(self) -> Json:
        return {"handle": self.text} if self.kind == "recall" else {"zeta": self.text, "alpha": 1}

    @property
    def arguments(self) -> str:
        return json.dumps(self.input, ensure_ascii=False)


@dataclass(frozen=True, kw_only=True)
class ProviderResponse:
    """One upstream answer. counts: for each of `USAGES`, and once more for what stands inside."""

    number: int
    parts: tuple[ResponsePart, ...]
    counts: tuple[int, ...] = (100, 20, 30, 5, 7)
    is_truncated: bool = False

    @property
    def has_calls(self) -> bool:
        return any(part.kind in ("tool", "recall") for part in self.parts)

    def usage(self, api: Api) -> Json:
        usage: Json = dict(zip(USAGES[api], self.counts, strict=False))
        inner = self.counts[-1]
        if api == "anthropic":
            return {**usage, "cache_creation": {"ephemeral_5m_input_tokens": inner}, "service_tier": "standard"}
        details = ("prompt_tokens", "completion_tokens") if api == "openai" else ("input_tokens", "output_tokens")
        read, thought = f"{details[0]}_details", f"{details[1]}_details"
        return {**usage, read: {"cached_tokens": inner, "cache_write_tokens": 1}, thought: {"reasoning_tokens": inner}}


def render_events(api: Api, answer: ProviderResponse) -> list[Json]:
    """The events of a streamed answer."""
    return list(_EVENTS[api](answer))


def render_body(api: Api, answer: ProviderResponse) -> Json:
    """The same as one body."""
    return _BODIES[api](answer)


def render_stream(api: Api, said: Sequence[Json], end: str = "\n") -> bytes:
    """Events as they are sent: Anthropic and Responses name each, chat closes with a word."""
    out = []
    for event in said:
        named = f"event: {event['type']}{end}" if api != "openai" else ""
        out.append(f"{named}data: {json.dumps(event)}{end}{end}")
    return "".join([*out, f"data: [DONE]{end}{end}"] if api == "openai" else out).encode()


def render_raw(api: Api, answer: ProviderResponse, *, streamed: bool) -> bytes:
    """The bytes of an answer."""
    return (
        render_stream(api, render_events(api, answer))
        if streamed
        else json.dumps(render_body(api, answer), indent=1).encode()
    )


# -- Anthropic --------------------------------------------------------------------------------------------------------


def render_block(part: ResponsePart) -> Json:
    """A part as a content block."""
    if part.kind == "text":
        return {"type": "text", "text": part.text}
    if part.kind == "thinking":
        return {"type": "thinking", "thinking": part.text, "signature": f"sig-{part.id}"}
    if part.kind == "hosted":
        return {"type": "server_tool_use", "id": f"srvtoolu_{part.id}", "name": "web_search", "input": part.input}
    return {"type": "tool_use", "id": f"toolu_{part.id}", "name": part.name, "input": part.input}


def _anthropic_stop(answer: ProviderResponse) -> str:
    return "max_tokens" if answer.is_truncated else "tool_use" if answer.has_calls else "end_turn"


def _anthropic_body(answer: ProviderResponse) -> Json:
    return {
        "id": f"msg_{answer.number}",
        "type": "message",
        "role": "assistant",
        "model": f"claude-{answer.number}",
        "content": [render_block(part) for part in answer.parts],
        "stop_reason": _anthropic_stop(answer),
        "stop_sequence": None,
        "usage": answer.usage("anthropic"),
    }


def _anthropic_events(answer: ProviderResponse) -> Iterator[Json]:
    usage = answer.usage("anthropic")
    begun = {**_anthropic_body(answer), "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": begun}
    for index, part in enumerate(answer.parts):
        whole = render_block(part)
        at = {"index": index}
        empty, deltas = response_anthropic.split_block(whole)
        yield {"type": "content_block_start", **at, "content_block": empty}
        yield {"type": "ping"}
        for delta in deltas:
            yield {"type": "content_block_delta", **at, "delta": delta}
        yield {"type": "content_block_stop", **at}
    counts = {key: value for key, value in usage.items() if isinstance(value, int)}
    ended = {"stop_reason": _anthropic_stop(answer), "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": counts}
    yield {"type": "message_stop"}


# -- chat -------------------------------------------------------------------------------------------------------------


def _finish(answer: ProviderResponse) -> str:
    return "length" if answer.is_truncated else "tool_calls" if answer.has_calls else "stop"


def render_call(part: ResponsePart) -> Json:
    """A part as a tool call."""
    return {"id": f"call_{part.id}", "type": "function", "function": {"name": part.name, "arguments": part.arguments}}


def render_message(parts: Sequence[ResponsePart]) -> Json:
    """Parts as one chat message."""
    said: Json = {"role": "assistant", "content": _all(parts, "text") or None, "refusal": None}
    if _all(parts, "thinking"):
        said["reasoning_content"] = _all(parts, "thinking")
    calls = [render_call(part) for part in parts if part.kind in ("tool", "recall")]
    return {**said, "tool_calls": calls} if calls else said


def _all(parts: Sequence[ResponsePart], kind: str) -> str:
    return "".join(part.text for part in parts if part.kind == kind)


def _chat_frame(answer: ProviderResponse, kind: str) -> Json:
    number = answer.number
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 1_000 + number, "model": f"gpt-{number}"}


def _chat_body(answer: ProviderResponse) -> Json:
    choice = {"index": 0, "message": render_message(answer.parts), "finish_reason": _finish(answer), "logprobs": None}
    return {**_chat_frame(answer, "chat.completion"), "choices": [choice], "usage": answer.usage("openai")}


def _chat_events(answer: ProviderResponse) -> Iterator[Json]:
    frame = _chat_frame(answer, "chat.completion.chunk")
    for delta in ({"role": "assistant", "content": "", "refusal": None}, *_chat_deltas(answer.parts)):
        yield {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}], "usage": None}
    yield {**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(answer)}], "usage": None}
    yield {**frame, "choices": [], "usage": answer.usage("openai")}


def _chat_deltas(parts: Sequence[ResponsePart]) -> Iterator[Json]:
    index = 0
    for part in parts:
        if part.kind in ("text", "thinking"):
            field = "content" if part.kind == "text" else "reasoning_content"
            yield from ({field: piece} for piece in split_text(part.text))
        elif part.kind in ("tool", "recall"):
            whole = render_call(part)
            yield {"tool_calls": [{"index": index, **whole, "function": {"name": part.name, "arguments": ""}}]}
            for piece in split_text(part.arguments):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            index += 1


# -- Responses --------------------------------------------------------------------------------------------------------


def render_item(part: ResponsePart) -> Json:
    """A part as an output item."""
    done = {"status": "completed"}
    if part.kind == "text":
        said = [{"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}]
        return {"id": f"msg_{part.id}", "type": "message", "role": "assistant", **done, "content": said}
    if part.kind == "thinking":
        summary = [{"type": "summary_text", "text": part.text}]
        return {"id": f"rs_{part.id}", "type": "reasoning", "summary": summary, "encrypted_content": "sealed", **done}
    if part.kind == "hosted":
        action = {"type": "search", "query": part.text}
        return {"id": f"ws_{part.id}", "type": "web_search_call", "action": action, **done}
    named = {"call_id": f"call_{part.id}", "name": part.name, "arguments": part.arguments}
    return {"id": f"fc_{part.id}", "type": "function_call", **named, **done}


def _response(answer: ProviderResponse, **more: Any) -> Json:
    return {
        "id": f"resp_{answer.number}",
        "object": "response",
        "created_at": 1_000 + answer.number,
        "status": "in_progress",
        "error": None,
        "model": f"gpt-{answer.number}",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
        **more,
    }


def _responses_body(answer: ProviderResponse) -> Json:
    output, usage = [render_item(part) for part in answer.parts], answer.usage("openai-responses")
    status = "incomplete" if answer.is_truncated else "completed"
    return _response(answer, status=status, output=output, usage=usage)


def _responses_events(answer: ProviderResponse) -> Iterator[Json]:
    for number, event in enumerate(_unnumbered(answer)):
        yield {**event, "sequence_number": number}


def _unnumbered(answer: ProviderResponse) -> Iterator[Json]:
    yield {"type": "response.created", "response": _response(answer)}
    yield {"type": "response.in_progress", "response": _response(answer)}
    for index, part in enumerate(answer.parts):
        whole = render_item(part)
        empty, inner = response_openai_responses.split_item(whole)
        begun = {**empty, "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        for event in inner:
            yield {**event, "item_id": whole["id"], "output_index": index}
        yield {"type": "response.output_item.done", "output_index": index, "item": whole}
    body = _responses_body(answer)
    yield {"type": f"response.{body['status']}", "response": body}


_EVENTS = {"anthropic": _anthropic_events, "openai": _chat_events, "openai-responses": _responses_events}
_BODIES = {"anthropic": _anthropic_body, "openai": _chat_body, "openai-responses": _responses_body}


# -- the client -------------------------------------------------------------------------------------------------------


class ProviderClients:
    """The providers' own packages, and what they make of an answer."""

    def __init__(self, gpt: openai.OpenAI, claude: anthropic.Anthropic) -> None:
        self._openai, self._claude = gpt, claude

    def ask(self, api: Api, *, streamed: bool, **request: Any) -> Json:
        """The final message, completion or response, as JSON."""
        asks = {"anthropic": self._ask_claude, "openai": self._ask_chat, "openai-responses": self._ask_responses}
        found: Json = asks[api](streamed, request).model_dump(mode="json", exclude_unset=True, warnings=False)
        return found

    def _ask_claude(self, streamed: bool, request: Any) -> Any:
        request = {"model": "claude-sonnet-5", "max_tokens": 500, **request}
        if not streamed:
            return self._claude.messages.create(**request)
        with self._claude.messages.stream(**request) as answer:
            return answer.get_final_message()

    def _ask_chat(self, streamed: bool, request: Any) -> Any:
        if not streamed:
            return self._openai.chat.completions.create(model="gpt-5", **request)
        with self._openai.chat.completions.stream(model="gpt-5", **request) as answer:
            return answer.get_final_completion()

    def _ask_responses(self, streamed: bool, request: Any) -> Any:
        if not streamed:
            return self._openai.responses.create(model="gpt-5", **request)
        with self._openai.responses.stream(model="gpt-5", **request) as answer:
            return answer.get_final_response()


class _Unplugged:
    """The clients sans network: each is handed the bytes that are said to be the answer."""

    def __init__(self) -> None:
        self.answer, self.streamed = b"", False
        http = httpx2.Client(transport=httpx2.MockTransport(self._respond))
        self.clients = ProviderClients(
            openai.OpenAI(api_key="any", http_client=http, max_retries=0),
            anthropic.Anthropic(api_key="any", http_client=http, max_retries=0),
        )

    def _respond(self, request: httpx2.Request) -> httpx2.Response:
        kind = "text/event-stream" if self.streamed else "application/json"
        return httpx2.Response(200, content=self.answer, headers={"content-type": kind})


_UNPLUGGED = cache(_Unplugged)


def parse_as_client(api: Api, answer: bytes, *, streamed: bool) -> Json:
    """What the provider's own package makes of an answer."""
    unplugged = _UNPLUGGED()
    unplugged.answer, unplugged.streamed = answer, streamed
    said: Json = {"input": "?"} if api == "openai-responses" else {"messages": [{"role": "user", "content": "?"}]}
    return unplugged.clients.ask(api, streamed=streamed, **said)
