"""An answer that may call the recall tools, on its way to the client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from elision.gateway.recalling.anthropic import AnthropicShape, AnthropicStream
from elision.gateway.recalling.openai_chat import ChatShape, ChatStream
from elision.gateway.recalling.openai_responses import ResponsesShape, ResponsesStream
from elision.gateway.recalling.outcome import Json, Outcome, RecallCall, Replacement, Round
from elision.gateway.recalling.streamed import Streamed
from elision.gateway.recalling.voice import Heard, Shape, Voice, Whole
from elision.gateway.routes import Api
from elision.manager.context_options import RECALL_TOOLS, SEARCH_TOOLS

#: The tools that are answered here.
NAMES: Final = RECALL_TOOLS | SEARCH_TOOLS

_APIS: Final[Mapping[Api, tuple[Shape, Callable[[frozenset[str]], Streamed]]]] = {
    "anthropic": (AnthropicShape(), AnthropicStream),
    "openai": (ChatShape(), ChatStream),
    "openai-responses": (ResponsesShape(), ResponsesStream),
}

#: The same of answers that the provider keeps no trace of, where that makes a difference.
_UNSTORED: Final[Mapping[Api, Shape]] = {"openai-responses": ResponsesShape(stored=False)}


class Relay:
    """One client answer, over all the upstream answers ("rounds") it is made of.

        relay.begin_round(); relay.feed(chunk) ...; relay.end_round()

    and, for as long as the outcome has calls and is not done, `answered` and another round, or `finish_without_recall`.

    stream: whether the answer is a stream of events; else a JSON body. Either must come uncompressed, of a request
    that the provider took (status 200). As long as no recall tool is called, what goes out is what came in.

    stored: whether the provider keeps the answer (Responses: false where the request says `store: false`); else what is
    said on names nothing there by its id, and reasoning that is but an id is left out.
    """

    def __init__(self, api: Api, *, stream: bool, names: frozenset[str] = NAMES, stored: bool = True) -> None:
        shape, streamed = _APIS[api]
        if stored:
            self._shape = shape
        else:
            self._shape = _UNSTORED.get(api, shape)
        self._voice: Voice = streamed(names) if stream else Whole(self._shape)
        self._names = names
        self._rounds: list[Round] = []
        #: Whether the client was shown something else than an answer, which no history of it will hold.
        self._failed = False
        #: The ids of the upstream answers, in order; the client knows the first one only (a body of Responses: the last
        #: one only).
        self.ids: list[str] = []

    @property
    def ended(self) -> bool:
        """Whether the end of this round's answer has come: what follows says nothing new."""
        return self._voice.ended

    @property
    def held(self) -> int:
        """Bytes of this round that `end_round` has yet to read."""
        return self._voice.held

    def begin_round(self) -> None:
        """Another upstream answer begins."""
        self._voice.begin(self._rounds)

    def feed(self, chunk: bytes) -> bytes:
        """Takes a piece of it; what may go to the client now."""
        return self._voice.feed(chunk)

    def end_round(self) -> Outcome:
        """It has ended, be it too early."""
        heard = self._voice.end()
        self._failed = heard.failed or heard.content is None
        if heard.content is None:
            return Outcome(out=heard.out, done=heard.failed, cut=heard.cut, passed=heard.passed)
        return self._judged(heard)

    def _judged(self, heard: Heard) -> Outcome:
        said = self._shape.round(heard.content, self._names, heard.truncated)
        self._rounds.append(said)
        self.ids.append(heard.id)
        going_on = bool(said.calls) and not said.others
        out = heard.out + self._voice.close(self._rounds, going_on)
        shown = () if going_on or self._failed else self._shape.shown(self._rounds)
        return Outcome(out=out, calls=said.calls, others=said.others, said=said.said, shown=shown, done=not going_on)

    def answered(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        """What the last round's calls were answered with, as request messages; remembered for `replacements`."""
        self._rounds[-1] = replace(self._rounds[-1], results=tuple(pairs))
        return self._shape.results(pairs)

    def finish_without_recall(self) -> Outcome:
        """Ends an answer that would have to go on: as if the model had said all it wanted to say."""
        out = self._voice.finish(self._rounds)
        return Outcome(out=out, said=self._rounds[-1].said, shown=self._shape.shown(self._rounds), done=True)

    def replacements(self) -> tuple[Replacement, ...]:
        """What stands upstream in place of what the client was shown: at most one (Responses: one per item).

        Calls that nobody answered stand nowhere. () where the client saw all there was, or nothing at all, or an
        answer that failed or was cut.
        """
        if self._failed:
            return ()
        return self._shape.replacements(self._rounds)

    def keep_alive(self) -> bytes:
        """Bytes that say nothing, for a client that waits while nothing may go out; b"" where there are none."""
        return self._voice.keep_alive()


def results(api: Api, pairs: Sequence[tuple[RecallCall, str]]) -> list[dict[str, Any]]:
    """What calls were answered with, as request messages (Responses: items)."""
    return list(_APIS[api][0].results(pairs))
