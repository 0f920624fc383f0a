"""The adapter of `llm`: the contract, and what only this framework has."""

from __future__ import annotations

import pytest

from tests.adapters.case_runner import list_cases, run_cases
from tests.adapters.conftest import skip_if_missing
from tests.adapters.contract import AdapterContract


class TestLLM(AdapterContract):
    HOST = "llm"
    HOOK = "tests.adapters.hooks.llm:attach"


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """Why each case of tests/adapters/cases/llm.py failed."""
    skip_if_missing("llm")
    return run_cases("llm")


@pytest.mark.parametrize("case", list_cases("llm"))
def test_case(case: str, outcomes: dict[str, str]) -> None:
    """A case that runs where `llm` is."""
    assert not outcomes[case], outcomes[case]
