"""The hosts themselves, without an adapter: what a framework sends and stores is what the scenarios say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters import checks
from tests.adapters.conftest import skip_if_missing
from tests.adapters.environments import ENVIRONMENTS, run_host
from tests.adapters.scenarios import TURNS


@pytest.mark.parametrize("host", ENVIRONMENTS)
def test_a_host_plays_the_scenarios(host: str, tmp_path: Path) -> None:
    """Calls have their results, histories are raw, requests only grow, a second process continues the same bytes."""
    skip_if_missing(host)
    recordings = run_host(host, tmp_path, only=("plain", "parallel", "failing", "resumed"))
    for legs in recordings.legs.values():
        for leg in legs:
            if leg.missing:
                continue
            checks.check_ended(leg)
            checks.check_pairs(leg)
            checks.check_stored_raw(leg)
            checks.check_results_kept(leg)
            checks.check_nothing_masked(leg)
            checks.check_objects(leg, added=1)
            assert checks.count_rewrites(leg.requests) == 0
    assert len(recordings.legs["plain"][0].requests) == TURNS + 1
    resumed = recordings.legs["resumed"]
    if not resumed[0].missing:
        checks.check_prefix_kept(resumed[0].requests[-1], resumed[1].requests[0])
