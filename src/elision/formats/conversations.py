"""Find the conversations in files of provider messages, however they are nested, and what belongs to one of them.

A file is one conversation or many: a list of messages, an object that holds such a list, a list of such objects, or
either of them as JSON lines. What a message means is up to the reader.

A proxy logs a line for each request, with the whole conversation so far. Read line by line, six requests would be six
runs and be billed as twenty-one calls; so a record whose messages continue an earlier one's is the same run, extended.

Recorders write a response in several messages: a message for each block, an empty one where they left a block out. A
request holds what is new since the one before, so a second response without any message between is the exception: it
needs a sign. Counted as a call each, 179 calls of a recorded run were 407, at twice the price.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import msgspec

from elision.errors import FormatError
from elision.formats.assembler import Assembler
from elision.formats.document import PEEK_LINES, Document, RunOrProblem, peek_objects, read_json_lines, read_json_value
from elision.providers.shared.json_reading import Json, mapping_in, text_in
from elision.trajectory.trajectory import Problem, Trajectory, join_argument_text
from elision.trajectory.turn import SEALED_KINDS, Content, Message, Opaque, Turn, join_text
from elision.trajectory.usage import Usage

#: Conversations that are looked at for sniffing.
_PREVIEWED = 5
#: (line or number, message): where a message is, for problems.
PlacedMessage: TypeAlias = tuple[int | None, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedConversation:
    """One conversation as recorded.

    name:     unique within its file.
    line:     the line it is on, or its number in the list; None if it is the whole file.
    messages: each with the place to name in a problem: `line`, else its own line or number.
    outer:    the object that holds the messages: tools, system prompt, usage, the response ...; {} for a bare list.
    """

    name: str
    line: int | None = None
    messages: tuple[PlacedMessage, ...]
    outer: Json = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a dialect nests its messages.

    required_text: a text without which no file has this layout.
    messages_of: the messages that an object holds; None where it is no conversation.
    is_message:  whether an object that is no conversation is a message.
    """

    required_text: str
    messages_of: Callable[[Json], list[Any] | None]
    is_message: Callable[[Json], bool]

    def is_known(self, value: object) -> bool:
        """Return whether `value` is a conversation or a message."""
        outer = unwrap_request(value)
        return self.messages_of(outer) is not None or self.is_message(outer)


def get_messages(outer: Json) -> list[Any] | None:
    """Return the list under `messages`, where most objects hold them."""
    held = outer.get("messages")
    return held if isinstance(held, list) else None


#: Of objects that hold `messages`, each with a role.
MESSAGES: Final = Layout(required_text='"role"', messages_of=get_messages, is_message=lambda outer: "role" in outer)


def unwrap_request(value: object) -> Json:
    """Return a conversation object. In `{"request": {...}, "response": {...}}` the request gets its response inside."""
    outer = mapping_in(value)
    return {**outer, **mapping_in(outer.get("request"))}


def read_conversations(
    document: Document, layout: Layout, *, format: str, feed: Callable[[Assembler, RecordedConversation], None]
) -> Iterator[RunOrProblem]:
    """Yield every conversation of `document` as a run; `feed` gives its messages to the assembler.

    Records that repeat one conversation and extend it, as logs of requests do, are one run.
    """
    return merge_continued_runs(_read_each(document, layout, format=format, feed=feed))


def _read_each(
    document: Document, layout: Layout, *, format: str, feed: Callable[[Assembler, RecordedConversation], None]
) -> Iterator[RunOrProblem]:
    for item in split_conversations(document, layout):
        if isinstance(item, Problem):
            yield item
            continue
        assembler = Assembler(document.path)
        try:
            feed(assembler, item)
        except RecursionError:
            yield Problem(file=document.path, line=item.line, reason=f"{item.name}: nested too deeply to read")
            continue
        yield from assembler.problems
        if run := assembler.finish(item.name, format=format, model=text_in(item.outer.get("model"))):
            yield run


