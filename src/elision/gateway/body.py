"""A request's body, taken apart so that whatever is not touched keeps its very bytes.

Messages are bytes until somebody asks what one says. A body is read in one pass of a C parser, and the next one of the
same conversation only from where it goes on: what it shares with the one before is found by comparing memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from elision.dialects import text_in
from elision.errors import MissingExtra
from elision.gateway import spans
from elision.gateway.routes import Api
from elision.gateway.spans import Array, Edit, Field, Laid, Unreadable

try:
    import msgspec
except ImportError as error:
    raise MissingExtra("the gateway", "gateway") from error

__all__ = ["RequestBody", "Unreadable", "decoded"]

#: API -> the field that holds its messages.
_LISTED: Final[Mapping[Api, str]] = {"openai": "messages", "anthropic": "messages", "openai-responses": "input"}
#: Messages at a request's end that the next one may say with other cache markers: four breakpoints, two messages each.
_UNSETTLED: Final = 8
#: Bytes of a field from and up to which what it says is kept, for the next session that begins with it.
_SMALL = 256
_LARGE = 1 << 18
#: Fields of the list's name that are looked at before the list is searched for in another way.
_TRIES: Final = 4


class _Messages(msgspec.Struct, gc=False):
    messages: list[msgspec.Raw]


class _Input(msgspec.Struct, gc=False):
    input: list[msgspec.Raw]


_MESSAGES: Final = msgspec.json.Decoder(_Messages)
_INPUT: Final = msgspec.json.Decoder(_Input)


def decoded(raw: bytes) -> dict[str, Any]:
    """One message. Raises Unreadable where it is no JSON object, or holds what Python has no value for."""
    found = spans.decoded(raw)
    if not isinstance(found, dict):
        raise Unreadable("a message is no JSON object")
    return found


class _Parts(NamedTuple):
    """A body: all its fields, the one that holds the messages, and these. text: whether it is one string instead.
    laid: where they stand, if that is known."""

    fields: list[Field]
    own: Field | None
    values: list[bytes]
    text: bool = False
    laid: Laid | None = None


class RequestBody:
    """The body of one request; `parse` makes them. Nothing that it returns is to be changed.

    raw:      as it came. api: whose shape it has.
    messages: the bytes of each message (Responses: item), in order; all of them are JSON objects. The very objects of
              the body before where they are the same. Where Responses gives a string, the item that it stands for.
    model, stream: "" and False where they are absent or of another type.
    """

    __slots__ = ("_array", "_decoded", "_own", "_parts", "_spans", "api", "messages", "model", "raw", "stream")

    def __init__(self, raw: bytes, api: Api, parts: _Parts, before: RequestBody | None) -> None:
        self.raw = raw
        self.api = api
        self._parts = parts
        self._own = parts.own
        self._spans = {field.name: field for field in parts.fields}
        self.messages = parts.values
        self._array: Array | None = None
        if parts.own is not None and not parts.text and raw.startswith(b"[", parts.own.start):
            self._array = Array(raw, parts.own.start, parts.values, parts.laid)
        self._decoded: dict[str, Any] = before._still(self) if before is not None else {}
        self.model = text_in(self.field("model"))
        self.stream = self.field("stream") is True

    @classmethod
    def parse(cls, raw: bytes, api: Api, before: RequestBody | None = None) -> RequestBody:
        """`raw` taken apart; in one pass, and with `before` only from where it says something else.

        before: an earlier body, best of the same conversation; what comes out is the same without it. Raises Unreadable
        where `raw` is no JSON object or its messages are no list of objects. Letters and sizes of numbers within are
        not looked at: what cannot be decoded raises where it is asked for.
        """
        name = _LISTED[api]
        if before is not None and before.api != api:
            before = None
        try:
            if before is not None:
                parts = before._continued(raw, name)
            else:
                parts = None
            parts = parts or _at_once(raw, name) or _by_fields(raw, name)
            if len(parts.fields) > spans.MOST_FIELDS:
                raise Unreadable(f"an object has more than {spans.MOST_FIELDS} fields")
            return cls(raw, api, parts, before)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"the body is no JSON that can be taken apart: {error}") from error

    @classmethod
    def parse_new(cls, raw: bytes, api: Api, before: RequestBody | None, most: int) -> RequestBody | None:
        """The same where at most `most` bytes of `raw` are to be read anew; None where there is more. Raises
        Unreadable."""
        if len(raw) <= most:
            return cls.parse(raw, api, before)
        if before is None or before.api != api or len(raw) - before._shared_end(raw) > most:
            return None
        try:
            parts = before._continued(raw, _LISTED[api])
            if parts is None or len(parts.fields) > spans.MOST_FIELDS:
                return None
            return cls(raw, api, parts, before)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"the body is no JSON that can be taken apart: {error}") from error

    def survey(self, raw: bytes) -> None:
        """Raise Unreadable where what `raw` says behind what it shares with this body is more than is read."""
        spans.survey(raw, self._shared_end(raw))

    def _shared_end(self, raw: bytes) -> int:
        """Where the last leading message ends that stands in `raw` as it stands here; 0 if none does."""
        shared = self._shared(raw)
        if shared and self._array is not None:
            return self._array.ends[shared - 1]
        return 0

    def measure(self) -> None:
        """Find the places of all messages now, which would else be done when they are first asked for."""
        if self._array is not None:
            _ = self._array.laid

    @property
    def from_text(self) -> bool:
        """Whether the one item stands for a string (Responses)."""
        return self._parts.text

    # -- what it says ----------------------------------------------------------------------------------------------

    def raw_field(self, name: str) -> bytes | None:
        """The bytes of a top-level field's value, of the last one where there are several; None where there is none."""
        found = self._spans.get(name)
        if found is None:
            return None
        return self.raw[found.start : found.end]

    def field(self, name: str) -> Any:
        """A top-level field, decoded once; None where there is none. Raises Unreadable where it cannot be decoded."""
        if name not in self._decoded:
            raw = self.raw_field(name)
            if raw is None:
                return None
            self._decoded[name] = _value(raw)
        return self._decoded[name]

    def _still(self, other: RequestBody) -> dict[str, Any]:
        """What was decoded here and stands in `other` in the same bytes."""
        return {name: value for name, value in self._decoded.items() if self._has_field_of(other, name)}

    def _has_field_of(self, other: RequestBody, name: str) -> bool:
        """Whether a top-level field stands in both in the same bytes; compared where they stand."""
        own = self._spans.get(name)
        found = other._spans.get(name)
        if own is None or found is None or own.end - own.start != found.end - found.start:
            return False
        return other.raw.startswith(memoryview(self.raw)[own.start : own.end], found.start)

    # -- with other bytes in it ------------------------------------------------------------------------------------

    def with_changes(
        self, *, messages: Sequence[bytes] | None = None, fields: Mapping[str, bytes] = MappingProxyType({})
    ) -> bytes:
        """The body with these messages, and with top-level fields set to these bytes; new ones stand at the end.

        Everything else keeps its very bytes, white space, order and doubles included; of a field that is there several
        times the last one is set. Raises ValueError where the list of messages is given in both ways.
        """
        name = _LISTED[self.api]
        if messages is not None and name in fields:
            raise ValueError(f"{name!r} is given as messages and as a field")
        set_to = dict(fields)
        edits: list[Edit] = []
        if messages is not None and self._array is not None:
            edits = self._array.edits(messages)
        elif messages is not None and list(messages) != self.messages:
            set_to[name] = b"[" + b",".join(messages) + b"]"
        known = {each: value for each, value in set_to.items() if each in self._spans}
        edits += [Edit(self._spans[each].start, self._spans[each].end, value) for each, value in known.items()]
        own = self._parts.fields
        new = [(each, value) for each, value in set_to.items() if each not in known]
        return spans.spliced(self.raw, chain(edits, spans.added(self.raw, own, new, first=not own)))

    # -- the next of its conversation ------------------------------------------------------------------------------

    def begins(self, raw: bytes) -> bool:
        """Whether `raw` probably goes on from this body: all but the newest messages stand there in the same bytes."""
        if self._array is not None:
            ends = self._array.ends
        else:
            ends = []
        if not ends:
            return False
        return raw.startswith(memoryview(self.raw)[: ends[max(len(ends) - _UNSETTLED, (len(ends) - 1) // 2)]])

    def _shared(self, raw: bytes) -> int:
        """How many leading messages stand in `raw` in the same bytes and at the same place, as all in front of them."""
        ends = self._array.ends if self._array is not None else []
        view = memoryview(self.raw)
        if ends and raw.startswith(view[: ends[-1]]):
            return len(ends)
        shared = 0
        differs = len(ends)
        at = 0
        while differs - shared > 1:
            middle = (shared + differs) // 2
            if raw.startswith(view[at : ends[middle - 1]], at):
                shared = middle
                at = ends[middle - 1]
            else:
                differs = middle
        return shared

    def _continued(self, raw: bytes, name: str) -> _Parts | None:
        """`raw` read from the end of the last message that it shares with this body; None where that does not do.

        A parser that has come to the same place by the same bytes goes on in the same way, so what is read there is the
        rest behind the beginning of a body in which one empty message stands for all that are shared.
        """
        shared = self._shared(raw)
        if not shared or self._array is None or self._own is None:
            return None
        end = self._array.ends[shared - 1]
        opening = b'{"%b":[{}' % name.encode()
        body = opening + raw[end:]
        rest = _at_once(body, name)
        if rest is None or rest.own is None:
            return None
        by = end - len(opening)
        found = [_moved(field, by) for field in rest.fields]
        # A list is found at once only where no other field has its name, so it is the first.
        own = self._own._replace(end=found[0].end)
        ahead = [field for field in self._parts.fields if field.end <= own.start]
        laid = self._array.followed(shared, Array(body, rest.own.start, rest.values), by)
        return _Parts([*ahead, own, *found[1:]], own, self.messages[:shared] + rest.values[1:], laid=laid)


@lru_cache(maxsize=32)
def _held(raw: bytes) -> Any:
    return spans.decoded(raw)


def _value(raw: bytes) -> Any:
    """What a field says. The sessions of an agent begin with the same tools and prompts, which are read once."""
    if _SMALL < len(raw) < _LARGE:
        return _held(raw)
    return spans.decoded(raw)


def _moved(field: Field, by: int) -> Field:
    return Field(field.name, field.key + by, field.start + by, field.end + by)


def _at_once(raw: bytes, name: str) -> _Parts | None:
    """A body whose messages are found in one pass; None where that cannot be.

    The parser gives the elements of the list and says nothing of its place. That is looked for by its bytes, and
    proven: with 0 in that place, the small body that is left has the 0 in its only field of that name.
    """
    values = _elements(raw, name)
    if values is None:
        place = None
    else:
        place = _place(raw, name, values)
    if values is None or place is None:
        return None
    start, end = place
    found = spans.fields(b"%b0%b" % (raw[:start], raw[end:]))
    own = [field for field in found if field.name == name]
    if len(own) != 1 or own[0].start != start:
        return None
    by = end - start - 1
    fields = [field if field.start < start else _moved(field, by) for field in found]
    fields[found.index(own[0])] = whole = own[0]._replace(end=end)
    return _Parts(fields, whole, _objects(values))


def _elements(raw: bytes, name: str) -> list[bytes] | None:
    try:
        if name == "input":
            found = _INPUT.decode(raw).input
        else:
            found = _MESSAGES.decode(raw).messages
    except ValueError:
        return None
    return spans.copy_values(found)


def _place(raw: bytes, name: str, values: Sequence[bytes]) -> tuple[int, int] | None:
    """From where to where an array of `values` stands behind this name, at whatever level."""
    key = b'"%b"' % name.encode()
    at = -1
    for _ in range(_TRIES):
        at = raw.find(key, at + 1)
        if at >= 0:
            start = spans.opens(raw, at + len(key))
        else:
            start = None
        if start is not None:
            end = spans.closes(raw, start, values)
        else:
            end = None
        if start is not None and end is not None:
            return start, end
    return None


def _by_fields(raw: bytes, name: str) -> _Parts:
    """Any body: first its fields, then the list."""
    fields = spans.fields(raw)
    own = next((field for field in reversed(fields) if field.name == name), None)
    if own is not None:
        value = raw[own.start : own.end]
    else:
        value = b"null"
    if value == b"null":
        return _Parts(fields, own, [])
    if value.startswith(b'"') and name == "input":
        return _Parts(fields, own, [b'{"role":"user","content":%b}' % value], text=True)
    return _Parts(fields, own, _objects(spans.elements(value)))


def _objects(values: list[bytes]) -> list[bytes]:
    if all(value[0] == 123 for value in values):
        return values
    raise Unreadable("a message is no JSON object")
