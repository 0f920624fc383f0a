"""From which share of turns that miss a fact agents were seen to solve less: the knee of the published dose curve.

Nine windows of OpenHands (docs/concepts/dose.md): below the knee 20 to 22 of 50 tasks were solved, as with everything
sent, and above it 14 to 19.
"""

from __future__ import annotations

from typing import Final

#: Turns missing a fact, as a share of all turns.
KNEE: Final = 0.035
#: Fewer turns tell nothing about a share so small.
FEWEST_TURNS: Final = 100


def is_above_knee(missing_turns: int, turns: int) -> bool:
    """Return whether so many turns miss a fact that live agents solved less."""
    return turns >= FEWEST_TURNS and missing_turns > KNEE * turns
