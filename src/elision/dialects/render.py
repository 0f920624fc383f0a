"""Views as provider messages: what the dialects share.

A renderer follows one session. It keeps the messages of the newest view, appends what is new, and after a rewrite goes
back to the first changed segment: every message in front of it stays the same object. What it returns is never changed
afterwards. The messages are a function of the view alone: a renderer that saw every view of a session and a fresh one
that sees only the last say the same.

What a provider rejects and a recording may hold is mended, always in the same way:

- a call that was never answered gets a result that says so (`unanswered=""` leaves it open, as it came);
- call ids that are empty, repeat or have letters that the provider forbids are replaced on both sides;
- results stand right behind their call, the user's words of the same turn behind them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from elision.dialects import MEDIA, Json, json_text, mapping_in, text_in
from elision.trajectory.content import Content, Opaque, content
from elision.trajectory.turn import Action, Message, Observation, Turn
from elision.trajectory.view import Segment, View

#: One message of a request, as JSON.
Sent: TypeAlias = dict[str, Any]

#: What stands for the result of a call that has none.
UNANSWERED = "[No result was recorded.]"


class Renderer(Protocol):
    """Turns the views of one session into the messages of its requests."""

    def messages(self, view: View) -> list[Sent]:
        """The request's `messages`. The list is the caller's; the messages in it are not to be changed."""
        ...

    def plain(self, view: View) -> list[Sent]:
        """The same without cache markers, which are no part of what a prompt cache compares."""
        ...

    def system(self, view: View) -> list[Sent]:
        """The system prompt where the dialect keeps it apart, as blocks; else []."""
        ...


@dataclass(frozen=True, slots=True)
class Exchange:
    """A turn's calls, and which result answers which.

    calls:   (id it is sent under, call), implicit ones left out.
    answers: for each observation the id of the call it answers; "" where it is sent as the user's words.
    """

    turn: Turn
    calls: tuple[tuple[str, Action], ...]
    answers: tuple[str, ...]

    @property
    def unanswered(self) -> list[str]:
        given = set(self.answers)
        return [id for id, _ in self.calls if id not in given]

    @property
    def last(self) -> int:
        """1-based position of the last observation that answers a call; 0 if none does."""
        return max((position for position, id in enumerate(self.answers, start=1) if id), default=0)


def _answers(turn: Turn, calls: Iterable[tuple[str, Action]]) -> Iterator[str]:
    """The id that each observation of `turn` answers. Calls under one recorded id are answered in their order."""
    waiting: dict[str, list[str]] = {}
    for id, action in calls:
        waiting.setdefault(action.id, []).append(id)
    for observation in turn.observations:
        if observation.role == "tool":
            ids = waiting.get(observation.action_id)
        else:
            ids = None
        yield ids.pop(0) if ids else ""


class Transcript(ABC):
    """A renderer but for the dialect: which messages stand for a segment, and how they are joined.

    unanswered: result of a call that has none; "" leaves the call open.
    """

    #: Letters that the provider forbids in call ids.
    forbidden: re.Pattern[str] | None = None

    def __init__(self, *, unanswered: str = UNANSWERED) -> None:
        self.unanswered = unanswered
        self._view: View | None = None
        self._sent: list[Sent] = []
        #: For each segment: messages up to and with it, and blocks of the last of them.
        self._ends: list[tuple[int, int]] = []
        #: (place of the assistant segment, its exchange), ascending.
        self._exchanges: list[tuple[int, Exchange]] = []
        self._ids: set[str] = set()

    def messages(self, view: View) -> list[Sent]:
        return self.plain(view)

    def plain(self, view: View) -> list[Sent]:
        self._follow(view)
        return self._sent.copy()

    def system(self, view: View) -> list[Sent]:
        return []

    # -- what a dialect says --------------------------------------------------------------------------------------

    @abstractmethod
    def _message(self, message: Message, *, head: bool) -> list[Sent]:
        """A message of the head, or an interjection."""

    @abstractmethod
    def _user(self, parts: Content) -> list[Sent]:
        """Anything else that is said in the user's role: a summary, an observation of a text protocol."""

    @abstractmethod
    def _assistant(self, exchange: Exchange) -> list[Sent]: ...

    @abstractmethod
    def _result(self, id: str, parts: Content, error: bool | None) -> Sent: ...

    def _join(self, message: Sent) -> None:
        """Put `message` behind the others."""
        self._sent.append(message)

    # -- following a session --------------------------------------------------------------------------------------

    def _follow(self, view: View) -> None:
        self._go_back(view.common(self._view))
        segments = view.track.segments
        for place in range(len(self._ends), view.length):
            for message in self._said(segments, place):
                self._join(message)
            self._ends.append((len(self._sent), _blocks(self._sent)))
        self._view = view

    def _go_back(self, place: int) -> None:
        """Forget every segment from `place` on."""
        del self._ends[place:]
        if self._ends:
            count, blocks = self._ends[-1]
        else:
            count, blocks = (0, 0)
        del self._sent[count:]
        if count and _blocks(self._sent) > blocks:
            last = self._sent[-1]
            self._sent[-1] = {**last, "content": last["content"][:blocks]}
        while self._exchanges and self._exchanges[-1][0] >= place:
            _, exchange = self._exchanges.pop()
            self._ids.difference_update(id for id, _ in exchange.calls)

    def _said(self, segments: list[Segment], place: int) -> list[Sent]:
        segment = segments[place]
        match segment.source:
            case Turn():
                return self._spoken(place, segment.source)
            case Observation():
                return self._observed(segments, place)
            case Message():
                return self._message(segment.source, head=segment.kind == "head")
        # Tools belong to the request itself, and an unrecorded head cannot be shown.
        if segment.kind == "summary":
            return self._user(content(segment.text))
        return []

    def _spoken(self, place: int, turn: Turn) -> list[Sent]:
        calls = tuple(
            (self._id(turn.index, position, action.id), action)
            for position, action in enumerate(turn.actions, start=1)
            if not action.implicit
        )
        exchange = Exchange(turn, calls, tuple(_answers(turn, calls)))
        self._exchanges.append((place, exchange))
        if self.unanswered:
            missing = exchange.unanswered
        else:
            missing = []
        return self._assistant(exchange) + [self._result(id, content(self.unanswered), None) for id in missing]

    def _observed(self, segments: list[Segment], place: int) -> list[Sent]:
        """An observation. One in the user's words waits for the turn's last result, which must not stand behind it."""
        segment = segments[place]
        assistant, exchange = self._exchanges[-1]
        id = exchange.answers[segment.index - 1]
        if not id:
            if segment.index < exchange.last:
                return []
            return self._user(_content(segment))
        shown = [self._result(id, _content(segment), _error(segment))]
        if segment.index == exchange.last:
            waiting = (each for each in segments[assistant + 1 : place] if not exchange.answers[each.index - 1])
            shown += [message for each in waiting for message in self._user(_content(each))]
        return shown

    def _id(self, turn: int, position: int, recorded: str) -> str:
        """The id under which a call is sent: the recorded one if it may be, else one made from its place."""
        if self.forbidden:
            id = self.forbidden.sub("_", recorded)
        else:
            id = recorded
        id = id or f"call_{turn}_{position}"
        while id in self._ids:
            id = f"{id}_{turn}_{position}"
        self._ids.add(id)
        return id


