"""Chat completions that call a recall tool. Chunks and their accumulation as in the SDK, openai 3.54.

Limits: in a body, `logprobs` are those of the last round. A recall tool called by the legacy `function_call` is not
recognised: the tools are never offered that way.

Deltas are merged as the SDK's accumulator does, with two differences: what a server repeats in each delta (ids, types)
is kept once, and texts are joined once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import is_
from typing import Any

from elision.providers.shared.json_reading import int_in, list_in, mapping_in, mappings_in, text_in
from elision.providers.streaming.rounds import AnswerRound, Json, RecallCall, RoundEnd, join_visible, parse_arguments
from elision.providers.streaming.streamed_response import (
    ChoiceStream,
    MessageFormat,
    find_first_choice,
    list_other_choices,
)

#: Fields whose text is complete in every delta.
_WHOLE = frozenset(("id", "type", "role", "index", "format"))


class _TextPieces(list[str]):
    """A text in pieces."""


class _IndexedEntries(dict[int, Json]):
    """Entries of a list by their index."""


def merge_delta(message: Json, delta: Json) -> None:
    """Add a delta to what was gathered so far."""
    for key, value in delta.items():
        message[key] = _merge_value(key, message.get(key), value)


def assemble_value(value: Any) -> Any:
    """Return what was gathered as plain JSON."""
    if isinstance(value, _TextPieces):
        return "".join(value)
    if isinstance(value, _IndexedEntries):
        return [assemble_value(value[index]) for index in sorted(value)]
    if isinstance(value, dict):
        return {key: assemble_value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [assemble_value(inner) for inner in value]
    return value


def _merge_value(key: str, old: Any, new: Any) -> Any:
    if new is None or (key in _WHOLE and old):
        return old
    if isinstance(new, str) and key not in _WHOLE:
        return _append_text(key, old, new)
    if isinstance(new, list):
        return _merge_list(old, new)
    if isinstance(new, dict):
        gathered = old if isinstance(old, dict) else {}
        merge_delta(gathered, new)
        return gathered
    return new


def _append_text(key: str, old: Any, new: str) -> Any:
    if isinstance(old, _TextPieces):
        # Some servers repeat a tool's name in each delta.
        if key != "name" or "".join(old) != new:
            old.append(new)
        return old
    if isinstance(old, list):
        # Content that began as parts continues in parts.
        return [*old, {"type": "text", "text": new}]
    return _TextPieces((new,))


def _merge_list(old: Any, new: list[Any]) -> Any:
    if not new and old is not None:
        return old
    if is_indexed_list(new):
        entries = old if isinstance(old, _IndexedEntries) else _IndexedEntries()
        for entry in new:
            merge_delta(entries.setdefault(int_in(entry["index"]) or 0, {}), entry)
        return entries
    if isinstance(old, _TextPieces) and any(old):
        return [{"type": "text", "text": "".join(old)}, *new]
    if isinstance(old, list) and not isinstance(old, _TextPieces):
        return [*old, *new]
    return list(new)


def is_indexed_list(value: object) -> bool:
    """Return whether `value` is a list of objects that all have an `index`."""
    return (
        isinstance(value, list) and bool(value) and all(isinstance(entry, dict) and "index" in entry for entry in value)
    )


_TRUNCATED = frozenset(("length", "content_filter"))
#: Fields of every chunk that identify the response.
_IDENTITY = ("id", "created", "model")
#: A message without any of these is not taken back by providers.
_CONTENT_FIELDS = ("content", "tool_calls", "function_call", "refusal", "audio")


class ChatFormat(MessageFormat):
    """The format of a whole completion."""

    def read_body(self, body: Json) -> RoundEnd:
        choice = find_first_choice(body, "choices")
        if choice is None or not isinstance(choice.get("message"), dict):
            return RoundEnd(has_failed=True)
        return RoundEnd(content=choice["message"], is_truncated=text_in(choice.get("finish_reason")) in _TRUNCATED)

    def split_content(self, content: Any, names: frozenset[str], truncated: bool) -> AnswerRound:
        message = _to_request_message(mapping_in(content))
        recalls: list[Json] = []
        others: list[Json] = []
        for call in mappings_in(message.get("tool_calls")):
            is_recall = text_in(_get_function(call).get("name")) in names
            (recalls if is_recall else others).append(call)
        visible = _with_calls(message, others)
        sent_back = visible if truncated else message
        return AnswerRound(
            messages=(sent_back,) if _has_content(sent_back) else (),
            visible=(visible,),
            hides_calls=bool(recalls),
            recall_calls=() if truncated else tuple(map(_parse_call, recalls)),
            has_client_calls="tool_calls" in visible or "function_call" in visible,
        )

    def render_results(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        return tuple({"role": "tool", "tool_call_id": call.id, "content": text} for call, text in pairs)

    def render_visible(self, rounds: Sequence[AnswerRound]) -> tuple[Json, ...]:
        return (_merge_messages(join_visible(rounds)),)

    def drop_calls(self, message: Json, calls: Sequence[RecallCall]) -> tuple[Json, ...]:
        ids = {call.id for call in calls}
        kept = _with_calls(
            message, [call for call in mappings_in(message.get("tool_calls")) if str(call.get("id")) not in ids]
        )
        return (kept,) if _has_content(kept) else ()

    def merge_bodies(
        self, first: Json, last: Json, rounds: Sequence[AnswerRound], usage: Json | None, ended: bool
    ) -> Json:
        visible = self.render_visible(rounds)[0]
        choice = dict(find_first_choice(last, "choices") or find_first_choice(first, "choices") or {})
        choice["message"] = {**mapping_in(choice.get("message")), **visible}
        if not visible.get("tool_calls"):
            choice["message"].pop("tool_calls", None)
        if ended:
            choice["finish_reason"] = "stop"
        merged = {**last, "choices": [choice, *list_other_choices(first, "choices")]}
        merged |= {key: first[key] for key in _IDENTITY if key in first}
        if usage is not None:
            merged["usage"] = usage
        return merged


class ChatStream(ChoiceStream):
    """A completion as chunks."""

    end_markers = (b"[DONE]",)
    choices_field = "choices"
    finish_field = "finish_reason"
    stopped = "stop"
    identity_fields = _IDENTITY

    def __init__(self, names: frozenset[str]) -> None:
        self._has_sent_role = False
        #: Field -> how many of its indexed entries earlier rounds had; and this round, so far.
        self._index_offsets: dict[str, int] = {}
        self._entry_counts: dict[str, int] = {}
        super().__init__(names)

    def reset_round(self, rounds: Sequence[AnswerRound]) -> None:
        self._message: Json = {}
        #: Calls as they arrive and as they are sent: deltas are sent in the same order, but later.
        self._incoming_calls = _CallNumbering()
        self._outgoing_calls = _CallNumbering()
        self._call_names: dict[int, str] = {}
        self._finish_reason: object = None
        for key, count in self._entry_counts.items():
            self._index_offsets[key] = self._index_offsets.get(key, 0) + count
        self._entry_counts = {}

    # -- reading ------------------------------------------------------------------------------------------------------

    def read_event(self, event: Json) -> None:
        self.usage.update_round(event.get("usage"))
        self.response_id = self.response_id or str(event.get("id") or "")
        # The event that Azure sends before everything else identifies nothing.
        self.record_identity(event)
        choice = find_first_choice(event, "choices")
        if choice is None:
            return
        delta = mapping_in(choice.get("delta"))
        self._count_entries(delta)
        calls = []
        for call in mappings_in(delta.get("tool_calls")):
            number = self._incoming_calls.number_call(call)
            calls.append({**call, "index": number})
            self._record_name(number, call)
        if calls:
            delta = {**delta, "tool_calls": calls}
            self.is_holding = any(self._may_be_recall(name) for name in self._call_names.values())
        merge_delta(self._message, delta)
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        self.has_ended = self.has_ended or self._finish_reason is not None

    def _record_name(self, number: int, call: Json) -> None:
        if call.get("type") not in (None, "function"):
            # A tool of another kind has its name elsewhere, and is no recall tool.
            self._call_names[number] = f"({call['type']})"
            return
        known = self._call_names.get(number, "")
        piece = str(_get_function(call).get("name") or "")
        # Some servers repeat the whole name in each delta.
        self._call_names[number] = known if known == piece else known + piece

    def _may_be_recall(self, name: str) -> bool:
        """Return whether a tool whose name begins like this is, or may still become, a recall tool."""
        return any(tool.startswith(name) for tool in self.names)

    def _count_entries(self, delta: Json) -> None:
        for key, value in delta.items():
            if key != "tool_calls" and is_indexed_list(value):
                last = max(int_in(entry["index"]) or 0 for entry in value)
                self._entry_counts[key] = max(self._entry_counts.get(key, 0), last + 1)

    # -- writing ------------------------------------------------------------------------------------------------------

    def rewrite_event(self, event: Json) -> Json | None:
        if self.is_unchanged and not self._call_names:
            # Nothing was called yet: the usual case.
            self._has_sent_role = self._has_sent_role or "role" in self._message
            return event
        choices = list_in(event.get("choices"))
        rewritten = [new for choice in choices if (new := self._rewrite_choice(choice)) is not None]
        is_same = len(rewritten) == len(choices) and all(map(is_, rewritten, choices))
        has_usage = event.get("usage") is not None
        if choices and not rewritten and not has_usage:
            return None
        sums_usage = has_usage and self.usage.earlier is not None
        if is_same and not self.is_later_round and not sums_usage:
            return event
        changed = self.restore_identity(event) if self.is_later_round else dict(event)
        changed["choices"] = rewritten
        if sums_usage:
            changed["usage"] = self.usage.total()
        return changed

    def _rewrite_choice(self, choice: Any) -> Any:
        """Return a choice as the client gets it; None where nothing is left of it."""
        if not isinstance(choice, dict):
            return choice
        if int_in(choice.get("index")):
            return None if self.is_later_round else choice
        delta = mapping_in(choice.get("delta"))
        changed = self._rewrite_delta(delta)
        self._has_sent_role = self._has_sent_role or "role" in changed
        if changed == delta:
            return choice
        if not any(changed.values()) and choice.get("finish_reason") is None:
            return None
        return {**choice, "delta": changed}

    def _rewrite_delta(self, delta: Json) -> Json:
        changed: Json = {}
        for key, value in delta.items():
            if key == "role" and self.is_later_round and self._has_sent_role:
                continue
            if key == "tool_calls":
                calls = self._renumber_calls(list_in(value))
                if calls or value == []:
                    changed[key] = calls
            elif self._index_offsets.get(key) and is_indexed_list(value):
                changed[key] = _shift_indexes(value, self._index_offsets[key])
            else:
                changed[key] = value
        return changed

    def _renumber_calls(self, calls: list[Any]) -> list[Any]:
        """Return the deltas of calls that the client gets, under the client's indexes."""
        renumbered: list[Any] = []
        for call in calls:
            if not isinstance(call, dict):
                if call is not None:
                    renumbered.append(call)
                continue
            number = self._outgoing_calls.number_call(call)
            is_hidden = self._call_names.get(number) in self.names
            client_index = self.assign_index(number, int_in(call.get("index")) or 0, is_hidden=is_hidden)
            if client_index is None:
                self.is_unchanged = False
            else:
                renumbered.append({**call, "index": client_index} if "index" in call else call)
        return renumbered

    def split_event(self, event: Json) -> tuple[Json | None, Json | None]:
        choice = find_first_choice(event, "choices")
        if choice is None:
            return (event, None) if event.get("usage") is None else (None, event)
        if choice.get("finish_reason") is None:
            return event, None
        others = [other for other in mappings_in(event.get("choices")) if other is not choice]
        if not others and not any(mapping_in(choice.get("delta")).values()):
            return None, event
        content = {key: value for key, value in event.items() if key != "usage"}
        content["choices"] = [{**choice, "finish_reason": None}, *others]
        return content, {**event, "choices": [{**choice, "delta": {}}]}

    def collect_content(self) -> Json:
        message: Json = assemble_value(self._message)
        for call in mappings_in(message.get("tool_calls")):
            call.pop("index", None)
        return message

    def is_truncated(self) -> bool:
        return text_in(self._finish_reason) in _TRUNCATED


