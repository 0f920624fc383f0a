"""CrewAI's adapter keeps the contract, and what else its page says."""

from __future__ import annotations

from tests.adapters.contract import AdapterContract


class TestCrewAI(AdapterContract):
    HOST = "crewai"
    HOOK = "tests.adapters.hooks.crewai:attach"
