"""Merge the upstream responses of all rounds into one response for the client.

The gateway answers calls of the recall tools, and the client gets one response of its own API:

    begin_round, feed ..., end_round -> recall calls? -> add_results, begin_round ... -> done

No I/O in here: bytes and values in, bytes and values out. The events of each API are in its `stream.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from elision.providers.provider import Api
from elision.providers.provider_table import PROVIDERS
from elision.providers.streaming.response_writer import JsonResponse, ResponseWriter
from elision.providers.streaming.rounds import AnswerRound, Json, RecallCall, Replacement, RoundOutcome
from elision.trajectory.recall_names import OWN_TOOLS


class ResponseMerger:
    """Merges several upstream responses ("rounds") into one response for the client.

        merger.begin_round(); merger.feed(chunk) ...; merger.end_round()

    and, while the outcome has calls and is not done, `add_results` and another round, or `finish_without_recall`.

    stream: whether the response is a stream of events; else a JSON body. Either must be uncompressed, with status 200.
    Without a recall call the client gets the upstream bytes.

    stored: whether the provider stores the response (Responses: false where the request says `store: false`). If not,
    requests refer to nothing there by its id, and reasoning that is only an id is left out.
    """

    def __init__(self, api: Api, *, stream: bool, names: frozenset[str] = OWN_TOOLS, stored: bool = True) -> None:
        provider = PROVIDERS[api]
        self._format = provider.response_format if stored else provider.unstored_format
        self._writer: ResponseWriter = provider.make_stream(names) if stream else JsonResponse(self._format)
        self._tool_names = names
        self._rounds: list[AnswerRound] = []
        #: Whether the client got an error instead, which will be in no history.
        self._has_failed = False
        #: The ids of the upstream responses, in order. The client knows only the first one (a body of Responses: only
        #: the last one).
        self.response_ids: list[str] = []

    @property
    def has_ended(self) -> bool:
        """Return whether the end of this round's response has arrived: what follows adds nothing."""
        return self._writer.has_ended

    @property
    def held_bytes(self) -> int:
        """Return how many bytes of this round `end_round` has yet to read."""
        return self._writer.held_bytes

    def begin_round(self) -> None:
        """Begin another upstream response."""
        self._writer.begin_round(self._rounds)

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk of it; return what the client may get now."""
        return self._writer.feed(chunk)

    def end_round(self) -> RoundOutcome:
        """End the upstream response, which may have ended early; return what is to be done."""
        end = self._writer.end_round()
        self._has_failed = end.has_failed or end.content is None
        if end.content is None:
            return RoundOutcome(
                output=end.output, is_done=end.has_failed, is_cut=end.is_cut, nothing_held=end.nothing_held
            )
        round_ = self._format.split_content(end.content, self._tool_names, end.is_truncated)
        self._rounds.append(round_)
        self.response_ids.append(end.id)
        another_follows = bool(round_.recall_calls) and not round_.has_client_calls
        output = end.output + self._writer.release_held(self._rounds, another_follows)
        visible: tuple[Json, ...] = ()
        if not another_follows and not self._has_failed:
            visible = self._format.render_visible(self._rounds)
        return RoundOutcome(
            output=output,
            recall_calls=round_.recall_calls,
            has_client_calls=round_.has_client_calls,
            messages=round_.messages,
            visible=visible,
            is_done=not another_follows,
        )

    def add_results(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        """Take the results of the last round's calls; return them as request messages."""
        self._rounds[-1] = replace(self._rounds[-1], results=tuple(pairs))
        return self._format.render_results(pairs)

    def finish_without_recall(self) -> RoundOutcome:
        """End a response that would need another round, as if the model had stopped by itself."""
        output = self._writer.write_ending(self._rounds)
        return RoundOutcome(
            output=output,
            messages=self._rounds[-1].messages,
            visible=self._format.render_visible(self._rounds),
            is_done=True,
        )

    def find_replacements(self) -> tuple[Replacement, ...]:
        """Find what replaces the client's messages in requests: at most one (Responses: one an item).

        Calls without a result are left out. () where the client saw everything or nothing, or a response that failed or
        was cut.
        """
        if self._has_failed:
            return ()
        return self._format.find_replacements(self._rounds)

    @property
    def keep_alive_bytes(self) -> bytes:
        """Return bytes without meaning, for a client that waits; b"" where there are none."""
        return self._writer.keep_alive_bytes