def split_conversations(document: Document, layout: Layout) -> Iterator[RecordedConversation | Problem]:
    """Yield every conversation of `document`; anything else is a Problem.

    Raises FormatError if the file is neither JSON nor JSON lines of this layout.
    """
    try:
        value = read_json_value(document)
    except FormatError:
        if not any(map(layout.is_known, peek_objects(document, PEEK_LINES))):
            raise
        yield from _gather_conversations(document, layout, _read_lines(document), "line")
        return
    if isinstance(value, dict) and (messages := layout.messages_of(unwrap_request(value))) is not None:
        yield RecordedConversation(name="main", messages=_number_messages(messages, None), outer=unwrap_request(value))
    else:
        entries = value if isinstance(value, list) else [value]
        yield from _gather_conversations(document, layout, enumerate(entries, start=1), "conversation")


def _read_lines(document: Document) -> Iterator[PlacedMessage | Problem]:
    for line in read_json_lines(document):
        if isinstance(line, Problem):
            yield line
        else:
            yield line.number, line.value


def _gather_conversations(
    document: Document, layout: Layout, entries: Iterable[PlacedMessage | Problem], unit_name: str
) -> Iterator[RecordedConversation | Problem]:
    """Yield conversations among `entries`, and one more of all the bare messages."""
    bare: list[PlacedMessage] = []
    for entry in entries:
        if isinstance(entry, Problem):
            yield entry
            continue
        number, value = entry
        outer = unwrap_request(value)
        messages = value if isinstance(value, list) else layout.messages_of(outer)
        if messages is not None:
            yield RecordedConversation(
                name=f"{unit_name} {number}", line=number, messages=_number_messages(messages, number), outer=outer
            )
        elif layout.is_message(outer):
            bare.append((number, value))
        else:
            yield Problem(file=document.path, line=number, reason="no message and no conversation; left out")
    if bare:
        yield RecordedConversation(name="main", messages=tuple(bare))


def _number_messages(messages: list[Any], line: int | None) -> tuple[PlacedMessage, ...]:
    return tuple((line or number, message) for number, message in enumerate(messages, start=1))


def is_mostly_valid(messages: Iterable[Json], is_valid: Callable[[Json], bool]) -> bool:
    """Return whether most of `messages` are valid. An odd one becomes a Problem later; the file is not refused."""
    verdicts = [is_valid(message) for message in messages]
    return not verdicts or sum(verdicts) * 2 > len(verdicts)


def preview_conversations(document: Document, layout: Layout) -> list[RecordedConversation]:
    """Return the first few conversations, for sniffing; none if most of the file is something else."""
    if layout.required_text.encode() not in document.data:
        return []
    found: list[RecordedConversation] = []
    strange = 0
    try:
        for item in split_conversations(document, layout):
            if isinstance(item, Problem):
                strange += 1
            else:
                found.append(item)
            if len(found) == _PREVIEWED:
                break
    except FormatError:
        return []
    return found if strange <= sum(len(item.messages) for item in found) else []


# -- logs of requests: a record that continues another one is the same run --------------------------------------------


#: Stands for a head, some turns and the beginning of one more; equal histories have equal ones.
_Chain: TypeAlias = Hashable


def merge_continued_runs(runs_and_problems: Iterable[RunOrProblem]) -> Iterator[RunOrProblem]:
    """Yield the items without runs that a later one continues; the longer run takes over what only they record."""
    listed = list(runs_and_problems)
    runs = [item for item in listed if isinstance(item, Trajectory)]
    gone = _merge_runs(runs)
    kept = {id(run): merged for run, merged in zip(runs, gone, strict=True)}
    for item in listed:
        if not isinstance(item, Trajectory):
            yield item
        elif (merged := kept[id(item)]) is not None:
            yield merged


def _merge_runs(runs: Sequence[Trajectory]) -> list[Trajectory | None]:
    """Return each of `runs` with what it took over; None for those that another one continues."""
    ends = {_hash_run(run): place for place, run in reversed(list(enumerate(runs)))}
    result: list[Trajectory | None] = list(runs)
    for place in sorted(range(len(runs)), key=lambda place: -len(runs[place].turns)):
        current = result[place]
        if current is None:
            continue
        for index, chain in _list_prefixes(current):
            earlier = ends.get(chain, place)
            shorter = result[earlier]
            if earlier != place and shorter is not None and len(shorter.turns) == index < len(current.turns):
                current = _take_over_facts(current, shorter)
                result[earlier] = None
        result[place] = current
    return result


