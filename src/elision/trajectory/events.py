"""The append-only log of a session, and its JSON. The same events give the same view, in any process (I3).

Stores and exports keep events, turns and heads as JSON objects, and the structs say how these look. What has its
default is left out; keys that are not known are passed over. A turn's fields are beside those of the event that adds
it, and a head's too. Every event bears the version of its form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from elision.errors import StoreError
from elision.trajectory.plan import Edit, Key, Summary
from elision.trajectory.run_roles import SaidRole
from elision.trajectory.turn import Head, Message, Observation, Opaque, Text, Turn
from elision.trajectory.usage import Usage, write_always


class SessionEvent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="e"):
    """What happened in a session; as JSON its `e` names the event, and fields that have their default are left out."""


class EditLists:
    """The edits of an event by kind."""

    __slots__ = ()
    edits: tuple[Edit, ...]

    @property
    def masks(self) -> tuple[Edit, ...]:
        return tuple(edit for edit in self.edits if edit.kind == "mask")

    @property
    def clips(self) -> tuple[Edit, ...]:
        return tuple(edit for edit in self.edits if edit.kind == "clip")

    @property
    def folds(self) -> tuple[Edit, ...]:
        return tuple(edit for edit in self.edits if edit.kind == "fold")

    @property
    def unfolded(self) -> tuple[Key, ...]:
        return tuple(edit.key for edit in self.edits if edit.kind == "whole")


class Deferral(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which tools' definitions a session leaves out of its prompts.

    form: the provider searches them ("native"), or an "outline" stands for each. tools: their names. saved: tokens of
    each prompt.
    """

    form: Literal["native", "outline"] = "outline"
    tools: tuple[str, ...] = ()
    saved: int = 0


class SessionOpened(SessionEvent, frozen=True, kw_only=True, tag="opened"):
    """A live session begins: what is fixed for as long as it lives.

    strategy: as text (`elision.strategies.spec.describe_strategy`); a later process may go on with another one.
    dialect:  whose messages it is fed with; "" where turns are added by hand.
    handles:  whether placeholders name handles; recorded again if that changes before anything is hidden.
    offer:    who puts the recall tools into requests: "caller", us with the "first" placeholder, us from the "start",
              "never" anybody. tools: what we put in, each with `name`, `description` and `input_schema`.
    shadow:   whether requests are sent unchanged, whatever is decided; recorded again when that changes.
    deferral: of which tools the definitions are left out.
    role:     of the agent, as its client says it.
    """

    strategy: str
    dialect: str = ""
    handles: bool = write_always(True)
    shadow: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()
    offer: str = "caller"
    deferral: Deferral = Deferral()
    role: SaidRole = ""

    def defer(self, deferral: Deferral) -> SessionOpened:
        """Return the same with what is left out of prompts. The head of such a session never changes."""
        offer = "start" if deferral.tools and self.offer == "first" else self.offer
        return msgspec.structs.replace(self, deferral=deferral, offer=offer)

    def __hash__(self) -> int:
        return hash((self.strategy, self.dialect, self.handles, self.shadow, self.offer, self.deferral))


class HeadSet(SessionEvent, frozen=True, tag="head"):
    """System prompt, tools and task; once more where they changed, which rewrites everything."""

    head: Head


class TurnAdded(SessionEvent, frozen=True, tag="turn"):
    """Raw first (I1): a turn is in the log before anything of it is hidden.

    node: names the history up to and with this turn by its content; "" if histories are not looked up.
    """

    turn: Turn
    node: str = ""


class HistoryReplaced(SessionEvent, frozen=True, tag="replaced"):
    """The client rewrote the history, and this session begins with the new one: the first record of its own.

    turns: that its parent had then. They are what the session came from.
    """

    turns: int


class TurnAmended(SessionEvent, frozen=True, tag="amended"):
    """The newest turn came again with another ending; nothing of it was hidden yet. The log keeps both."""

    turn: Turn
    node: str = ""


class TurnsDropped(EditLists, SessionEvent, frozen=True, kw_only=True, tag="dropped"):
    """The client no longer sends turns 1 ... `through`: it trims its own history. Views leave them out from now on.

    The log keeps the turns, so they can be recalled. edits: how results are shown whose repeated lines referred to the
    dropped turns. words: what the client sends in their place, such as a summary; they follow its head,
    and take the place of earlier ones. None leaves those where they are.
    """

    through: int
    words: Message | None = None
    edits: tuple[Edit, ...] = ()


