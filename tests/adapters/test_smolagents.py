"""smolagents' adapter keeps the contract, and what else its page says."""

from __future__ import annotations

from tests.adapters.contract import AdapterContract


class TestSmolagents(AdapterContract):
    HOST = "smolagents"
    HOOK = "tests.adapters.hooks.smolagents:attach"
