"""Strands Agents: the contract, and what is particular to its messages, models and plugins."""

from __future__ import annotations

from tests.adapters.contract import AdapterContract


class TestStrandsContract(AdapterContract):
    HOST = "strands"
    HOOK = "tests.adapters.hooks.strands:attach"
