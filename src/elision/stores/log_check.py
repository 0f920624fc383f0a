"""What the events of a log say about those before them, so that a check finds records that are gone without a trace."""

from __future__ import annotations

from elision.trajectory.events import Event, PassDecided, TurnAdded, TurnAmended


class LogCheck:
    """One log while its events are read, in their order. Its first gap is told, and none where some cannot be read."""

    def __init__(self) -> None:
        self._turns = 0
        self._is_over = False

    def skip(self) -> None:
        """Note that records here cannot be read: what is missing after them is no new finding."""
        self._is_over = True

    def find_gap(self, event: Event) -> str:
        """Return what must have been before `event` and was not; "" for nothing."""
        if self._is_over:
            return ""
        what = ""
        match event:
            case TurnAdded():
                if event.turn.index != self._turns + 1:
                    what = f"it has turn {event.turn.index}, after turn {self._turns}"
                self._turns = event.turn.index
            case TurnAmended():
                if event.turn.index > self._turns:
                    what = f"it amends turn {event.turn.index}, which is not there"
            case PassDecided():
                named = [mask.key[0] for mask in event.masks]
                if event.summary is not None:
                    named.append(event.summary.covers)
                if (newest := max(named, default=0)) > self._turns:
                    what = f"it hides turn {newest}, which is not there"
            case _:
                pass
        self._is_over = bool(what)
        return f"records before it are missing: {what}" if what else ""
