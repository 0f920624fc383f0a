"""Render views as provider messages: what the dialects share.

A renderer follows one session. It keeps the messages of the newest view and appends what is new. After a rewrite it
goes back to the first changed segment: every message before it stays the same object. Returned messages are never
changed afterwards. The messages are a function of the view alone: a fresh renderer that sees only the last view returns
the same.

A recording may hold what a provider rejects. The renderer repairs it, always in the same way:

- a call that was never answered gets a result that says so (`no_result_text=""` leaves the call open);
- call ids that are empty, repeat or have forbidden letters are replaced in the call and in its result;
- results come right after their call, and the user's words of the same turn after the results.

For agents that send a single prompt string, a view is one text, in the form of the published managers, to the byte:

    SYSTEM PROMPT
    TASK

    [Summary through turn 33:
    SUMMARY
    ]

    Turn 34:
    Reasoning: WHAT THE AGENT THOUGHT AND SAID
    Action: ITS CALL
    Observation: THE RESULT, OR ITS PLACEHOLDER

A further call of the same turn has lines of its own, as have messages of the user between the turns (`User: ...`). The
text is a function of the view alone. Tool definitions are left out: such an agent names its tools in the system prompt.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

from elision.providers.shared.json_reading import MEDIA, Json, dump_json, mapping_in, text_in
from elision.trajectory.summary_block import remove_block_label
from elision.trajectory.turn import (
    SEALED_KINDS,
    Action,
    Content,
    Message,
    Observation,
    Opaque,
    Text,
    Turn,
    make_content,
)
from elision.trajectory.view import Segment, View

#: One message of a request, as JSON.
JsonMessage: TypeAlias = dict[str, Any]

#: Sent as the result of a call that has none.
NO_RESULT_TEXT = "[No result was recorded.]"


@dataclass(frozen=True, slots=True)
class TurnCalls:
    """A turn's calls, and which result answers which.

    calls:   (id it is sent under, call), implicit ones left out.
    answered_ids: for each observation the id of the call it answers; "" where it is sent as the user's words.
    """

    turn: Turn
    calls: tuple[tuple[str, Action], ...]
    answered_ids: tuple[str, ...]

    @property
    def last_result_position(self) -> int:
        """Return the 1-based position of the last observation that answers a call; 0 if none does."""
        return max((position for position, id in enumerate(self.answered_ids, start=1) if id), default=0)


def _match_results(turn: Turn, calls: Iterable[tuple[str, Action]]) -> Iterator[str]:
    """Yield the id that each observation of `turn` answers. Calls with one recorded id are answered in their order."""
    waiting: dict[str, list[str]] = {}
    for id, action in calls:
        waiting.setdefault(action.id, []).append(id)
    for observation in turn.observations:
        if observation.role == "tool":
            ids = waiting.get(observation.action_id)
        else:
            ids = None
        yield ids.pop(0) if ids else ""


class ViewRenderer(ABC):
    """Turns the views of one session into the messages of its requests.

    A dialect says which messages a segment becomes, and how they are joined.

    no_result_text: result of a call that has none; "" leaves the call open.
    """

    #: Letters that the provider forbids in call ids.
    forbidden_letters: re.Pattern[str] | None = None
    #: Field of a message that holds its blocks.
    content_field = "content"

    def __init__(self, *, no_result_text: str = NO_RESULT_TEXT) -> None:
        self.no_result_text = no_result_text
        self._view: View | None = None
        self._messages: list[JsonMessage] = []
        #: For each segment: messages up to and with it, and blocks of the last of them.
        self._ends: list[tuple[int, int]] = []
        #: (place of the assistant segment, its exchange), ascending.
        self._turn_calls: list[tuple[int, TurnCalls]] = []
        self._used_ids: set[str] = set()

    def render_messages(self, view: View) -> list[JsonMessage]:
        """Return the request's `messages`. The list is the caller's; the messages in it must not be changed."""
        return self.render_unmarked(view)

    def render_unmarked(self, view: View) -> list[JsonMessage]:
        """Return the messages without cache markers, which a prompt cache does not compare."""
        self._follow_view(view)
        return self._messages.copy()

    def render_system(self, view: View) -> list[JsonMessage]:
        """Return the system prompt as blocks if the dialect keeps it apart; else []."""
        return []

    # -- what a dialect says --------------------------------------------------------------------------------------

    @abstractmethod
    def _render_message(self, message: Message, *, head: bool) -> list[JsonMessage]:
        """Render a message of the head, or an interjection."""

    @abstractmethod
    def _render_user(self, parts: Content) -> list[JsonMessage]:
        """Render other words in the user's role: a summary, or an observation of a text protocol."""

    @abstractmethod
    def _render_assistant(self, calls: TurnCalls) -> list[JsonMessage]: ...

    @abstractmethod
    def _render_result(self, id: str, parts: Content, error: bool | None) -> JsonMessage: ...

    def _append_message(self, message: JsonMessage) -> None:
        """Append `message` to the others."""
        self._messages.append(message)

    # -- following a session --------------------------------------------------------------------------------------

    def _follow_view(self, view: View) -> None:
        self._rewind_to(view.count_common(self._view))
        segments = view.track.segments
        for place in range(len(self._ends), view.length):
            for message in self._render_segment(segments, place):
                self._append_message(message)
            self._ends.append((len(self._messages), self._count_blocks()))
        self._view = view

    def _rewind_to(self, place: int) -> None:
        """Forget every segment from `place` on."""
        del self._ends[place:]
        if self._ends:
            count, blocks = self._ends[-1]
        else:
            count, blocks = (0, 0)
        del self._messages[count:]
        if count and self._count_blocks() > blocks:
            last = self._messages[-1]
            self._messages[-1] = {**last, self.content_field: last[self.content_field][:blocks]}
        while self._turn_calls and self._turn_calls[-1][0] >= place:
            _, exchange = self._turn_calls.pop()
            self._used_ids.difference_update(id for id, _ in exchange.calls)

    def _count_blocks(self) -> int:
        """Count the blocks of the last message; 0 if its content is a text."""
        parts = self._messages[-1].get(self.content_field) if self._messages else None
        if isinstance(parts, list):
            return len(parts)
        return 0

    def _render_segment(self, segments: list[Segment], place: int) -> list[JsonMessage]:
        segment = segments[place]
        match segment.source:
            case Turn():
                return self._render_turn(place, segment.source)
            case Observation():
                return self._render_observation(segments, place)
            case Message():
                return self._render_message(segment.source, head=segment.kind == "head")
        # Tools belong to the request itself, and an unrecorded head cannot be shown.
        if segment.kind == "summary":
            return self._render_user(make_content(segment.text))
        return []

    def _render_turn(self, place: int, turn: Turn) -> list[JsonMessage]:
        calls = tuple(
            (self._assign_id(turn.index, position, action.id), action)
            for position, action in enumerate(turn.actions, start=1)
            if not action.implicit
        )
        exchange = TurnCalls(turn, calls, tuple(_match_results(turn, calls)))
        self._turn_calls.append((place, exchange))
        missing: list[str] = []
        if self.no_result_text:
            missing = [id for id, _ in calls if id not in exchange.answered_ids]
        return self._render_assistant(exchange) + [
            self._render_result(id, make_content(self.no_result_text), None) for id in missing
        ]

    def _render_observation(self, segments: list[Segment], place: int) -> list[JsonMessage]:
        """Render an observation. One in the user's words waits for the turn's last result, which must come first."""
        segment = segments[place]
        assistant, exchange = self._turn_calls[-1]
        id = exchange.answered_ids[segment.index - 1]
        if not id:
            if segment.index < exchange.last_result_position:
                return []
            return self._render_user(_get_content(segment))
        error = segment.source.error if isinstance(segment.source, Observation) else None
        shown = [self._render_result(id, _get_content(segment), error)]
        if segment.index == exchange.last_result_position:
            for earlier in segments[assistant + 1 : place]:
                if not exchange.answered_ids[earlier.index - 1]:
                    shown += self._render_user(_get_content(earlier))
        return shown

    def _assign_id(self, turn: int, position: int, recorded: str) -> str:
        """Return the id under which a call is sent: the recorded one if it is allowed, else one made from its place."""
        id = recorded
        if self.forbidden_letters:
            id = self.forbidden_letters.sub("_", id)
        id = id or f"call_{turn}_{position}"
        while id in self._used_ids:
            id = f"{id}_{turn}_{position}"
        self._used_ids.add(id)
        return id


