"""Anthropic messages that call a recall tool. Events and their accumulation as in the SDK, anthropic 2.12.

Its `message_delta` bears counts that are totals and overwrite those of `message_start`. So the last one bears the sums
over all rounds; `cache_creation`, which only `message_start` has, is summed there as well, though the SDK's
accumulator does not look for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from elision.gateway.recalling.counters import counters
from elision.gateway.recalling.json_text import listed, number, object_in, object_of, objects, word
from elision.gateway.recalling.outcome import Json, RecallCall, Replacement, Round
from elision.gateway.recalling.streamed import Streamed
from elision.gateway.recalling.trail import one_message
from elision.gateway.recalling.voice import Heard

#: Reasons of an answer that was stopped before the model was done.
_TRUNCATED = frozenset(("max_tokens", "model_context_window_exceeded", "refusal"))
#: What input that is no JSON is sent back under, as Anthropic's documentation advises.
_UNREADABLE = "INVALID_JSON"


class AnthropicShape:
    """Messages, whole."""

    def heard(self, body: Json) -> Heard:
        content = body.get("content")
        if not isinstance(content, list):
            return Heard(failed=True)
        return Heard(content=content, truncated=word(body.get("stop_reason")) in _TRUNCATED)

    def round(self, content: Any, names: frozenset[str], truncated: bool) -> Round:
        blocks = objects(content)
        recall = [block for block in blocks if _is_recall(block, names)]
        kept = [block for block in blocks if not _is_recall(block, names)]
        said = _sendable(kept if truncated else blocks)
        return Round(
            said=({"role": "assistant", "content": said},) if said else (),
            kept=tuple(kept),
            hides=bool(recall),
            calls=() if truncated else tuple(map(_call, recall)),
            others=any(block.get("type") == "tool_use" for block in kept),
        )

    def results(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        if pairs:
            return ({"role": "user", "content": list(_results(pairs))},)
        return ()

    def shown(self, rounds: Sequence[Round]) -> tuple[Json, ...]:
        return ({"role": "assistant", "content": [block for each in rounds for block in each.kept]},)

    def replacements(self, rounds: Sequence[Round]) -> tuple[Replacement, ...]:
        return one_message(rounds, self.shown(rounds)[0], self.results, _results, _without)

    def merged(self, first: Json, last: Json, rounds: Sequence[Round], usage: Json | None, ended: bool) -> Json:
        same: Json = {key: first[key] for key in ("id", "model") if key in first}
        changed: Json = {} if usage is None else {"usage": usage}
        ending = {"stop_reason": "end_turn"} if ended else {}
        return {**last, **same, "content": self.shown(rounds)[0]["content"], **changed, **ending}


class AnthropicStream(Streamed):
    """Messages, as events."""

    silence: ClassVar[bytes] = b'event: ping\ndata: {"type": "ping"}\n\n'

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(names)
        self._next = 0
        self._started = False
        self.reset(())

    def reset(self, rounds: Sequence[Round]) -> None:
        self._blocks: dict[int, _Block] = {}
        #: Index upstream -> index at the client; None for what it does not see.
        self._places: dict[int, int | None] = {}
        self._stop: object = None

    def note(self, event: Json) -> None:
        kind = word(event.get("type"))
        index = number(event.get("index"))
        if kind == "content_block_delta" and index in self._blocks:
            self._blocks[index].add(object_of(event.get("delta")))
        elif kind == "content_block_start" and index is not None:
            self._start(index, object_of(event.get("content_block")))
        elif kind == "message_start":
            message = object_of(event.get("message"))
            self.id = str(message.get("id") or "")
            self.meter.add(message.get("usage"))
        elif kind == "message_delta":
            self.meter.add(event.get("usage"))
            self._stop = object_of(event.get("delta")).get("stop_reason") or self._stop
            self.ended = self.ended or self._stop is not None
        elif kind == "message_stop":
            self.ended = True

    def _start(self, index: int, block: Json) -> None:
        self._blocks[index] = _Block(block)
        if _is_recall(block, self.names):
            self._places[index] = None
            self.holding = True

    def sent(self, event: Json) -> Json | None:
        kind = word(event.get("type"))
        index = number(event.get("index"))
        if index is not None:
            place = self._place(index)
            if place == index:
                return event
            if place is None:
                return None
            return {**event, "index": place}
        if kind == "message_start":
            if self.later:
                return None
            return event
        if kind == "message_delta" and self.meter.before is not None:
            return {**event, "usage": {**object_of(event.get("usage")), **counters(self.meter.total() or {})}}
        return event

    def _place(self, index: int) -> int | None:
        if index not in self._places:
            place = index if self.as_it_came else self._next
            self._places[index], self._next = place, max(self._next, place + 1)
        return self._places[index]

    def parted(self, event: Json) -> tuple[Json | None, Json | None]:
        ends = event.get("type") in ("message_delta", "message_stop")
        if ends:
            return (None, event)
        return (event, None)

    def stopped(self, event: Json) -> Json:
        if event.get("type") != "message_delta":
            return event
        return {**event, "delta": {**object_of(event.get("delta")), "stop_reason": "end_turn"}}

    def content(self) -> list[Json]:
        return [block.whole() for block in self._blocks.values()]

    def truncated(self) -> bool:
        return word(self._stop) in _TRUNCATED

    def passes(self, event: Json) -> bool:
        return event.get("type") == "ping"


class _Block:
    """One content block, gathered. A delta of a type unknown here adds to the fields it names."""

    def __init__(self, begun: Json) -> None:
        self._begun = begun
        self._texts: dict[str, list[str]] = {}
        self._set: Json = {}
        self._citations: list[Any] = []

    def add(self, delta: Json) -> None:
        kind = delta.get("type")
        if kind == "citations_delta":
            self._citations.append(delta.get("citation"))
        elif kind in ("signature_delta", "compaction_delta"):
            self._set |= {key: value for key, value in delta.items() if key != "type"}
        else:
            for key, value in delta.items():
                if isinstance(value, str) and key != "type":
                    self._texts.setdefault(key, []).append(value)

    def whole(self) -> Json:
        block = {**self._begun, **self._set}
        for key, texts in self._texts.items():
            if key != "partial_json":
                begun = block.get(key)
                block[key] = (begun if isinstance(begun, str) else "") + "".join(texts)
        if self._citations:
            block["citations"] = [*listed(block.get("citations")), *self._citations]
        written = "".join(self._texts.get("partial_json", ()))
        if written.strip():
            given = object_in(written)
            if given is None:
                block["input"] = {_UNREADABLE: written}
            else:
                block["input"] = given
        return block


def _is_recall(block: Json, names: frozenset[str]) -> bool:
    return block.get("type") == "tool_use" and word(block.get("name")) in names


def _sendable(blocks: Sequence[Json]) -> list[Json]:
    """Without what is said now and then and never taken back: texts without a letter, thinking that leads nowhere."""
    kept = [block for block in blocks if not _blank(block)]
    while kept and kept[-1].get("type") in ("thinking", "redacted_thinking"):
        kept.pop()
    return kept


def _blank(block: Json) -> bool:
    return block.get("type") == "text" and not str(block.get("text") or "").strip()


def _call(block: Json) -> RecallCall:
    given = object_of(block.get("input"))
    given = {} if _UNREADABLE in given else given
    return RecallCall(id=str(block.get("id")), name=str(block.get("name")), arguments=given)


def _results(pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
    return tuple({"type": "tool_result", "tool_use_id": call.id, "content": text} for call, text in pairs)


def _without(message: Json, calls: Sequence[RecallCall]) -> tuple[Json, ...]:
    """A message without calls that nobody answered; () if nothing is left."""
    ids = {call.id for call in calls}
    content = _sendable([block for block in objects(message["content"]) if str(block.get("id")) not in ids])
    if content:
        return ({**message, "content": content},)
    return ()
