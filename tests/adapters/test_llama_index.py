"""The adapter of LlamaIndex's `FunctionAgent`."""

from __future__ import annotations

import pytest

from tests.adapters.case_runner import list_cases, run_cases
from tests.adapters.conftest import skip_if_missing
from tests.adapters.contract import AdapterContract

HOST = "llama_index"


class TestLlamaIndex(AdapterContract):
    """Every scenario, with a memory in SQLite."""

    HOST = HOST
    HOOK = "tests.adapters.hooks.llama_index:attach"


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """Why each case failed; "" if it passed."""
    skip_if_missing(HOST)
    return run_cases(HOST)


@pytest.mark.parametrize("case", list_cases(HOST))
def test_case(case: str, outcomes: dict[str, str]) -> None:
    """A case that runs where LlamaIndex is."""
    assert not outcomes[case], outcomes[case]
