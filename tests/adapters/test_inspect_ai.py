"""Inspect AI: the contract, and what is particular to its samples, messages and models."""

from __future__ import annotations

from tests.adapters.contract import AdapterContract


class TestInspectContract(AdapterContract):
    HOST = "inspect_ai"
    HOOK = "tests.adapters.hooks.inspect_ai:attach"
