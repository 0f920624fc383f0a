"""Google's Agent Development Kit: the contract, and what is particular to its contents, runners and plugins."""

from __future__ import annotations

import pytest

from tests.adapters import checks
from tests.adapters.case_runner import list_cases, run_cases
from tests.adapters.conftest import skip_if_missing
from tests.adapters.contract import AdapterContract
from tests.adapters.environments import Recordings


class TestGoogleAdkContract(AdapterContract):
    HOST = "google_adk"
    HOOK = "tests.adapters.hooks.google_adk:attach"

    def test_bound_thinking(self, recordings: Recordings) -> None:
        """A request of ADK has no field for clearing: results in front of bound thinking stay, and none is dropped."""
        (leg,) = self.take(recordings, "bound_thinking")
        checks.check_thinking_kept(leg)
        checks.check_nothing_masked(leg)
        checks.check_tools_stand(leg)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """Why each case of tests/adapters/cases/google_adk.py failed."""
    skip_if_missing("google_adk")
    return run_cases("google_adk")


@pytest.mark.parametrize("case", list_cases("google_adk"))
def test_case(case: str, outcomes: dict[str, str]) -> None:
    """A case that runs where ADK is."""
    assert not outcomes[case], outcomes[case]
