"""An Anthropic endpoint on loopback whose thinking is bound to its prefix: a signature hashes what came before it.

A request whose earlier thinking does not fit what now comes before it is refused with 400, as the service does, unless
it asks for such blocks to be dropped.
"""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.adapters.recording import Answer, Call, Message, Player, Recorder, digest_image
from tests.adapters.scenarios import Run

Json = dict[str, Any]
#: Fields that may change without breaking a signature.
_UNBOUND = ("cache_control", "signature")


class BoundService:
    """Serves `/v1/messages` from its creation until the process ends. url: its base URL."""

    def __init__(self, recorder: Recorder, run: Run) -> None:
        player = Player(recorder, run.thread, run.model, run.steps)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status, kind, data = answer_request(player, body, self.headers.get("anthropic-beta", ""))
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, name="bound service", daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}"


def answer_request(player: Player, body: Json, betas: str) -> tuple[int, str, bytes]:
    """Return status, content type and body of the response."""
    broken = find_broken_thinking(body)
    binding = (body.get("thinking") or {}).get("block_binding") or {}
    drops = binding.get("prefix_mismatch_behavior") == "drop_block"
    if broken is not None and not drops:
        message = (
            f"messages.{broken}.content.0: Invalid `signature` in `thinking` block. "
            "The block is bound to a different conversation."
        )
        error = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
        return 400, "application/json", json.dumps(error).encode()
    tools = [
        {"name": tool.get("name", ""), "parameters": tool.get("input_schema", {})} for tool in body.get("tools", ())
    ]
    extra = {"dropped_thinking": broken is not None, "betas": betas}
    if edits := body.get("context_management"):
        extra["context_management"] = edits
    said = player.answer(read_body(body), tools, model=body["model"], **extra)
    made = make_response(said, body)
    if body.get("stream"):
        return 200, "text/event-stream", b"".join(make_events(made))
    return 200, "application/json", json.dumps(made).encode()


def find_broken_thinking(body: Json) -> int | None:
    """Return the place of the first message whose thinking does not fit what comes before it."""
    for at, message in enumerate(body["messages"]):
        if message["role"] != "assistant" or isinstance(message["content"], str):
            continue
        for block in message["content"]:
            if block["type"] == "thinking" and block["signature"] != sign_prefix(body, at):
                return at
    return None


def sign_prefix(body: Json, at: int) -> str:
    """Return the signature of thinking that follows the first `at` messages."""
    bound = [body.get("system"), body.get("tools"), body["messages"][:at]]
    return hashlib.sha256(json.dumps(_strip(bound), sort_keys=True).encode()).hexdigest()


def _strip(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strip(each) for key, each in value.items() if key not in _UNBOUND}
    return [_strip(each) for each in value] if isinstance(value, list) else value


def read_body(body: Json) -> list[Message]:
    """Return the neutral form of a request."""
    system = body.get("system") or []
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
    made = [Message("system", "\n".join(block["text"] for block in blocks))] if blocks else []
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        made += _read_blocks(message["role"], blocks)
    return made


def _read_blocks(role: str, blocks: list[Json]) -> list[Message]:
    results = []
    message = Message(role)
    for block in blocks:
        if block["type"] == "text":
            message.text += block["text"]
        elif block["type"] == "thinking":
            message.thinking.append((block["thinking"], block["signature"]))
        elif block["type"] == "tool_use":
            message.calls.append(Call(block["id"], block["name"], block["input"]))
        elif block["type"] == "tool_result":
            results.append(_read_result(block))
    has_own = message.text or message.calls or message.thinking or not results
    return [*results, *([message] if has_own else [])]


def _read_result(block: Json) -> Message:
    content = block.get("content") or ""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return Message(
        "tool",
        "\n".join(part["text"] for part in parts if part["type"] == "text"),
        answers=block["tool_use_id"],
        failed=bool(block.get("is_error")),
        images=[digest_image(part["source"]["data"].encode()) for part in parts if part["type"] == "image"],
    )


def make_response(said: Answer, body: Json) -> Json:
    """Return the response, as it is not streamed."""
    thought = {
        "type": "thinking",
        "thinking": "The next part.",
        "signature": sign_prefix(body, len(body["messages"])),
    }
    uses = [{"type": "tool_use", "id": call.id, "name": call.tool, "input": call.arguments} for call in said.calls]
    return {
        "id": f"msg_{len(body['messages'])}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [thought, *(uses or [{"type": "text", "text": said.text}])],
        "stop_reason": "tool_use" if uses else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": said.usage.prompt - said.usage.cached - said.usage.written,
            "cache_read_input_tokens": said.usage.cached,
            "cache_creation_input_tokens": said.usage.written,
            "output_tokens": said.usage.output,
            "output_tokens_details": {"thinking_tokens": 0},
        },
    }


def make_events(made: Json) -> list[bytes]:
    """Return the events of the same response."""
    events: list[Json] = [{"type": "message_start", "message": {**made, "content": [], "stop_reason": None}}]
    for at, block in enumerate(made["content"]):
        empty, deltas = _split_block(block)
        events.append({"type": "content_block_start", "index": at, "content_block": empty})
        events += [{"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": at})
    ending = {"stop_reason": made["stop_reason"], "stop_sequence": None}
    events.append(
        {"type": "message_delta", "delta": ending, "usage": {"output_tokens": made["usage"]["output_tokens"]}}
    )
    events.append({"type": "message_stop"})
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def _split_block(block: Json) -> tuple[Json, list[Json]]:
    if block["type"] == "thinking":
        deltas = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
        return {**block, "thinking": "", "signature": ""}, deltas
    if block["type"] == "tool_use":
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
