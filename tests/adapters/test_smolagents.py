"""smolagents' adapter keeps the contract, and what else its page says."""

from __future__ import annotations

import pytest

from elision.adapters.frameworks import FrameworkError
from tests.adapters.case_runner import list_cases, run_cases
from tests.adapters.conftest import skip_if_missing
from tests.adapters.contract import AdapterContract

HOST = "smolagents"


class TestSmolagents(AdapterContract):
    HOST = HOST
    HOOK = "tests.adapters.hooks.smolagents:attach"


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    skip_if_missing(HOST)
    return run_cases(HOST)


@pytest.mark.parametrize("case", list_cases(HOST))
def test_case(outcomes: dict[str, str], case: str) -> None:
    assert not outcomes[case], outcomes[case]


def test_an_old_framework_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "1.19.0")
    with pytest.raises(FrameworkError, match=r"smolagents 1.20.0 or newer; 1.19.0 is installed"):
        import elision.adapters.smolagents  # noqa: F401
