"""The adapter of LiteLLM: the contract, and what only this framework has."""

from __future__ import annotations

import pytest

from tests.adapters.case_runner import list_cases, run_cases
from tests.adapters.conftest import skip_if_missing
from tests.adapters.contract import AdapterContract


class TestLiteLLM(AdapterContract):
    HOST = "litellm"
    HOOK = "tests.adapters.hooks.litellm:attach"


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """Why each case of tests/adapters/cases/litellm.py failed."""
    skip_if_missing("litellm")
    return run_cases("litellm")


@pytest.mark.parametrize("case", list_cases("litellm"))
def test_case(case: str, outcomes: dict[str, str]) -> None:
    """A case that runs where LiteLLM is."""
    assert not outcomes[case], outcomes[case]
