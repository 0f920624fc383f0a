"""The adapter of Pydantic AI: the contract, and what only this framework has."""

from __future__ import annotations

from tests.adapters.contract import AdapterContract


class TestPydanticAI(AdapterContract):
    HOST = "pydantic_ai"
    HOOK = "tests.adapters.hooks.pydantic_ai:attach"
