"""What the agent still uses stays: observations by the time since they were made, or used."""

from __future__ import annotations

import hashlib
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from elision.errors import SpecError
from elision.strategies.resources import find_resource_use
from elision.strategies.selectors import OlderThan, Selector
from elision.trajectory.assistant_text import join_assistant_text
from elision.trajectory.items import find_items
from elision.trajectory.plan import Key
from elision.trajectory.turn import Observation, Turn

#: Newest results that a use of an item counts for.
NEWEST_SHOWN: Final = 8
#: Window of a result whose command was run, or whose search was made, before: its facts are needed again a fifth as
#: often as those of the first. Those of a file that is read again, in parts or after an edit, are needed more.
#: Set on one half of the recordings, kept for what it gains on the other (docs/concepts/evidence.md).
REPEAT_SHARE: Final = 0.4
#: Items that the agent wrote, and commands that it ran, that are remembered. Both are over four times what the longest
#: recording has (498 turns); a session of any length takes the same room.
MOST_WRITTEN: Final = 4_096
MOST_RUNS: Final = 1_024


def check_which(owner: str, which: str) -> None:
    """Raise SpecError if `which` is not what results may be chosen by."""
    if which not in ("age", "reuse"):
        raise SpecError(f"{owner}(which={which}): give age or reuse")


def select_old_results(which: str, window: int) -> Selector:
    """Return what finds the results that may be hidden, by `which`: "age" or "reuse"."""
    if which == "reuse":
        return Unused(window)
    return OlderThan(window)


@dataclass(slots=True)
class _ShownResult:
    """A result that is not due yet. newest_turn: in which it was made, or used last. window: turns that it stays then.

    items: what the agent had not written when it was made.
    """

    newest_turn: int
    window: int
    items: frozenset[str]


class _RecentValues:
    """Values, of which the `most` that were added last are kept."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._values: OrderedDict[str | bytes, None] = OrderedDict()

    def __contains__(self, value: str | bytes) -> bool:
        return value in self._values

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: str | bytes) -> None:
        self._values[value] = None
        self._values.move_to_end(value)
        if len(self._values) > self.most:
            self._values.popitem(last=False)


class Unused:
    """At call t the observations that were neither made nor used in the newest `window` turns.

    An observation is used where the agent first writes an item of it: a path, a name, a number. One whose command was
    run before stays for a part of the window.
    """

    by_age = True

    def __init__(self, window: int) -> None:
        self.window = window
        self._shown: dict[Key, _ShownResult] = {}
        #: By item: the newest results that show it, until the agent writes it.
        self._shown_by: dict[str, list[Key]] = defaultdict(list)
        self._written = _RecentValues(MOST_WRITTEN)
        #: Digests: a command may be a whole file.
        self._runs = _RecentValues(MOST_RUNS)
        #: By turn: what is due then, unless it was used meanwhile.
        self._agenda: dict[int, list[Key]] = defaultdict(list)

    def find_due_keys(self, turn: Turn) -> Iterator[tuple[int, Key]]:
        self._note_uses(turn)
        for position, observation in enumerate(turn.observations, start=1):
            self._add_result((turn.index, position), turn, observation)
        for key in self._agenda.pop(turn.index, ()):
            result = self._shown[key]
            due = result.newest_turn + result.window
            if due > turn.index:
                self._agenda[due].append(key)
            else:
                self._forget(key)
                yield turn.index + 1, key

    def _note_uses(self, turn: Turn) -> None:
        for item in find_items(join_assistant_text(turn)):
            self._written.add(item)
            for key in self._shown_by.pop(item, ()):
                self._shown[key].newest_turn = turn.index

    def _add_result(self, key: Key, turn: Turn, observation: Observation) -> None:
        window = self.window
        if self._is_repeated_run(turn, observation):
            window = max(1, round(REPEAT_SHARE * window))
        items = frozenset(item for item in find_items(observation.text) if item not in self._written)
        self._shown[key] = _ShownResult(turn.index, window, items)
        self._agenda[turn.index + window].append(key)
        for item in items:
            shown_by = self._shown_by[item]
            shown_by.append(key)
            if len(shown_by) > NEWEST_SHOWN:
                del shown_by[0]

    def _is_repeated_run(self, turn: Turn, observation: Observation) -> bool:
        """Return whether the command was run before; take note of it."""
        action = turn.find_action(observation)
        if action is None:
            return False
        use = find_resource_use(action)
        if use.kind != "run":
            return False
        resource = hashlib.blake2b(use.resource.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        is_repeated = resource in self._runs
        self._runs.add(resource)
        return is_repeated

    def _forget(self, key: Key) -> None:
        for item in self._shown.pop(key).items:
            shown_by = self._shown_by.get(item, [])
            if key in shown_by:
                shown_by.remove(key)
                if not shown_by:
                    del self._shown_by[item]
