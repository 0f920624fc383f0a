"""Responses that call a recall tool. Events and their accumulation as in the SDK, openai 3.54.

Where the provider stores responses, a client may continue by `previous_response_id`. Only the last round has the whole
history, so a body gets its id. A stream keeps the id of the first round, which the client has before anything is
recalled: the SDK's accumulator refuses an ending with another id ("Lifecycle response identity changed").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from elision.providers.live.client_messages import digest_pieces
from elision.providers.openai_responses.messages import LiveOpenAIResponses
from elision.providers.shared.json_reading import int_in, mapping_in, mappings_in, text_in
from elision.providers.streaming.rounds import (
    AnswerRound,
    Json,
    RecallCall,
    Replacement,
    RoundEnd,
    join_visible,
    parse_arguments,
)
from elision.providers.streaming.streamed_response import ProviderFormat, StreamedResponse

_LIVE = LiveOpenAIResponses()
_BEGINNINGS = frozenset(("response.created", "response.queued", "response.in_progress"))
_ENDINGS = frozenset(("response.completed", "response.incomplete", "response.failed"))
#: Statuses of a failed response: a client retries, and takes nothing of it into its history.
_FAILED = frozenset(("failed", "cancelled"))
#: Calls that the client answers, unless their result is in the output already.
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
#: Items that need no id of their own: results refer to a call by its `call_id`. A message needs one by the types of the
#: SDK.
_NAMELESS = frozenset(("function_call", "custom_tool_call"))


class ResponsesFormat(ProviderFormat):
    """The format of a whole Responses object.

    stored: whether the provider stores responses, and finds their items by id. If not, it refuses reasoning without its
    content. No client sends that back, so it is left out of requests and of histories.
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
            has_failed=text_in(status) in _FAILED,
        )

    def split_content(self, content: Any, names: frozenset[str], truncated: bool) -> AnswerRound:
        items = mappings_in(content)
        recalls = [item for item in items if _is_recall_call(item, names)]
        visible = tuple(item for item in items if not _is_recall_call(item, names))
        sent_back = visible if truncated else items
        return AnswerRound(
            messages=tuple(self._strip_unknown_id(item) for item in sent_back if self._is_accepted(item)),
            visible=visible,
            hides_calls=bool(recalls),
            recall_calls=() if truncated else tuple(map(_parse_call, recalls)),
            has_client_calls=_has_open_calls(visible),
        )

    def render_results(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        return tuple({"type": "function_call_output", "call_id": call.id, "output": text} for call, text in pairs)

    def render_visible(self, rounds: Sequence[AnswerRound]) -> tuple[Json, ...]:
        return tuple(filter(self._is_accepted, join_visible(rounds)))

    def find_replacements(self, rounds: Sequence[AnswerRound]) -> tuple[Replacement, ...]:
        """Find the items to insert: hidden items come before the next visible item that identifies a history.

        The reasoning between them goes with them. Hidden items after the last such item are its results.
        """
        found: list[Replacement] = []
        ahead: list[Json] = []
        hidden: list[Json] = []
        visible_items = self.render_visible(rounds)
        index = -1
        last_index = -1
        last_item: Json = {}
        for item, is_visible in self._trace_items(rounds):
            index += is_visible
            if not is_visible or not is_identifying(item):
                ahead.append(item)
                if not is_visible:
                    hidden.append(item)
                continue
            last_index = index
            last_item = item
            if hidden:
                found.append(Replacement(index=index, visible=visible_items[index], messages=(*ahead, item)))
            ahead = []
            hidden = []
        if hidden and last_index >= 0:
            messages: tuple[Json, ...] = (last_item,)
            if found and found[-1].index == last_index:
                messages = found.pop().messages
            found.append(
                Replacement(
                    index=last_index, visible=visible_items[last_index], messages=messages, results=tuple(hidden)
                )
            )
        return tuple(found)

    def _trace_items(self, rounds: Sequence[AnswerRound]) -> Iterator[tuple[Json, bool]]:
        """Yield every item of the rounds in order, and whether the client sees it; no calls without a result."""
        for round_ in rounds:
            recalls = {(call.name, call.id) for call in round_.recall_calls}
            for item in round_.messages:
                key = str(item.get("name")), str(item.get("call_id"))
                is_visible = item.get("type") != "function_call" or key not in recalls
                if is_visible or round_.results:
                    yield item, is_visible
            for result in self.render_results(round_.results):
                yield result, False

    def _is_accepted(self, item: Json) -> bool:
        """Return whether the provider takes the item back: of unstored reasoning it needs the content, not the id."""
        if self._stored or item.get("type") != "reasoning":
            return True
        return bool(item.get("encrypted_content") or item.get("content"))

    def _strip_unknown_id(self, item: Json) -> Json:
        """Return the item without an id that the provider does not know."""
        if self._stored or text_in(item.get("type")) not in _NAMELESS:
            return item
        return {key: value for key, value in item.items() if key != "id"}

    def merge_bodies(
        self, first: Json, last: Json, rounds: Sequence[AnswerRound], usage: Json | None, ended: bool
    ) -> Json:
        merged = {**last, "output": join_visible(rounds)}
        if usage is not None:
            merged["usage"] = usage
        return merged


class ResponsesStream(StreamedResponse):
    """A response as events."""

    identity_fields = _IDENTITY

    def __init__(self, names: frozenset[str]) -> None:
        #: The next sequence number at the client.
        self._sequence = 0
        super().__init__(names)

    def reset_round(self, rounds: Sequence[AnswerRound]) -> None:
        self._visible_items = join_visible(rounds)
        self._started_items: dict[int, Json] = {}
        self._finished_items: dict[int, Json] = {}
        self._final_response: Json = {}

    # -- reading ------------------------------------------------------------------------------------------------------

    def read_event(self, event: Json) -> None:
        kind = text_in(event.get("type"))
        index = int_in(event.get("output_index"))
        if kind == "response.output_item.added" and index is not None:
            self._record_item(index, mapping_in(event.get("item")), done=False)
        elif kind == "response.output_item.done" and index is not None:
            self._record_item(index, mapping_in(event.get("item")), done=True)
        elif kind in _BEGINNINGS or kind in _ENDINGS:
            self._record_lifecycle(mapping_in(event.get("response")), ending=kind in _ENDINGS, completed=kind)

    def _record_item(self, index: int, item: Json, *, done: bool) -> None:
        self._started_items[index] = item
        if done:
            self._finished_items[index] = item
        self.is_holding = any(self._may_be_recall(each) for each in self._started_items.values())

    def _may_be_recall(self, item: Json) -> bool:
        """Return whether it is a recall call, or may become one: its name has not arrived yet."""
        return _is_recall_call(item, self.names) or (item.get("type") == "function_call" and not item.get("name"))

    def _record_lifecycle(self, response: Json, *, ending: bool, completed: object) -> None:
        self.response_id = self.response_id or str(response.get("id") or "")
        self.record_identity(response)
        if ending:
            self.usage.update_round(response.get("usage"))
            self._final_response = {**response, "type": completed}
            self.has_ended = True

    # -- writing ------------------------------------------------------------------------------------------------------

    def rewrite_event(self, event: Json) -> Json | None:
        kind = text_in(event.get("type"))
        index = int_in(event.get("output_index"))
        if kind in _BEGINNINGS and self.is_later_round:
            return None
        changed = event
        if index is not None:
            is_hidden = _is_recall_call(self._started_items.get(index, {}), self.names)
            client_index = self.assign_index(index, index, is_hidden=is_hidden)
            if client_index is None:
                return None
            if client_index != index:
                changed = {**event, "output_index": client_index}
        elif kind in _ENDINGS and not self.is_unchanged:
            changed = {**event, "response": self._rewrite_response(mapping_in(event.get("response")))}
        return self._renumber_sequence(changed)

    def _renumber_sequence(self, event: Json) -> Json:
        upstream_number = int_in(event.get("sequence_number"))
        if upstream_number is None:
            return event
        number = upstream_number if self.is_unchanged else self._sequence
        self._sequence = number + 1
        if number == upstream_number:
            return event
        return {**event, "sequence_number": number}

    def _rewrite_response(self, response: Json) -> Json:
        changed = self.restore_identity(response)
        output = response.get("output")
        # Some servers end with an empty output, and expect that the client gathered the items.
        if isinstance(output, list) and (output or not self._finished_items):
            own = [item for item in output if not (isinstance(item, dict) and _is_recall_call(item, self.names))]
            changed["output"] = [*self._visible_items, *own]
        if self.usage.total() is not None:
            changed["usage"] = self.usage.total()
        return changed

    def split_event(self, event: Json) -> tuple[Json | None, Json | None]:
        if text_in(event.get("type")) in _ENDINGS:
            return None, event
        return event, None

    def mark_stopped(self, event: Json) -> Json:
        return event

    def collect_content(self) -> list[Json]:
        if not self._finished_items:
            return mappings_in(self._final_response.get("output"))
        return [self._finished_items[index] for index in sorted(self._finished_items)]

    def is_truncated(self) -> bool:
        return self._final_response.get("type") != "response.completed" or self.has_failed_ending()

    def has_failed_ending(self) -> bool:
        return (
            self._final_response.get("type") == "response.failed"
            or text_in(self._final_response.get("status")) in _FAILED
        )


def is_identifying(item: Json) -> bool:
    """Return whether the item identifies a history: some clients leave encrypted reasoning out."""
    return bool(digest_pieces(_LIVE.split_message(item, 0), is_behind_head=True))


def _is_recall_call(item: Json, names: frozenset[str]) -> bool:
    return item.get("type") == "function_call" and text_in(item.get("name")) in names


def _has_open_calls(items: Sequence[Json]) -> bool:
    """Return whether the client has a call to answer."""
    answered = {str(item.get("call_id")) for item in items if text_in(item.get("type")).endswith("_output")}
    for item in items:
        kind = text_in(item.get("type"))
        is_client = kind in _CLIENTS or (kind == "tool_search_call" and item.get("execution") == "client")
        if is_client and str(item.get("call_id", item.get("id"))) not in answered:
            return True
    return False


def _parse_call(item: Json) -> RecallCall:
    arguments = parse_arguments(str(item.get("arguments") or ""))
    return RecallCall(id=str(item.get("call_id")), name=str(item.get("name")), arguments=arguments or {})
