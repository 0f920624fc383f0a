"""The adapter of `llm`: the contract, and what only this framework has."""

from __future__ import annotations

from tests.adapters.contract import AdapterContract


class TestLLM(AdapterContract):
    HOST = "llm"
    HOOK = "tests.adapters.hooks.llm:attach"
    EXTRA = "llm-plugin"
