"""The adapter of LlamaIndex's `FunctionAgent`."""

from __future__ import annotations

from tests.adapters.contract import AdapterContract


class TestLlamaIndex(AdapterContract):
    """Every scenario, with a memory in SQLite."""

    HOST = "llama_index"
    HOOK = "tests.adapters.hooks.llama_index:attach"
