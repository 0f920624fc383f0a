# mypy: ignore-errors
# What this imports is in an environment of its own.
"""Errors of a provider's package, as frameworks without one of their own pass them on."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.adapters.recording import Answer


def make_overflow(kind: Any, answer: Answer) -> Exception:
    """Return the error that OpenAI's package raises for a prompt that is too long. kind: its `BadRequestError`."""
    request = httpx2.Request("POST", "http://127.0.0.1/v1/responses")
    body = {"message": answer.refusal, "code": "context_length_exceeded", "type": "invalid_request_error"}
    error: Exception = kind(answer.refusal, response=httpx2.Response(400, request=request), body=body)
    return error