class _CallNumbering:
    """Numbers the calls of a stream: a delta belongs to the call with its index, unless another call has it.

    Some servers send parallel calls whole, all of them under index 0 or under none. So a new id begins another call if
    it comes with a name. Without a name it does not: other servers make up an id for each delta.
    """

    def __init__(self) -> None:
        #: Number -> the call's id, "" until there is one.
        self._ids: dict[int, str] = {}
        self._numbers: dict[tuple[int, str], int] = {}
        #: Index -> the number of the newest call under it.
        self._newest: dict[int, int] = {}

    def number_call(self, call: Json) -> int:
        index = int_in(call.get("index")) or 0
        id = str(call.get("id") or "")
        number = self._numbers.get((index, id))
        if number is None:
            number = self._newest.get(index)
            if number is None or (id and self._ids[number] and _get_function(call).get("name")):
                number = index if index not in self._ids else max(self._ids) + 1
                self._ids[number] = ""
        self._newest[index] = number
        if id and not self._ids[number]:
            self._ids[number] = id
            self._numbers[index, id] = number
        return number


def _get_function(call: Json) -> Json:
    return mapping_in(call.get("function"))


def _parse_call(call: Json) -> RecallCall:
    function = _get_function(call)
    arguments = parse_arguments(str(function.get("arguments") or ""))
    return RecallCall(id=str(call.get("id")), name=str(function.get("name")), arguments=arguments or {})


