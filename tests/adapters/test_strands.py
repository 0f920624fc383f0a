"""Strands Agents: the contract, and what is particular to its messages, models and plugins."""

from __future__ import annotations

import pytest

from tests.adapters.case_runner import list_cases, run_cases
from tests.adapters.conftest import skip_if_missing
from tests.adapters.contract import AdapterContract


class TestStrandsContract(AdapterContract):
    HOST = "strands"
    HOOK = "tests.adapters.hooks.strands:attach"


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """Why each case of tests/adapters/cases/strands.py failed."""
    skip_if_missing("strands")
    return run_cases("strands")


@pytest.mark.parametrize("case", list_cases("strands"))
def test_case(case: str, outcomes: dict[str, str]) -> None:
    """A case that runs where Strands is."""
    assert not outcomes[case], outcomes[case]