#: A conversation must begin with the user.
OPENING_TEXT = "[The conversation begins.]"
#: Two messages of the model with nothing between them; one at the end would be taken for the beginning of the answer.
CONTINUE_TEXT = "[Continue.]"


class BlockRenderer(ViewRenderer):
    """A renderer for an API with two roles that take turns, content in blocks, and the system prompt apart."""

    def render_system(self, view: View) -> list[JsonMessage]:
        self._follow_view(view)
        blocks: list[JsonMessage] = []
        for segment in view.track.segments[: view.length]:
            if segment.kind == "head" and isinstance(segment.source, Message) and segment.source.role != "user":
                blocks += self._render_system(segment.source.content)
        return blocks

    @abstractmethod
    def _render_system(self, parts: Content) -> list[JsonMessage]:
        """Render a system prompt."""

    def _render_message(self, message: Message, *, head: bool) -> list[JsonMessage]:
        if message.role == "user":
            return self._render_user(message.content)
        if head:
            return []  # see `render_system`
        # Few models take a system's words between turns, so they are the user's, named for what they are.
        return self._render_user((Text("[System message]"), *message.content))

    def _make_messages(self, role: str, blocks: list[JsonMessage]) -> list[JsonMessage]:
        """Return a message with `blocks`; none without blocks, since an empty message is rejected."""
        return [{"role": role, self.content_field: blocks}] if blocks else []


