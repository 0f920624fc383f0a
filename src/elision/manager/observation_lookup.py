"""The text under a handle: in this branch, or in the sessions that it came from."""

from __future__ import annotations

from elision.errors import UnknownHandle
from elision.manager.branch import SessionBranch
from elision.manager.observation_text import find_text, format_handle
from elision.manager.preparation import CallPreparer
from elision.stores.store import Store
from elision.trajectory.plan import Key
from elision.trajectory.turn import Turn


class ObservationLookup:
    """Finds observations of one session by their handle."""

    def __init__(self, store: Store, passes: CallPreparer) -> None:
        self._store = store
        self._passes = passes

    def find_branch(self) -> SessionBranch:
        """Return the present branch, or the stored one that changed last. Raises UnknownHandle."""
        found = self._passes.branch or self._passes.branch_lookup.load_latest_branch()
        if found is None:
            raise UnknownHandle(f"session {self._passes.session!r} has no turns yet")
        return found

    def read_text(self, session: str, key: Key) -> str:
        """Return the raw text under `key` (position 0: the whole turn).

        session: whose; if "" this one's, or else that of the nearest it came from. Raises UnknownHandle, StoreError.
        """
        branch = self.find_branch()
        if session and session != branch.key:
            if session not in self._list_ancestors(branch.new.parent):
                raise UnknownHandle(f"this session did not come from {session[:60]!r}")
            return self._read_stored(session, key)
        turns = branch.session.state.turns
        if key[0] > len(turns):
            return self._read_inherited(branch, key)
        return _extract_text(turns[key[0] - 1], key)

    def _read_inherited(self, branch: SessionBranch, key: Key) -> str:
        for parent in self._list_ancestors(branch.new.parent):
            try:
                return self._read_stored(parent, key)
            except UnknownHandle:
                continue
        raise UnknownHandle(f"session {self._passes.session!r} keeps nothing under {format_handle(key)}")

    def _read_stored(self, session: str, key: Key) -> str:
        turns = self._store.turns(session, key[0], key[0])
        if not turns:
            raise UnknownHandle(f"session {session!r} keeps nothing under {format_handle(key)}")
        return _extract_text(turns[0], key)

    def _list_ancestors(self, parent: str) -> list[str]:
        """Return the sessions that this one came from, nearest first, as far as the store has them."""
        found: list[str] = []
        while parent and parent not in found:
            found.append(parent)
            try:
                parent = self._store.info(parent).parent
            except UnknownHandle:
                break
        return found


def _extract_text(turn: Turn, key: Key) -> str:
    found = find_text(turn, key)
    if found is None:
        raise UnknownHandle(f"turn {key[0]} has {len(turn.observations)} results, not {key[1]}")
    return found