class PassDecided(EditLists, SessionEvent, frozen=True, tag="decided"):
    """One pass: everything it hid, at once (I4), or nothing and why.

    offers: whether the recall tools enter with it; they are in every later request. held: whether the strategy was not
    asked, because the store failed. edits: at most one for each observation; a later one takes the place of an earlier.
    bound: whether the provider clears results itself and binds thinking to this request. What the request is the first
    to show folded stays so in every such request. overtaken: whether another process changed the prompt before this was
    stored: the request did not show that. It is held too.
    """

    call: int
    reason: str
    edits: tuple[Edit, ...] = ()
    summary: Summary | None = None
    offers: bool = False
    held: bool = False
    bound: bool = False
    overtaken: bool = False


class SummaryFailed(SessionEvent, frozen=True, kw_only=True, tag="attempted"):
    """A summary was requested and not used; it is billed all the same.

    cause:    one word (`elision.errors.SummaryError.cause`). reason: the sentence.
    input, cached, output: tokens of the failed call (cached is part of input). usd: its cost.
    retry_at: the next call that may ask.
    """

    call: int
    cause: str
    reason: str
    input: int = 0
    cached: int = 0
    output: int = 0
    retry_at: int = 0
    usd: float | None = None


#: When a client that sets no cache breakpoints gets some of ours. never: nor is one found where a rewrite ends.
Breakpoints: TypeAlias = Literal["gaps", "always", "never"]


class RequestSent(SessionEvent, frozen=True, kw_only=True, tag="called"):
    """A request went out.

    at: seconds since the epoch, None if unknown. model: "" if unknown. tokens: of its prompt.
    unmarked: whether its client sets no cache breakpoint. ours: when we set some then: "gaps" once something of ours
              stands in the request, "always", or "never".
    hour_turn: the newest turn for which it asks that cache entries live an hour; 0 for the head alone, None for
              nothing.
    blocked:  whether the recall tools must not enter it.
    """

    call: int
    at: float | None = None
    model: str = ""
    tokens: int
    unmarked: bool = False
    ours: Breakpoints = "gaps"
    hour_turn: int | None = None
    blocked: bool = False


class UsageReported(SessionEvent, frozen=True, kw_only=True, tag="answered"):
    """What the provider reported for call `call`."""

    call: int
    usage: Usage


class ObservationRecalled(SessionEvent, frozen=True, kw_only=True, tag="recalled"):
    """Something hidden was read again before call `call`.

    key:    the observation. tokens: of what was returned. by: "tool" (the agent asked) or "user".
    """

    call: int
    key: Key
    tokens: int
    by: str = write_always("tool")


class WindowLearned(SessionEvent, frozen=True, kw_only=True, tag="learned"):
    """The provider named the size of its window, in tokens, when it refused call `call`.

    tokens: of that call's prompt, as the provider counted them; 0 if it did not say.
    """

    call: int
    window: int
    tokens: int = 0


class RecallExchanged(SessionEvent, frozen=True, kw_only=True, tag="exchanged"):
    """Messages between us and the provider that the client never saw: a recall that was answered on its behalf.

    call:     the request that the last of them answers.
    node:     names the client's own history, which ends with the one message that it was shown instead.
    messages: JSON texts, in the dialect's own shape, that stand upstream in place of that message; the last one is what
              corresponds to it.
    results:  JSON texts of what joins the front of the client's next message.
    """

    call: int
    node: str
    messages: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


Event: TypeAlias = (
    SessionOpened
    | HeadSet
    | TurnAdded
    | TurnAmended
    | HistoryReplaced
    | TurnsDropped
    | PassDecided
    | SummaryFailed
    | RequestSent
    | UsageReported
    | ObservationRecalled
    | WindowLearned
    | RecallExchanged
)


#: Version of the form of a record. A record that names none has version 1.
RECORD_VERSION: Final = 1
_EVENT_TYPES: Final[dict[str, Any]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Event)}
for _kind in (*_EVENT_TYPES.values(), Turn, Observation, Text):
    # msgspec reads a class's annotations at its first use: here, as it crashed where several threads did so at once.
    msgspec.json.Decoder(_kind)


