"""Files an agent touched: read, edited, written, and where."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from elision.summarizers.call_lines import (
    clip_line,
    find_command,
    find_command_line,
    find_failure,
    find_path,
    join_lines,
)
from elision.trajectory.turn import Action, Turn

# Words in a tool's name or in its own `command` argument, in the order they are looked for.
_VERBS = (
    ("written", ("create", "write", "new_file")),
    ("edited", ("edit", "replace", "insert", "patch", "update", "undo", "append")),
    ("read", ("read", "view", "open", "cat", "show", "get_file")),
)
_PATH = r"([\w./~@+-]*[\w~]\.?[\w./-]*)"
_SHELL = (
    (
        "written",
        re.compile(rf"\bcat\s+>\s*{_PATH}|\btee\s+{_PATH}|(?:^|\n|&&\s*)create\s+{_PATH}|<<\s*\S+\s+>\s*{_PATH}"),
    ),
    ("edited", re.compile(rf"\bsed\s+-i\S*\s+(?:-e\s+)?(?:'[^']*'|\"[^\"]*\")\s+{_PATH}|\bcat\s+>>\s*{_PATH}")),
    (
        "read",
        re.compile(
            rf"\bsed\s+-n\s+['\"]?(?P<lines>\d+,\s*\d+)p['\"]?\s+{_PATH}|\b(?:cat|head|tail|less|nl|open)\s+(?:-\w+\s+|-?\d+\s+)*{_PATH}(?:\s+(?P<at>\d+))?"
        ),
    ),
)
_PATCH = re.compile(r"^\*\*\* (Add|Update|Delete) File: (\S+)", re.MULTILINE)
_OPEN_EDIT = re.compile(r"^edit (\d+):(\d+)\n(.*?)(?:\nend_of_edit|\Z)", re.DOTALL)
_OPEN_FILE = re.compile(r"^\(Open file: (/\S+?)\)", re.MULTILINE)
_NEW_KEYS = ("new_str", "new_string", "newText", "file_text", "content", "new_text", "patch", "input")
# Beginnings of lines that files of any content have.
_OPENINGS = ('"""', "#", "import ", "from ", "//", "/*", "*", "use ", "package ", "<?")
#: Characters of the line that is quoted of a change.
QUOTE_WIDTH = 100

