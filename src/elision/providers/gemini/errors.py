"""Errors of the gateway as Google writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: HTTP status -> Google's status: https://cloud.google.com/apis/design/errors
_STATUSES: Final[Mapping[int, str]] = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    429: "RESOURCE_EXHAUSTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def make_error_body(status: int, message: str, code: str) -> dict[str, Any]:
    """Return the body of an error. code: one word, which is the reason in its details."""
    usual = "INVALID_ARGUMENT" if status < 500 else "INTERNAL"
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code, "domain": "elision"}
    return {"error": {"code": status, "message": message, "status": _STATUSES.get(status, usual), "details": [info]}}
