"""The adapter of LangGraph."""

from __future__ import annotations

from tests.adapters.contract import AdapterContract


class TestLangGraph(AdapterContract):
    """Every scenario, with a checkpointer in SQLite."""

    HOST = "langgraph"
    HOOK = "tests.adapters.hooks.langgraph:attach"
