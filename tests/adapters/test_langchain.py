"""The adapter of LangChain's `create_agent`."""

from __future__ import annotations

import pytest

from tests.adapters.cases_runner import list_cases, run_cases
from tests.adapters.conftest import skip_if_missing
from tests.adapters.contract import AdapterContract


class TestLangChain(AdapterContract):
    """Every scenario, with a checkpointer in SQLite."""

    HOST = "langchain"
    HOOK = "tests.adapters.hooks.langchain:attach"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Why each case of tests/adapters/cases/langchain.py failed."""
    skip_if_missing("langchain")
    return run_cases("langchain", tmp_path_factory.mktemp("cases"))


@pytest.mark.parametrize("case", list_cases("langchain"))
def test_case(case: str, outcomes: dict[str, str]) -> None:
    """A case that runs where LangChain is."""
    assert not outcomes[case], outcomes[case]
