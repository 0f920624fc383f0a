"""What a provider says of a request that it refused, fit for a log: it likes to quote what it was sent."""

from __future__ import annotations

import re
from typing import Final

from elision.gateway.identity import credentials
from elision.gateway.wire import Headers

#: What stands between quotes is a name (`'tool_use'`) where it has no space and is no longer than this.
NAME: Final = 60
#: Not the apostrophe within a word.
_QUOTED: Final = re.compile(r"(?<!\w)(['\"`])(.*?)\1(?!\w)", re.DOTALL)
#: Shorter values may be part of any word.
_LEAST: Final = 4


def loggable(error: str, headers: Headers) -> str:
    """`error` without the credentials of the request and without the words that were quoted of it."""
    names = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
    for value in credentials(names):
        # "Bearer sk-…": the key alone may be quoted.
        for part in (value, *value.split()):
            if len(part) >= _LEAST:
                error = error.replace(part, "[credential]")
    return _QUOTED.sub(_shortened, error)


def _shortened(found: re.Match[str]) -> str:
    quote, words = found.groups()
    if len(words) > NAME or any(map(str.isspace, words)):
        return f"{quote}…{quote}"
    return found[0]
