"""What errors say beyond what was wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from elision import errors

ROOT = Path(__file__).parents[1]


def test_an_extra_in_a_checkout() -> None:
    """Where Elision runs out of its checkout, that is where an extra is from, whatever the working folder."""
    said = str(errors.MissingExtra("the gateway", "gateway"))
    assert said == f"the gateway needs an extra: pip install -e '{ROOT}[gateway]', or make -C '{ROOT}' setup"
    assert "setup" not in errors.install("litellm")


def test_an_extra_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is installed it is said by name, and how a checkout has it."""
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "site-packages" / "elision" / "errors.py"))
    said = "pip install 'elision[otel]', or pip install '.[otel]' in a checkout"
    assert errors.install("otel") == said
