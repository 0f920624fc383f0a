"""Anthropic messages that call a recall tool. Events and their accumulation as in the SDK, anthropic 2.12.

The counts of `message_delta` are totals and replace those of `message_start`. So the last one gets the sums over all
rounds. `cache_creation`, which only `message_start` has, is summed there as well, though the SDK's accumulator does not
read it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from elision.providers.shared.json_reading import int_in, list_in, mapping_in, mappings_in, text_in
from elision.providers.streaming.rounds import (
    AnswerRound,
    Json,
    RecallCall,
    RoundEnd,
    join_visible,
    parse_arguments,
    select_counts,
)
from elision.providers.streaming.streamed_response import MessageFormat, StreamedResponse

#: Stop reasons of a response that was stopped before the model was done.
_TRUNCATED = frozenset(("max_tokens", "model_context_window_exceeded", "refusal"))
#: The key under which input that is no JSON is sent back, as Anthropic's documentation advises.
_UNREADABLE = "INVALID_JSON"


class AnthropicFormat(MessageFormat):
    """The format of a whole message."""

    def read_body(self, body: Json) -> RoundEnd:
        content = body.get("content")
        if not isinstance(content, list):
            return RoundEnd(has_failed=True)
        return RoundEnd(content=content, is_truncated=text_in(body.get("stop_reason")) in _TRUNCATED)

    def split_content(self, content: Any, names: frozenset[str], truncated: bool) -> AnswerRound:
        blocks = mappings_in(content)
        recalls = [block for block in blocks if _is_recall_call(block, names)]
        visible = [block for block in blocks if not _is_recall_call(block, names)]
        sent_back = _drop_unsendable(visible if truncated else blocks)
        return AnswerRound(
            messages=({"role": "assistant", "content": sent_back},) if sent_back else (),
            visible=tuple(visible),
            hides_calls=bool(recalls),
            recall_calls=() if truncated else tuple(map(_parse_call, recalls)),
            has_client_calls=any(block.get("type") == "tool_use" for block in visible),
        )

    def render_results(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        return ({"role": "user", "content": list(self.render_next(pairs))},) if pairs else ()

    def render_visible(self, rounds: Sequence[AnswerRound]) -> tuple[Json, ...]:
        return ({"role": "assistant", "content": join_visible(rounds)},)

    def render_next(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        return tuple({"type": "tool_result", "tool_use_id": call.id, "content": text} for call, text in pairs)

    def drop_calls(self, message: Json, calls: Sequence[RecallCall]) -> tuple[Json, ...]:
        ids = {call.id for call in calls}
        blocks = [block for block in mappings_in(message["content"]) if str(block.get("id")) not in ids]
        content = _drop_unsendable(blocks)
        return ({**message, "content": content},) if content else ()

    def merge_bodies(
        self, first: Json, last: Json, rounds: Sequence[AnswerRound], usage: Json | None, ended: bool
    ) -> Json:
        merged = dict(last)
        for key in ("id", "model"):
            if key in first:
                merged[key] = first[key]
        merged["content"] = join_visible(rounds)
        if usage is not None:
            merged["usage"] = usage
        if ended:
            merged["stop_reason"] = "end_turn"
        return merged


class AnthropicStream(StreamedResponse):
    """A message as events."""

    keep_alive_bytes: ClassVar[bytes] = b'event: ping\ndata: {"type": "ping"}\n\n'

    def reset_round(self, rounds: Sequence[AnswerRound]) -> None:
        self._blocks: dict[int, _ContentBlock] = {}
        self._stop_reason: object = None

    def read_event(self, event: Json) -> None:
        kind = text_in(event.get("type"))
        index = int_in(event.get("index"))
        if kind == "content_block_delta" and index in self._blocks:
            self._blocks[index].add_delta(mapping_in(event.get("delta")))
        elif kind == "content_block_start" and index is not None:
            block = mapping_in(event.get("content_block"))
            self._blocks[index] = _ContentBlock(block)
            self.is_holding = self.is_holding or _is_recall_call(block, self.names)
        elif kind == "message_start":
            message = mapping_in(event.get("message"))
            self.response_id = str(message.get("id") or "")
            self.usage.update_round(message.get("usage"))
        elif kind == "message_delta":
            self.usage.update_round(event.get("usage"))
            self._stop_reason = mapping_in(event.get("delta")).get("stop_reason") or self._stop_reason
            self.has_ended = self.has_ended or self._stop_reason is not None
        elif kind == "message_stop":
            self.has_ended = True

    def rewrite_event(self, event: Json) -> Json | None:
        kind = text_in(event.get("type"))
        index = int_in(event.get("index"))
        if index is not None:
            block = self._blocks.get(index)
            is_hidden = block is not None and _is_recall_call(block.start, self.names)
            client_index = self.assign_index(index, index, is_hidden=is_hidden)
            if client_index is None:
                return None
            return event if client_index == index else {**event, "index": client_index}
        if kind == "message_start":
            return None if self.is_later_round else event
        if kind == "message_delta" and self.usage.earlier is not None:
            return {**event, "usage": {**mapping_in(event.get("usage")), **select_counts(self.usage.total() or {})}}
        return event

    def split_event(self, event: Json) -> tuple[Json | None, Json | None]:
        if event.get("type") in ("message_delta", "message_stop"):
            return None, event
        return event, None

    def mark_stopped(self, event: Json) -> Json:
        if event.get("type") != "message_delta":
            return event
        return {**event, "delta": {**mapping_in(event.get("delta")), "stop_reason": "end_turn"}}

    def collect_content(self) -> list[Json]:
        return [block.assemble() for block in self._blocks.values()]

    def is_truncated(self) -> bool:
        return text_in(self._stop_reason) in _TRUNCATED

    def may_pass_held(self, event: Json) -> bool:
        return event.get("type") == "ping"


class _ContentBlock:
    """One content block, gathered from its deltas. A delta of an unknown type adds to the fields that it names."""

    def __init__(self, start: Json) -> None:
        self.start = start
        self._texts: dict[str, list[str]] = {}
        self._replaced_fields: Json = {}
        self._citations: list[Any] = []

    def add_delta(self, delta: Json) -> None:
        kind = delta.get("type")
        if kind == "citations_delta":
            self._citations.append(delta.get("citation"))
        elif kind in ("signature_delta", "compaction_delta"):
            self._replaced_fields |= {key: value for key, value in delta.items() if key != "type"}
        else:
            for key, value in delta.items():
                if isinstance(value, str) and key != "type":
                    self._texts.setdefault(key, []).append(value)

    def assemble(self) -> Json:
        block = {**self.start, **self._replaced_fields}
        for key, texts in self._texts.items():
            if key != "partial_json":
                block[key] = text_in(block.get(key)) + "".join(texts)
        if self._citations:
            block["citations"] = [*list_in(block.get("citations")), *self._citations]
        written = "".join(self._texts.get("partial_json", ()))
        if written.strip():
            arguments = parse_arguments(written)
            block["input"] = {_UNREADABLE: written} if arguments is None else arguments
        return block


def _is_recall_call(block: Json, names: frozenset[str]) -> bool:
    return block.get("type") == "tool_use" and text_in(block.get("name")) in names


def _drop_unsendable(blocks: Sequence[Json]) -> list[Json]:
    """Return the blocks that Anthropic takes back: no blank texts, and no thinking at the end."""
    sendable = [block for block in blocks if block.get("type") != "text" or str(block.get("text") or "").strip()]
    while sendable and sendable[-1].get("type") in ("thinking", "redacted_thinking"):
        sendable.pop()
    return sendable


def _parse_call(block: Json) -> RecallCall:
    arguments = mapping_in(block.get("input"))
    if _UNREADABLE in arguments:
        arguments = {}
    return RecallCall(id=str(block.get("id")), name=str(block.get("name")), arguments=arguments)
