"""Chat completions that call a recall tool. Chunks and their accumulation as in the SDK, openai 3.54.

Limits. Only the choice with index 0 is read: others pass unchanged in the first round, and are dropped in later ones.
In a body, `logprobs` are those of the last round. A recall tool called by the legacy
`function_call` is not recognised: the tools are never offered that way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from elision.gateway.recalling.deltas import add, indexed, plain
from elision.gateway.recalling.json_text import listed, number, object_in, object_of, objects, word
from elision.gateway.recalling.outcome import Json, RecallCall, Replacement, Round
from elision.gateway.recalling.streamed import Streamed
from elision.gateway.recalling.trail import one_message
from elision.gateway.recalling.voice import Heard
from elision.gateway.sse import Frame

_TRUNCATED = frozenset(("length", "content_filter"))
#: Fields of every chunk that tell one answer from another.
_IDENTITY = ("id", "created", "model")
#: What a message must have one of to be taken back.
_SAYING = ("content", "tool_calls", "function_call", "refusal", "audio")


class ChatShape:
    """Completions, whole."""

    def heard(self, body: Json) -> Heard:
        choice = _first(body)
        if choice is None or not isinstance(choice.get("message"), dict):
            return Heard(failed=True)
        return Heard(content=choice["message"], truncated=word(choice.get("finish_reason")) in _TRUNCATED)

    def round(self, content: Any, names: frozenset[str], truncated: bool) -> Round:
        message = _as_request(object_of(content))
        calls = objects(message.get("tool_calls"))
        recall = [call for call in calls if word(_function(call).get("name")) in names]
        kept = {**message, "tool_calls": [call for call in calls if call not in recall]}
        kept = {key: value for key, value in kept.items() if key != "tool_calls" or value}
        said = kept if truncated else message
        return Round(
            said=() if _silent(said) else (said,),
            kept=(kept,),
            hides=bool(recall),
            calls=() if truncated else tuple(map(_call, recall)),
            others="tool_calls" in kept or "function_call" in kept,
        )

    def results(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        return tuple({"role": "tool", "tool_call_id": call.id, "content": text} for call, text in pairs)

    def shown(self, rounds: Sequence[Round]) -> tuple[Json, ...]:
        return (_together(message for each in rounds for message in each.kept),)

    def replacements(self, rounds: Sequence[Round]) -> tuple[Replacement, ...]:
        return one_message(rounds, self.shown(rounds)[0], self.results, self.results, _without)

    def merged(self, first: Json, last: Json, rounds: Sequence[Round], usage: Json | None, ended: bool) -> Json:
        answers = [choice for choice in (_first(first), _first(last)) if choice is not None]
        choice = {**answers[-1], "message": {**object_of(answers[-1].get("message")), **self.shown(rounds)[0]}}
        if not self.shown(rounds)[0].get("tool_calls"):
            choice["message"].pop("tool_calls", None)
        if ended:
            choice["finish_reason"] = "stop"
        others = [other for other in objects(first.get("choices")) if number(other.get("index"))]
        body = {**last, "choices": [choice, *others]} | {key: first[key] for key in _IDENTITY if key in first}
        if usage is None:
            return body
        return body | {"usage": usage}


class ChatStream(Streamed):
    """Completions, as chunks."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(names)
        self._identity: Json = {}
        self._next = 0
        self._roled = False
        #: Field -> how many of its indexed entries earlier rounds had; this round's, as far as it came.
        self._behind: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self.reset(())

    def reset(self, rounds: Sequence[Round]) -> None:
        self._message: Json = {}
        #: Calls, as they come and as they go out: pieces go out in their order, but later.
        self._coming, self._going = _Calls(), _Calls()
        self._names: dict[int, str] = {}
        self._places: dict[int, int | None] = {}
        self._finish: object = None
        for key, count in self._counts.items():
            self._behind[key] = self._behind.get(key, 0) + count
        self._counts = {}

    # -- as it comes --------------------------------------------------------------------------------------------------

    def note(self, event: Json) -> None:
        self.meter.add(event.get("usage"))
        self.id = self.id or str(event.get("id") or "")
        if not self.later:
            for key in _IDENTITY:
                # What Azure sends in front of everything bears none of them.
                self._identity[key] = self._identity.get(key) or event.get(key)
        choice = _first(event)
        if choice is None:
            return
        delta = object_of(choice.get("delta"))
        calls = [{**call, "index": self._coming.of(call)} for call in objects(delta.get("tool_calls"))]
        add(self._message, {**delta, "tool_calls": calls} if calls else delta)
        self._count(delta)
        for call in calls:
            self._name(call["index"], call)
        if calls:
            self.holding = any(self._doubtful(name) for name in self._names.values())
        self._finish = choice.get("finish_reason") or self._finish
        self.ended = self.ended or self._finish is not None

    def _name(self, which: int, call: Json) -> None:
        if call.get("type") not in (None, "function"):
            # A tool of another kind has its name elsewhere, and is none of ours.
            self._names[which] = f"({call['type']})"
            return
        known = self._names.get(which, "")
        piece = str(_function(call).get("name") or "")
        if known == piece:
            self._names[which] = known
        else:
            self._names[which] = known + piece

    def _doubtful(self, name: str) -> bool:
        """Whether a tool whose name began like this is, or may still become, one of ours."""
        return any(ours.startswith(name) for ours in self.names)

    def _count(self, delta: Json) -> None:
        for key, value in delta.items():
            if key != "tool_calls" and indexed(value):
                last = max(number(entry["index"]) or 0 for entry in value)
                self._counts[key] = max(self._counts.get(key, 0), last + 1)

    def passes(self, event: Json) -> bool:
        choices = objects(event.get("choices"))
        return bool(choices) and not self.later and all(number(choice.get("index")) for choice in choices)

    def fails(self, event: Json) -> bool:
        return bool(event.get("error"))

    def ends(self, frame: Frame) -> bool:
        return frame.data.strip() == b"[DONE]"

    # -- as it goes out -----------------------------------------------------------------------------------------------

    def sent(self, event: Json) -> Json | None:
        if self.as_it_came and not self._names:
            # Nothing was called yet: by far the most of what is ever said.
            self._roled = self._roled or "role" in self._message
            return event
        choices = listed(event.get("choices"))
        sent = [choice for choice in map(self._choice, choices) if choice is not None]
        renewed = self.meter.before is not None and event.get("usage") is not None
        if choices and not sent and event.get("usage") is None:
            return None
        if len(sent) == len(choices) and all(map(_same, sent, choices)) and not self.later and not renewed:
            return event
        if self.later:
            identity = {key: value for key, value in self._identity.items() if key in event and value}
        else:
            identity = {}
        if renewed:
            usage = {"usage": self.meter.total()}
        else:
            usage = {}
        return {**event, **identity, "choices": sent, **usage}

    def _choice(self, choice: Any) -> Any:
        """A choice as the client gets it; None where nothing is left of it."""
        if not isinstance(choice, dict):
            return choice
        if number(choice.get("index")):
            if self.later:
                return None
            return choice
        delta = object_of(choice.get("delta"))
        changed = self._delta(delta)
        self._roled = self._roled or "role" in changed
        if changed == delta:
            return choice
        empty = not any(changed.values()) and choice.get("finish_reason") is None
        if empty:
            return None
        return {**choice, "delta": changed}

    def _delta(self, delta: Json) -> Json:
        changed = {key: value for key, value in delta.items() if key != "role" or not (self.later and self._roled)}
        for key, value in delta.items():
            if key == "tool_calls":
                changed[key] = [call for call in map(self._numbered, listed(value)) if call is not None]
            elif self._behind.get(key) and indexed(value):
                changed[key] = [{**e, "index": (number(e["index"]) or 0) + self._behind[key]} for e in value]
        if changed.get("tool_calls") == [] != delta.get("tool_calls"):
            del changed["tool_calls"]
        return changed

    def _numbered(self, call: Any) -> Any:
        if not isinstance(call, dict):
            return call
        which = self._going.of(call)
        if which not in self._places:
            self._places[which] = self._place(which, number(call.get("index")) or 0)
        place = self._places[which]
        if place is None:
            return None
        if "index" in call:
            return {**call, "index": place}
        return call

    def _place(self, which: int, index: int) -> int | None:
        if self._names.get(which) in self.names:
            self.as_it_came = False
            return None
        place = index if self.as_it_came else self._next
        self._next = max(self._next, place + 1)
        return place

    def parted(self, event: Json) -> tuple[Json | None, Json | None]:
        choice = _first(event)
        if choice is None:
            if event.get("usage") is not None:
                return (None, event)
            return (event, None)
        if choice.get("finish_reason") is None:
            return event, None
        others = [other for other in objects(event.get("choices")) if other is not choice]
        if not others and not any(object_of(choice.get("delta")).values()):
            return None, event
        bare = {**choice, "finish_reason": None}
        said = {key: value for key, value in event.items() if key != "usage"} | {"choices": [bare, *others]}
        return said, {**event, "choices": [{**choice, "delta": {}}]}

    def stopped(self, event: Json) -> Json:
        return {**event, "choices": [{**choice, "finish_reason": "stop"} for choice in objects(event.get("choices"))]}

    def content(self) -> Json:
        message: Json = plain(self._message)
        calls = objects(message.get("tool_calls"))
        for call in calls:
            call.pop("index", None)
        return message

    def truncated(self) -> bool:
        return word(self._finish) in _TRUNCATED


