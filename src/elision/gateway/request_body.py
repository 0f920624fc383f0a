"""A request's parsed body, in which everything unchanged keeps its bytes.

msgspec splits one level of a body in C: its fields, and its messages, which stay bytes until one is decoded. The next
body of the same conversation is parsed only from its first new byte: the shared part is found by comparing memory.

`MessageEncoder` writes a view's messages: unchanged ones keep the client's bytes, the others as many of them as
possible. `remove_body_tags` takes tags out of a request that is forwarded without a session, since providers reject
fields that they do not know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, compress, count, repeat
from operator import not_, sub
from types import MappingProxyType
from typing import Any, Final

import msgspec

from elision.gateway.json_bytes import UnreadableBody, check_size, decode_json, patch_json
from elision.providers.live.client_messages import ParsedMessage
from elision.providers.provider import Api, Target
from elision.providers.provider_table import PROVIDERS
from elision.providers.shared.json_reading import TAG_FIELDS, take_tags, text_in
from elision.trajectory.foreign_text import PIECE

__all__ = ["PreviousBody", "RequestBody", "UnreadableBody", "decode_message"]

#: Fields of a body; providers know about sixty.
MAX_FIELDS: Final = 1_000
#: Messages at a request's end that the next one may say with other cache markers: four breakpoints, two messages each.
_UNSETTLED_MESSAGES: Final = 8
#: Messages that are compared before a body is said to continue another.
_SAMPLES: Final = 4
#: Bytes of a field from and up to which what it says is kept, for the next session that begins with it.
_SMALL = 256
_LARGE = 1 << 18
#: Bytes by which the list of messages is searched, and places that are looked at.
_HEAD_BYTES: Final = 256
_MAX_TRIES: Final = 4

_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_decode_cached: Final = lru_cache(maxsize=32)(decode_json)
#: One search for all names of fields with tags: it runs at the speed of a search for one of them.
_FIELD_NAME: Final = re.compile(b'"(?:%b)"' % b"|".join(re.escape(name).encode() for name in sorted(TAG_FIELDS)))
#: A letter, dot or underscore that JSON escapes without need: a name may be written so.
_ESCAPED_NAME_CHARACTER: Final = re.compile(rb"\\u00(?:2[eE]|5[fF]|[67][0-9a-fA-F])")
#: Bytes by which two pieces overlap: no name or escape is longer.
_OVERLAP_BYTES: Final = max(map(len, TAG_FIELDS)) + 2


def decode_message(raw: bytes) -> dict[str, Any]:
    """Return one message. Raises UnreadableBody where it is no JSON object, or has a value that Python lacks."""
    found = decode_json(raw)
    if not isinstance(found, dict):
        raise UnreadableBody("a message is not a JSON object")
    return found


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the messages of a body are: after `opening`, with `gap` between any two, each from its start on.

    fields: those in `opening`.
    """

    opening: bytes
    gap: bytes
    starts: list[int]
    fields: Mapping[str, msgspec.Raw]


