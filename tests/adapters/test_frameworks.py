"""A framework that is missing or too old is named, with what to install."""

from __future__ import annotations

import sys
from importlib import import_module

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


@pytest.mark.parametrize(
    ("adapter", "distribution", "least"),
    [
        ("langchain", "langchain", "1.0.0"),
        ("langgraph", "langgraph", "1.1.3"),
        ("deepagents", "deepagents", "0.7.0"),
        ("llama_index", "llama-index-core", "0.14.5"),
        ("agno", "agno", "3.0.0"),
    ],
)
def test_an_adapter_of_an_old_framework_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, adapter: str, distribution: str, least: str
) -> None:
    """On import, before anything of the framework is imported."""
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0.1")
    monkeypatch.delitem(sys.modules, f"elision.adapters.{adapter}", raising=False)
    extra = adapter.replace("_", "-")
    with pytest.raises(FrameworkError, match=rf"{distribution} {least} or newer; 0.1 is installed.*elision\[{extra}\]"):
        import_module(f"elision.adapters.{adapter}")
