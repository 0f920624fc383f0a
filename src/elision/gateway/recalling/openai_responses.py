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
from elision.gateway.recalling.json_values import as_int, as_object, as_objects, as_text, parse_arguments
from elision.gateway.recalling.response_writer import RoundEnd
from elision.gateway.recalling.rounds import AnswerRound, Json, RecallCall, Replacement
from elision.gateway.recalling.streamed_response import StreamedResponse

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


class ResponsesFormat:
    """Responses, whole.

    stored: whether the provider keeps them, and finds their items by id. Where it does not, it refuses reasoning that
    came without its content; no client sends that back, so it is neither said on nor looked for in a history.
    """

    def __init__(self, *, stored: bool = True) -> None:
        self._stored = stored

    def read_body(self, body: Json) -> RoundEnd:
        if not isinstance(body.get("output"), list):
            return RoundEnd(has_failed=True)
        status = body.get("status")
        return RoundEnd(
            content=body["output"],
            is_truncated=status not in (None, "completed"),
            has_failed=as_text(status) in _FAILED,
        )

    def split_content(self, content: Any, names: frozenset[str], truncated: bool) -> AnswerRound:
        items = as_objects(content)
        recall = [item for item in items if _is_recall_call(item, names)]
        kept = tuple(item for item in items if not _is_recall_call(item, names))
        return AnswerRound(
            messages=tuple(map(self._strip_unknown_id, filter(self._is_accepted, kept if truncated else items))),
            visible=kept,
            hides_calls=bool(recall),
            recall_calls=() if truncated else tuple(map(_parse_call, recall)),
            has_client_calls=_has_open_calls(kept),
        )

    def render_results(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        return tuple({"type": "function_call_output", "call_id": call.id, "output": text} for call, text in pairs)

    def render_visible(self, rounds: Sequence[AnswerRound]) -> tuple[Json, ...]:
        return tuple(item for each in rounds for item in filter(self._is_accepted, each.visible))

    def find_replacements(self, rounds: Sequence[AnswerRound]) -> tuple[Replacement, ...]:
        """Hidden items stand in front of the next item that was shown and says something, with the reasoning between
        them, by which no history is known; those behind the last one are its results."""
        found: list[Replacement] = []
        ahead: list[Json] = []
        hidden: list[Json] = []
        shown = self.render_visible(rounds)
        place = -1
        last = -1
        said: Json = {}
        for item, is_shown in self._trace_items(rounds):
            place += is_shown
            if not is_shown or not is_identifying(item):
                ahead.append(item)
                hidden += () if is_shown else (item,)
                continue
            last = place
            said = item
            if hidden:
                found.append(Replacement(index=place, visible=shown[place], messages=(*ahead, item)))
            ahead = []
            hidden = []
        if hidden and last >= 0:
            if found and found[-1].index == last:
                before = found.pop().messages
            else:
                before = (said,)
            found.append(Replacement(index=last, visible=shown[last], messages=before, results=tuple(hidden)))
        return tuple(found)

    def _trace_items(self, rounds: Sequence[AnswerRound]) -> Iterator[tuple[Json, bool]]:
        """Every item that is said on, in order, and whether it is one of `shown`; not the calls nobody answered."""
        for each in rounds:
            recalls = {(call.name, call.id) for call in each.recall_calls}
            for item in each.messages:
                named = str(item.get("name")), str(item.get("call_id"))
                is_shown = item.get("type") != "function_call" or named not in recalls
                if is_shown or each.results:
                    yield item, is_shown
            yield from ((result, False) for result in self.render_results(each.results))

    def _is_accepted(self, item: Json) -> bool:
        """Whether the provider takes it back: of reasoning that it neither kept nor gave away, an id says nothing."""
        if self._stored or item.get("type") != "reasoning":
            return True
        return bool(item.get("encrypted_content") or item.get("content"))

    def _strip_unknown_id(self, item: Json) -> Json:
        """The item as it is said on: an id that the provider does not know is no name for it."""
        if self._stored or as_text(item.get("type")) not in _NAMELESS:
            return item
        return {key: value for key, value in item.items() if key != "id"}

    def merge_bodies(
        self, first: Json, last: Json, rounds: Sequence[AnswerRound], usage: Json | None, ended: bool
    ) -> Json:
        changed = {} if usage is None else {"usage": usage}
        return {**last, "output": [item for each in rounds for item in each.visible], **changed}


class ResponsesStream(StreamedResponse):
    """Responses, as events."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(names)
        self._identity: Json = {}
        #: The next output index, and the next sequence number, at the client.
        self._next_index = 0
        self._sequence = 0
        self.reset_round(())

    def reset_round(self, rounds: Sequence[AnswerRound]) -> None:
        self._visible_items = [item for each in rounds for item in each.visible]
        self._started_items: dict[int, Json] = {}
        self._finished_items: dict[int, Json] = {}
        self._client_indexes: dict[int, int | None] = {}
        self._final_response: Json = {}

    # -- as it comes --------------------------------------------------------------------------------------------------

    def read_event(self, event: Json) -> None:
        kind = as_text(event.get("type"))
        index = as_int(event.get("output_index"))
        if kind == "response.output_item.added" and index is not None:
            self._record_item(index, as_object(event.get("item")), done=False)
        elif kind == "response.output_item.done" and index is not None:
            self._record_item(index, as_object(event.get("item")), done=True)
        elif kind in _BEGINNINGS or kind in _ENDINGS:
            self._record_lifecycle(as_object(event.get("response")), ending=kind in _ENDINGS, completed=kind)

    def _record_item(self, index: int, item: Json, *, done: bool) -> None:
        self._started_items[index] = item
        if done:
            self._finished_items[index] = item
        self.is_holding = any(self._may_be_recall(each) for each in self._started_items.values())

    def _may_be_recall(self, item: Json) -> bool:
        """Whether it is a call of ours, or may turn out to be one: its name is still to come."""
        return _is_recall_call(item, self.names) or (item.get("type") == "function_call" and not item.get("name"))

    def _record_lifecycle(self, response: Json, *, ending: bool, completed: object) -> None:
        self.response_id = self.response_id or str(response.get("id") or "")
        if not self.is_later_round:
            for key in _IDENTITY:
                if response.get(key) is not None:
                    self._identity.setdefault(key, response[key])
        if ending:
            self.usage.update_round(response.get("usage"))
            self._final_response = {**response, "type": completed}
            self.has_ended = True

    # -- as it goes out -----------------------------------------------------------------------------------------------

    def rewrite_event(self, event: Json) -> Json | None:
        kind = as_text(event.get("type"))
        index = as_int(event.get("output_index"))
        if kind in _BEGINNINGS and self.is_later_round:
            return None
        changed = event
        if index is not None:
            place = self._client_index(index)
            if place is None:
                return None
            if place == index:
                changed = event
            else:
                changed = {**event, "output_index": place}
        elif kind in _ENDINGS and not self.is_unchanged:
            changed = {**event, "response": self._rewrite_response(as_object(event.get("response")))}
        return self._renumber_sequence(changed)

    def _client_index(self, index: int) -> int | None:
        if index not in self._client_indexes:
            self._client_indexes[index] = self._assign_index(index)
        return self._client_indexes[index]

    def _assign_index(self, index: int) -> int | None:
        if _is_recall_call(self._started_items.get(index, {}), self.names):
            return None
        place = index if self.is_unchanged else self._next_index
        self._next_index = max(self._next_index, place + 1)
        return place

    def _renumber_sequence(self, event: Json) -> Json:
        given = as_int(event.get("sequence_number"))
        if given is None:
            return event
        sequence = given if self.is_unchanged else self._sequence
        self._sequence = sequence + 1
        if sequence == given:
            return event
        return {**event, "sequence_number": sequence}

    def _rewrite_response(self, response: Json) -> Json:
        changed = {**response, **{key: value for key, value in self._identity.items() if key in response}}
        output = response.get("output")
        # Some servers close with no output at all, and expect that the items were gathered as they came.
        if isinstance(output, list) and (output or not self._finished_items):
            own = [item for item in output if not (isinstance(item, dict) and _is_recall_call(item, self.names))]
            changed["output"] = [*self._visible_items, *own]
        if self.usage.total() is not None:
            changed["usage"] = self.usage.total()
        return changed

    def split_event(self, event: Json) -> tuple[Json | None, Json | None]:
        if as_text(event.get("type")) in _ENDINGS:
            return (None, event)
        return (event, None)

    def mark_stopped(self, event: Json) -> Json:
        return event

    def collect_content(self) -> list[Json]:
        return [self._finished_items[index] for index in sorted(self._finished_items)] or as_objects(
            self._final_response.get("output")
        )

    def is_truncated(self) -> bool:
        return self._final_response.get("type") != "response.completed" or self.has_failed_ending()

    def has_failed_ending(self) -> bool:
        return (
            self._final_response.get("type") == "response.failed"
            or as_text(self._final_response.get("status")) in _FAILED
        )


def is_identifying(item: Json) -> bool:
    """Whether a history is known by it: sealed reasoning is sent back by some clients and left out by others."""
    return bool(digest_pieces(LIVE_DIALECTS["openai-responses"].split_message(item, 0), is_behind_head=True))


def _is_recall_call(item: Json, names: frozenset[str]) -> bool:
    return item.get("type") == "function_call" and as_text(item.get("name")) in names


def _has_open_calls(items: Sequence[Json]) -> bool:
    """Whether the client has a call to answer."""
    answered = {str(item.get("call_id")) for item in items if as_text(item.get("type")).endswith("_output")}
    return any(_is_client_call(item) and str(item.get("call_id", item.get("id"))) not in answered for item in items)


def _is_client_call(item: Json) -> bool:
    kind = as_text(item.get("type"))
    return kind in _CLIENTS or (kind == "tool_search_call" and item.get("execution") == "client")


def _parse_call(item: Json) -> RecallCall:
    given = parse_arguments(str(item.get("arguments") or ""))
    return RecallCall(id=str(item.get("call_id")), name=str(item.get("name")), arguments=given or {})