def encode_event(event: Event) -> dict[str, Any]:
    """Return `event` as a JSON object: `e` names it, `v` is the version of its form."""
    value = _convert_to_json(event)
    if isinstance(event, TurnAdded | TurnAmended):
        value.update(value.pop("turn"))
        _sort_tags(value)
    elif isinstance(event, HeadSet):
        value.update(value.pop("head"))
    elif isinstance(event, RecallExchanged):
        # As parts of a message are written, so that stores keep what is large in them once.
        for name in {"messages", "results"} & value.keys():
            value[name] = [{"text": text} for text in value[name]]
    value["v"] = RECORD_VERSION
    return value


def decode_event(value: dict[str, Any]) -> Event:
    """Return the event that `encode_event` wrote. `value` is used up.

    Raises ValueError naming the field that is wrong, StoreError for a version that a newer Elision wrote.
    """
    check_version(value)
    kind = str(value.get("e"))
    if kind not in _EVENT_TYPES:
        raise ValueError(f"unknown event {kind[:40]!r}: written by a newer Elision?")
    if kind == "exchanged":
        texts = {name: msgspec.convert(value.get(name, []), list[Text]) for name in ("messages", "results")}
        value = value | {name: [part.text for part in parts] for name, parts in texts.items()}
    else:
        _decode_parts(value)
    if kind in ("turn", "amended"):
        value = {"e": kind, "node": value.get("node", ""), "turn": value}
    elif kind == "head":
        value = {"e": kind, "head": value}
    # By its own type: msgspec would study the union of all of them anew at each call.
    event: Event = msgspec.convert(value, _EVENT_TYPES[kind])
    return event


def check_version(value: Mapping[str, Any]) -> None:
    """Raise StoreError for the JSON of an event that a newer Elision wrote."""
    version = value.get("v", 1)
    if isinstance(version, int) and version > RECORD_VERSION:
        raise StoreError(
            f"a record has version {version}, and this Elision reads versions up to {RECORD_VERSION}: a newer Elision "
            "wrote it; update elision"
        )


def encode_turn(turn: Turn) -> dict[str, Any]:
    value = _convert_to_json(turn)
    _sort_tags(value)
    return value


def decode_turn(value: dict[str, Any]) -> Turn:
    """Return the turn that `encode_turn` wrote. `value` is used up. Raises ValueError naming the wrong field."""
    _decode_parts(value)
    return msgspec.convert(value, Turn)


def decode_observation(value: dict[str, Any]) -> Observation:
    """Return one of the `observations` of `encode_turn`. `value` is used up. Raises ValueError."""
    _decode_parts(value)
    return msgspec.convert(value, Observation)


def encode_head(head: Head) -> dict[str, Any]:
    return _convert_to_json(head)


def decode_head(value: dict[str, Any]) -> Head:
    """Return the head that `encode_head` wrote. `value` is used up. Raises ValueError naming the wrong field."""
    _decode_parts(value)
    return msgspec.convert(value, Head)


def find_parts(value: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield where content parts are in the JSON of an event, a turn or a head: an object, and its field with them."""
    if value.get("e") == "exchanged":
        holders = [(value, "messages"), (value, "results")]
    else:
        holders = [(value, "content")]
        for name in ("observations", "interjections", "messages"):
            items = value.get(name)
            if isinstance(items, (list, tuple)):
                holders += [(item, "content") for item in items if isinstance(item, dict)]
    for holder, name in holders:
        if isinstance(holder.get(name), (list, tuple)):
            yield holder, name


def simplify_foreign(value: object) -> object:
    """Return a client's own kind of text, number or mapping as the plain one. Raises TypeError or ValueError."""
    for plain in (str, int, float):
        if isinstance(value, plain):
            return plain(value)
    return dict(value)  # type: ignore[call-overload]


def _decode_parts(value: dict[str, Any]) -> None:
    for holder, name in find_parts(value):
        holder[name] = tuple(
            msgspec.convert(part, Opaque if isinstance(part, dict) and "opaque" in part else Text)
            for part in holder[name]
        )


def _convert_to_json(value: msgspec.Struct) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(value, enc_hook=simplify_foreign)
    return found


def _sort_tags(turn: dict[str, Any]) -> None:
    for observation in turn.get("observations", ()):
        if "tags" in observation:
            observation["tags"] = sorted(observation["tags"])
