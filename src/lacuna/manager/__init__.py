"""The library door: a context manager for any agent loop."""

from __future__ import annotations

from lacuna.manager.context import ContextManager
from lacuna.manager.view import ContextView

__all__ = ["ContextManager", "ContextView"]
