"""Make a provider's error fit for a log: providers like to quote the request."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from elision.gateway.identity import list_credentials
from elision.gateway.wire import ClientRequest

#: What stands between quotes is a name (`'tool_use'`) where it has no space and is no longer than this.
MAX_NAME_CHARS: Final = 60
#: Not the apostrophe within a word.
_QUOTED: Final = re.compile(r"(?<!\w)(['\"`])(.*?)\1(?!\w)", re.DOTALL)
#: Shorter values may be part of any word.
_MIN_CREDENTIAL_CHARS: Final = 4


def sanitize_error(error: str, request: ClientRequest) -> str:
    """Return `error` without the request's credentials and without words quoted of it."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in request.headers}
    for value in list_credentials(headers, request.query):
        # "Bearer sk-…": the key alone may be quoted; and what is quoted of the query may be as it was sent.
        for part in (value, *value.split(), quote(value, safe="", errors="surrogateescape")):
            if len(part) >= _MIN_CREDENTIAL_CHARS:
                error = error.replace(part, "[credential]")
    return _QUOTED.sub(_shorten_quote, error)


def _shorten_quote(found: re.Match[str]) -> str:
    quote, words = found.groups()
    if len(words) > MAX_NAME_CHARS or any(map(str.isspace, words)):
        return f"{quote}…{quote}"
    return found[0]
