"""Messages that the client never saw, found in the store for a history that this process has not read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from elision.manager.branch import session_name
from elision.manager.history import History
from elision.stores.store import Store
from elision.trajectory.events import Event, RecallExchanged

#: Branches of one session that are looked at, those that changed last.
_MAX_BRANCHES: Final = 16


def list_exchanges(events: list[Event]) -> list[RecallExchanged]:
    """Return the exchanges of one log, oldest first."""
    return [event for event in events if isinstance(event, RecallExchanged)]


def find_stored_exchanges(store: Store, family: str, history: History) -> list[RecallExchanged]:
    """Return the exchanges of the stored session that begins like `history`; [] if none does. Raises StoreError.

    Those of its other branches come first: what the history says up to its first exchange does not tell them apart.
    """
    found = store.locate(family, history.list_nodes())
    if found is None:
        return []
    keys = [*_list_other_branches(store, family, found[0]), found[0]]
    return list(dict.fromkeys(each for key in keys for each in list_exchanges(list(store.events(key)))))


def _list_other_branches(store: Store, family: str, key: str) -> Iterator[str]:
    """Yield the keys of the session's other branches, the one that changed last at the end."""
    akin = [
        info.key for info in store.sessions() if info.family == family and session_name(info.key) == session_name(key)
    ]
    return reversed([each for each in akin if each != key][:_MAX_BRANCHES])