def _to_request_message(message: Json) -> Json:
    """Return a response's message as it is sent back: without null fields and empty lists."""
    kept = {key: value for key, value in message.items() if value is not None and value != [] and key != "role"}
    return {"role": "assistant", "content": message.get("content")} | kept


def _has_content(message: Json) -> bool:
    return any(message.get(key) for key in _CONTENT_FIELDS)


def _with_calls(message: Json, calls: list[Json]) -> Json:
    """Return the message with these calls; without the field if there are none."""
    changed = {**message, "tool_calls": calls}
    if not calls:
        del changed["tool_calls"]
    return changed


def _merge_messages(messages: Iterable[Json]) -> Json:
    """Return the messages as one: texts and lists are concatenated."""
    merged: Json = {"role": "assistant", "content": None}
    for message in messages:
        for key, value in message.items():
            merged[key] = "assistant" if key == "role" else _append_value(merged.get(key), value)
    return merged


def _append_value(old: Any, new: Any) -> Any:
    if old is None:
        return new
    if new is None:
        return old
    if isinstance(old, str) and isinstance(new, str):
        return old + new
    if isinstance(old, list) and isinstance(new, list):
        if is_indexed_list(new):
            count = 1 + max(int_in(entry["index"]) or 0 for entry in old) if is_indexed_list(old) else 0
            new = _shift_indexes(new, count)
        return [*old, *new]
    return new


def _shift_indexes(entries: list[Json], count: int) -> list[Json]:
    return [{**entry, "index": (int_in(entry["index"]) or 0) + count} for entry in entries]
