"""Responses of generateContent that call a recall tool, as one body and as chunks.

A chunk is a whole response with some of the parts; a function call comes whole, in one part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elision.providers.shared.json_reading import Json as AnyJson
from elision.providers.shared.json_reading import mapping_in, mappings_in, text_in
from elision.providers.streaming.rounds import AnswerRound, Json, RecallCall, RoundEnd, join_visible
from elision.providers.streaming.streamed_response import (
    ChoiceStream,
    MessageFormat,
    find_first_choice,
    list_other_choices,
)

#: Fields of every chunk that identify the response.
_IDENTITY = ("responseId", "modelVersion", "createTime")
_USAGE = "usageMetadata"


class GeminiFormat(MessageFormat):
    """The format of a whole response."""

    def read_body(self, body: Json) -> RoundEnd:
        candidate = find_first_choice(body, "candidates")
        if candidate is None or not isinstance(candidate.get("content"), dict):
            return RoundEnd(has_failed=True)
        return RoundEnd(
            id=text_in(body.get("responseId")),
            usage=body.get(_USAGE),
            content=candidate["content"],
            is_truncated=_is_truncated(candidate.get("finishReason")),
        )

    def split_content(self, content: Any, names: frozenset[str], truncated: bool) -> AnswerRound:
        parts = mappings_in(mapping_in(content).get("parts"))
        recalls = [_get_call(part) for part in parts if text_in(_get_call(part).get("name")) in names]
        visible = _make_content([part for part in parts if text_in(_get_call(part).get("name")) not in names])
        sent_back = visible if truncated else _make_content(parts)
        return AnswerRound(
            messages=(sent_back,) if sent_back["parts"] else (),
            visible=(visible,),
            hides_calls=bool(recalls),
            recall_calls=() if truncated else tuple(map(_parse_call, recalls)),
            has_client_calls=any(map(_get_call, visible["parts"])),
        )

    def render_results(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        return ({"role": "user", "parts": [*self.render_next(pairs)]},) if pairs else ()

    def render_next(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        # A response has an id where the call has one.
        return tuple(
            {
                "functionResponse": {
                    **({"id": call.id} if call.id else {}),
                    "name": call.name,
                    "response": {"output": text},
                }
            }
            for call, text in pairs
        )

    def render_visible(self, rounds: Sequence[AnswerRound]) -> tuple[Json, ...]:
        return (_make_content([part for message in join_visible(rounds) for part in message["parts"]]),)

    def drop_calls(self, message: Json, calls: Sequence[RecallCall]) -> tuple[Json, ...]:
        dropped = {(call.id, call.name) for call in calls}
        kept = []
        for part in mappings_in(message.get("parts")):
            call = _get_call(part)
            if not call or (text_in(call.get("id")), text_in(call.get("name"))) not in dropped:
                kept.append(part)
        return (_make_content(kept),) if kept else ()

    def merge_bodies(
        self, first: Json, last: Json, rounds: Sequence[AnswerRound], usage: Json | None, ended: bool
    ) -> Json:
        candidate = dict(find_first_choice(last, "candidates") or find_first_choice(first, "candidates") or {})
        candidate["content"] = self.render_visible(rounds)[0]
        if ended:
            candidate["finishReason"] = "STOP"
        merged = {**last, "candidates": [candidate, *list_other_choices(first, "candidates")]}
        merged |= {name: first[name] for name in _IDENTITY if name in first}
        if usage is not None:
            merged[_USAGE] = usage
        return merged


class GeminiStream(ChoiceStream):
    """A response as chunks."""

    #: Google's clients read a comment as an event, and fail.
    keep_alive_bytes = b""
    choices_field = "candidates"
    finish_field = "finishReason"
    stopped = "STOP"
    identity_fields = _IDENTITY

    def reset_round(self, rounds: Sequence[AnswerRound]) -> None:
        self._parts: list[Json] = []
        self._finish_reason: object = None

    # -- reading ------------------------------------------------------------------------------------------------------

    def read_event(self, event: Json) -> None:
        self.usage.update_round(event.get(_USAGE))
        self.response_id = self.response_id or text_in(event.get("responseId"))
        self.record_identity(event)
        candidate = find_first_choice(event, "candidates")
        if candidate is None:
            # A prompt that was blocked has no candidates: nothing follows.
            self.has_ended = self.has_ended or "promptFeedback" in event
            return
        parts = _list_parts(candidate)
        self._parts += parts
        self.is_holding = self.is_holding or any(map(self._is_recall, parts))
        self._finish_reason = candidate.get("finishReason") or self._finish_reason
        self.has_ended = self.has_ended or self._finish_reason is not None

    def _is_recall(self, part: Json) -> bool:
        return text_in(_get_call(part).get("name")) in self.names

    # -- writing ------------------------------------------------------------------------------------------------------

    def rewrite_event(self, event: Json) -> Json | None:
        changed = self.restore_identity(event) if self.is_later_round else dict(event)
        if self.usage.earlier is not None and event.get(_USAGE) is not None:
            changed[_USAGE] = self.usage.total()
        if "candidates" in event:
            candidates = self._rewrite_candidates(event)
            if candidates is None:
                return None
            changed["candidates"] = candidates
        return event if changed == event else changed

    def _rewrite_candidates(self, event: Json) -> Any:
        """Return the candidates of an event as the client gets them; None where nothing is left of them."""
        candidate = find_first_choice(event, "candidates")
        if candidate is None:
            return None if self.is_later_round else event["candidates"]
        others = [each for each in mappings_in(event["candidates"]) if each is not candidate]
        if self.is_later_round:
            others = []
        parts = [part for part in _list_parts(candidate) if not self._is_recall(part)]
        if not parts and not others and _list_parts(candidate) and candidate.get("finishReason") is None:
            return None
        return [_with_parts(candidate, parts), *others]

    def split_event(self, event: Json) -> tuple[Json | None, Json | None]:
        candidate = find_first_choice(event, "candidates")
        if candidate is None:
            return event, None
        if candidate.get("finishReason") is None:
            return event, None
        others = [each for each in mappings_in(event.get("candidates")) if each is not candidate]
        if not others and not _list_parts(candidate):
            return None, event
        begun = {name: value for name, value in candidate.items() if name != "finishReason"}
        content = {name: value for name, value in event.items() if name != _USAGE}
        return {**content, "candidates": [begun, *others]}, {**event, "candidates": [_with_parts(candidate, [])]}

    def collect_content(self) -> Json:
        return _make_content(_join_texts(self._parts))

    def is_truncated(self) -> bool:
        return _is_truncated(self._finish_reason)


def _is_truncated(reason: object) -> bool:
    """Return whether a response ended otherwise than by the model's own decision."""
    return text_in(reason) not in ("", "STOP", "FINISH_REASON_UNSPECIFIED")