def parse_input(arguments: str) -> dict[str, Any]:
    """Return a call's arguments as an object, for APIs that require one; anything else is put under "arguments"."""
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    return {"arguments": arguments}


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _get_content(segment: Segment) -> Content:
    """Return what an observation's segment says: the text of a placeholder or clip, else everything observed."""
    if segment.kind == "observation" and isinstance(segment.source, Observation):
        return segment.source.content
    return make_content(segment.text)


# -- opaque parts ---------------------------------------------------------------------------------------------------

#: Fields that hold the bytes of a media part, or say where they are.
_PAYLOAD_FIELDS = frozenset(
    ("source", "image_url", "video_url", "data", "audio", "input_audio", "file", "file_id", "file_data", "file_url")
)
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=.+-]+)*;base64,(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Image:
    """An image in no dialect's words: base64 `data` of type `media`, or a `url`."""

    media: str = ""
    data: str = ""
    url: str = ""


def find_image(part: Opaque) -> Image | None:
    """Return the image that `part` holds, in whichever dialect it was recorded.

    None if it is no image, or is stored elsewhere (a file id). Known are Anthropic's `source`, OpenAI's `image_url`
    (chat and Responses), and `data` with `mimeType` (MCP, pi).
    """
    data: Json = part.data or {}
    if source := mapping_in(data.get("source")):
        return _make_image(text_in(source.get("media_type")), text_in(source.get("data")), text_in(source.get("url")))
    if part.kind == "image" and "mimeType" in data:
        return _make_image(text_in(data.get("mimeType")), text_in(data.get("data")), "")
    nested = data.get("image_url")
    return _make_image("", "", text_in(nested) or text_in(mapping_in(nested).get("url")))


def _make_image(media: str, data: str, url: str) -> Image | None:
    if found := _DATA_URL.match(url):
        media = found[1]
        data = found[2]
        url = ""
    if media and not media.startswith("image/"):
        return None
    if url or (media and data):
        return Image(media, data, url)
    return None


#: Fields that a recorded part cannot be without, with their types; by the kind of the part.
RecordedParts: TypeAlias = Mapping[str, Mapping[str, type]]


def copy_recorded(part: Opaque, allowed: RecordedParts, mark_field: str) -> JsonMessage | None:
    """Copy a part as it was recorded, without its cache breakpoint: four are allowed in all, and the view sets them.

    None unless `allowed` has its kind, and it has all that is needed.
    """
    fields = allowed.get(part.kind)
    data = part.data
    if fields is None or data is None:
        return None
    if not all(name in data and isinstance(data[name], kind) for name, kind in fields.items()):
        return None
    return {name: value for name, value in data.items() if name != mark_field}


def describe_part(part: Opaque) -> str:
    """Return a part that has no place in a dialect as text: readable parts as JSON, bytes as a note.

    Sealed reasoning is "": only its provider could read it.
    """
    if part.kind in SEALED_KINDS:
        return ""
    if part.data is None or (part.kind in MEDIA and not _PAYLOAD_FIELDS.isdisjoint(part.data)):
        return f"[{part.kind} that cannot be sent here]"
    return dump_json(dict(part.data))


#: Segments that belong to the request and not to the conversation, or that nobody recorded.
_NOT_SHOWN: Final = ("hidden", "tools", "recall")


def render_text(segments: Iterable[Segment], covers: int = 0) -> str:
    """Return `segments`, those of a view in order, as one text. covers: the newest turn that its summary covers."""
    return "\n".join(_list_parts(segments, covers))


def format_text_summary(block: str, covers: int) -> str:
    """Return the block of a summary of turns 1 ... `covers` as the text has it."""
    return f"\n[Summary through turn {covers}:\n{remove_block_label(block)}\n]"


def _list_parts(segments: Iterable[Segment], covers: int) -> Iterator[str]:
    turn: list[Segment] = []
    for segment in segments:
        if turn and not (segment.turn == turn[0].turn and isinstance(segment.source, Observation)):
            yield _format_turn(turn)
            turn = []
        if segment.kind in _NOT_SHOWN:
            continue
        match segment.source:
            case Turn() | Observation():
                turn.append(segment)
            case Message() if segment.kind == "head":
                yield _join_content(segment.source.content)
            case Message():
                yield f"\n{segment.source.role.capitalize()}: {_join_content(segment.source.content)}\n"
            case _:
                yield format_text_summary(segment.text, covers)
    if turn:
        yield _format_turn(turn)


def _format_turn(segments: Sequence[Segment]) -> str:
    """Return a turn: the segment of its assistant message, and those of its results."""
    turn = segments[0].source
    assert isinstance(turn, Turn)
    said = [words for words in (turn.reasoning, _join_content(turn.content)) if words]
    lines = [f"Turn {turn.index}:", "Reasoning: " + "\n".join(said)]
    results = list(segments[1:])
    for action in turn.actions:
        # An action of a text protocol is a part of what was said.
        if not action.implicit:
            lines.append(f"Action: {_format_action(action)}")
        result = _find_result(results, action)
        if result is not None:
            results.remove(result)
            lines.append(_format_result(result))
    lines += [_format_result(result) for result in results]
    return "\n" + "\n".join(lines) + "\n"


def _find_result(results: Sequence[Segment], action: Action) -> Segment | None:
    """Return the first of `results` that answers `action`."""
    for result in results:
        if isinstance(result.source, Observation) and result.source.action_id == action.id:
            return result
    return None


def _format_action(action: Action) -> str:
    """Return a call: the bare text where it was given as one, else the tool's name and its arguments as JSON."""
    text = action.given_text
    return f"{action.name} {action.arguments}" if text is None else text


def _format_result(segment: Segment) -> str:
    text = segment.text
    if segment.kind == "observation" and isinstance(segment.source, Observation):
        text = _join_content(segment.source.content)
    return f"Observation: {text}"


def _join_content(parts: Content) -> str:
    """Return the text of `parts`; parts that are no text as a note, sealed reasoning as nothing."""
    texts = [part.text if isinstance(part, Text) else describe_part(part) for part in parts]
    return "\n".join(text for text in texts if text)
