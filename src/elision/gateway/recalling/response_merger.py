"""An answer that may call the recall tools, on its way to the client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from elision.gateway.recalling.anthropic import AnthropicFormat, AnthropicStream
from elision.gateway.recalling.openai_chat import ChatFormat, ChatStream
from elision.gateway.recalling.openai_responses import ResponsesFormat, ResponsesStream
from elision.gateway.recalling.response_writer import JsonResponse, ProviderFormat, ResponseWriter, RoundEnd
from elision.gateway.recalling.rounds import AnswerRound, Json, RecallCall, Replacement, RoundOutcome
from elision.gateway.recalling.streamed_response import StreamedResponse
from elision.gateway.routes import Api
from elision.manager.context_options import RECALL_TOOLS, SEARCH_TOOLS

#: The tools that are answered here.
RECALL_TOOL_NAMES: Final = RECALL_TOOLS | SEARCH_TOOLS

_APIS: Final[Mapping[Api, tuple[ProviderFormat, Callable[[frozenset[str]], StreamedResponse]]]] = {
    "anthropic": (AnthropicFormat(), AnthropicStream),
    "openai": (ChatFormat(), ChatStream),
    "openai-responses": (ResponsesFormat(), ResponsesStream),
}

#: The same of answers that the provider keeps no trace of, where that makes a difference.
_UNSTORED: Final[Mapping[Api, ProviderFormat]] = {"openai-responses": ResponsesFormat(stored=False)}


class ResponseMerger:
    """One client answer, over all the upstream answers ("rounds") it is made of.

        relay.begin_round(); relay.feed(chunk) ...; relay.end_round()

    and, while the outcome has calls and is not done, `add_results` and another round, or `finish_without_recall`.

    stream: whether the answer is a stream of events; else a JSON body. Either must come uncompressed, of a request
    that the provider took (status 200). As long as no recall tool is called, what goes out is what came in.

    stored: whether the provider keeps the answer (Responses: false where the request says `store: false`); else what is
    said on names nothing there by its id, and reasoning that is but an id is left out.
    """

    def __init__(
        self, api: Api, *, stream: bool, names: frozenset[str] = RECALL_TOOL_NAMES, stored: bool = True
    ) -> None:
        shape, streamed = _APIS[api]
        if stored:
            self._format = shape
        else:
            self._format = _UNSTORED.get(api, shape)
        self._writer: ResponseWriter = streamed(names) if stream else JsonResponse(self._format)
        self._tool_names = names
        self._rounds: list[AnswerRound] = []
        #: Whether the client was shown something else than an answer, which no history of it will hold.
        self._has_failed = False
        #: The ids of the upstream answers, in order; the client knows the first one only (a body of Responses: the last
        #: one only).
        self.response_ids: list[str] = []

    @property
    def has_ended(self) -> bool:
        """Whether the end of this round's answer has come: what follows says nothing new."""
        return self._writer.has_ended

    @property
    def held_bytes(self) -> int:
        """Bytes of this round that `end_round` has yet to read."""
        return self._writer.held_bytes

    def begin_round(self) -> None:
        """Another upstream answer begins."""
        self._writer.begin_round(self._rounds)

    def feed(self, chunk: bytes) -> bytes:
        """Takes a piece of it; what may go to the client now."""
        return self._writer.feed(chunk)

    def end_round(self) -> RoundOutcome:
        """It has ended, be it too early."""
        heard = self._writer.end_round()
        self._has_failed = heard.has_failed or heard.content is None
        if heard.content is None:
            return RoundOutcome(
                output=heard.output, is_done=heard.has_failed, is_cut=heard.is_cut, nothing_held=heard.nothing_held
            )
        return self._close_round(heard)

    def _close_round(self, heard: RoundEnd) -> RoundOutcome:
        said = self._format.split_content(heard.content, self._tool_names, heard.is_truncated)
        self._rounds.append(said)
        self.response_ids.append(heard.id)
        going_on = bool(said.recall_calls) and not said.has_client_calls
        out = heard.output + self._writer.release_held(self._rounds, going_on)
        shown = () if going_on or self._has_failed else self._format.render_visible(self._rounds)
        return RoundOutcome(
            output=out,
            recall_calls=said.recall_calls,
            has_client_calls=said.has_client_calls,
            messages=said.messages,
            visible=shown,
            is_done=not going_on,
        )

    def add_results(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        """What the last round's calls were answered with, as request messages; remembered for `find_replacements`."""
        self._rounds[-1] = replace(self._rounds[-1], results=tuple(pairs))
        return self._format.render_results(pairs)

    def finish_without_recall(self) -> RoundOutcome:
        """Ends an answer that would have to go on: as if the model had said all it wanted to say."""
        out = self._writer.write_ending(self._rounds)
        return RoundOutcome(
            output=out,
            messages=self._rounds[-1].messages,
            visible=self._format.render_visible(self._rounds),
            is_done=True,
        )

    def find_replacements(self) -> tuple[Replacement, ...]:
        """What stands upstream in place of what the client was shown: at most one (Responses: one per item).

        Calls that nobody answered stand nowhere. () where the client saw all there was, or nothing at all, or an
        answer that failed or was cut.
        """
        if self._has_failed:
            return ()
        return self._format.find_replacements(self._rounds)

    def keep_alive(self) -> bytes:
        """Bytes that say nothing, for a client that waits while nothing may go out; b"" where there are none."""
        return self._writer.keep_alive()


def render_results(api: Api, pairs: Sequence[tuple[RecallCall, str]]) -> list[dict[str, Any]]:
    """What calls were answered with, as request messages (Responses: items)."""
    return list(_APIS[api][0].render_results(pairs))
