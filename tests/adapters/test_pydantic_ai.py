"""The adapter of Pydantic AI: the contract, and what only this framework has."""

from __future__ import annotations

import pytest

from tests.adapters.case_runner import list_cases, run_cases
from tests.adapters.conftest import skip_if_missing
from tests.adapters.contract import AdapterContract


class TestPydanticAI(AdapterContract):
    HOST = "pydantic_ai"
    HOOK = "tests.adapters.hooks.pydantic_ai:attach"


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """Why each case of tests/adapters/cases/pydantic_ai.py failed."""
    skip_if_missing("pydantic_ai")
    return run_cases("pydantic_ai")


@pytest.mark.parametrize("case", list_cases("pydantic_ai"))
def test_case(case: str, outcomes: dict[str, str]) -> None:
    """A case that runs where Pydantic AI is."""
    assert not outcomes[case], outcomes[case]