class _Calls:
    """Which call a piece belongs to, as a number of our own: its index, unless another call has it.

    Some servers send parallel calls whole, all of them under index 0 or under none. So an id that is new begins
    another call, if it comes with a name: there are servers as well that make up an id for each piece.
    """

    def __init__(self) -> None:
        #: Number -> the call's id, "" until there is one.
        self._ids: dict[int, str] = {}
        self._known: dict[tuple[int, str], int] = {}
        #: Index -> the number of the call that was told of last.
        self._newest: dict[int, int] = {}

    def of(self, call: Json) -> int:
        index = number(call.get("index")) or 0
        id = str(call.get("id") or "")
        found = self._known.get((index, id))
        if found is None:
            found = self._newest.get(index)
            if found is None or (id and self._ids[found] and _function(call).get("name")):
                if index not in self._ids:
                    found = index
                else:
                    found = max(self._ids) + 1
                self._ids[found] = ""
        self._newest[index] = found
        if id and not self._ids[found]:
            self._ids[found] = id
            self._known[index, id] = found
        return found


def _first(body: Json) -> Json | None:
    """The choice with index 0."""
    return next((choice for choice in objects(body.get("choices")) if not number(choice.get("index"))), None)


def _same(one: object, other: object) -> bool:
    return one is other


