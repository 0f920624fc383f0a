"""Responses that call a recall tool. Events and their accumulation as in the SDK, openai 3.54.

Where the provider stores responses, a client may go on by `previous_response_id`, and of all rounds the last one is
what has the whole history: a body bears its id. A stream keeps the id of the first round, which is out by the time that
anything is recalled: the SDK's accumulator takes no ending that bears another ("Lifecycle response identity changed").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from elision.dialects.live.detect import LIVE_DIALECTS
from elision.dialects.live.pieces import digest_pieces
from elision.gateway.recalling.json_text import number, object_in, object_of, objects, word
from elision.gateway.recalling.outcome import Json, RecallCall, Replacement, Round
from elision.gateway.recalling.streamed import Streamed
from elision.gateway.recalling.voice import Heard

_BEGINNINGS = frozenset(("response.created", "response.queued", "response.in_progress"))
_ENDINGS = frozenset(("response.completed", "response.incomplete", "response.failed"))
#: Statuses of an answer that is none: a client asks once more, and takes nothing of it into its history.
_FAILED = frozenset(("failed", "cancelled"))
#: Calls that the client answers, unless the output holds the answer already.
_CLIENTS = frozenset(
    (
        "function_call",
        "custom_tool_call",
        "computer_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "mcp_approval_request",
    )
)
#: Fields that a stream's ending has in common with its beginning.
_IDENTITY = ("id", "created_at", "model")
#: Items that need no id of their own: calls have one beside it that results refer to. A message must have one, by the
#: types of the SDK, and says all that it is.
_NAMELESS = frozenset(("function_call", "custom_tool_call"))


class ResponsesShape:
    """Responses, whole.

    stored: whether the provider keeps them, and finds their items by id. Where it does not, it refuses reasoning that
    came without its content; no client sends that back, so it is neither said on nor looked for in a history.
    """

    def __init__(self, *, stored: bool = True) -> None:
        self._stored = stored

    def heard(self, body: Json) -> Heard:
        if not isinstance(body.get("output"), list):
            return Heard(failed=True)
        status = body.get("status")
        return Heard(
            content=body["output"], truncated=status not in (None, "completed"), failed=word(status) in _FAILED
        )

    def round(self, content: Any, names: frozenset[str], truncated: bool) -> Round:
        items = objects(content)
        recall = [item for item in items if _is_recall(item, names)]
        kept = tuple(item for item in items if not _is_recall(item, names))
        return Round(
            said=tuple(map(self._sendable, filter(self._known, kept if truncated else items))),
            kept=kept,
            hides=bool(recall),
            calls=() if truncated else tuple(map(_call, recall)),
            others=_waits(kept),
        )

    def results(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        return tuple({"type": "function_call_output", "call_id": call.id, "output": text} for call, text in pairs)

    def shown(self, rounds: Sequence[Round]) -> tuple[Json, ...]:
        return tuple(item for each in rounds for item in filter(self._known, each.kept))

    def replacements(self, rounds: Sequence[Round]) -> tuple[Replacement, ...]:
        """Hidden items stand in front of the next item that was shown and says something, with the reasoning between
        them, by which no history is known; those behind the last one are its results."""
        found: list[Replacement] = []
        ahead: list[Json] = []
        hidden: list[Json] = []
        shown = self.shown(rounds)
        place = -1
        last = -1
        said: Json = {}
        for item, is_shown in self._trail(rounds):
            place += is_shown
            if not is_shown or not says(item):
                ahead.append(item)
                hidden += () if is_shown else (item,)
                continue
            last = place
            said = item
            if hidden:
                found.append(Replacement(place=place, shown=shown[place], messages=(*ahead, item)))
            ahead = []
            hidden = []
        if hidden and last >= 0:
            if found and found[-1].place == last:
                before = found.pop().messages
            else:
                before = (said,)
            found.append(Replacement(place=last, shown=shown[last], messages=before, results=tuple(hidden)))
        return tuple(found)

    def _trail(self, rounds: Sequence[Round]) -> Iterator[tuple[Json, bool]]:
        """Every item that is said on, in order, and whether it is one of `shown`; not the calls nobody answered."""
        for each in rounds:
            recalls = {(call.name, call.id) for call in each.calls}
            for item in each.said:
                named = str(item.get("name")), str(item.get("call_id"))
                is_shown = item.get("type") != "function_call" or named not in recalls
                if is_shown or each.results:
                    yield item, is_shown
            yield from ((result, False) for result in self.results(each.results))

    def _known(self, item: Json) -> bool:
        """Whether the provider takes it back: of reasoning that it neither kept nor gave away, an id says nothing."""
        if self._stored or item.get("type") != "reasoning":
            return True
        return bool(item.get("encrypted_content") or item.get("content"))

    def _sendable(self, item: Json) -> Json:
        """The item as it is said on: an id that the provider does not know is no name for it."""
        if self._stored or word(item.get("type")) not in _NAMELESS:
            return item
        return {key: value for key, value in item.items() if key != "id"}

    def merged(self, first: Json, last: Json, rounds: Sequence[Round], usage: Json | None, ended: bool) -> Json:
        changed = {} if usage is None else {"usage": usage}
        return {**last, "output": [item for each in rounds for item in each.kept], **changed}


class ResponsesStream(Streamed):
    """Responses, as events."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(names)
        self._identity: Json = {}
        #: The next output index, and the next sequence number, at the client.
        self._next = 0
        self._sequence = 0
        self.reset(())

    def reset(self, rounds: Sequence[Round]) -> None:
        self._shown = [item for each in rounds for item in each.kept]
        self._begun: dict[int, Json] = {}
        self._items: dict[int, Json] = {}
        self._places: dict[int, int | None] = {}
        self._end: Json = {}

    # -- as it comes --------------------------------------------------------------------------------------------------

    def note(self, event: Json) -> None:
        kind = word(event.get("type"))
        index = number(event.get("output_index"))
        if kind == "response.output_item.added" and index is not None:
            self._item(index, object_of(event.get("item")), done=False)
        elif kind == "response.output_item.done" and index is not None:
            self._item(index, object_of(event.get("item")), done=True)
        elif kind in _BEGINNINGS or kind in _ENDINGS:
            self._lifecycle(object_of(event.get("response")), ending=kind in _ENDINGS, completed=kind)

    def _item(self, index: int, item: Json, *, done: bool) -> None:
        self._begun[index] = item
        if done:
            self._items[index] = item
        self.holding = any(self._doubtful(each) for each in self._begun.values())

    def _doubtful(self, item: Json) -> bool:
        """Whether it is a call of ours, or may turn out to be one: its name is still to come."""
        return _is_recall(item, self.names) or (item.get("type") == "function_call" and not item.get("name"))

    def _lifecycle(self, response: Json, *, ending: bool, completed: object) -> None:
        self.id = self.id or str(response.get("id") or "")
        if not self.later:
            for key in _IDENTITY:
                if response.get(key) is not None:
                    self._identity.setdefault(key, response[key])
        if ending:
            self.meter.add(response.get("usage"))
            self._end = {**response, "type": completed}
            self.ended = True

    # -- as it goes out -----------------------------------------------------------------------------------------------

    def sent(self, event: Json) -> Json | None:
        kind = word(event.get("type"))
        index = number(event.get("output_index"))
        if kind in _BEGINNINGS and self.later:
            return None
        changed = event
        if index is not None:
            place = self._place(index)
            if place is None:
                return None
            if place == index:
                changed = event
            else:
                changed = {**event, "output_index": place}
        elif kind in _ENDINGS and not self.as_it_came:
            changed = {**event, "response": self._response(object_of(event.get("response")))}
        return self._counted(changed)

    def _place(self, index: int) -> int | None:
        if index not in self._places:
            self._places[index] = self._new_place(index)
        return self._places[index]

    def _new_place(self, index: int) -> int | None:
        if _is_recall(self._begun.get(index, {}), self.names):
            return None
        place = index if self.as_it_came else self._next
        self._next = max(self._next, place + 1)
        return place

    def _counted(self, event: Json) -> Json:
        given = number(event.get("sequence_number"))
        if given is None:
            return event
        sequence = given if self.as_it_came else self._sequence
        self._sequence = sequence + 1
        if sequence == given:
            return event
        return {**event, "sequence_number": sequence}

    def _response(self, response: Json) -> Json:
        changed = {**response, **{key: value for key, value in self._identity.items() if key in response}}
        output = response.get("output")
        # Some servers close with no output at all, and expect that the items were gathered as they came.
        if isinstance(output, list) and (output or not self._items):
            own = [item for item in output if not (isinstance(item, dict) and _is_recall(item, self.names))]
            changed["output"] = [*self._shown, *own]
        if self.meter.total() is not None:
            changed["usage"] = self.meter.total()
        return changed

    def parted(self, event: Json) -> tuple[Json | None, Json | None]:
        if word(event.get("type")) in _ENDINGS:
            return (None, event)
        return (event, None)

    def stopped(self, event: Json) -> Json:
        return event

    def content(self) -> list[Json]:
        return [self._items[index] for index in sorted(self._items)] or objects(self._end.get("output"))

    def truncated(self) -> bool:
        return self._end.get("type") != "response.completed" or self.failed_in_the_end()

    def failed_in_the_end(self) -> bool:
        return self._end.get("type") == "response.failed" or word(self._end.get("status")) in _FAILED


def says(item: Json) -> bool:
    """Whether a history is known by it: sealed reasoning is sent back by some clients and left out by others."""
    return bool(digest_pieces(LIVE_DIALECTS["openai-responses"].split_message(item, 0), is_behind_head=True))


def _is_recall(item: Json, names: frozenset[str]) -> bool:
    return item.get("type") == "function_call" and word(item.get("name")) in names


def _waits(items: Sequence[Json]) -> bool:
    """Whether the client has a call to answer."""
    answered = {str(item.get("call_id")) for item in items if word(item.get("type")).endswith("_output")}
    return any(_is_clients(item) and str(item.get("call_id", item.get("id"))) not in answered for item in items)


def _is_clients(item: Json) -> bool:
    kind = word(item.get("type"))
    return kind in _CLIENTS or (kind == "tool_search_call" and item.get("execution") == "client")


def _call(item: Json) -> RecallCall:
    given = object_in(str(item.get("arguments") or ""))
    return RecallCall(id=str(item.get("call_id")), name=str(item.get("name")), arguments=given or {})
