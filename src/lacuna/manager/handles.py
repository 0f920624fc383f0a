"""What a handle names: in this branch, in the sessions it came from, in this process or another."""

from __future__ import annotations

from lacuna.errors import UnknownHandle
from lacuna.manager.branch import Branch
from lacuna.manager.passes import Passes
from lacuna.stores.store import Store
from lacuna.trajectory.plan import Key, handle
from lacuna.trajectory.turn import Observation


class Handles:
    """Looks handles up for one session."""

    def __init__(self, store: Store, passes: Passes) -> None:
        self._store = store
        self._passes = passes

    def known(self) -> Branch:
        """The branch at hand, or the session as the store has it. Raises UnknownHandle."""
        found = self._passes.branch or self._passes.lineage.newest()
        if found is None:
            raise UnknownHandle(f"session {self._passes.session!r} has no turns yet")
        return found

    def observation(self, session: str, key: Key) -> Observation:
        """The raw observation `key` of `session`; of this one, or else of the nearest it came from, if that is "".

        Raises UnknownHandle, StoreError.
        """
        branch = self.known()
        if session and session != branch.key:
            if session not in self._ancestors(branch.new.parent):
                raise UnknownHandle(f"this session did not come from {session[:60]!r}")
            return self._store.observation(session, key)
        turns = branch.session.state.turns
        if key[0] <= len(turns) and key[1] <= len(turns[key[0] - 1].observations):
            return turns[key[0] - 1].observations[key[1] - 1]
        return self._inherited(branch, key)

    def _inherited(self, branch: Branch, key: Key) -> Observation:
        for parent in self._ancestors(branch.new.parent):
            try:
                return self._store.observation(parent, key)
            except UnknownHandle:
                continue
        raise UnknownHandle(f"session {self._passes.session!r} keeps nothing under {handle(key)}")

    def _ancestors(self, parent: str) -> list[str]:
        """The sessions that this one came from, nearest first; as far as the store still has them."""
        found: list[str] = []
        while parent and parent not in found:
            found.append(parent)
            try:
                parent = self._store.info(parent).parent
            except UnknownHandle:
                break
        return found
