"""One response for the client out of the upstream responses of all rounds: as a JSON body, or as a stream of events.

An event passes with its own bytes as it arrives, and is held from the first recall call on. It is written anew only
after one that was left out, or in a later round. Of several answers (chat "choices", Gemini's "candidates") the one
with index 0 is read; the others pass unchanged in the first round, and are dropped in later ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

from elision.providers.shared.json_reading import int_in, mappings_in
from elision.providers.streaming.rounds import AnswerRound, Json, RecallCall, Replacement, RoundEnd, UsageSum, dump_json
from elision.providers.streaming.sse import FrameSplitter, SseFrame
from elision.trajectory.foreign_text import parse_object

#: A frame and its JSON object; None where it has none.
HeldFrame = tuple[SseFrame, "Json | None"]


class StreamedResponse(ABC):
    """One streamed response, over all its rounds; a subclass knows the events of an API."""

    #: Bytes without meaning, which may be sent between any two frames.
    keep_alive_bytes: ClassVar[bytes] = b": waiting\n\n"
    #: The data of frames that end the response without a JSON object.
    end_markers: ClassVar[tuple[bytes, ...]] = ()

    #: Fields that identify a response: the client gets those of the first round.
    identity_fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.usage = UsageSum()
        #: Bytes that `end_round` has yet to read: none, as events are read when they arrive.
        self.held_bytes = 0
        self._identity: Json = {}
        #: The next index at the client.
        self._next_index = 0
        self.begin_round(())

    def begin_round(self, rounds: Sequence[AnswerRound]) -> None:
        """Begin another upstream response, after these rounds."""
        #: Whether this is the second round or a later one.
        self.is_later_round = bool(rounds)
        #: Whether the client has got exactly the frames that arrived so far.
        self.is_unchanged = not rounds
        self.is_holding = False
        self.has_ended = False
        #: The upstream response's own id.
        self.response_id = ""
        self._has_failed = False
        self._passed_all = True
        self._splitter = FrameSplitter()
        self._held_frames: list[HeldFrame] = []
        self._ending_frames: list[HeldFrame] = []
        #: Index upstream -> index at the client; None for what the client does not get.
        self._client_indexes: dict[int, int | None] = {}
        self.usage.begin_round()
        self.reset_round(rounds)

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk of it; return what the client may get now."""
        return b"".join([self._take_frame(frame) for frame in self._splitter.feed(chunk)])

    def end_round(self) -> RoundEnd:
        """End the upstream response."""
        output = self._flush_rest()
        if self._has_failed:
            return RoundEnd(output=output, has_failed=True)
        if not self.has_ended:
            nothing_held = self._passed_all and not self._held_frames
            self._held_frames.clear()
            return RoundEnd(output=output, is_cut=True, nothing_held=nothing_held)
        return RoundEnd(
            output=output,
            id=self.response_id,
            content=self.collect_content(),
            is_truncated=self.is_truncated(),
            has_failed=self.has_failed_ending(),
        )

    def release_held(self, rounds: Sequence[AnswerRound], another_follows: bool) -> bytes:
        """Return what was held of the last round: all but its ending if another round follows."""
        held = self._held_frames
        self._held_frames = []
        self.is_holding = False
        write = self._write_without_ending if another_follows else self._write_frame
        return b"".join([write(frame, event) for frame, event in held])

    def write_ending(self, rounds: Sequence[AnswerRound]) -> bytes:
        """Return the ending that `release_held(..., another_follows=True)` kept back."""
        output = b""
        for frame, event in self._ending_frames:
            if event is None:
                output += frame.raw
            else:
                output += self._write_frame(*replace_event(frame, self.mark_stopped(event)))
        return output

    # -- one frame ----------------------------------------------------------------------------------------------------

    def _take_frame(self, frame: SseFrame) -> bytes:
        event = parse_object(frame.data)
        if event is not None and self.is_error(event):
            self._held_frames.clear()
            self.is_holding = False
            self._has_failed = True
        if self._has_failed:
            return frame.raw
        if event is not None:
            self.read_event(event)
        elif frame.data.strip() in self.end_markers:
            self.has_ended = True
        if not self.is_holding:
            # What was held turned out to be no recall call.
            released = self.release_held((), another_follows=False) if self._held_frames else b""
            return released + self._write_frame(frame, event)
        if (frame.is_readable and not frame.data) or (event is not None and self.may_pass_held(event)):
            return frame.raw
        self._held_frames.append((frame, event))
        return b""

    def _write_frame(self, frame: SseFrame, event: Json | None) -> bytes:
        if event is None:
            return frame.raw
        rewritten = self.rewrite_event(event)
        if rewritten is None:
            self.is_unchanged = False
            return b""
        if rewritten is event or rewritten == event:
            return frame.raw
        return replace_data(frame, dump_json(rewritten))

    def _write_without_ending(self, frame: SseFrame, event: Json | None) -> bytes:
        """Return what the client gets of a held frame before another round; keep the ending for `write_ending`."""
        if event is None:
            if frame.data.strip() not in self.end_markers:
                return frame.raw
            self._ending_frames.append((frame, None))
            return b""
        content, ending = self.split_event(event)
        if ending is not None:
            self._ending_frames.append((frame, event) if ending is event else replace_event(frame, ending))
        if content is None:
            return b""
        if content is event:
            return self._write_frame(frame, event)
        return self._write_frame(*replace_event(frame, content))

    def _flush_rest(self) -> bytes:
        """Return the last frame where the stream ends without its blank line, as some servers' streams do."""
        rest = self._splitter.take_rest()
        frame = SseFrame.parse_frame(rest)
        is_first_open = not (self.is_holding or self.is_later_round)
        if parse_object(frame.data) is None and frame.data.strip() not in self.end_markers:
            # Half a frame means nothing to a client. It passes, so that a broken stream stays the same broken stream.
            passes = is_first_open and not any(name.encode() in rest for name in self.names)
            self._passed_all = passes or not rest
            return rest if passes else b""
        closed = SseFrame(rest.rstrip(b"\r\n") + b"\n\n", frame.event, frame.data)
        output = self._take_frame(frame if is_first_open else closed)
        if is_first_open and self._held_frames:
            self._held_frames[-1] = (closed, self._held_frames[-1][1])
        return output

    # -- what APIs need -----------------------------------------------------------------------------------------------

    def record_identity(self, event: Json) -> None:
        """Keep what identifies the response of the first round; its first events may have none of it."""
        if not self.is_later_round:
            for name in self.identity_fields:
                self._identity[name] = self._identity.get(name) or event.get(name)

    def restore_identity(self, event: Json) -> Json:
        """Return `event` with what identifies the response of the first round, where it has such fields."""
        return {**event, **{name: value for name, value in self._identity.items() if name in event and value}}

    def assign_index(self, number: int, index: int, *, is_hidden: bool) -> int | None:
        """Return the client's index of block, item or call `number`, which has `index` upstream; None if it is hidden.

        is_hidden: whether it is a recall call; looked at the first time.
        """
        if number not in self._client_indexes:
            client_index = None
            if not is_hidden:
                client_index = index if self.is_unchanged else self._next_index
                self._next_index = max(self._next_index, client_index + 1)
            self._client_indexes[number] = client_index
        return self._client_indexes[number]

    # -- what an API defines ------------------------------------------------------------------------------------------

    @abstractmethod
    def reset_round(self, rounds: Sequence[AnswerRound]) -> None:
        """Prepare for another round, after these."""

    @abstractmethod
    def read_event(self, event: Json) -> None:
        """Read an upstream event: gather its content, set `is_holding`, `has_ended`, `response_id`, add its usage."""

    @abstractmethod
    def rewrite_event(self, event: Json) -> Json | None:
        """Return the event with the client's numbers; None to leave it out. Called in the order of sending."""

    @abstractmethod
    def split_event(self, event: Json) -> tuple[Json | None, Json | None]:
        """Split an event into its content and its ending of the response; either may be None."""

    @abstractmethod
    def mark_stopped(self, event: Json) -> Json:
        """Return an ending with the reason that the model stopped by itself instead of with a call."""

    @abstractmethod
    def collect_content(self) -> object:
        """Return what was said in this round, as `ProviderFormat.split_content` takes it."""

    @abstractmethod
    def is_truncated(self) -> bool:
        """Return whether the model was stopped early."""

    def is_error(self, event: Json) -> bool:
        """Return whether it is the provider's error."""
        return event.get("type") == "error"

    def has_failed_ending(self) -> bool:
        """Return whether the ending says that the provider failed."""
        return False

    def may_pass_held(self, event: Json) -> bool:
        """Return whether the event passes while others are held."""
        return False