def _blocks(sent: list[Sent]) -> int:
    """Blocks of the last message; 0 where its content is a text."""
    parts = sent[-1].get("content") if sent else None
    if isinstance(parts, list):
        return len(parts)
    return 0


def _content(segment: Segment) -> Content:
    """What an observation's segment says: a placeholder or clip its text, else all that was observed."""
    if segment.kind == "observation" and isinstance(segment.source, Observation):
        return segment.source.content
    return content(segment.text)


def _error(segment: Segment) -> bool | None:
    if isinstance(segment.source, Observation):
        return segment.source.error
    return None


# -- opaque parts ---------------------------------------------------------------------------------------------------

#: Reasoning that only the provider that sealed it can read; nothing stands for it in another dialect.
SEALED = frozenset(("thinking", "redacted_thinking", "reasoning"))
#: Fields that hold the bytes of a media part, or say where they are.
_PAYLOAD = frozenset(
    ("source", "image_url", "video_url", "data", "audio", "input_audio", "file", "file_id", "file_data", "file_url")
)
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=.+-]+)*;base64,(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Image:
    """An image in no dialect's words: base64 `data` of type `media`, or a `url`."""

    media: str = ""
    data: str = ""
    url: str = ""


def image_in(part: Opaque) -> Image | None:
    """The image that `part` holds, whichever dialect it was recorded in; None if it is none, or elsewhere (a file id).

    Known: Anthropic's `source`, OpenAI's `image_url` (chat and Responses), `data` with `mimeType` (MCP, pi).
    """
    data: Json = part.data or {}
    if source := mapping_in(data.get("source")):
        return _image(text_in(source.get("media_type")), text_in(source.get("data")), text_in(source.get("url")))
    if part.kind == "image" and "mimeType" in data:
        return _image(text_in(data.get("mimeType")), text_in(data.get("data")), "")
    nested = data.get("image_url")
    return _image("", "", text_in(nested) or text_in(mapping_in(nested).get("url")))


def _image(media: str, data: str, url: str) -> Image | None:
    if found := _DATA_URL.match(url):
        media = found[1]
        data = found[2]
        url = ""
    if media and not media.startswith("image/"):
        return None
    if url or (media and data):
        return Image(media, data, url)
    return None


def in_words(part: Opaque) -> str:
    """A part that has no place in a dialect, as text: JSON where it is readable, a note where it is bytes.

    Sealed reasoning is "": nobody but its provider could read it.
    """
    if part.kind in SEALED:
        return ""
    if part.data is None or (part.kind in MEDIA and not _PAYLOAD.isdisjoint(part.data)):
        return f"[{part.kind} that cannot be sent here]"
    return json_text(dict(part.data))
