"""One client answer on its way out, over all the upstream answers it is made of: what a stream and a body share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from elision.gateway.recalling.json_values import dump_json, load_object
from elision.gateway.recalling.rounds import AnswerRound, Json, RecallCall, Replacement
from elision.gateway.recalling.usage_sum import add_usage, overlay_usage


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEnd:
    """One upstream answer, at its end.

    output:    bytes that can go out at once. id: the answer's own id.
    content:   what was said; None where there is no answer to go by, as `has_failed` (the provider's error went out) or
               `is_cut` explains. nothing_held: of what came before the cut, nothing was held back.
    is_truncated: whether the model was stopped in its midst, so that its last call may be half a call.
    has_failed: whether it is the provider's error, or ends in one: `content` is what was said before it, then.
    """

    output: bytes = b""
    id: str = ""
    content: Any = None
    is_truncated: bool = False
    has_failed: bool = False
    is_cut: bool = False
    nothing_held: bool = False


class ProviderFormat(Protocol):
    """What an API's answers look like when they are whole."""

    def read_body(self, body: Json) -> RoundEnd:
        """What an answer's body says; `has_failed` where it is no answer."""
        ...

    def split_content(self, content: Any, names: frozenset[str], truncated: bool) -> AnswerRound:
        """What was said, taken apart; `content` as `heard`, or a stream's end, gave it."""
        ...

    def render_results(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        """What calls were answered with, as request messages."""
        ...

    def render_visible(self, rounds: Sequence[AnswerRound]) -> tuple[Json, ...]:
        """What the client was shown, as it will send it back."""
        ...

    def find_replacements(self, rounds: Sequence[AnswerRound]) -> tuple[Replacement, ...]:
        """What stands upstream in place of it."""
        ...

    def merge_bodies(
        self, first: Json, last: Json, rounds: Sequence[AnswerRound], usage: Json | None, ended: bool
    ) -> Json:
        """The body of one answer made of all rounds. ended: the last one's calls are dropped, so it ends of itself."""
        ...


class ResponseWriter(Protocol):
    """An answer as the client gets it: a stream, or a body. has_ended: whether its end has come, if not all of it.

    held_bytes: bytes that `end_round` has yet to read.
    """

    has_ended: bool
    held_bytes: int

    def begin_round(self, rounds: Sequence[AnswerRound]) -> None:
        """Another upstream answer begins, behind these."""
        ...

    def feed(self, chunk: bytes) -> bytes:
        """Takes a piece of it; what may go out."""
        ...

    def end_round(self) -> RoundEnd:
        """It has ended."""
        ...

    def release_held(self, rounds: Sequence[AnswerRound], another_follows: bool) -> bytes:
        """What was held of the last of `rounds`: all but its ending if another one follows."""
        ...

    def write_ending(self, rounds: Sequence[AnswerRound]) -> bytes:
        """The ending after all, behind `release_held(..., going_on=True)`."""
        ...

    def keep_alive(self) -> bytes:
        """Bytes that say nothing, to be sent while the client waits."""
        ...


class UsageSum:
    """Usage, over the rounds."""

    def __init__(self) -> None:
        self.earlier: Json | None = None
        self.current: Json | None = None

    def begin_round(self) -> None:
        """Another round."""
        self.earlier = add_usage(self.earlier, self.current)
        self.current = None

    def update_round(self, usage: object) -> None:
        """What this round has used so far, in total."""
        if isinstance(usage, dict):
            self.current = overlay_usage(self.current, usage)

    def total(self) -> Json | None:
        """Of all rounds."""
        total: Json | None = add_usage(self.earlier, self.current)
        return total


class JsonResponse:
    """An answer that comes as one JSON body. The first round's very bytes, unless a recall tool is called in it."""

    def __init__(self, shape: ProviderFormat) -> None:
        self._format = shape
        #: A body has come when it is over, and nothing of it goes out before.
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
        body = load_object(raw)
        if body is None:
            heard = RoundEnd(has_failed=True)
        else:
            heard = self._format.read_body(body)
        if body is None or heard.content is None:
            return RoundEnd(output=raw, has_failed=True)
        self._first = self._first or body
        self._last = body
        self._usage.update_round(body.get("usage"))
        return replace(heard, id=str(body.get("id") or ""))

    def release_held(self, rounds: Sequence[AnswerRound], another_follows: bool) -> bytes:
        if another_follows:
            return b""
        as_it_came = len(rounds) == 1 and not rounds[0].hides_calls
        if as_it_came:
            return b"".join(self._chunks)
        return self._render_body(rounds, ended=False)

    def write_ending(self, rounds: Sequence[AnswerRound]) -> bytes:
        return self._render_body(rounds, ended=True)

    def keep_alive(self) -> bytes:
        return b""

    def _render_body(self, rounds: Sequence[AnswerRound], ended: bool) -> bytes:
        return dump_json(self._format.merge_bodies(self._first or {}, self._last, rounds, self._usage.total(), ended))
