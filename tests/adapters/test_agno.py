"""The adapter of Agno."""

from __future__ import annotations

import pytest

from tests.adapters.case_runner import list_cases, run_cases
from tests.adapters.conftest import skip_if_missing
from tests.adapters.contract import AdapterContract

HOST = "agno"


class TestAgno(AdapterContract):
    """Every scenario, with sessions in JSON files."""

    HOST = HOST
    HOOK = "tests.adapters.hooks.agno:attach"


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """Why each case failed; "" if it passed."""
    skip_if_missing(HOST)
    return run_cases(HOST)


@pytest.mark.parametrize("case", list_cases(HOST))
def test_case(case: str, outcomes: dict[str, str]) -> None:
    """A case that runs where Agno is."""
    assert not outcomes[case], outcomes[case]
