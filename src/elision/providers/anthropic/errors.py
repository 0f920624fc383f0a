"""Errors of the gateway as Anthropic writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: Status -> type: anthropic 2.12 `ErrorType`, and the documented "request_too_large".
_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def make_error_body(status: int, message: str, code: str) -> dict[str, Any]:
    """Return the body of an error. code: one word; this API has no place for it."""
    usual = "invalid_request_error" if status < 500 else "api_error"
    return {"type": "error", "error": {"type": _TYPES.get(status, usual), "message": message}}
