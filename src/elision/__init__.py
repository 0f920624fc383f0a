"""Context management for LLM agents: mask, summarize and recall, priced as it is billed.

Importing the package does nothing and stays quick: a public name is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elision.errors import BudgetError, ConflictError, ElisionError, StoreError, UnknownHandle
    from elision.manager import ContextManager, ContextView
    from elision.manager.advanced_options import Advanced, Cache
    from elision.manager.session_pool import Sessions
    from elision.stores.store_urls import open_store
    from elision.strategies.guards import Guards
    from elision.strategies.selectors import Rule
    from elision.trajectory.usage import Usage

    __version__: str

__all__ = [
    "Advanced",
    "BudgetError",
    "Cache",
    "ConflictError",
    "ContextManager",
    "ContextView",
    "ElisionError",
    "Guards",
    "Rule",
    "Sessions",
    "StoreError",
    "UnknownHandle",
    "Usage",
    "open_store",
]

_HOMES = {
    "Advanced": "elision.manager.advanced_options",
    "Cache": "elision.manager.advanced_options",
    "BudgetError": "elision.errors",
    "ConflictError": "elision.errors",
    "ContextManager": "elision.manager",
    "ContextView": "elision.manager",
    "Guards": "elision.strategies.guards",
    "ElisionError": "elision.errors",
    "Rule": "elision.strategies.selectors",
    "Sessions": "elision.manager.session_pool",
    "StoreError": "elision.errors",
    "UnknownHandle": "elision.errors",
    "Usage": "elision.trajectory.usage",
    "open_store": "elision.stores.store_urls",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = import_module("importlib.metadata").version("elision")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'elision' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
