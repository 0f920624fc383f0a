"""Chat completions that call a recall tool. Chunks and their accumulation as in the SDK, openai 3.54.

Limits. Only the choice with index 0 is read: others pass unchanged in the first round, and are dropped in later ones.
In a body, `logprobs` are those of the last round. A recall tool called by the legacy
`function_call` is not recognised: the tools are never offered that way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from elision.gateway.recalling.deltas import assemble_value, is_indexed_list, merge_delta
from elision.gateway.recalling.json_values import as_int, as_list, as_object, as_objects, as_text, parse_arguments
from elision.gateway.recalling.replacement import find_message_replacement
from elision.gateway.recalling.response_writer import RoundEnd
from elision.gateway.recalling.rounds import AnswerRound, Json, RecallCall, Replacement
from elision.gateway.recalling.streamed_response import StreamedResponse
from elision.gateway.sse import SseFrame

_TRUNCATED = frozenset(("length", "content_filter"))
#: Fields of every chunk that tell one answer from another.
_IDENTITY = ("id", "created", "model")
#: What a message must have one of to be taken back.
_SAYING = ("content", "tool_calls", "function_call", "refusal", "audio")


class ChatFormat:
    """Completions, whole."""

    def read_body(self, body: Json) -> RoundEnd:
        choice = _first_choice(body)
        if choice is None or not isinstance(choice.get("message"), dict):
            return RoundEnd(has_failed=True)
        return RoundEnd(content=choice["message"], is_truncated=as_text(choice.get("finish_reason")) in _TRUNCATED)

    def split_content(self, content: Any, names: frozenset[str], truncated: bool) -> AnswerRound:
        message = _to_request_message(as_object(content))
        calls = as_objects(message.get("tool_calls"))
        recall = [call for call in calls if as_text(_get_function(call).get("name")) in names]
        kept = {**message, "tool_calls": [call for call in calls if call not in recall]}
        kept = {key: value for key, value in kept.items() if key != "tool_calls" or value}
        said = kept if truncated else message
        return AnswerRound(
            messages=() if _is_empty_message(said) else (said,),
            visible=(kept,),
            hides_calls=bool(recall),
            recall_calls=() if truncated else tuple(map(_parse_call, recall)),
            has_client_calls="tool_calls" in kept or "function_call" in kept,
        )

    def render_results(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        return tuple({"role": "tool", "tool_call_id": call.id, "content": text} for call, text in pairs)

    def render_visible(self, rounds: Sequence[AnswerRound]) -> tuple[Json, ...]:
        return (_merge_messages(message for each in rounds for message in each.visible),)

    def find_replacements(self, rounds: Sequence[AnswerRound]) -> tuple[Replacement, ...]:
        return find_message_replacement(
            rounds, self.render_visible(rounds)[0], self.render_results, self.render_results, _drop_calls
        )

    def merge_bodies(
        self, first: Json, last: Json, rounds: Sequence[AnswerRound], usage: Json | None, ended: bool
    ) -> Json:
        answers = [choice for choice in (_first_choice(first), _first_choice(last)) if choice is not None]
        choice = {**answers[-1], "message": {**as_object(answers[-1].get("message")), **self.render_visible(rounds)[0]}}
        if not self.render_visible(rounds)[0].get("tool_calls"):
            choice["message"].pop("tool_calls", None)
        if ended:
            choice["finish_reason"] = "stop"
        others = [other for other in as_objects(first.get("choices")) if as_int(other.get("index"))]
        body = {**last, "choices": [choice, *others]} | {key: first[key] for key in _IDENTITY if key in first}
        if usage is None:
            return body
        return body | {"usage": usage}


class ChatStream(StreamedResponse):
    """Completions, as chunks."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(names)
        self._identity: Json = {}
        self._next_index = 0
        self._has_sent_role = False
        #: Field -> how many of its indexed entries earlier rounds had; this round's, as far as it came.
        self._index_offsets: dict[str, int] = {}
        self._entry_counts: dict[str, int] = {}
        self.reset_round(())

    def reset_round(self, rounds: Sequence[AnswerRound]) -> None:
        self._message: Json = {}
        #: Calls, as they come and as they go out: pieces go out in their order, but later.
        self._incoming_calls, self._outgoing_calls = _CallNumbering(), _CallNumbering()
        self._call_names: dict[int, str] = {}
        self._client_indexes: dict[int, int | None] = {}
        self._finish_reason: object = None
        for key, count in self._entry_counts.items():
            self._index_offsets[key] = self._index_offsets.get(key, 0) + count
        self._entry_counts = {}

    # -- as it comes --------------------------------------------------------------------------------------------------

    def read_event(self, event: Json) -> None:
        self.usage.update_round(event.get("usage"))
        self.response_id = self.response_id or str(event.get("id") or "")
        if not self.is_later_round:
            for key in _IDENTITY:
                # What Azure sends in front of everything bears none of them.
                self._identity[key] = self._identity.get(key) or event.get(key)
        choice = _first_choice(event)
        if choice is None:
            return
        delta = as_object(choice.get("delta"))
        calls = [
            {**call, "index": self._incoming_calls.number_call(call)} for call in as_objects(delta.get("tool_calls"))
        ]
        merge_delta(self._message, {**delta, "tool_calls": calls} if calls else delta)
        self._count_entries(delta)
        for call in calls:
            self._record_name(call["index"], call)
        if calls:
            self.is_holding = any(self._may_be_recall(name) for name in self._call_names.values())
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        self.has_ended = self.has_ended or self._finish_reason is not None

    def _record_name(self, which: int, call: Json) -> None:
        if call.get("type") not in (None, "function"):
            # A tool of another kind has its name elsewhere, and is none of ours.
            self._call_names[which] = f"({call['type']})"
            return
        known = self._call_names.get(which, "")
        piece = str(_get_function(call).get("name") or "")
        if known == piece:
            self._call_names[which] = known
        else:
            self._call_names[which] = known + piece

    def _may_be_recall(self, name: str) -> bool:
        """Whether a tool whose name began like this is, or may still become, one of ours."""
        return any(ours.startswith(name) for ours in self.names)

    def _count_entries(self, delta: Json) -> None:
        for key, value in delta.items():
            if key != "tool_calls" and is_indexed_list(value):
                last = max(as_int(entry["index"]) or 0 for entry in value)
                self._entry_counts[key] = max(self._entry_counts.get(key, 0), last + 1)

    def may_pass_held(self, event: Json) -> bool:
        choices = as_objects(event.get("choices"))
        return bool(choices) and not self.is_later_round and all(as_int(choice.get("index")) for choice in choices)

    def is_error(self, event: Json) -> bool:
        return bool(event.get("error"))

    def is_end_frame(self, frame: SseFrame) -> bool:
        return frame.data.strip() == b"[DONE]"

    # -- as it goes out -----------------------------------------------------------------------------------------------

    def rewrite_event(self, event: Json) -> Json | None:
        if self.is_unchanged and not self._call_names:
            # Nothing was called yet: by far the most of what is ever said.
            self._has_sent_role = self._has_sent_role or "role" in self._message
            return event
        choices = as_list(event.get("choices"))
        sent = [choice for choice in map(self._rewrite_choice, choices) if choice is not None]
        renewed = self.usage.earlier is not None and event.get("usage") is not None
        if choices and not sent and event.get("usage") is None:
            return None
        if len(sent) == len(choices) and all(map(_same, sent, choices)) and not self.is_later_round and not renewed:
            return event
        if self.is_later_round:
            identity = {key: value for key, value in self._identity.items() if key in event and value}
        else:
            identity = {}
        if renewed:
            usage = {"usage": self.usage.total()}
        else:
            usage = {}
        return {**event, **identity, "choices": sent, **usage}

    def _rewrite_choice(self, choice: Any) -> Any:
        """A choice as the client gets it; None where nothing is left of it."""
        if not isinstance(choice, dict):
            return choice
        if as_int(choice.get("index")):
            if self.is_later_round:
                return None
            return choice
        delta = as_object(choice.get("delta"))
        changed = self._rewrite_delta(delta)
        self._has_sent_role = self._has_sent_role or "role" in changed
        if changed == delta:
            return choice
        empty = not any(changed.values()) and choice.get("finish_reason") is None
        if empty:
            return None
        return {**choice, "delta": changed}

    def _rewrite_delta(self, delta: Json) -> Json:
        changed = {
            key: value
            for key, value in delta.items()
            if key != "role" or not (self.is_later_round and self._has_sent_role)
        }
        for key, value in delta.items():
            if key == "tool_calls":
                changed[key] = [call for call in map(self._renumber_call, as_list(value)) if call is not None]
            elif self._index_offsets.get(key) and is_indexed_list(value):
                changed[key] = [{**e, "index": (as_int(e["index"]) or 0) + self._index_offsets[key]} for e in value]
        if changed.get("tool_calls") == [] != delta.get("tool_calls"):
            del changed["tool_calls"]
        return changed

    def _renumber_call(self, call: Any) -> Any:
        if not isinstance(call, dict):
            return call
        which = self._outgoing_calls.number_call(call)
        if which not in self._client_indexes:
            self._client_indexes[which] = self._assign_index(which, as_int(call.get("index")) or 0)
        place = self._client_indexes[which]
        if place is None:
            return None
        if "index" in call:
            return {**call, "index": place}
        return call

    def _assign_index(self, which: int, index: int) -> int | None:
        if self._call_names.get(which) in self.names:
            self.is_unchanged = False
            return None
        place = index if self.is_unchanged else self._next_index
        self._next_index = max(self._next_index, place + 1)
        return place

    def split_event(self, event: Json) -> tuple[Json | None, Json | None]:
        choice = _first_choice(event)
        if choice is None:
            if event.get("usage") is not None:
                return (None, event)
            return (event, None)
        if choice.get("finish_reason") is None:
            return event, None
        others = [other for other in as_objects(event.get("choices")) if other is not choice]
        if not others and not any(as_object(choice.get("delta")).values()):
            return None, event
        bare = {**choice, "finish_reason": None}
        said = {key: value for key, value in event.items() if key != "usage"} | {"choices": [bare, *others]}
        return said, {**event, "choices": [{**choice, "delta": {}}]}

    def mark_stopped(self, event: Json) -> Json:
        return {
            **event,
            "choices": [{**choice, "finish_reason": "stop"} for choice in as_objects(event.get("choices"))],
        }

    def collect_content(self) -> Json:
        message: Json = assemble_value(self._message)
        calls = as_objects(message.get("tool_calls"))
        for call in calls:
            call.pop("index", None)
        return message

    def is_truncated(self) -> bool:
        return as_text(self._finish_reason) in _TRUNCATED


