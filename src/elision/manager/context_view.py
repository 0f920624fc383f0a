"""The result of preparing a call: the request's parts in the provider's own shape, and what was done.

For agents that send a single prompt string it is one text, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Never, TypeAlias, overload

from msgspec.structs import replace

from elision.manager.history import History
from elision.manager.outgoing_request import OutgoingRequest
from elision.manager.recall_tools import SentParts
from elision.manager.think_time import Deferred
from elision.providers.live.client_messages import convert_to_json
from elision.providers.provider_table import find_provider, recognize_provider
from elision.providers.shared.base_renderer import render_text
from elision.telemetry.context_report import draw_value
from elision.telemetry.diagnostics import Costs, Diagnostics
from elision.trajectory.turn import Message, Turn
from elision.trajectory.view import Segment, View


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSource:
    """What a prepared context shows. view: its segments. covers: the newest turn that its summary covers, 0 for none.

    unanswered: messages of the client after the newest turn: the beginning of an answer.
    """

    view: View
    covers: int = 0
    unanswered: Sequence[Any] = ()


def render_prompt(source: PromptSource, dialect: str) -> str:
    """Return a prepared context as one text. Raises DialectError."""
    segments = source.view.segments
    if source.unanswered:
        segments = [*segments, *_read_segments(source.unanswered, None, dialect, first=source.view.call)]
    return render_text(segments, source.covers)


def render_messages(messages: Sequence[Any], system: Any, dialect: str) -> str:
    """Return messages that were passed on unread as one text. dialect: if the messages show none.

    Raises DialectError for what are no messages.
    """
    found = recognize_provider(messages, system, None, "")
    if found is not None:
        dialect = found.name
    return render_text(_read_segments(messages, system, dialect, first=1))


def _read_segments(messages: Sequence[Any], system: Any, dialect: str, *, first: int) -> Iterator[Segment]:
    """Yield the segments of `messages` with nothing hidden and nothing counted. first: index of their first turn."""
    live = find_provider(dialect).live
    history = History(live, b"")
    history.extend(messages)
    head: list[Message] = list(history.turns.head)
    if system is not None:
        head = [*live.parse_system(convert_to_json(system)), *head]
    for message in head:
        yield Segment(kind="head", tokens=0, source=message)
    for number in range(1, history.turns.turn_count + 1):
        turn, _ = history.turns.build_turn(number)
        yield from _split_turn(turn, first + number - 1)


def _split_turn(turn: Turn, index: int) -> Iterator[Segment]:
    yield Segment(kind="assistant", tokens=0, turn=index, source=replace(turn, index=index))
    for position, observation in enumerate(turn.observations, start=1):
        yield Segment(kind="observation", tokens=0, turn=index, index=position, source=observation)
    for position, message in enumerate(turn.interjections, start=1):
        yield Segment(kind="interjection", tokens=0, turn=index, index=position, source=message)


if TYPE_CHECKING:

    class RequestFields(dict[str, Never]):
        """The dict of `view.request` for type checkers: `create(**view.request)` keeps the type of its response.

        Which overload of a provider's method is called cannot depend on values that fit anywhere, as `Any` does: the
        response would be unknown. Values of no type fit each parameter, and leave the choice to the other arguments.
        """

        @overload
        def __getitem__(self, key: Literal["messages", "input", "contents"]) -> list[Any]: ...  # type: ignore[overload-overlap]
        @overload
        def __getitem__(self, key: Literal["system", "instructions", "tools", "config"]) -> Any: ...
        @overload
        def __getitem__(self, key: str) -> Never: ...
        def __getitem__(self, key: str) -> Any: ...

else:
    RequestFields = dict


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatus:
    """A session before its next call, as its log has it.

    turns: so far. costs: in USD. due_usd: each call as it was reported, else what its prompt costs; 0 where that
    is not known.
    """

    turns: int
    costs: Costs
    due_usd: float = 0.0


#: Asked before a call is decided on; raises LimitError where it is not to be made.
AdmissionCheck: TypeAlias = Callable[[SessionStatus], None]


@dataclass(frozen=True, slots=True, repr=False)
class ContextView:
    """The context of the next call.

    sent:     the parts of its request.
    deferred: the diagnostics, which are built when they are first read.
    source:   what `text()` renders; None where a failed preparation passed the messages on.
    read:     which parts of the session's views the caller has read so far.
    """

    sent: OutgoingRequest
    dialect: str
    deferred: Deferred[Diagnostics] = field(compare=False)
    source: PromptSource | None = field(default=None, compare=False)
    read: SentParts = field(default_factory=SentParts, compare=False)

    def __repr__(self) -> str:
        parts = {"dialect": self.dialect, "diagnostics": self.diagnostics, "extra": self.extra, "betas": self.betas}
        return f"ContextView({', '.join(f'{name}={value!r}' for name, value in parts.items())})"

    def __str__(self) -> str:
        return self.diagnostics.describe()

    def _repr_html_(self) -> str:
        return draw_value(self.diagnostics)

    @property
    def diagnostics(self) -> Diagnostics:
        """What the call did: tokens, costs, what it hid and why, and what failed."""
        return self.deferred.read()

    def text(self) -> str:
        """Return the context as one text, for an agent that sends a single prompt string instead of messages.

        System prompt and task, then `Turn n:` with `Reasoning:`, `Action:` and `Observation:` a turn, and
        `[Summary through turn n: ...]` in place of what a summary covers. Hidden results are placeholders. Tool
        definitions are left out. Raises DialectError where what was passed on unread are no messages.
        """
        if self.source is not None:
            return render_prompt(self.source, self.dialect)
        return render_messages(self.sent.messages, self.sent.system, self.dialect)

    @property
    def messages(self) -> list[Any]:
        """For `messages` (Responses: `input`). What was not touched is the very object that was given; the others are
        not to be changed."""
        self.read.has_messages = True
        return self.sent.messages

    @property
    def origins(self) -> list[int | None]:
        """For each of `messages` the index of the given message that it stands for.

        It is None for a summary, and for turns that were added by hand. A message that joins several stands for the
        first of them.
        """
        return self.sent.origins

    @property
    def system(self) -> Any:
        """The system prompt as given, or as it must be sent instead."""
        return self.sent.system

    @property
    def tools(self) -> Any:
        """The tools as given, or as they must be sent instead: with Elision's behind your own."""
        self.read.has_tools = True
        return self.sent.tools

    @property
    def added_tools(self) -> list[dict[str, Any]]:
        """Those of `tools` that Elision added, and whose calls it answers."""
        self.read.has_tools = True
        return list(self.sent.added_tools)

    @property
    def extra(self) -> Mapping[str, Any]:
        """More fields of the request that a provider needs (`context_management`, `thinking`)."""
        return self.sent.extra

    @property
    def betas(self) -> tuple[str, ...]:
        """Values for the `anthropic-beta` header."""
        return self.sent.betas

    @property
    def offered(self) -> bool:
        """Whether Elision added tools whose calls it answers."""
        return bool(self.sent.added_tools)

    @property
    def request(self) -> RequestFields:
        """Keyword arguments for the provider's package: the messages under their name, and the other parts given.

        Where an API has no field for the system prompt, it is the first message.
        """
        provider = find_provider(self.dialect)
        # No provider takes an empty list of tools.
        given = {provider.system_field: self.system, "tools": self.tools or None}
        kept = {name: value for name, value in given.items() if name and value is not None}
        messages = self.messages
        if self.system is not None and not provider.system_field:
            messages = [{"role": "system", "content": self.system}, *messages]
        fields: Any = {provider.list_field: messages, **kept, **self.extra}
        return RequestFields(fields)
