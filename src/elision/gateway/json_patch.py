"""Write a changed JSON value so that everything unchanged keeps its bytes.

Numbers beyond a float, escapes, white space and unknown fields survive in a message of which one part was hidden. How
parts of the two values are matched only decides what is kept; the result always means `after`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Final

from elision.errors import MissingExtra
from elision.gateway import json_spans
from elision.gateway.json_spans import BytesEdit, JsonArray, UnreadableBody

try:
    import msgspec
except ImportError as error:
    raise MissingExtra("the gateway", "gateway") from error

#: What tells two content blocks of one type apart.
_IDENTIFYING_FIELDS: Final = ("type", "id", "tool_use_id", "call_id", "tool_call_id")
#: Elements that are looked at for one that was made of them.
_MAX_LOOKAHEAD: Final = 100
#: Equal to nothing.
_ABSENT: Final = object()


def patch_json(raw: bytes, before: Any, after: Any, sources: Sequence[tuple[Any, bytes]] = ()) -> bytes:
    """Return the bytes of `after`, with the bytes of `raw` wherever a part equals the part of `before` at its place.

    raw:     JSON text of `before`.
    sources: other messages and their bytes, from which parts of `after` may come as well.
    Raises UnreadableBody where `raw` is no JSON or `after` has no JSON.
    """
    try:
        return _Patcher(sources).patch_value(raw, before, after)
    except (ValueError, TypeError, RecursionError) as error:
        raise UnreadableBody(f"a value that cannot be rewritten: {error}") from error


def append_elements(raw_array: bytes | None, items: Sequence[bytes]) -> bytes:
    """Return a JSON array with more elements at its end; None and null count as empty. Raises UnreadableBody."""
    if raw_array is None or raw_array == b"null":
        return b"[" + b",".join(items) + b"]"
    try:
        array = JsonArray(raw_array, 0, json_spans.parse_elements(raw_array))
    except (ValueError, RecursionError) as error:
        raise UnreadableBody(f"no JSON array: {error}") from error
    return json_spans.apply_edits(raw_array, array.make_edits([*array.values, *items]))


def encode_json(value: Any) -> bytes:
    """Return compact JSON. Raises ValueError or TypeError where `value` has none."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # Half of a surrogate pair has no UTF-8; as an escape it is JSON.
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


@dataclass(frozen=True)
class _Patcher:
    """sources: as in `patch_json`. replaced_strings: strings that were replaced, and their bytes."""

    sources: Sequence[tuple[Any, bytes]]
    replaced_strings: dict[str, bytes] = field(default_factory=dict)

    def patch_value(self, raw: bytes, before: Any, after: Any) -> bytes:
        if _is_same_json(before, after):
            return raw
        if isinstance(before, dict) and isinstance(after, dict):
            return self._patch_object(raw, before, after)
        if isinstance(before, list) and isinstance(after, list):
            return self._patch_array(raw, before, after)
        if isinstance(before, str):
            self.replaced_strings[before] = raw
        return self._encode_new(after)

    def _patch_object(self, raw: bytes, before: Mapping[str, Any], after: Mapping[str, Any]) -> bytes:
        fields = json_spans.parse_fields(raw)
        known = {each.name: each for each in fields}
        edits = list(json_spans.remove_fields(fields, known.keys() - after.keys()))
        for name in known.keys() & after.keys():
            place = known[name]
            own = raw[place.start : place.end]
            new = self.patch_value(own, before.get(name, _ABSENT), after[name])
            if new is not own:
                edits.append(BytesEdit(place.start, place.end, new))
        more = [(name, self._encode_new(value)) for name, value in after.items() if name not in known]
        return json_spans.apply_edits(
            raw, chain(edits, json_spans.add_fields(raw, fields, more, first=known.keys().isdisjoint(after.keys())))
        )

    def _patch_array(self, raw: bytes, before: list[Any], after: list[Any]) -> bytes:
        values = json_spans.parse_elements(raw)
        new = []
        for element, place in zip(after, _match_elements(before, after), strict=True):
            if place is None:
                new.append(self._encode_new(element))
            else:
                new.append(self.patch_value(values[place], before[place], element))
        return json_spans.apply_edits(raw, JsonArray(raw, 0, values).make_edits(new))

    # -- new parts -------------------------------------------------------------------------------------------------

    def _encode_new(self, value: Any) -> bytes:
        if not self.sources and not self.replaced_strings:
            return encode_json(value)
        found = self._find_known(value)
        if found is not None:
            return found
        if isinstance(value, dict):
            return b"{%b}" % b",".join(
                encode_json(name) + b":" + self._encode_new(inner) for name, inner in value.items()
            )
        if isinstance(value, list):
            return b"[%b]" % b",".join(map(self._encode_new, value))
        return encode_json(value)

    def _find_known(self, value: Any) -> bytes | None:
        # The place in a message's bytes is located only for what is found.
        if isinstance(value, str):
            source = self._source_texts.get(value)
            return self.replaced_strings.get(value) or (_find_content(source) if source is not None else None)
        if isinstance(value, dict):
            for block, index, raw in self._source_blocks:
                if _is_same_json(block, value):
                    return json_spans.parse_elements(_find_content(raw))[index]
        return None

    @cached_property
    def _source_texts(self) -> dict[str, bytes]:
        """Return texts that are a source's whole content, with its bytes."""
        return {content: raw for content, raw in self._iterate_contents() if isinstance(content, str)}

    @cached_property
    def _source_blocks(self) -> list[tuple[Any, int, bytes]]:
        """Return content blocks of sources, with the index of each and the source's bytes."""
        blocks: list[tuple[Any, int, bytes]] = []
        for content, raw in self._iterate_contents():
            if isinstance(content, list):
                blocks += [(block, index, raw) for index, block in enumerate(content)]
        return blocks

    def _iterate_contents(self) -> Iterator[tuple[Any, bytes]]:
        for value, raw in self.sources:
            if isinstance(value, dict) and "content" in value:
                yield value["content"], raw


def _find_content(raw: bytes) -> bytes:
    """Return the bytes of a message's content."""
    place = next(each for each in reversed(json_spans.parse_fields(raw)) if each.name == "content")
    return raw[place.start : place.end]


def _is_same_json(one: Any, other: Any) -> bool:
    """Return whether both are the same JSON, which `==` does not check: 1, 1.0 and True are equal in Python."""
    if one is other:
        return True
    return bool(one == other) and (isinstance(one, str) or encode_json(one) == encode_json(other))


# -- which element of a list became which ------------------------------------------------------------------------------


def _match_elements(before: Sequence[Any], after: Sequence[Any]) -> list[int | None]:
    """Return for each element of `after` the index of its source in `before`; None for a new one."""
    partners: dict[int, int] = {}
    for fits in (_is_same_json, _is_same_block):
        at = 0
        taken = set(partners.values())
        for place, element in enumerate(after):
            if place not in partners:
                ahead = (each for each in range(at, min(len(before), at + _MAX_LOOKAHEAD)) if each not in taken)
                found = next((each for each in ahead if fits(before[each], element)), None)
                if found is None:
                    continue
                partners[place] = found
            at = partners[place] + 1
    return [partners.get(place) for place in range(len(after))]


def _is_same_block(one: Any, other: Any) -> bool:
    return (
        isinstance(one, dict)
        and isinstance(other, dict)
        and all(one.get(name) == other.get(name) for name in _IDENTIFYING_FIELDS)
    )