class _CallNumbering:
    """Which call a piece belongs to, as a number of our own: its index, unless another call has it.

    Some servers send parallel calls whole, all of them under index 0 or under none. So an id that is new begins
    another call, if it comes with a name: there are servers as well that make up an id for each piece.
    """

    def __init__(self) -> None:
        #: Number -> the call's id, "" until there is one.
        self._ids: dict[int, str] = {}
        self._numbers: dict[tuple[int, str], int] = {}
        #: Index -> the number of the call that was told of last.
        self._newest: dict[int, int] = {}

    def number_call(self, call: Json) -> int:
        index = as_int(call.get("index")) or 0
        id = str(call.get("id") or "")
        found = self._numbers.get((index, id))
        if found is None:
            found = self._newest.get(index)
            if found is None or (id and self._ids[found] and _get_function(call).get("name")):
                if index not in self._ids:
                    found = index
                else:
                    found = max(self._ids) + 1
                self._ids[found] = ""
        self._newest[index] = found
        if id and not self._ids[found]:
            self._ids[found] = id
            self._numbers[index, id] = found
        return found


def _first_choice(body: Json) -> Json | None:
    """The choice with index 0."""
    return next((choice for choice in as_objects(body.get("choices")) if not as_int(choice.get("index"))), None)


def _same(one: object, other: object) -> bool:
    return one is other