def _list_parts(candidate: AnyJson) -> list[Any]:
    return [dict(part) for part in mappings_in(mapping_in(candidate.get("content")).get("parts"))]


def _with_parts(candidate: Json, parts: Sequence[AnyJson]) -> Json:
    """Return the candidate with these parts; it is unchanged where it has them."""
    if _list_parts(candidate) == [*parts]:
        return candidate
    return {**candidate, "content": {**mapping_in(candidate.get("content")), "parts": [*parts]}}


def _make_content(parts: Sequence[AnyJson]) -> Json:
    return {"role": "model", "parts": [*parts]}


def _get_call(part: AnyJson) -> AnyJson:
    return mapping_in(part.get("functionCall"))


def _parse_call(call: AnyJson) -> RecallCall:
    return RecallCall(
        id=text_in(call.get("id")), name=text_in(call.get("name")), arguments=mapping_in(call.get("args"))
    )


def _join_texts(parts: Sequence[Json]) -> list[Json]:
    """Return the parts with texts that follow each other as one, as a body has them. A signed part stays as it is."""
    joined: list[Json] = []
    for part in parts:
        is_text = part.keys() <= {"text", "thought"} and isinstance(part.get("text"), str)
        last = joined[-1] if joined else {}
        if is_text and last.keys() == part.keys() and last.get("thought") == part.get("thought"):
            joined[-1] = {**last, "text": last["text"] + part["text"]}
        else:
            joined.append(part)
    return joined
