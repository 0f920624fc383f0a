"""Microsoft Agent Framework: the contract, and what is particular to its messages, streams and sessions."""

from __future__ import annotations

import pytest

from tests.adapters.case_runner import list_cases, run_cases
from tests.adapters.conftest import skip_if_missing
from tests.adapters.contract import AdapterContract


class TestAgentFrameworkContract(AdapterContract):
    HOST = "agent_framework"
    HOOK = "tests.adapters.hooks.agent_framework:attach"


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """Why each case of tests/adapters/cases/agent_framework.py failed."""
    skip_if_missing("agent_framework")
    return run_cases("agent_framework")


@pytest.mark.parametrize("case", list_cases("agent_framework"))
def test_case(case: str, outcomes: dict[str, str]) -> None:
    """A case that runs where the framework is."""
    assert not outcomes[case], outcomes[case]