def _get_function(call: Json) -> Json:
    return as_object(call.get("function"))


def _parse_call(call: Json) -> RecallCall:
    function = _get_function(call)
    given = parse_arguments(str(function.get("arguments") or ""))
    return RecallCall(id=str(call.get("id")), name=str(function.get("name")), arguments=given or {})


def _to_request_message(message: Json) -> Json:
    """An answer's message as it is sent back: what is null or an empty list says nothing."""
    kept = {key: value for key, value in message.items() if value is not None and value != [] and key != "role"}
    return {"role": "assistant", "content": message.get("content")} | kept


def _is_empty_message(message: Json) -> bool:
    return not any(message.get(key) for key in _SAYING)


def _drop_calls(message: Json, calls: Sequence[RecallCall]) -> tuple[Json, ...]:
    """A message without calls that nobody answered; () if nothing is left."""
    ids = {call.id for call in calls}
    left = [call for call in as_objects(message.get("tool_calls")) if str(call.get("id")) not in ids]
    kept = {key: value for key, value in message.items() if key != "tool_calls"} | (
        {"tool_calls": left} if left else {}
    )
    if _is_empty_message(kept):
        return ()
    return (kept,)


def _merge_messages(messages: Iterable[Json]) -> Json:
    """Messages as one: texts and lists one behind the other."""
    merged: Json = {"role": "assistant", "content": None}
    for message in messages:
        for key, value in message.items():
            if key == "role":
                merged[key] = "assistant"
            else:
                merged[key] = _append_value(merged.get(key), value)
    return merged


def _append_value(old: Any, new: Any) -> Any:
    if old is None or new is None:
        if old is None:
            return new
        return old
    if isinstance(old, str) and isinstance(new, str):
        return old + new
    if isinstance(old, list) and isinstance(new, list):
        if is_indexed_list(old):
            count = 1 + max((as_int(entry["index"]) or 0 for entry in old), default=-1)
        else:
            count = 0
        return [
            *old,
            *([{**e, "index": (as_int(e["index"]) or 0) + count} for e in new] if is_indexed_list(new) else new),
        ]
    return new
