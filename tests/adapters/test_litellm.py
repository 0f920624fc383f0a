"""The adapter of LiteLLM: the contract, and what only this framework has."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.adapters import checks
from tests.adapters.case_runner import list_cases, run_cases
from tests.adapters.conftest import skip_if_missing
from tests.adapters.contract import AdapterContract
from tests.adapters.environments import Recordings


class TestLiteLLM(AdapterContract):
    HOST = "litellm"
    HOOK = "tests.adapters.hooks.litellm:attach"
    ALLOWED: ClassVar = {
        "test_bound_thinking": "its chat messages are OpenAI's: what precedes bound thinking stays as it is, unasked",
    }

    def test_bound_thinking_is_deferred_to(self, recordings: Recordings) -> None:
        """Nothing in front of bound thinking is hidden, so no call is refused."""
        (leg,) = self.take(recordings, "bound_thinking")
        checks.check_thinking_kept(leg)
        checks.check_nothing_masked(leg)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """Why each case of tests/adapters/cases/litellm.py failed."""
    skip_if_missing("litellm")
    return run_cases("litellm")


@pytest.mark.parametrize("case", list_cases("litellm"))
def test_case(case: str, outcomes: dict[str, str]) -> None:
    """A case that runs where LiteLLM is."""
    assert not outcomes[case], outcomes[case]
