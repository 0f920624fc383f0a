"""Frameworks in environments of their own. Tests of a missing one are skipped, and the summary says so aloud."""

from __future__ import annotations

from typing import Any

import pytest

from tests.adapters.environments import explain_missing

_skipped: list[str] = []


def skip_if_missing(host: str) -> None:
    """Skip a test whose framework is not installed."""
    if reason := explain_missing(host):
        _skipped.append(reason)
        pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say aloud that frameworks were not tried."""
    for reason in dict.fromkeys(_skipped):
        terminalreporter.write_line(f"WARNING: adapters were NOT tried: {reason}", yellow=True, bold=True)
