"""Microsoft Agent Framework: the contract, and what is particular to its messages, streams and sessions."""

from __future__ import annotations

from tests.adapters.contract import AdapterContract


class TestAgentFrameworkContract(AdapterContract):
    HOST = "agent_framework"
    HOOK = "tests.adapters.hooks.agent_framework:attach"