class RequestBody:
    """The body of one request; `parse` makes them. Do not change what its methods return.

    raw:       its bytes. api: its format.
    messages:  the bytes of each message (Responses: item), in order; all of them are JSON objects. Those that equal the
               previous body's are the same objects. A string of Responses is one item.
    model, stream: "" and False where they are absent or of another type.
    new_bytes: how many bytes are not shared with the previous body.
    """

    __slots__ = ("_decoded", "_fields", "_is_list", "_layout", "api", "messages", "model", "new_bytes", "raw", "stream")

    def __init__(self, raw: bytes, api: Api, previous: PreviousBody | None, shared: int, target: Target | None) -> None:
        """Parse `raw`, of which so many messages are those of `previous`. Raises ValueError and RecursionError."""
        self.raw = raw
        self.api = api
        if previous is None or not shared or not self._parse_rest(previous, shared):
            self._parse_whole()
        if len(self._fields) > MAX_FIELDS:
            raise UnreadableBody(f"an object has more than {MAX_FIELDS} fields")
        self._decoded: dict[str, Any] = {}
        if previous is not None:
            before = previous.decoded.items()
            self._decoded = {name: value for name, (own, value) in before if self.get_raw_field(name) == own}
        if target is None:
            target = Target(model=text_in(self.get_field("model")), stream=self.get_field("stream") is True)
        self.model = target.model
        self.stream = target.stream

    @classmethod
    def parse(
        cls, raw: bytes, api: Api, previous: PreviousBody | None = None, *, target: Target | None = None
    ) -> RequestBody:
        """Parse `raw`, and with `previous` only from the first byte that differs.

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
        """Parse `raw` if at most `max_new_bytes` of it are new; else return None. Raises UnreadableBody."""
        shared = previous.count_shared(raw) if previous is not None and previous.api == api else 0
        if len(raw) - (previous.find_end(shared) if previous is not None else 0) > max_new_bytes:
            return None
        try:
            return cls(raw, api, previous, shared, target)
        except (ValueError, RecursionError) as error:
            raise UnreadableBody(f"the body is not readable JSON: {error}") from error

    def _parse_whole(self) -> None:
        name = PROVIDERS[self.api].list_field
        self._fields = _FIELDS.decode(self.raw)
        own = memoryview(self._fields.get(name, msgspec.Raw(b"null")))
        self._is_list = False
        self._layout: _Layout | None = None
        self.new_bytes = len(self.raw)
        if bytes(own[:5]) == b"null":
            self.messages: list[bytes] = []
        elif own[0] == ord('"') and name == "input":
            self.messages = [b'{"role":"user","content":%b}' % bytes(own)]
        else:
            self._is_list = True
            self.messages = _split_list(own)
            if self.messages and (opening := _find_opening(self.raw, own)):
                self._layout = self._lay_out(opening, [len(opening)], _read_opening(opening, name))

    def _parse_rest(self, previous: PreviousBody, shared: int) -> bool:
        """Parse the body after its shared messages; return False where that is impossible.

        A parser that has reached the same place by the same bytes continues in the same way. So the rest is parsed
        after the start of a body in which one empty message replaces all shared ones.
        """
        name = PROVIDERS[self.api].list_field
        end = previous.find_end(shared)
        opening = b'{"%b":' % name.encode()
        rest_body = b"%b[{}%b" % (opening, self.raw[end:])
        rest = _FIELDS.decode(rest_body)
        own = memoryview(rest[name])
        # Of fields of one name the last counts, and that may be another list than this.
        if not rest_body.startswith(own, len(opening)):
            return False
        before = previous.layout
        self.messages = previous.messages[:shared] + _split_list(own)[1:]
        self._fields = {**before.fields, **rest}
        self._is_list = True
        self.new_bytes = len(self.raw) - end
        self._layout = self._lay_out(before.opening, before.starts[:shared], before.fields)
        return True

    def _lay_out(self, opening: bytes, starts: list[int], fields: Mapping[str, msgspec.Raw] | None) -> _Layout | None:
        """Return where all messages are; None where the space between them differs. starts: of the first ones."""
        end = starts[0] + len(self.messages[0])
        gap = b","
        if len(self.messages) > 1:
            gap = self.raw[end : self.raw.index(b"{", end)]
        new = self.messages[len(starts) :]
        end = starts[-1] + len(self.messages[len(starts) - 1])
        step = len(gap)
        if fields is None or (
            new and not (self.raw.startswith(gap, end) and self.raw.startswith(gap.join(new), end + step))
        ):
            return None
        ends = accumulate([step + len(message) for message in new[:-1]], initial=end) if new else ()
        return _Layout(opening, gap, [*starts, *(each + step for each in ends)], fields)

    # -- what it says ----------------------------------------------------------------------------------------------

    def get_raw_field(self, name: str) -> bytes | None:
        """Return the bytes of a top-level field that is not the list of messages, of its last one; None without one."""
        found = self._fields.get(name)
        return None if found is None else bytes(found)

    def get_field(self, name: str) -> Any:
        """Return a top-level field, decoded once; None without one. Raises UnreadableBody."""
        if name not in self._decoded:
            found = self._fields.get(name)
            if found is None:
                return None
            raw = bytes(found)
            # An agent's sessions begin with the same tools and prompts, which are decoded once.
            self._decoded[name] = _decode_cached(raw) if _SMALL < len(raw) < _LARGE else decode_json(raw)
        return self._decoded[name]

    # -- with other bytes in it ------------------------------------------------------------------------------------

    def render_changes(
        self, *, messages: Sequence[bytes] | None = None, fields: Mapping[str, bytes] = MappingProxyType({})
    ) -> bytes:
        """Return the body with these messages, and with top-level fields set to these bytes; new ones come last.

        Without a change it is `raw`. In a changed one every other message and value keeps its bytes, and every field
        its place; white space between them is left out, and of fields of one name the last stays.
        """
        if messages is not None and list(messages) == self.messages:
            messages = None
        if messages is None and not fields:
            return self.raw
        changed = dict(self._fields)
        if messages is not None or self._is_list:
            whole = b"[%b]" % b",".join(self.messages if messages is None else messages)
            changed[PROVIDERS[self.api].list_field] = msgspec.Raw(whole)
        changed |= {name: msgspec.Raw(value) for name, value in fields.items()}
        return msgspec.json.encode(changed)

    def replace_field(self, name: str, value: bytes) -> RequestBody | None:
        """Return the body with other bytes for a field that it has, and every other byte as it is; None where its
        bytes cannot be told from others."""
        own = self.get_raw_field(name) or b""
        at = -1
        for _ in range(_MAX_TRIES if own else 0):
            at = self.raw.find(own, at + 1)
            if at < 0:
                break
            # Only in the place of the field itself does another value change the field, and nothing else.
            before, after = self.raw[:at], self.raw[at + len(own) :]
            try:
                found_fields = _FIELDS.decode(b"%bnull%b" % (before, after))
            except ValueError:
                continue
            if found_fields.get(name) == msgspec.Raw(b"null") and self._has_same_others(found_fields, name):
                found = copy(self)
                found.raw = b"%b%b%b" % (before, value, after)
                found._fields = {**self._fields, name: msgspec.Raw(value)}
                found._decoded = {field: each for field, each in self._decoded.items() if field != name}
                found._layout = None
                return found
        return None

    def _has_same_others(self, fields: Mapping[str, msgspec.Raw], name: str) -> bool:
        """Return whether `fields` has those of this body, and the same values of all but `name` and the messages.

        Those of a body that continues another are not all in its fields; a change in them leaves `name` as it was.
        """
        left_out = {name, PROVIDERS[self.api].list_field}
        kept, found = ({key: each[key] for key in each if key not in left_out} for each in (self._fields, fields))
        return kept == found and fields.keys() == self._fields.keys()

    # -- the next of its conversation ------------------------------------------------------------------------------

    def make_previous(self, messages: list[bytes]) -> PreviousBody | None:
        """Return what the next body of the conversation is compared with; None where the messages are no plain list.

        messages: equal to those of this body. The conversation's objects are given, so that they are held once.
        Messages with different white space between them are no plain list: such a body is parsed anew each time.
        """
        if self._layout is None:
            return None
        decoded = {name: (self.get_raw_field(name) or b"", value) for name, value in self._decoded.items()}
        return PreviousBody(self.api, messages, self._layout, decoded)


@dataclass(frozen=True, slots=True)
class PreviousBody:
    """The body of an earlier request: the next one of the conversation is parsed from its first new byte.

    Its messages' bytes are those of the conversation, so that a session holds them once.
    layout: where they were. decoded: fields that were decoded, each as bytes and value.
    """

    api: Api
    messages: list[bytes]
    layout: _Layout
    decoded: Mapping[str, tuple[bytes, Any]]

    def is_prefix_of(self, raw: bytes) -> bool:
        """Return whether `raw` probably continues this body: older messages, a sample, have the same bytes there."""
        if not raw.startswith(self.layout.opening):
            return False
        last = len(self.messages)
        settled = max(last - _UNSETTLED_MESSAGES, (last - 1) // 2)
        return all(
            raw.startswith(self.messages[place], self.layout.starts[place])
            for place in {settled * part // _SAMPLES for part in range(_SAMPLES + 1)}
        )

    def find_end(self, shared: int) -> int:
        """Return where the last of so many leading messages ends; 0 for none."""
        return self.layout.starts[shared - 1] + len(self.messages[shared - 1]) if shared else 0

    def count_shared(self, raw: bytes) -> int:
        """Count the leading messages that have the same bytes at the same place in `raw`, with all before them."""
        layout = self.layout
        if not raw.startswith(layout.opening):
            return 0
        same = map(raw.startswith, self.messages, layout.starts)
        shared = next(compress(count(), map(not_, same)), len(self.messages))
        places = map(sub, layout.starts[1:shared], repeat(len(layout.gap)))
        between = map(raw.startswith, repeat(layout.gap), places)
        return next(compress(count(1), map(not_, between)), shared)


def _split_list(raw: memoryview) -> list[bytes]:
    """Return the bytes of each message; a loop in Python, so that other threads can run between two."""
    messages = [bytes(message) for message in _LIST.decode(raw)]
    if all(message[0] == ord("{") for message in messages):
        return messages
    raise UnreadableBody("a message is not a JSON object")


def _find_opening(raw: bytes, own: memoryview) -> bytes:
    """Return all before the first message of the list `own`; b"" where it is not found."""
    at = -1
    for _ in range(_MAX_TRIES):
        at = raw.find(own[:_HEAD_BYTES], at + 1)
        if at < 0 or raw.startswith(own, at):
            break
    return raw[: raw.index(b"{", at)] if at >= 0 else b""


def _read_opening(opening: bytes, name: str) -> dict[str, msgspec.Raw] | None:
    """Return the fields before the list of messages; None where what `opening` ends with is not that list.

    Only before the list itself can it be closed like this: not in a string, nor in an inner object.
    """
    try:
        fields = _FIELDS.decode(opening + b"]}")
    except ValueError:
        return None
    own = next(reversed(fields), "")
    return fields if own == name and bytes(fields.pop(own)).rstrip(b" \t\n\r]") == b"[" else None


@dataclass(slots=True)
class MessageEncoder:
    """Encodes the views of one session. A replaced message keeps its object, so it is encoded once."""

    _encoded: dict[int, tuple[Any, bytes]] = field(default_factory=dict)

    def encode_messages(
        self, view: Sequence[Any], messages: Sequence[ParsedMessage], new: Sequence[tuple[Any, int | None]]
    ) -> list[bytes]:
        """Return the bytes of each message of `view`, which was made of `messages`; `list_new` returns `new`."""
        for message, source in new:
            if source is None:
                raw = msgspec.json.encode(message)
            else:
                # What it kept of the client's message keeps its bytes.
                raw = patch_json(messages[source].raw, messages[source].json, message)
            self._encoded[id(message)] = message, raw
        changed = {id(message): self._encoded[id(message)] for message in view if type(message) is not ParsedMessage}
        self._encoded = changed
        return [message.raw if type(message) is ParsedMessage else changed[id(message)][1] for message in view]

    def list_new(self, view: Sequence[Any], messages: Sequence[ParsedMessage]) -> list[tuple[Any, int | None]]:
        """Return the messages that are to be encoded, each with its source: the index of one of `messages`, or None."""
        unknown = (None, b"")
        new = [
            place
            for place, message in enumerate(view)
            if type(message) is not ParsedMessage and self._encoded.get(id(message), unknown)[0] is not message
        ]
        if not new:
            return []
        sources = _guess_sources(view, messages)
        return [(view[place], sources[place]) for place in new]


def _guess_sources(view: Sequence[Any], messages: Sequence[ParsedMessage]) -> list[int | None]:
    """Return for each message of a view the client's message that it was probably made of.

    Between two unchanged messages, the others are matched from the end: a summary, which has no source, comes first. A
    wrong guess only costs bytes that could have been kept.
    """
    places = {id(message.untagged or message): place for place, message in enumerate(messages)}
    found: list[int | None] = []
    following = len(messages)
    for message in reversed(view):
        following = places.get(id(message), following - 1)
        found.append(following if following >= 0 else None)
    found.reverse()
    return found


def may_have_tags(raw: bytes) -> bool:
    """Return whether a body, or a message of it, may have tags; False is certain."""
    return any(
        _FIELD_NAME.search(raw, start, start + PIECE + _OVERLAP_BYTES)
        or _ESCAPED_NAME_CHARACTER.search(raw, start, start + PIECE + _OVERLAP_BYTES)
        for start in range(0, len(raw), PIECE)
    )


def remove_body_tags(raw: bytes, api: Api) -> bytes:
    """Return a request's body without tags; the very bytes where it has none. Raises UnreadableBody."""
    if not may_have_tags(raw):
        return raw
    check_size(raw)
    body = RequestBody.parse(raw, api)
    messages = [_remove_message_tags(message) for message in body.messages]
    if all(one is other for one, other in zip(messages, body.messages, strict=True)):
        return raw
    return body.render_changes(messages=messages)


def _remove_message_tags(raw: bytes) -> bytes:
    if not may_have_tags(raw):
        return raw
    json = decode_message(raw)
    bare, tags = take_tags(json)
    if tags is None:
        return raw
    return patch_json(raw, json, bare)
