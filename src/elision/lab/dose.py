"""From which share of turns that miss a fact agents were seen to solve less: the knee of the published dose curve.

Nine windows of OpenHands (docs/concepts/decisions.md): below the knee 20 to 22 of 50 tasks were solved, as with
everything sent, and above it 14 to 19.
"""

from __future__ import annotations

from typing import Final

#: Turns missing a fact, as a share of all turns.
KNEE: Final = 0.035
#: The largest of OpenHands' windows above the knee, in turns. Agents hid at every turn there.
LARGEST_WINDOW_ABOVE: Final = 27
#: Fewer turns tell nothing about a share so small.
FEWEST_TURNS: Final = 100


def is_above_knee(missing_turns: int, turns: int) -> bool:
    """Return whether so many turns miss a fact that live agents solved less."""
    return turns >= FEWEST_TURNS and missing_turns > KNEE * turns


def warn_of_window(preset: str, window: int | None) -> str | None:
    """Return the warning of a window that the published runs of OpenHands place above the knee, for its presets.

    None for other presets and for none: where other agents' windows stand nobody has measured.
    """
    if not preset.startswith("openhands") or window is None or window > LARGEST_WINDOW_ABOVE:
        return None
    return (
        f"Warning: a window of {window} turns is small for OpenHands. Its published runs, which hid at every turn, "
        f"solved 14 to 19 of 50 tasks with windows of up to {LARGEST_WINDOW_ABOVE} turns, and 20 to 22 above."
    )
