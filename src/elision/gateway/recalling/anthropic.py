"""Anthropic messages that call a recall tool. Events and their accumulation as in the SDK, anthropic 2.12.

Its `message_delta` bears counts that are totals and overwrite those of `message_start`. So the last one bears the sums
over all rounds; `cache_creation`, which only `message_start` has, is summed there as well, though the SDK's
accumulator does not look for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from elision.gateway.recalling.json_values import as_int, as_list, as_object, as_objects, as_text, parse_arguments
from elision.gateway.recalling.replacement import find_message_replacement
from elision.gateway.recalling.response_writer import RoundEnd
from elision.gateway.recalling.rounds import AnswerRound, Json, RecallCall, Replacement
from elision.gateway.recalling.streamed_response import StreamedResponse
from elision.gateway.recalling.usage_sum import select_counts

#: Reasons of an answer that was stopped before the model was done.
_TRUNCATED = frozenset(("max_tokens", "model_context_window_exceeded", "refusal"))
#: What input that is no JSON is sent back under, as Anthropic's documentation advises.
_UNREADABLE = "INVALID_JSON"


class AnthropicFormat:
    """Messages, whole."""

    def read_body(self, body: Json) -> RoundEnd:
        content = body.get("content")
        if not isinstance(content, list):
            return RoundEnd(has_failed=True)
        return RoundEnd(content=content, is_truncated=as_text(body.get("stop_reason")) in _TRUNCATED)

    def split_content(self, content: Any, names: frozenset[str], truncated: bool) -> AnswerRound:
        blocks = as_objects(content)
        recall = [block for block in blocks if _is_recall_call(block, names)]
        kept = [block for block in blocks if not _is_recall_call(block, names)]
        said = _drop_unsendable(kept if truncated else blocks)
        return AnswerRound(
            messages=({"role": "assistant", "content": said},) if said else (),
            visible=tuple(kept),
            hides_calls=bool(recall),
            recall_calls=() if truncated else tuple(map(_parse_call, recall)),
            has_client_calls=any(block.get("type") == "tool_use" for block in kept),
        )

    def render_results(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        if pairs:
            return ({"role": "user", "content": list(_render_result_blocks(pairs))},)
        return ()

    def render_visible(self, rounds: Sequence[AnswerRound]) -> tuple[Json, ...]:
        return ({"role": "assistant", "content": [block for each in rounds for block in each.visible]},)

    def find_replacements(self, rounds: Sequence[AnswerRound]) -> tuple[Replacement, ...]:
        return find_message_replacement(
            rounds, self.render_visible(rounds)[0], self.render_results, _render_result_blocks, _drop_calls
        )

    def merge_bodies(
        self, first: Json, last: Json, rounds: Sequence[AnswerRound], usage: Json | None, ended: bool
    ) -> Json:
        same: Json = {key: first[key] for key in ("id", "model") if key in first}
        changed: Json = {} if usage is None else {"usage": usage}
        ending = {"stop_reason": "end_turn"} if ended else {}
        return {**last, **same, "content": self.render_visible(rounds)[0]["content"], **changed, **ending}


class AnthropicStream(StreamedResponse):
    """Messages, as events."""

    keep_alive_bytes: ClassVar[bytes] = b'event: ping\ndata: {"type": "ping"}\n\n'

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(names)
        self._next_index = 0
        self._started = False
        self.reset_round(())

    def reset_round(self, rounds: Sequence[AnswerRound]) -> None:
        self._blocks: dict[int, _ContentBlock] = {}
        #: Index upstream -> index at the client; None for what it does not see.
        self._client_indexes: dict[int, int | None] = {}
        self._stop_reason: object = None

    def read_event(self, event: Json) -> None:
        kind = as_text(event.get("type"))
        index = as_int(event.get("index"))
        if kind == "content_block_delta" and index in self._blocks:
            self._blocks[index].add_delta(as_object(event.get("delta")))
        elif kind == "content_block_start" and index is not None:
            self._start_block(index, as_object(event.get("content_block")))
        elif kind == "message_start":
            message = as_object(event.get("message"))
            self.response_id = str(message.get("id") or "")
            self.usage.update_round(message.get("usage"))
        elif kind == "message_delta":
            self.usage.update_round(event.get("usage"))
            self._stop_reason = as_object(event.get("delta")).get("stop_reason") or self._stop_reason
            self.has_ended = self.has_ended or self._stop_reason is not None
        elif kind == "message_stop":
            self.has_ended = True

    def _start_block(self, index: int, block: Json) -> None:
        self._blocks[index] = _ContentBlock(block)
        if _is_recall_call(block, self.names):
            self._client_indexes[index] = None
            self.is_holding = True

    def rewrite_event(self, event: Json) -> Json | None:
        kind = as_text(event.get("type"))
        index = as_int(event.get("index"))
        if index is not None:
            place = self._assign_index(index)
            if place == index:
                return event
            if place is None:
                return None
            return {**event, "index": place}
        if kind == "message_start":
            if self.is_later_round:
                return None
            return event
        if kind == "message_delta" and self.usage.earlier is not None:
            return {**event, "usage": {**as_object(event.get("usage")), **select_counts(self.usage.total() or {})}}
        return event

    def _assign_index(self, index: int) -> int | None:
        if index not in self._client_indexes:
            place = index if self.is_unchanged else self._next_index
            self._client_indexes[index], self._next_index = place, max(self._next_index, place + 1)
        return self._client_indexes[index]

    def split_event(self, event: Json) -> tuple[Json | None, Json | None]:
        ends = event.get("type") in ("message_delta", "message_stop")
        if ends:
            return (None, event)
        return (event, None)

    def mark_stopped(self, event: Json) -> Json:
        if event.get("type") != "message_delta":
            return event
        return {**event, "delta": {**as_object(event.get("delta")), "stop_reason": "end_turn"}}

    def collect_content(self) -> list[Json]:
        return [block.assemble() for block in self._blocks.values()]

    def is_truncated(self) -> bool:
        return as_text(self._stop_reason) in _TRUNCATED

    def may_pass_held(self, event: Json) -> bool:
        return event.get("type") == "ping"


class _ContentBlock:
    """One content block, gathered. A delta of a type unknown here adds to the fields it names."""

    def __init__(self, begun: Json) -> None:
        self._start = begun
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
        block = {**self._start, **self._replaced_fields}
        for key, texts in self._texts.items():
            if key != "partial_json":
                begun = block.get(key)
                block[key] = (begun if isinstance(begun, str) else "") + "".join(texts)
        if self._citations:
            block["citations"] = [*as_list(block.get("citations")), *self._citations]
        written = "".join(self._texts.get("partial_json", ()))
        if written.strip():
            given = parse_arguments(written)
            if given is None:
                block["input"] = {_UNREADABLE: written}
            else:
                block["input"] = given
        return block


def _is_recall_call(block: Json, names: frozenset[str]) -> bool:
    return block.get("type") == "tool_use" and as_text(block.get("name")) in names


def _drop_unsendable(blocks: Sequence[Json]) -> list[Json]:
    """Without what is said now and then and never taken back: texts without a letter, thinking that leads nowhere."""
    kept = [block for block in blocks if not _is_blank_text(block)]
    while kept and kept[-1].get("type") in ("thinking", "redacted_thinking"):
        kept.pop()
    return kept


def _is_blank_text(block: Json) -> bool:
    return block.get("type") == "text" and not str(block.get("text") or "").strip()


def _parse_call(block: Json) -> RecallCall:
    given = as_object(block.get("input"))
    given = {} if _UNREADABLE in given else given
    return RecallCall(id=str(block.get("id")), name=str(block.get("name")), arguments=given)


def _render_result_blocks(pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
    return tuple({"type": "tool_result", "tool_use_id": call.id, "content": text} for call, text in pairs)


def _drop_calls(message: Json, calls: Sequence[RecallCall]) -> tuple[Json, ...]:
    """A message without calls that nobody answered; () if nothing is left."""
    ids = {call.id for call in calls}
    content = _drop_unsendable([block for block in as_objects(message["content"]) if str(block.get("id")) not in ids])
    if content:
        return ({**message, "content": content},)
    return ()
