"""The adapter of LiteLLM: the contract, and what only this framework has."""

from __future__ import annotations

from typing import ClassVar

from tests.adapters import checks
from tests.adapters.contract import AdapterContract
from tests.adapters.environments import Recordings


class TestLiteLLM(AdapterContract):
    HOST = "litellm"
    HOOK = "tests.adapters.hooks.litellm:attach"
    TOOLS_ENTER = True
    ALLOWED: ClassVar = {
        "test_bound_thinking": "its chat messages are OpenAI's: what precedes bound thinking stays as it is, unasked",
    }

    def test_bound_thinking_is_deferred_to(self, recordings: Recordings) -> None:
        """Nothing in front of bound thinking is hidden, so no call is refused."""
        (leg,) = self.take(recordings, "bound_thinking")
        checks.check_thinking_kept(leg)
        checks.check_nothing_masked(leg)
