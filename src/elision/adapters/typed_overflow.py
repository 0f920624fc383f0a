"""Overflows that a framework knows by the type of its error, whatever the provider wrote in it."""

from __future__ import annotations


def state_overflow(error: object) -> Exception:
    """Return an error for `GuardedCall.retry` that says that the prompt was too long, with the text of `error`.

    error: the framework's own error, or what else it has of the provider's words: their numbers are read.
    """
    return ValueError(f"context window exceeded: {error}")
