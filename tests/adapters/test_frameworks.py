"""A framework that is missing or too old is named, with what to install."""

from __future__ import annotations

import pytest

from elision.adapters import frameworks
from elision.adapters.frameworks import FrameworkError, check_framework


def test_a_missing_framework_says_what_to_install() -> None:
    with pytest.raises(FrameworkError, match=r"which is not installed: pip install -U 'elision\[no-such\]'"):
        check_framework("no-such-framework", "1.0", "no-such")


@pytest.mark.parametrize("version", ["1.9.9", "1.10.0", "0.71", "1"])
def test_an_old_framework_says_what_to_install(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(frameworks.metadata, "version", lambda _: version)
    with pytest.raises(FrameworkError, match=f"1.10.1 or newer; {version} is installed"):
        check_framework("some", "1.10.1", "some")


@pytest.mark.parametrize("version", ["1.10.1", "1.10.1rc1", "1.10.2.dev3", "1.11", "2.0.0+local", "10.0"])
def test_a_new_one_is_taken(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(frameworks.metadata, "version", lambda _: version)
    check_framework("some", "1.10.1", "some")