_STATE = re.compile(
    r"(?P<path>\S+): (?P<written>written)?(?:, )?(?:read (?P<reads>\d+)x)?(?:, )?(?:edited (?P<edits>\d+)x)?"
    r"(?: lines (?P<lines>\S+))? \[(?P<turn>\d+)\]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTouch:
    """One call did `verb` to `path`.

    lines: the range it names ("600-690"); "" if none.
    gist:  the first line it wrote that says what it is about, quoted; "" if there is none.
    """

    path: str
    verb: str
    turn: int
    lines: str = ""
    gist: str = ""

    def __str__(self) -> str:
        # Four changes to one deep file would name its folders four times; CODE_STATE has the whole path.
        place = self.path
        folders = place.split("/")
        if len(folders) > 4:
            place = "/".join(("…", *folders[-2:]))
        if self.lines:
            place += f":{self.lines}"
        text = f"[{self.turn}] {self.verb} {place}"
        if self.gist:
            text += f": {self.gist}"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """Everything that was done to one file. lines: the newest range named. last_turn: the newest turn."""

    path: str
    reads: int = 0
    edits: int = 0
    is_written: bool = False
    lines: str = ""
    last_turn: int

    def __str__(self) -> str:
        actions = []
        if self.is_written:
            actions.append("written")
        if self.reads:
            actions.append(f"read {self.reads}x")
        if self.edits:
            actions.append(f"edited {self.edits}x")
        text = f"{self.path}: {', '.join(actions)}"
        if self.lines:
            text += f" lines {self.lines}"
        return f"{text} [{self.last_turn}]"


def parse_file_state(line: str) -> FileState | None:
    """Return the state that `str()` wrote as `line`; None if `line` is none."""
    match = _STATE.fullmatch(line)
    if not match:
        return None
    return FileState(
        path=match["path"],
        reads=int(match["reads"] or 0),
        edits=int(match["edits"] or 0),
        is_written=match["written"] is not None,
        lines=match["lines"] or "",
        last_turn=int(match["turn"]),
    )


def score_interest(line: str) -> float:
    """Return how much was done to the file of a line that `str()` wrote: doublings of reads, edits counting twice."""
    state = parse_file_state(line)
    if state:
        return math.log2(1 + state.reads + 2 * state.edits)
    return 0.0


def list_touches(turns: Iterable[Turn]) -> list[FileTouch]:
    """Return what the calls of `turns` did to files, in order; calls that failed did nothing."""
    touches: list[FileTouch] = []
    open_file = ""
    for turn in turns:
        failed = {observation.action_id for observation in turn.observations if find_failure(observation) is not None}
        for action in turn.actions:
            if action.id not in failed:
                touches.extend(_list_action_touches(action, turn.index, open_file))
        for observation in turn.observations:
            names = _OPEN_FILE.findall(observation.text[-400:])
            if names:
                open_file = names[-1]
    return touches


def update_file_states(touches: Iterable[FileTouch], before: Iterable[FileState] = ()) -> tuple[FileState, ...]:
    """Return the files `before` with `touches` added, each once, the newest last."""
    known = {state.path: state for state in before}
    for touch in touches:
        old = known.pop(touch.path, FileState(path=touch.path, last_turn=touch.turn))
        known[touch.path] = replace(
            old,
            reads=old.reads + (touch.verb == "read"),
            edits=old.edits + (touch.verb == "edited"),
            is_written=old.is_written or touch.verb == "written",
            lines=touch.lines or old.lines,
            last_turn=touch.turn,
        )
    return tuple(known.values())


@lru_cache(maxsize=128)
def _list_action_touches(action: Action, turn: int, open_file: str) -> tuple[FileTouch, ...]:
    """Return what `action` did. open_file: the file that the agent's editor shows; "" if none."""
    path = find_path(action)
    if path:
        return tuple(_read_tool_touch(action, path, turn))
    touches = []
    text = find_command(action) or action.arguments
    for kind, name in _PATCH.findall(text.replace("\\n", "\n")):
        verb = "written" if kind == "Add" else "edited"
        touches.append(FileTouch(path=name, verb=verb, turn=turn, gist=_quote_patch(text)))
    edit = _OPEN_EDIT.search(text)
    if edit and open_file:
        gist = _quote_first_line(edit[3])
        touches.append(FileTouch(path=open_file, verb="edited", turn=turn, lines=f"{edit[1]}-{edit[2]}", gist=gist))
    return (*touches, *_find_shell_touches(action, turn))


def _read_tool_touch(action: Action, path: str, turn: int) -> Iterator[FileTouch]:
    """Yield the touch of a call that names its file in an argument."""
    verb = _find_verb(action)
    if not verb:
        return
    text = ""
    if verb != "read":
        for key in _NEW_KEYS:
            if action.decoded_arguments.get(key):
                text = str(action.decoded_arguments[key])
                break
    yield FileTouch(
        path=join_lines(path).replace(" ", "_"),
        verb=verb,
        turn=turn,
        lines=_format_range(action.decoded_arguments),
        gist=_quote_first_line(text),
    )


def _find_verb(action: Action) -> str:
    """Return what a tool does to its file, by its `command` argument or else by its name; "" if unknown."""
    words = str(action.decoded_arguments.get("command", "")).lower() or action.name.lower()
    for verb, names in _VERBS:
        if any(name in words for name in names):
            return verb
    return ""


def _format_range(decoded: Any) -> str:
    view = decoded.get("view_range")
    if isinstance(view, list) and len(view) == 2:
        return f"{view[0]}-{view[1]}".replace("--1", "-end")
    start = decoded.get("offset")
    count = decoded.get("limit")
    if isinstance(start, int) and isinstance(count, int):
        return f"{start}-{start + count}"
    if isinstance(decoded.get("insert_line"), int):
        return str(decoded["insert_line"])
    return ""


def _find_shell_touches(action: Action, turn: int) -> Iterator[FileTouch]:
    whole = find_command(action)
    seen: set[str] = set()
    for verb, pattern in _SHELL:
        for match in pattern.finditer(find_command_line(action)):
            name = _find_name(match)
            if not _is_file(name) or name in seen:
                continue
            seen.add(name)
            groups = match.groupdict()
            lines = (groups.get("lines") or groups.get("at") or "").replace(",", "-").replace(" ", "")
            gist = _quote_written_text(verb, whole, match[0])
            yield FileTouch(path=name, verb=verb, turn=turn, lines=lines, gist=gist)


def _find_name(match: re.Match[str]) -> str:
    """Return the first group of `match` that is no range of lines."""
    for group in match.groups():
        if group and not re.fullmatch(r"[\d, ]+", group):
            return str(group)
    return ""


def _quote_written_text(verb: str, whole: str, matched: str) -> str:
    if verb == "written":
        body = whole[whole.find("<<") :].split("\n", 1)
        if len(body) == 2:
            return _quote_first_line(body[1])
        return ""
    if verb == "edited" and matched.startswith("sed"):
        return clip_line(matched, QUOTE_WIDTH)
    return ""


def _is_file(name: str) -> bool:
    return ("/" in name or "." in name) and not name.startswith(("/dev/", "-")) and len(name) <= 120


def _quote_first_line(text: str) -> str:
    """Return the first line of `text` that says what it is about, quoted; "" if there is none."""
    for line in text.splitlines():
        stripped = line.strip()
        if len(stripped) > 3 and not stripped.startswith(_OPENINGS):
            return f'"{clip_line(stripped, QUOTE_WIDTH)}"'
    return ""


def _quote_patch(text: str) -> str:
    added = []
    for line in text.replace("\\n", "\n").splitlines():
        if line.startswith("+") and len(line.strip()) > 4:
            added.append(line[1:])
    return _quote_first_line("\n".join(added))
