"""Which sessions of a store a server shows, and which of them a call means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elision.errors import UnknownHandle
from elision.stores.store import SessionInfo
from elision.trajectory.encodable import make_encodable, remove_controls

#: Names that an error lists, and characters of each.
_LISTED: Final = 5
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionScope:
    """The sessions that a server shows; each field that is not "" leaves out others.

    session: a name, how the only one begins, or the id that a client gives the gateway. With it come the sessions that
             it came from and those that came from it.
    prefix:  how names begin.
    owner:   the namespace of an API key at the gateway, or a whole family.
    listing: a file with names, one a line, that is read anew each time. With them come their relatives. A file that is
             not there names none.
    """

    session: str = ""
    prefix: str = ""
    owner: str = ""
    listing: Path | None = None

    def list_visible(self, sessions: Sequence[SessionInfo]) -> list[SessionInfo]:
        """Return those of `sessions` (the one changed last first) that are shown, in their order."""
        inside = [
            info
            for info in sessions
            if info.key.startswith(self.prefix)
            and (not self.owner or self.owner in (info.family, info.family.partition("/")[0]))
        ]
        if self.listing is not None:
            try:
                listed = set(self.listing.read_text(encoding="utf-8").splitlines())
            except OSError:
                listed = set()
            related = _find_relatives(inside, listed)
            inside = [info for info in inside if info.key in related]
        if not self.session:
            return inside
        meant = {info.key for info in _find_named(inside, self.session)}
        related = _find_relatives(inside, meant)
        return [info for info in inside if info.key in related]

    def choose_session(self, sessions: Sequence[SessionInfo], name: str = "") -> SessionInfo:
        """Return the session called `name`, of those that are shown; "": the server's own, or the only one there is.

        Raises UnknownHandle, which names what is shown and nothing else.
        """
        visible = self.list_visible(sessions)
        wanted = name or self.session
        if wanted:
            named = _find_named(visible, wanted)
        else:
            named = [info for info in visible if not info.parent]
        if not named:
            shown = f" {flatten_text(wanted)[:_SHOWN]!r}" if wanted else ""
            if not visible:
                raise UnknownHandle(f"no session{shown} is shown here yet")
            raise UnknownHandle(f"no session{shown}; there are: {list_names(visible)}")
        # The sessions of one conversation, such as those before and after a compaction, are not told apart by its id.
        conversations = {info.family if _client_id(info) == wanted else info.key for info in named}
        if len(conversations) > 1:
            raise UnknownHandle(f"{len(named)} sessions could be meant: {list_names(named)}; give one as `session`")
        return named[0]


def list_names(sessions: Sequence[SessionInfo]) -> str:
    """Return the first names in one line, without anything that a terminal acts on."""
    names = ", ".join(flatten_text(info.key)[:_SHOWN] for info in sessions[:_LISTED])
    if len(sessions) > _LISTED:
        return f"{names} and {len(sessions) - _LISTED} more"
    return names


def flatten_text(text: str) -> str:
    """Return recorded text in one line, without control characters."""
    return " ".join(remove_controls(make_encodable(text)).split())


def _find_named(sessions: Sequence[SessionInfo], name: str) -> list[SessionInfo]:
    """Return the sessions that `name` may mean: the one called so, a client's conversation, or what begins so."""
    exact = [info for info in sessions if info.key == name]
    if exact:
        return exact
    conversation = [info for info in sessions if _client_id(info) == name]
    if conversation:
        return [info for info in conversation if not info.parent] or conversation
    begun = [info for info in sessions if info.key.startswith(name)]
    # A session and its own branches begin alike: the name of the session is meant.
    return [info for info in begun if not info.parent] or begun


def _client_id(info: SessionInfo) -> str:
    """Return the id that the client gave the conversation at the gateway; "" if it gave none."""
    return info.family.partition("/")[2]


def _find_relatives(sessions: Sequence[SessionInfo], keys: set[str]) -> set[str]:
    """Return `keys`, the sessions that they came from, and all that came from them."""
    parents = {info.key: info.parent for info in sessions}
    found = set(keys)
    for key in keys:
        above = parents.get(key, "")
        while above in parents and above not in found:
            found.add(above)
            above = parents[above]
    below = set(keys)
    while below:
        below = {key for key, parent in parents.items() if parent in below and key not in found}
        found |= below
    return found
