"""One client answer on its way out, over all the upstream answers it is made of: what a stream and a body share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from elision.gateway.recalling.counters import overlaid, summed
from elision.gateway.recalling.json_text import decoded, encoded
from elision.gateway.recalling.outcome import Json, RecallCall, Replacement, Round


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One upstream answer, at its end.

    out:       bytes that can go out at once. id: the answer's own id.
    content:   what was said; None where there is no answer to go by, as `failed` (the provider's error went out) or
               `cut` explains. passed: of what came before the cut, nothing was held back.
    truncated: whether the model was stopped in its midst, so that its last call may be half a call.
    failed:    whether it is the provider's error, or ends in one: `content` is what was said before it, then.
    """

    out: bytes = b""
    id: str = ""
    content: Any = None
    truncated: bool = False
    failed: bool = False
    cut: bool = False
    passed: bool = False


class Shape(Protocol):
    """What an API's answers look like when they are whole."""

    def heard(self, body: Json) -> Heard:
        """What an answer's body says; `failed` where it is no answer."""
        ...

    def round(self, content: Any, names: frozenset[str], truncated: bool) -> Round:
        """What was said, taken apart; `content` as `heard`, or a stream's end, gave it."""
        ...

    def results(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        """What calls were answered with, as request messages."""
        ...

    def shown(self, rounds: Sequence[Round]) -> tuple[Json, ...]:
        """What the client was shown, as it will send it back."""
        ...

    def replacements(self, rounds: Sequence[Round]) -> tuple[Replacement, ...]:
        """What stands upstream in place of it."""
        ...

    def merged(self, first: Json, last: Json, rounds: Sequence[Round], usage: Json | None, ended: bool) -> Json:
        """The body of one answer made of all rounds. ended: the last one's calls are dropped, so it ends of itself."""
        ...


class Voice(Protocol):
    """An answer as the client gets it: a stream, or a body. ended: whether its end has come, if not all of it.

    held: bytes that `end` has yet to read.
    """

    ended: bool
    held: int

    def begin(self, rounds: Sequence[Round]) -> None:
        """Another upstream answer begins, behind these."""
        ...

    def feed(self, chunk: bytes) -> bytes:
        """Takes a piece of it; what may go out."""
        ...

    def end(self) -> Heard:
        """It has ended."""
        ...

    def close(self, rounds: Sequence[Round], going_on: bool) -> bytes:
        """What was held of the last of `rounds`: all but its ending if another one follows."""
        ...

    def finish(self, rounds: Sequence[Round]) -> bytes:
        """The ending after all, behind `close(..., going_on=True)`."""
        ...

    def keep_alive(self) -> bytes:
        """Bytes that say nothing, to be sent while the client waits."""
        ...


class Meter:
    """Usage, over the rounds."""

    def __init__(self) -> None:
        self.before: Json | None = None
        self.now: Json | None = None

    def begin(self) -> None:
        """Another round."""
        self.before = summed(self.before, self.now)
        self.now = None

    def add(self, usage: object) -> None:
        """What this round has used so far, in total."""
        if isinstance(usage, dict):
            self.now = overlaid(self.now, usage)

    def total(self) -> Json | None:
        """Of all rounds."""
        total: Json | None = summed(self.before, self.now)
        return total


class Whole:
    """An answer that comes as one JSON body. The first round's very bytes, unless a recall tool is called in it."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        #: A body has come when it is over, and nothing of it goes out before.
        self.ended = False
        self.held = 0
        self._chunks: list[bytes] = []
        self._first: Json | None = None
        self._last: Json = {}
        self._meter = Meter()

    def begin(self, rounds: Sequence[Round]) -> None:
        self._chunks.clear()
        self.held = 0
        self._meter.begin()

    def feed(self, chunk: bytes) -> bytes:
        self._chunks.append(chunk)
        self.held += len(chunk)
        return b""

    def end(self) -> Heard:
        raw = b"".join(self._chunks)
        body = decoded(raw)
        if body is None:
            heard = Heard(failed=True)
        else:
            heard = self._shape.heard(body)
        if body is None or heard.content is None:
            return Heard(out=raw, failed=True)
        self._first = self._first or body
        self._last = body
        self._meter.add(body.get("usage"))
        return replace(heard, id=str(body.get("id") or ""))

    def close(self, rounds: Sequence[Round], going_on: bool) -> bytes:
        if going_on:
            return b""
        as_it_came = len(rounds) == 1 and not rounds[0].hides
        if as_it_came:
            return b"".join(self._chunks)
        return self._body(rounds, ended=False)

    def finish(self, rounds: Sequence[Round]) -> bytes:
        return self._body(rounds, ended=True)

    def keep_alive(self) -> bytes:
        return b""

    def _body(self, rounds: Sequence[Round], ended: bool) -> bytes:
        return encoded(self._shape.merged(self._first or {}, self._last, rounds, self._meter.total(), ended))
