"""The library door: a context manager for any agent loop."""

from __future__ import annotations

from elision.manager.context import ContextManager
from elision.manager.context_view import ContextView

__all__ = ["ContextManager", "ContextView"]
