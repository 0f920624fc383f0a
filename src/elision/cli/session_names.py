"""Sessions by name, and as the trees that forks, rewritten histories and sub-agents make of them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import Final

from elision.errors import UnknownHandle
from elision.stores.store import SessionInfo
from elision.trajectory.foreign_text import escape_controls

#: Names that an error lists.
_NAMED: Final = 5
#: Characters of a generated name that are shown, if no other session's name begins with them.
_SHORT: Final = 8
#: A name that a program made, such as 76172da2-16057b10, and the words before it.
_GENERATED: Final = re.compile(r"((?:.*/)?(?:session-)?)[0-9a-f][0-9a-f-]{10,}")
#: The number of a branch, at the end of its name.
_BRANCH: Final = re.compile(r"~\d+\Z")


class ShortNames:
    """Shortens generated names; `choose_session` finds the same sessions by what it returns."""

    def __init__(self, sessions: Sequence[SessionInfo]) -> None:
        self._keys = sorted({_BRANCH.sub("", info.key) for info in sessions})

    def shorten(self, key: str) -> str:
        """Return the beginning that no other name has, and the branch; a name that a person chose stays whole."""
        name = _BRANCH.sub("", key)
        generated = _GENERATED.fullmatch(name)
        if generated is None:
            return key
        place = bisect_left(self._keys, name)
        shared = len(generated[1]) + _SHORT - 1
        for other in [*self._keys[max(0, place - 1) : place], *self._keys[place + 1 : place + 2]]:
            equal = takewhile(lambda pair: pair[0] == pair[1], zip(name, other, strict=False))
            shared = max(shared, len(list(equal)))
        return name[: shared + 1] + key[len(name) :]


def choose_session(sessions: Sequence[SessionInfo], name: str) -> SessionInfo:
    """Return the session called `name`, or the only one whose name begins so. sessions: the one changed last first.

    A branch may have its number after the beginning: 76172da2~2. Raises UnknownHandle, which names the nearest.
    """
    exact = next((info for info in sessions if info.key == name), None)
    if exact is not None:
        return exact
    begun = _find_begun(sessions, name)
    # A session and its own branches begin alike: the name of the session is meant.
    roots = [info for info in begun if not info.parent] or begun
    if len(roots) == 1:
        return roots[0]
    shown = format_session_name(name)
    if roots:
        raise UnknownHandle(f"{shown!r} begins the names of {len(roots)} sessions: {_list_names(roots)}")
    if not sessions:
        raise UnknownHandle(f"no session {shown!r}: the store keeps none yet")
    raise UnknownHandle(f"no session {shown!r}; {_suggest_names(sessions, name)}")


def _find_begun(sessions: Sequence[SessionInfo], name: str) -> list[SessionInfo]:
    begun = [info for info in sessions if name and info.key.startswith(name)]
    branch = _BRANCH.search(name)
    if begun or branch is None:
        return begun
    beginning = name[: branch.start()]
    return [info for info in sessions if info.key.startswith(beginning) and info.key.endswith(branch[0])]


def walk_session_trees(sessions: Sequence[SessionInfo]) -> Iterator[tuple[str, SessionInfo]]:
    """Every session with the lines of the tree that stand in front of its name: families whose newest change is last
    come first, children behind their parents. sessions: the one changed last first."""
    keys = {info.key for info in sessions}
    children: dict[str, list[SessionInfo]] = {}
    for info in sessions:
        children.setdefault(info.parent if info.parent in keys and info.parent != info.key else "", []).append(info)
    roots = {info.key: info for info in children.get("", [])}
    parent = {info.key: info.parent for info in sessions}
    for key in dict.fromkeys(_find_root(info.key, parent, roots) for info in sessions):
        if key in roots:
            yield "", roots[key]
            yield from _walk_children(key, children, "")
        else:
            # Parents that go round in a circle: nothing stands above anything.
            yield "", next(info for info in sessions if info.key == key)


def _find_root(key: str, parent: dict[str, str], roots: dict[str, SessionInfo]) -> str:
    """The root that `key` stands below; itself if there is none."""
    seen = {key}
    above = key
    while above not in roots:
        above = parent[above]
        if above in seen:
            return key
        seen.add(above)
    return above


def _walk_children(key: str, children: dict[str, list[SessionInfo]], front: str) -> Iterator[tuple[str, SessionInfo]]:
    below = sorted(children.get(key, ()), key=lambda info: (info.begun, info.key))
    for info in below:
        last = info is below[-1]
        yield f"{front}{'└─ ' if last else '├─ '}", info
        yield from _walk_children(info.key, children, front + ("   " if last else "│  "))


def format_session_name(name: str) -> str:
    """A name in one line, without anything that a terminal acts on."""
    return " ".join(escape_controls(name).split()) or "?"


def _list_names(sessions: Sequence[SessionInfo]) -> str:
    more = f" and {len(sessions) - _NAMED} more" if len(sessions) > _NAMED else ""
    return ", ".join(format_session_name(info.key) for info in sessions[:_NAMED]) + more


def _suggest_names(sessions: Sequence[SessionInfo], name: str) -> str:
    known = {info.key: info for info in sessions}
    near = [known[key] for key in get_close_matches(name, known, n=_NAMED, cutoff=0.5)]
    if not near:
        near = [info for info in sessions if name.casefold() in info.key.casefold()]
    if near:
        return f"the nearest: {_list_names(near)}"
    return f"the newest: {_list_names(sessions)}"
