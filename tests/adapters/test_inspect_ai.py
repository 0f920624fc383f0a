"""Inspect AI: the contract, and what is particular to its samples, messages and models."""

from __future__ import annotations

import pytest

from tests.adapters.case_runner import list_cases, run_cases
from tests.adapters.conftest import skip_if_missing
from tests.adapters.contract import AdapterContract


class TestInspectContract(AdapterContract):
    HOST = "inspect_ai"
    HOOK = "tests.adapters.hooks.inspect_ai:attach"


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """Why each case of tests/adapters/cases/inspect_ai.py failed."""
    skip_if_missing("inspect_ai")
    return run_cases("inspect_ai")


@pytest.mark.parametrize("case", list_cases("inspect_ai"))
def test_case(case: str, outcomes: dict[str, str]) -> None:
    """A case that runs where Inspect is."""
    assert not outcomes[case], outcomes[case]
