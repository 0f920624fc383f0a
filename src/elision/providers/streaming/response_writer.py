"""Write one response for the client out of the upstream responses of all rounds: as a JSON body, or as a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

from elision.providers.streaming.json_values import dump_json
from elision.providers.streaming.rounds import AnswerRound, Json, RecallCall, Replacement, RoundEnd
from elision.providers.streaming.streamed_response import StreamedResponse
from elision.providers.streaming.usage_sum import UsageSum
from elision.trajectory.foreign_json import parse_object


class ProviderFormat(ABC):
    """The format of one API's whole responses."""

    @abstractmethod
    def read_body(self, body: Json) -> RoundEnd:
        """Read a response's body; `has_failed` where it is no response."""

    @abstractmethod
    def split_content(self, content: Any, names: frozenset[str], truncated: bool) -> AnswerRound:
        """Separate recall calls from what the client sees; `content` is that of a `RoundEnd`."""

    @abstractmethod
    def render_results(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        """Render results of calls as request messages."""

    @abstractmethod
    def render_visible(self, rounds: Sequence[AnswerRound]) -> tuple[Json, ...]:
        """Render what the client was shown as the client will send it back."""

    @abstractmethod
    def find_replacements(self, rounds: Sequence[AnswerRound]) -> tuple[Replacement, ...]:
        """Find what replaces that in requests to the provider; () where the client saw all of it."""

    @abstractmethod
    def merge_bodies(
        self, first: Json, last: Json, rounds: Sequence[AnswerRound], usage: Json | None, ended: bool
    ) -> Json:
        """Merge all rounds into one body. ended: the last round's calls are dropped, so the response ends by itself."""


class MessageFormat(ProviderFormat):
    """A format in which the client is shown all rounds as one message."""

    def render_next(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        """Render results of calls as what joins the client's next message."""
        return self.render_results(pairs)

    @abstractmethod
    def drop_calls(self, message: Json, calls: Sequence[RecallCall]) -> tuple[Json, ...]:
        """Return the message without these calls, which got no result; () if nothing is left."""

    def find_replacements(self, rounds: Sequence[AnswerRound]) -> tuple[Replacement, ...]:
        """Return the messages and results of all rounds up to the last message."""
        if not any(round_.recall_calls for round_ in rounds):
            return ()
        messages: list[Json] = []
        pending: Sequence[tuple[RecallCall, str]] = ()
        for round_ in rounds:
            said = round_.messages
            if round_.recall_calls and not round_.results:
                said = tuple(kept for message in said for kept in self.drop_calls(message, round_.recall_calls))
            if not said:
                continue
            if messages:
                messages += self.render_results(pending)
            messages += said
            pending = round_.results
        visible = self.render_visible(rounds)
        results = self.render_next(pending)
        if not messages or (tuple(messages) == visible and not results):
            return ()
        return (Replacement(index=0, visible=visible[0], messages=tuple(messages), results=results),)


class JsonResponse:
    """A response as one JSON body: the first round's own bytes, unless a recall tool is called in it."""

    keep_alive_bytes: ClassVar[bytes] = b""

    def __init__(self, format_: ProviderFormat) -> None:
        self._format = format_
        #: A body is complete when it is over, and the client gets nothing of it before.
        self.has_ended = False
        self.held_bytes = 0
        self._chunks: list[bytes] = []
        self._first: Json | None = None
        self._last: Json = {}
        self._usage = UsageSum()

    def begin_round(self, rounds: Sequence[AnswerRound]) -> None:
        self._chunks.clear()
        self.held_bytes = 0
        self._usage.begin_round()

    def feed(self, chunk: bytes) -> bytes:
        self._chunks.append(chunk)
        self.held_bytes += len(chunk)
        return b""

    def end_round(self) -> RoundEnd:
        raw = b"".join(self._chunks)
        body = parse_object(raw)
        if body is None:
            return RoundEnd(output=raw, has_failed=True)
        end = self._format.read_body(body)
        if end.content is None:
            return RoundEnd(output=raw, has_failed=True)
        self._first = self._first or body
        self._last = body
        self._usage.update_round(body.get("usage") if end.usage is None else end.usage)
        return replace(end, id=end.id or str(body.get("id") or ""))

    def release_held(self, rounds: Sequence[AnswerRound], another_follows: bool) -> bytes:
        if another_follows:
            return b""
        if len(rounds) == 1 and not rounds[0].hides_calls:
            return b"".join(self._chunks)
        return self._render_body(rounds, ended=False)

    def write_ending(self, rounds: Sequence[AnswerRound]) -> bytes:
        return self._render_body(rounds, ended=True)

    def _render_body(self, rounds: Sequence[AnswerRound], ended: bool) -> bytes:
        return dump_json(self._format.merge_bodies(self._first or {}, self._last, rounds, self._usage.total(), ended))


#: What writes the client's response; `StreamedResponse` says what its methods do.
ResponseWriter: TypeAlias = JsonResponse | StreamedResponse
