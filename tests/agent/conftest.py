"""The sample runs, for agents that follow them."""

from __future__ import annotations

import pytest
from tests.testing.conftest import recorded

from lacuna.trajectory.trajectory import Trajectory


@pytest.fixture(scope="session")
def runs() -> dict[str, Trajectory]:
    return recorded()
