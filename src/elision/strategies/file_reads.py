"""Which file an action reads, and whether an agent's edits must match what it read exactly, word for word."""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import dataclass
from typing import Final

from elision.trajectory.turn import Action, Head, Turn

_PATH_KEYS = ("path", "file_path", "filename", "file", "notebook_path", "target_file")
_READ = re.compile(r"^(read|view|open|cat|get)([_-]?file.*)?$", re.IGNORECASE)
_EDIT = re.compile(r"edit|write|patch|replace|insert|create", re.IGNORECASE)
_SHELL = re.compile(r"bash|shell|command|terminal|execute|run", re.IGNORECASE)
_CAT = re.compile(r"^(?:cd\s+(?P<folder>\S+)\s*&&\s*)?(?P<verb>cat(?: -n)?|head|tail|nl)\s+(?P<file>[\w./~-]+)\s*$")

#: What edit tools call the text that they replace: `old_string`, `old_str`, `oldText`.
_OLD_TEXT: Final = re.compile(r'"old_?(?:string|str|text|content)"\s*:', re.IGNORECASE)
#: Tools whose argument has lines of the file around the change.
_PATCH_TOOL: Final = re.compile(r"apply_?patch", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FileRead:
    """A file, and the part of it that was read; "" for all of it."""

    path: str
    part: str = ""


def find_file_read(action: Action) -> FileRead | None:
    """Return what `action` reads; None if it edits a file, or runs something."""
    arguments = action.decoded_arguments
    path = next((arguments[key] for key in _PATH_KEYS if isinstance(arguments.get(key), str)), "")
    command = str(arguments.get("command", arguments.get("cmd", "" if arguments else action.arguments)))
    if path:
        if command == "view" or (not command and _READ.match(action.name)):
            lines = [arguments.get(key) for key in ("view_range", "offset", "limit", "start_line", "end_line")]
            return FileRead(path, json.dumps(lines) if any(each is not None for each in lines) else "")
        if _EDIT.search(command) or _EDIT.search(action.name):
            return None
    if _SHELL.search(action.name) and (found := _CAT.match(command.strip())):
        # `head` and `tail` show ten lines: they repeat themselves, but not a view of the whole file.
        part = found["verb"] if found["verb"] in ("head", "tail") else ""
        return FileRead(posixpath.join(found["folder"] or "", found["file"]), part)
    return None


def has_exact_edit_tool(head: Head) -> bool:
    """Return whether the head defines an edit tool that must match the file's text."""
    text = json.dumps(list(head.tools), default=dict)
    return bool(_OLD_TEXT.search(text) or _PATCH_TOOL.search(text))


def edits_exactly(turn: Turn) -> bool:
    """Return whether a call of `turn` edits in this way."""
    return any(_PATCH_TOOL.search(action.name) or _OLD_TEXT.search(action.arguments) for action in turn.actions)
