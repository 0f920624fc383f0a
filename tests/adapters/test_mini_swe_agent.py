"""mini-swe-agent's adapter keeps the contract, and what else its page says."""

from __future__ import annotations

from tests.adapters.contract import AdapterContract


class TestMiniSweAgent(AdapterContract):
    HOST = "mini_swe_agent"
    HOOK = "tests.adapters.hooks.mini_swe_agent:attach"
