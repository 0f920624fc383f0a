"""Google's Agent Development Kit: the contract, and what is particular to its contents, runners and plugins."""

from __future__ import annotations

from tests.adapters import checks
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
