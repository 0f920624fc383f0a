"""The adapter of deepagents."""

from __future__ import annotations

from tests.adapters.contract import AdapterContract


class TestDeepAgents(AdapterContract):
    """Every scenario, with a checkpointer in SQLite."""

    HOST = "deepagents"
    HOOK = "tests.adapters.hooks.deepagents:attach"
