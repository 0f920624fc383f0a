"""The adapter of the OpenAI Agents SDK: the contract, and what only this framework has."""

from __future__ import annotations

from tests.adapters.contract import AdapterContract


class TestOpenAIAgents(AdapterContract):
    HOST = "openai_agents"
    HOOK = "tests.adapters.hooks.openai_agents:attach"
