"""What an action reads, runs or changes, so that a later one can make its result stale."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from elision.trajectory.plan import Key
from elision.trajectory.turn import Action, Turn

_PATH_KEYS = ("path", "file_path", "filename", "file", "notebook_path", "target_file")
_READ = re.compile(r"^(read|view|open|cat|get)([_-]?file.*)?$", re.IGNORECASE)
_EDIT = re.compile(r"edit|write|patch|replace|insert|create", re.IGNORECASE)
_SHELL = re.compile(r"bash|shell|command|terminal|execute|run", re.IGNORECASE)
_CAT = re.compile(r"^(?:cd\s+(?P<folder>\S+)\s*&&\s*)?(?P<verb>cat(?: -n)?|head|tail|nl)\s+(?P<file>[\w./~-]+)\s*$")


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """One action's effect. span: which part was read; "" for all of it."""

    kind: Literal["read", "edit", "run"]
    resource: str
    span: str = ""


def find_resource_use(action: Action) -> ResourceUse:
    """What `action` does: reads or edits a file, or runs something that only the same call repeats."""
    arguments = action.decoded_arguments
    path = next((arguments[key] for key in _PATH_KEYS if isinstance(arguments.get(key), str)), "")
    command = str(arguments.get("command", arguments.get("cmd", "" if arguments else action.arguments)))
    if path:
        span = json.dumps([arguments.get(key) for key in ("view_range", "offset", "limit", "start_line", "end_line")])
        if command == "view" or (not command and _READ.match(action.name)):
            return ResourceUse("read", path, "" if span == "[null, null, null, null, null]" else span)
        if _EDIT.search(command) or _EDIT.search(action.name):
            return ResourceUse("edit", path)
    if _SHELL.search(action.name) and (found := _CAT.match(command.strip())):
        # `head` and `tail` show ten lines: they repeat themselves, but not a view of the whole file.
        if found["verb"] in ("head", "tail"):
            part = found["verb"]
        else:
            part = ""
        return ResourceUse("read", posixpath.join(found["folder"] or "", found["file"]), part)
    return ResourceUse(
        "run", f"{action.name} {json.dumps(arguments, sort_keys=True) if arguments else action.arguments}"
    )


class ResourceUses:
    """A fold over turns: which earlier observations each turn makes stale."""

    def __init__(self) -> None:
        self._reads: dict[str, dict[str, list[Key]]] = {}
        self._runs: dict[str, Key] = {}

    def add_turn(self, turn: Turn) -> Iterator[Key]:
        for position, observation in enumerate(turn.observations, start=1):
            action = turn.find_action(observation)
            if action is None:
                continue
            for key in self._find_stale_reads(
                find_resource_use(action), (turn.index, position), failed=bool(observation.error)
            ):
                # An observation of the same turn is the newest still.
                if key[0] < turn.index:
                    yield key

    def _find_stale_reads(self, effect: ResourceUse, key: Key, *, failed: bool) -> list[Key]:
        if effect.kind == "run":
            earlier = self._runs.get(effect.resource)
            self._runs[effect.resource] = key
            if earlier:
                return [earlier]
            return []
        if failed:
            return []
        spans = self._reads.setdefault(effect.resource, {})
        if effect.kind == "edit" or not effect.span:
            stale = [known for known_span in spans.values() for known in known_span]
            spans.clear()
        else:
            stale = spans.pop(effect.span, [])
        if effect.kind == "read":
            spans.setdefault(effect.span, []).append(key)
        return stale
