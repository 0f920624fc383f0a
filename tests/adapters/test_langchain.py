"""The adapter of LangChain's `create_agent`."""

from __future__ import annotations

from tests.adapters.contract import AdapterContract


class TestLangChain(AdapterContract):
    """Every scenario, with a checkpointer in SQLite."""

    HOST = "langchain"
    HOOK = "tests.adapters.hooks.langchain:attach"
