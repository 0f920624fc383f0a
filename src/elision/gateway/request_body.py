"""A request's parsed body, in which everything unchanged keeps its bytes.

Messages stay bytes until one is decoded. A body is parsed in one pass in C. The next one of the same conversation is
parsed only from its first new byte: the shared part is found by comparing memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from elision.errors import MissingExtra
from elision.gateway import json_spans
from elision.gateway.json_decoding import decode_json
from elision.gateway.json_spans import ArrayLayout, BytesEdit, JsonArray, JsonField, UnreadableBody
from elision.providers.provider import Api, Target
from elision.providers.provider_table import PROVIDERS
from elision.providers.shared.json_reading import text_in
from elision.trajectory.text_pieces import PIECE

try:
    import msgspec
except ImportError as error:
    raise MissingExtra("the gateway", "gateway") from error

__all__ = ["PreviousBody", "RequestBody", "UnreadableBody", "decode_message"]

#: Messages at a request's end that the next one may say with other cache markers: four breakpoints, two messages each.
_UNSETTLED_MESSAGES: Final = 8
#: Messages that are compared before a body is said to continue another.
_SAMPLES: Final = 4
#: Bytes of a field from and up to which what it says is kept, for the next session that begins with it.
_SMALL = 256
_LARGE = 1 << 18
#: Fields of the list's name that are looked at before the list is searched for in another way.
_MAX_TRIES: Final = 4


class _Messages(msgspec.Struct, gc=False):
    messages: list[msgspec.Raw]


class _Input(msgspec.Struct, gc=False):
    input: list[msgspec.Raw]


_MESSAGES: Final = msgspec.json.Decoder(_Messages)
_INPUT: Final = msgspec.json.Decoder(_Input)


def decode_message(raw: bytes) -> dict[str, Any]:
    """Return one message. Raises UnreadableBody where it is no JSON object, or has a value that Python lacks."""
    found = decode_json(raw)
    if not isinstance(found, dict):
        raise UnreadableBody("a message is no JSON object")
    return found


class _BodyParts(NamedTuple):
    """All fields of a body, the one with the messages, and their bytes. is_text: whether it is a string instead.

    layout: of the messages, if that is known. shared_end: where the part ends that is shared with the previous body.
    """

    fields: list[JsonField]
    list_field: JsonField | None
    values: list[bytes]
    is_text: bool = False
    layout: ArrayLayout | None = None
    shared_end: int = 0


class RequestBody:
    """The body of one request; `parse` makes them. Do not change what its methods return.

    raw:      its bytes. api: its format.
    messages: the bytes of each message (Responses: item), in order; all of them are JSON objects. Those that equal the
              previous body's are the same objects. A string of Responses is one item.
    model, stream: "" and False where they are absent or of another type.
    """

    __slots__ = (
        "_array",
        "_decoded",
        "_fields_by_name",
        "_list_field",
        "_parts",
        "api",
        "messages",
        "model",
        "raw",
        "stream",
    )

    def __init__(
        self, raw: bytes, api: Api, parts: _BodyParts, previous: PreviousBody | None, target: Target | None
    ) -> None:
        self.raw = raw
        self.api = api
        self._parts = parts
        self._list_field = parts.list_field
        self._fields_by_name = {field.name: field for field in parts.fields}
        self.messages = parts.values
        self._array: JsonArray | None = None
        if parts.list_field is not None and not parts.is_text and raw.startswith(b"[", parts.list_field.start):
            self._array = JsonArray(raw, parts.list_field.start, parts.values, parts.layout)
        self._decoded: dict[str, Any] = previous.keep_decoded(self) if previous is not None else {}
        if target is None:
            target = Target(model=text_in(self.get_field("model")), stream=self.get_field("stream") is True)
        self.model = target.model
        self.stream = target.stream

    @classmethod
    def parse(
        cls, raw: bytes, api: Api, previous: PreviousBody | None = None, *, target: Target | None = None
    ) -> RequestBody:
        """Parse `raw` in one pass, and with `previous` only from the first byte that differs.

        previous: an earlier body, preferably of the same conversation; the result is the same without it.
        target: what the path says of the request; None where the body says it.

        Raises UnreadableBody where `raw` is no JSON object or its messages are no list of objects. Strings and numbers
        inside are not checked: one that cannot be decoded raises when it is read.
        """
        parsed = cls.parse_if_small(raw, api, previous, len(raw), target=target)
        assert parsed is not None
        return parsed

    @classmethod
    def parse_if_small(
        cls, raw: bytes, api: Api, previous: PreviousBody | None, max_new_bytes: int, *, target: Target | None = None
    ) -> RequestBody | None:
        """Do the same if at most `max_new_bytes` of `raw` are new; else return None. Raises UnreadableBody."""
        name = PROVIDERS[api].list_field
        parts = None
        try:
            if previous is not None and previous.api == api:
                shared = previous.count_shared(raw)
                if len(raw) - previous.find_end(shared) <= max_new_bytes:
                    parts = previous.parse_continued(raw, name, shared)
            if parts is None and len(raw) > max_new_bytes:
                return None
            parts = parts or _parse_at_once(raw, name) or _parse_by_fields(raw, name)
            if len(parts.fields) > json_spans.MAX_FIELDS:
                raise UnreadableBody(f"an object has more than {json_spans.MAX_FIELDS} fields")
            return cls(raw, api, parts, previous, target)
        except (ValueError, RecursionError) as error:
            raise UnreadableBody(f"the body is no JSON that can be taken apart: {error}") from error

    @property
    def new_bytes(self) -> int:
        """Return how many bytes are not shared with the previous body."""
        return len(self.raw) - self._parts.shared_end

    def locate_messages(self) -> None:
        """Locate all messages now, instead of at their first use."""
        if self._array is not None:
            _ = self._array.layout

    @property
    def from_text(self) -> bool:
        """Whether the one item stands for a string (Responses)."""
        return self._parts.is_text

    # -- what it says ----------------------------------------------------------------------------------------------

    def get_raw_field(self, name: str) -> bytes | None:
        """Return the bytes of a top-level field's value, of its last one; None where there is none."""
        found = self._fields_by_name.get(name)
        if found is None:
            return None
        return self.raw[found.start : found.end]

    def get_field(self, name: str) -> Any:
        """Return a top-level field, decoded once; None without one. Raises UnreadableBody."""
        if name not in self._decoded:
            raw = self.get_raw_field(name)
            if raw is None:
                return None
            self._decoded[name] = _decode_field(raw)
        return self._decoded[name]

    # -- with other bytes in it ------------------------------------------------------------------------------------

    def render_changes(
        self, *, messages: Sequence[bytes] | None = None, fields: Mapping[str, bytes] = MappingProxyType({})
    ) -> bytes:
        """Return the body with these messages, and with top-level fields set to these bytes; new ones come last.

        Everything else keeps its bytes: white space, order and repeated fields, of which the last is set. Raises
        ValueError where the list of messages is given in both ways.
        """
        name = PROVIDERS[self.api].list_field
        if messages is not None and name in fields:
            raise ValueError(f"{name!r} is given as messages and as a field")
        set_to = dict(fields)
        edits: list[BytesEdit] = []
        if messages is not None and self._array is not None:
            edits = self._array.make_edits(messages)
        elif messages is not None and list(messages) != self.messages:
            set_to[name] = b"[" + b",".join(messages) + b"]"
        known = {each: value for each, value in set_to.items() if each in self._fields_by_name}
        edits += [
            BytesEdit(self._fields_by_name[each].start, self._fields_by_name[each].end, value)
            for each, value in known.items()
        ]
        own = self._parts.fields
        new = [(each, value) for each, value in set_to.items() if each not in known]
        return json_spans.apply_edits(self.raw, chain(edits, json_spans.add_fields(self.raw, own, new, first=not own)))

    # -- the next of its conversation ------------------------------------------------------------------------------

    def make_previous(self, messages: list[bytes]) -> PreviousBody | None:
        """Return what the next body of the conversation is compared with; None where the messages are no plain list.

        messages: equal to those of this body. The conversation's objects are given, so that they are held once.
        Messages with different white space between them are no plain list: such a body is parsed anew each time.
        """
        if self._array is None or self._list_field is None or not self.messages:
            return None
        layout = self._array.layout
        if layout.gap is None:
            return None
        raw_fields = {name: self.get_raw_field(name) or b"" for name in self._decoded}
        return PreviousBody(
            api=self.api,
            opening=self.raw[: layout.ends[0] - len(self.messages[0])],
            messages=messages,
            ends=layout.ends,
            gap=layout.gap,
            fields=[field for field in self._parts.fields if field.end <= self._list_field.start],
            list_field=self._list_field,
            decoded={name: (raw, self._decoded[name]) for name, raw in raw_fields.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousBody:
    """The body of an earlier request: the next one of the conversation is parsed from its first new byte.

    Its messages' bytes are those of the conversation, so that a session holds them once.

    opening: all before the first message. gap: the bytes between two messages. ends: where each message ends.
    fields:  those before the list of messages. decoded: fields that were decoded, each as bytes and value.
    """

    api: Api
    opening: bytes
    messages: list[bytes]
    ends: list[int]
    gap: bytes
    fields: list[JsonField]
    list_field: JsonField
    decoded: Mapping[str, tuple[bytes, Any]]

    def is_prefix_of(self, raw: bytes) -> bool:
        """Return whether `raw` probably continues this body: older messages, a sample, have the same bytes there."""
        if not raw.startswith(self.opening) or not raw.startswith(self.messages[0], len(self.opening)):
            return False
        count = len(self.messages)
        settled = max(count - _UNSETTLED_MESSAGES, (count - 1) // 2)
        return all(
            raw.startswith(self.messages[place], self.ends[place] - len(self.messages[place]))
            for place in {settled * part // _SAMPLES for part in range(_SAMPLES + 1)}
        )

    def find_end(self, shared: int) -> int:
        """Return where the last of so many leading messages ends; 0 for none."""
        return self.ends[shared - 1] if shared else 0

    def keep_decoded(self, body: RequestBody) -> dict[str, Any]:
        """Return the decoded fields that have the same bytes in `body`."""
        return {name: value for name, (raw, value) in self.decoded.items() if body.get_raw_field(name) == raw}

    def count_shared(self, raw: bytes) -> int:
        """Count the leading messages that have the same bytes at the same place in `raw`, with all before them."""
        shared = at = 0
        before, size = self.opening, PIECE
        while shared < len(self.ends):
            # Some at a time: to join all of a long history takes memory and time, and other threads wait meanwhile.
            last = max(bisect_right(self.ends, at + size), shared + 1)
            if raw.startswith(before + self.gap.join(self.messages[shared:last]), at):
                shared, at, before = last, self.ends[last - 1], self.gap
            elif last > shared + 1:
                size //= 4
            else:
                break
        return shared

    def parse_continued(self, raw: bytes, name: str, shared: int) -> _BodyParts | None:
        """Parse `raw` from the end of the last of its `shared` messages; None where that is impossible.

        A parser that has reached the same place by the same bytes continues in the same way. So the rest is parsed
        after the start of a body in which one empty message replaces all shared ones.
        """
        if not shared:
            return None
        end = self.find_end(shared)
        opening = b'{"%b":[{}' % name.encode()
        body = opening + raw[end:]
        rest = _parse_at_once(body, name)
        if rest is None or rest.list_field is None:
            return None
        by = end - len(opening)
        found = [_move_field(field, by) for field in rest.fields]
        # A list is found at once only where no other field has its name, so it is the first.
        own = self.list_field._replace(end=found[0].end)
        layout = ArrayLayout(self.ends, self.gap).extend(
            shared, JsonArray(body, rest.list_field.start, rest.values).layout, by
        )
        return _BodyParts(
            [*self.fields, own, *found[1:]],
            own,
            self.messages[:shared] + rest.values[1:],
            layout=layout,
            shared_end=end,
        )


@lru_cache(maxsize=32)
def _decode_cached(raw: bytes) -> Any:
    return decode_json(raw)


def _decode_field(raw: bytes) -> Any:
    """Decode a field. An agent's sessions begin with the same tools and prompts, which are decoded once."""
    if _SMALL < len(raw) < _LARGE:
        return _decode_cached(raw)
    return decode_json(raw)


def _move_field(field: JsonField, by: int) -> JsonField:
    return JsonField(field.name, field.key_start + by, field.start + by, field.end + by)


def _parse_at_once(raw: bytes, name: str) -> _BodyParts | None:
    """Parse a body whose messages are found in one pass; None where they are not.

    The parser returns the list's elements without their place. The place is found by their bytes, and proven: with 0 in
    that place, the small body that is left has the 0 in its only field of that name.
    """
    values = _decode_elements(raw, name)
    if values is None:
        place = None
    else:
        place = _locate_array(raw, name, values)
    if values is None or place is None:
        return None
    start, end = place
    found = json_spans.parse_fields(b"%b0%b" % (raw[:start], raw[end:]))
    own = [field for field in found if field.name == name]
    if len(own) != 1 or own[0].start != start:
        return None
    by = end - start - 1
    fields = [field if field.start < start else _move_field(field, by) for field in found]
    fields[found.index(own[0])] = whole = own[0]._replace(end=end)
    return _BodyParts(fields, whole, _require_objects(values))


def _decode_elements(raw: bytes, name: str) -> list[bytes] | None:
    try:
        if name == "input":
            found = _INPUT.decode(raw).input
        else:
            found = _MESSAGES.decode(raw).messages
    except ValueError:
        return None
    return json_spans.copy_values(found)


def _locate_array(raw: bytes, name: str, values: Sequence[bytes]) -> tuple[int, int] | None:
    """Return the span of an array of `values` after this name, at any level."""
    key = b'"%b"' % name.encode()
    at = -1
    for _ in range(_MAX_TRIES):
        at = raw.find(key, at + 1)
        if at >= 0:
            start = json_spans.find_array_start(raw, at + len(key))
        else:
            start = None
        if start is not None:
            end = json_spans.find_array_end(raw, start, values)
        else:
            end = None
        if start is not None and end is not None:
            return start, end
    return None


def _parse_by_fields(raw: bytes, name: str) -> _BodyParts:
    """Parse any body: first its fields, then the list."""
    fields = json_spans.parse_fields(raw)
    own = next((field for field in reversed(fields) if field.name == name), None)
    if own is not None:
        value = raw[own.start : own.end]
    else:
        value = b"null"
    if value == b"null":
        return _BodyParts(fields, own, [])
    if value.startswith(b'"') and name == "input":
        return _BodyParts(fields, own, [b'{"role":"user","content":%b}' % value], is_text=True)
    return _BodyParts(fields, own, _require_objects(json_spans.parse_elements(value)))


def _require_objects(values: list[bytes]) -> list[bytes]:
    if all(value[0] == 123 for value in values):
        return values
    raise UnreadableBody("a message is no JSON object")