def _take_over_facts(longer: Trajectory, shorter: Trajectory) -> Trajectory:
    """Return `longer` with usage, time and model of the call that `shorter` ends with.

    Usage and time are taken only if `longer` has none. The model is always taken: a request names only its last call's.
    """
    known = shorter.turns[-1]
    turn = longer.turns[known.index - 1]
    completed = msgspec.structs.replace(
        turn, usage=turn.usage or known.usage, at=turn.at or known.at, model=known.model or turn.model
    )
    turns = (*longer.turns[: known.index - 1], completed, *longer.turns[known.index :])
    return replace(longer, turns=turns)


def _list_prefixes(run: Trajectory) -> Iterator[tuple[int, _Chain]]:
    """Yield (turns, chain) of every beginning of `run` that ends with an assistant message, a result or user words."""
    head = run.head
    chain: _Chain = hash((tuple(map(_describe_message, head.messages)), tuple(map(_normalize_json, head.tools))))
    for turn in run.turns:
        for piece in _list_turn_parts(turn):
            chain = hash((chain, piece))
            yield turn.index, chain


def _hash_run(run: Trajectory) -> _Chain:
    chain: _Chain = None
    for _, chain in _list_prefixes(run):  # noqa: B007 - the last one is wanted
        pass
    return chain


def _list_turn_parts(turn: Turn) -> Iterator[Hashable]:
    """Yield what a turn grows by, in the order in which it is sent."""
    calls = tuple((action.name, join_argument_text(action)) for action in turn.actions if not action.implicit)
    yield "said", turn.text, _describe_opaque(turn.content, but=SEALED_KINDS), calls
    for result in turn.observations:
        yield "result", result.text, _describe_opaque(result.content), result.error
    for message in turn.interjections:
        yield "message", _describe_message(message)


def _describe_message(message: Message) -> Hashable:
    return message.role, join_text(message.content), _describe_opaque(message.content)


def _describe_opaque(parts: Content, but: frozenset[str] = frozenset()) -> Hashable:
    """Describe images and other parts that are no text. Sealed reasoning is left out: clients may omit it."""
    found = (part for part in parts if isinstance(part, Opaque) and part.kind not in but)
    return tuple((part.kind, _normalize_json(part.data)) for part in found)


def _normalize_json(value: Any) -> str:
    """Return `value` as one text, with sorted keys, without cache markers and nulls."""
    try:
        return json.dumps(_strip_markers(value), sort_keys=True, default=str)
    except RecursionError:
        return f"nested too deeply to be compared: like nothing but itself ({id(value)})"


def _strip_markers(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _strip_markers(each) for name, each in value.items() if name != "cache_control" and each is not None
        }
    if isinstance(value, list):
        return [_strip_markers(each) for each in value]
    return value


# -- fragments: assistant messages that are one response --------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """What an assistant message records of the response that it belongs to; "" or None where it records nothing.

    id:       of the response.
    model:    that answered.
    speaker:  which of several agents.
    usage:    of the whole response; recorders repeat it with each fragment, the output perhaps not final.
    is_final: the response stopped here, and the model was called again to continue it.
    """

    id: str = ""
    model: str = ""
    speaker: str = ""
    usage: Usage | None = None
    is_final: bool = False


def is_same_response(earlier: Fragment, later: Fragment, *, is_adjacent: bool) -> bool:
    """Return whether two assistant messages are one response. is_adjacent: no result or message comes between."""
    if earlier.id and later.id:
        return earlier.id == later.id
    if not is_adjacent or earlier.is_final or earlier.speaker != later.speaker:
        return False
    if earlier.model and later.model and earlier.model != later.model:
        return False
    return (
        earlier.usage is None
        or later.usage is None
        or _list_prompt_counts(earlier.usage) == _list_prompt_counts(later.usage)
    )


def _list_prompt_counts(usage: Usage) -> tuple[int, int, int]:
    """Return the counts of what was sent: a second request would be longer by the first response."""
    return usage.input, usage.cache_read, usage.cache_write
