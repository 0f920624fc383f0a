"""The adapter of the OpenAI Agents SDK: the contract, and what only this framework has."""

from __future__ import annotations

import pytest

from tests.adapters.case_runner import list_cases, run_cases
from tests.adapters.conftest import skip_if_missing
from tests.adapters.contract import AdapterContract


class TestOpenAIAgents(AdapterContract):
    HOST = "openai_agents"
    HOOK = "tests.adapters.hooks.openai_agents:attach"


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """Why each case of tests/adapters/cases/openai_agents.py failed."""
    skip_if_missing("openai_agents")
    return run_cases("openai_agents")


@pytest.mark.parametrize("case", list_cases("openai_agents"))
def test_case(case: str, outcomes: dict[str, str]) -> None:
    """A case that runs where the SDK is."""
    assert not outcomes[case], outcomes[case]
