"""Make a provider's error fit for a log: providers like to quote the request."""

from __future__ import annotations

import re
from typing import Final

from elision.gateway.identity import list_credentials
from elision.gateway.wire import Headers

#: What stands between quotes is a name (`'tool_use'`) where it has no space and is no longer than this.
MAX_NAME_CHARS: Final = 60
#: Not the apostrophe within a word.
_QUOTED: Final = re.compile(r"(?<!\w)(['\"`])(.*?)\1(?!\w)", re.DOTALL)
#: Shorter values may be part of any word.
_MIN_CREDENTIAL_CHARS: Final = 4


def sanitize_error(error: str, headers: Headers) -> str:
    """Return `error` without the request's credentials and without words quoted of it."""
    names = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
    for value in list_credentials(names):
        # "Bearer sk-…": the key alone may be quoted.
        for part in (value, *value.split()):
            if len(part) >= _MIN_CREDENTIAL_CHARS:
                error = error.replace(part, "[credential]")
    return _QUOTED.sub(_shorten_quote, error)


def _shorten_quote(found: re.Match[str]) -> str:
    quote, words = found.groups()
    if len(words) > MAX_NAME_CHARS or any(map(str.isspace, words)):
        return f"{quote}…{quote}"
    return found[0]
