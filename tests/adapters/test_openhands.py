"""The adapter of the OpenHands SDK keeps the contract."""

from __future__ import annotations

import pytest

from elision.adapters.frameworks import FrameworkError
from tests.adapters.case_runner import list_cases, run_cases
from tests.adapters.conftest import skip_if_missing
from tests.adapters.contract import AdapterContract


class TestOpenHands(AdapterContract):
    HOST = "openhands"
    HOOK = "tests.adapters.hooks.openhands:attach"


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    skip_if_missing("openhands")
    return run_cases("openhands")


@pytest.mark.parametrize("case", list_cases("openhands"))
def test_case(outcomes: dict[str, str], case: str) -> None:
    assert not outcomes[case], outcomes[case]


def test_an_old_framework_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "1.6.0")
    with pytest.raises(FrameworkError, match=r"openhands-sdk 1.7.1 or newer; 1.6.0 is installed"):
        import elision.adapters.openhands  # noqa: F401
