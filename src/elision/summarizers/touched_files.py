"""Files an agent touched: read, edited, written, and where."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from elision.summarizers.actions import find_command, find_command_line, find_path
from elision.summarizers.outcomes import find_failure
from elision.summarizers.prose import clip_line, join_lines
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
# How a file begins whatever it is about.
_OPENINGS = ('"""', "#", "import ", "from ", "//", "/*", "*", "use ", "package ", "<?")
#: Characters of a change's first telling line.
WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTouch:
    """One call did `verb` to `path`.

    lines: the range it names ("600-690"); "" if none.
    gist:  the first telling line it wrote; "" if it wrote none.
    """

    path: str
    verb: str
    turn: int
    lines: str = ""
    gist: str = ""

    def __str__(self) -> str:
        # Four changes to one deep file would name its folders four times; CODE_STATE has the whole path.
        folders = self.path.split("/")
        if len(folders) > 4:
            short = "/".join(("…", *folders[-2:]))
        else:
            short = self.path
        if self.lines:
            place = f"{short}:{self.lines}"
        else:
            place = short
        return f"[{self.turn}] {self.verb} {place}" + (f": {self.gist}" * bool(self.gist))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """Everything that was done to one file. `lines`: the newest range named; `last`: the newest turn."""

    path: str
    reads: int = 0
    edits: int = 0
    is_written: bool = False
    lines: str = ""
    last_turn: int

    def __str__(self) -> str:
        done = [
            *(["written"] if self.is_written else []),
            *([f"read {self.reads}x"] if self.reads else []),
            *([f"edited {self.edits}x"] if self.edits else []),
        ]
        return f"{self.path}: {', '.join(done)}" + (f" lines {self.lines}" * bool(self.lines)) + f" [{self.last_turn}]"


def parse_file_state(line: str) -> FileState | None:
    """The state that `str()` wrote as `line`; None if it is none."""
    found = re.fullmatch(r"(\S+): (.+) \[(\d+)\]", line)
    if not found:
        return None
    path, done, last = found.groups()
    reads, edits, lines = (re.search(pattern, done) for pattern in (r"read (\d+)x", r"edited (\d+)x", r"lines (\S+)$"))
    return FileState(
        path=path,
        reads=int(reads[1]) if reads else 0,
        edits=int(edits[1]) if edits else 0,
        is_written="written" in done,
        lines=lines[1] if lines else "",
        last_turn=int(last),
    )


def score_interest(line: str) -> float:
    """How much was done to the file of a line that `str()` wrote: doublings of reads, edits counting twice."""
    state = parse_file_state(line)
    if state:
        return math.log2(1 + state.reads + 2 * state.edits)
    return 0.0


def list_touches(turns: Iterable[Turn]) -> list[FileTouch]:
    """What the calls of `turns` did to files, in order; calls that failed did nothing."""
    found: list[FileTouch] = []
    opened = ""
    for turn in turns:
        failed = {seen.action_id for seen in turn.observations if find_failure(seen) is not None}
        for action in turn.actions:
            if action.id not in failed:
                found.extend(_find_touches(action, turn.index, opened))
        for observation in turn.observations:
            shown = _OPEN_FILE.findall(observation.text[-400:])
            opened = shown[-1] if shown else opened
    return found


def update_file_states(done: Iterable[FileTouch], before: Iterable[FileState] = ()) -> tuple[FileState, ...]:
    """The files `before` with `done` added, each once, oldest first."""
    known = {state.path: state for state in before}
    for touch in done:
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


def _find_touches(action: Action, turn: int, opened: str) -> Iterator[FileTouch]:
    if path := find_path(action):
        yield from _read_tool_touch(action, path, turn)
        return
    text = find_command(action) or action.arguments
    for kind, name in _PATCH.findall(text.replace("\\n", "\n")):
        yield FileTouch(path=name, verb="written" if kind == "Add" else "edited", turn=turn, gist=_quote_patch(text))
    edit = _OPEN_EDIT.search(text)
    if edit and opened:
        yield FileTouch(
            path=opened, verb="edited", turn=turn, lines=f"{edit[1]}-{edit[2]}", gist=_quote_first_line(edit[3])
        )
    yield from _find_shell_touches(action, turn)


def _read_tool_touch(action: Action, path: str, turn: int) -> Iterator[FileTouch]:
    decoded = action.decoded
    words = f"{decoded.get('command', '')} {action.name}".lower()
    own = str(decoded.get("command", "")).lower() or words
    verb = next((verb for verb, names in _VERBS if any(name in own for name in names)), "")
    if verb:
        if verb != "read":
            written = next((str(decoded[key]) for key in _NEW_KEYS if decoded.get(key)), "")
        else:
            written = ""
        yield FileTouch(
            path=join_lines(path).replace(" ", "_"),
            verb=verb,
            turn=turn,
            lines=_format_range(decoded),
            gist=_quote_first_line(written),
        )


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
    command = find_command_line(action)
    whole = find_command(action)
    seen: set[str] = set()
    for verb, pattern in _SHELL:
        for match in pattern.finditer(command):
            groups = match.groupdict()
            lines = (groups.get("lines") or groups.get("at") or "").replace(",", "-").replace(" ", "")
            name = next((group for group in match.groups() if group and not re.fullmatch(r"[\d, ]+", group)), "")
            if not _is_file(name) or name in seen:
                continue
            seen.add(name)
            yield FileTouch(
                path=name, verb=verb, turn=turn, lines=lines, gist=_quote_written_text(verb, whole, match[0])
            )


def _quote_written_text(verb: str, whole: str, matched: str) -> str:
    if verb == "written":
        body = whole[whole.find("<<") :].split("\n", 1)
        if len(body) == 2:
            return _quote_first_line(body[1])
        return ""
    if verb == "edited" and matched.startswith("sed"):
        return clip_line(matched, WIDTH)
    return ""


def _is_file(name: str) -> bool:
    return ("/" in name or "." in name) and not name.startswith(("/dev/", "-")) and len(name) <= 120


def _quote_first_line(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    telling = [line for line in lines if len(line) > 3 and not line.startswith(_OPENINGS)]
    if telling:
        return f'"{clip_line(telling[0], WIDTH)}"'
    return ""


def _quote_patch(text: str) -> str:
    added = [
        line[1:] for line in text.replace("\\n", "\n").splitlines() if line.startswith("+") and len(line.strip()) > 4
    ]
    return _quote_first_line("\n".join(added))
