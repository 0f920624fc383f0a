"""Take tags out of a request that is forwarded without a session: providers reject fields that they do not know.

Bodies that cannot hold a tag are recognized by a search of their bytes, and are not parsed.
"""

from __future__ import annotations

import re
from typing import Final

from elision.gateway.json_decoding import check_size
from elision.gateway.json_patch import patch_json
from elision.gateway.request_body import RequestBody, decode_message
from elision.providers.provider import Api
from elision.providers.shared.message_tags import TAG_FIELDS, take_tags
from elision.trajectory.text_pieces import PIECE

#: One search for all names: it runs at the speed of a search for one of them.
_FIELD_NAME: Final = re.compile(b'"(?:%b)"' % b"|".join(re.escape(name).encode() for name in sorted(TAG_FIELDS)))
#: A letter, dot or underscore that JSON escapes without need: a name may be written so.
_ESCAPED_NAME_CHARACTER: Final = re.compile(rb"\\u00(?:2[eE]|5[fF]|[67][0-9a-fA-F])")
#: Bytes by which two pieces overlap: no name or escape is longer.
_OVERLAP_BYTES: Final = max(map(len, TAG_FIELDS)) + 2


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