def _function(call: Json) -> Json:
    return object_of(call.get("function"))


def _call(call: Json) -> RecallCall:
    function = _function(call)
    given = object_in(str(function.get("arguments") or ""))
    return RecallCall(id=str(call.get("id")), name=str(function.get("name")), arguments=given or {})


def _as_request(message: Json) -> Json:
    """An answer's message as it is sent back: what is null or an empty list says nothing."""
    kept = {key: value for key, value in message.items() if value is not None and value != [] and key != "role"}
    return {"role": "assistant", "content": message.get("content")} | kept


def _silent(message: Json) -> bool:
    return not any(message.get(key) for key in _SAYING)


def _without(message: Json, calls: Sequence[RecallCall]) -> tuple[Json, ...]:
    """A message without calls that nobody answered; () if nothing is left."""
    ids = {call.id for call in calls}
    left = [call for call in objects(message.get("tool_calls")) if str(call.get("id")) not in ids]
    kept = {key: value for key, value in message.items() if key != "tool_calls"} | (
        {"tool_calls": left} if left else {}
    )
    if _silent(kept):
        return ()
    return (kept,)


def _together(messages: Iterable[Json]) -> Json:
    """Messages as one: texts and lists one behind the other."""
    merged: Json = {"role": "assistant", "content": None}
    for message in messages:
        for key, value in message.items():
            if key == "role":
                merged[key] = "assistant"
            else:
                merged[key] = _behind(merged.get(key), value)
    return merged


def _behind(old: Any, new: Any) -> Any:
    if old is None or new is None:
        if old is None:
            return new
        return old
    if isinstance(old, str) and isinstance(new, str):
        return old + new
    if isinstance(old, list) and isinstance(new, list):
        if indexed(old):
            count = 1 + max((number(entry["index"]) or 0 for entry in old), default=-1)
        else:
            count = 0
        return [*old, *([{**e, "index": (number(e["index"]) or 0) + count} for e in new] if indexed(new) else new)]
    return new
