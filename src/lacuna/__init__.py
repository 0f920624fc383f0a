"""Context management for LLM agents: mask, summarize and recall, priced as it is billed.

Importing the package does nothing and stays quick: a public name is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lacuna.errors import BudgetError, ConflictError, LacunaError, StoreError, UnknownHandle
    from lacuna.manager import ContextManager, ContextView
    from lacuna.stores.urls import open_store
    from lacuna.strategies.guards import Guards
    from lacuna.strategies.rules import Rule

__all__ = [
    "BudgetError",
    "ConflictError",
    "ContextManager",
    "ContextView",
    "Guards",
    "LacunaError",
    "Rule",
    "StoreError",
    "UnknownHandle",
    "open_store",
]

_HOMES = {
    "BudgetError": "lacuna.errors",
    "ConflictError": "lacuna.errors",
    "ContextManager": "lacuna.manager",
    "ContextView": "lacuna.manager",
    "Guards": "lacuna.strategies.guards",
    "LacunaError": "lacuna.errors",
    "Rule": "lacuna.strategies.rules",
    "StoreError": "lacuna.errors",
    "UnknownHandle": "lacuna.errors",
    "open_store": "lacuna.stores.urls",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lacuna' has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