def replace_data(frame: SseFrame, data: bytes) -> bytes:
    """Return the frame's bytes with other data; its other lines and its line ends stay."""
    if b"\r\n" in frame.raw:
        end = b"\r\n"
    elif b"\n" in frame.raw:
        end = b"\n"
    else:
        end = b"\r"
    lines = [line for line in frame.raw.splitlines() if line and line.partition(b":")[0] != b"data"]
    return end.join([*lines, b"data: " + data, b"", b""])


def replace_event(frame: SseFrame, event: Json) -> tuple[SseFrame, Json]:
    """Return the frame with another event, and that event."""
    data = dump_json(event)
    return SseFrame(replace_data(frame, data), frame.event, data), event


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


def find_first_choice(body: Json, field: str) -> Json | None:
    """Return the choice with index 0, which may leave its index out."""
    return next((choice for choice in mappings_in(body.get(field)) if not int_in(choice.get("index"))), None)


def list_other_choices(body: Json, field: str) -> list[Json]:
    """Return the choices with other indexes."""
    return [choice for choice in mappings_in(body.get(field)) if int_in(choice.get("index"))]


class ChoiceStream(StreamedResponse):
    """A stream of chunks, each of which has such a list."""

    choices_field: ClassVar[str]
    #: Field of a choice that says why it ended, and what it says of a model that stopped by itself.
    finish_field: ClassVar[str]
    stopped: ClassVar[str]

    def may_pass_held(self, event: Json) -> bool:
        is_read = find_first_choice(event, self.choices_field) is not None
        return not self.is_later_round and not is_read and bool(list_other_choices(event, self.choices_field))

    def is_error(self, event: Json) -> bool:
        return bool(event.get("error"))

    def mark_stopped(self, event: Json) -> Json:
        choices = mappings_in(event.get(self.choices_field))
        return {**event, self.choices_field: [{**choice, self.finish_field: self.stopped} for choice in choices]}
