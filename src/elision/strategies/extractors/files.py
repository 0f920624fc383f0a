"""Files that were read and folders that were listed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from elision.strategies.extractors.arguments import (
    PATH_KEYS,
    decode_arguments,
    find_number_argument,
    find_text_argument,
)
from elision.strategies.extractors.command import Stage, find_command, find_output
from elision.strategies.extractors.failure import find_complaint, find_informative_line, is_refusal
from elision.strategies.extractors.outcome import Outcome, format_count, shorten_path
from elision.strategies.extractors.truncation import qualify_count
from elision.strategies.extractors.wrappers import UnwrappedOutput, unwrap_output
from elision.trajectory.turn import Action, Observation

#: Names of tools that read files, and of those that list folders (globs, any case).
VIEWERS = (
    "*read*",
    "*view*",
    "*open*",
    "cat",
    "goto",
    "scroll_*",
    "*str_replace*",
    "*edit*",
    "*get_file*",
    "*file_tool*",
)
LISTERS = ("ls", "*list_dir*", "*list_files*", "*list_folder*", "*directory*", "*tree*", "*str_replace*", "*edit*")
READERS = frozenset({"cat", "head", "tail", "nl", "less", "more", "sed", "bat", "tac"})
_LISTING = frozenset({"ls", "tree", "dir"})

_WINDOW = re.compile(r"\[File: ([^\n]{1,500}?) \((\d{1,9}) lines total\)\]")
_ABOVE = re.compile(r"^\((\d{1,9}) (?:more )?lines above\)", re.MULTILINE)
_BELOW = re.compile(r"^\((\d{1,9}) (?:more )?lines below\)", re.MULTILINE)
_CAT_N = re.compile(r"^[ \t]{0,10}(\d{1,7})(?:\t|→|\Z)", re.MULTILINE)
_MORE = re.compile(r"\[(\d{1,9}) more lines in file\.")
_NOTE = re.compile(r"\n\n?\[\d{1,9} more lines in file\.[^\n]{0,200}\]\s*\Z|<NOTE>[^\n]{0,1000}</NOTE>\s*\Z")
_RANGED = re.compile(r":\d{1,9}-\d{0,9}(?: of \d{1,9})?\Z")
_SCRIPT = re.compile(r"(\d{1,9})(?:,(\+?\d{1,9}|\$))?p")
_FOLDER = re.compile(r"Here's the files and directories up to \d+ levels? deep in ([^\n]{1,300}?), excluding")
_EDITED = ("File updated", "has been edited", "introduced new syntax error")


def describe_file_window(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A file window as SWE-agent shows it, whatever command opened or moved it."""
    head = observation.text[:2_000]
    tail = observation.text[-4_000:]
    found = _WINDOW.search(head)
    if found is None or any(word in tail or word in head for word in _EDITED):
        return None
    total = int(found[2])
    above = _ABOVE.search(head)
    below = _BELOW.search(tail)
    first = int(above[1]) + 1 if above else 1
    last = total - int(below[1]) if below else total
    shown = max(0, last - first + 1)
    return Outcome(f"{shorten_path(found[1])}:{first}-{last} of {total}", format_count(shown, "line"))


def describe_file_view(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A file read through a tool made for it."""
    arguments = decode_arguments(action)
    if arguments.get("command") not in (None, "view") or not _is_read_call(arguments):
        return None
    label = _label_file(arguments, observation.text)
    if not label or _FOLDER.search(observation.text[:500]):
        return None
    envelope = unwrap_output(observation.text)
    problem = _find_view_problem(observation, envelope) or _find_refusal(envelope.body)
    lines = format_count(_count_file_lines(envelope), "line")
    return Outcome(label, problem or (lines if _RANGED.search(label) else qualify_count(lines, envelope.body)))


def _is_read_call(arguments: Mapping[str, Any]) -> bool:
    writes = (
        "content",
        "contents",
        "file_text",
        "new_string",
        "new_str",
        "new_text",
        "newText",
        "edits",
        "patch",
        "diff",
        "url",
    )
    return not any(key in arguments for key in writes)


def _label_file(arguments: Mapping[str, Any], text: str) -> str:
    files = arguments.get("files", arguments.get("paths"))
    if isinstance(files, list) and files:
        return ", ".join(
            _label_file(item, "") if isinstance(item, dict) else shorten_path(str(item)) for item in files[:3]
        )
    path = find_text_argument(arguments, *PATH_KEYS)
    if path:
        return shorten_path(path) + _format_range(arguments, text)
    return ""


def _format_range(arguments: Mapping[str, Any], text: str) -> str:
    """ ":a-b of n" as far as the arguments or the line numbers in the output tell."""
    asked = arguments.get("view_range")
    if isinstance(asked, list) and len(asked) == 2 and all(isinstance(end, int) for end in asked) and asked[1] > 0:
        return f":{asked[0]}-{asked[1]}"
    start = find_number_argument(arguments, "start_line", "startLine", "line_start", "start")
    end = find_number_argument(arguments, "end_line", "endLine", "line_end", "end")
    if start is not None and end is not None:
        return f":{start}-{end}"
    offset = find_number_argument(arguments, "offset")
    limit = find_number_argument(arguments, "limit")
    more = _MORE.search(text[-300:])
    if limit is not None and (offset is not None or more):
        first = offset or 1
        return f":{first}-{first + limit - 1}" + (f" of {first + limit - 1 + int(more[1])}" if more else "")
    if offset:
        return f":{offset}-"
    return ""


def _find_view_problem(observation: Observation, envelope: UnwrappedOutput) -> str:
    """Why no lines were read; "" if some were."""
    body = envelope.body.strip()
    if not body:
        if envelope.exit_code in (None, 0):
            return "empty"
        return f"exit {envelope.exit_code}, no output"
    if observation.error or envelope.has_failed:
        summary_line = find_complaint(body) or find_informative_line(body)
        if envelope.has_failed:
            return f"exit {envelope.exit_code}, {summary_line}"
        return summary_line
    if body.startswith(("ERROR:\n", "Read image file")):
        return find_informative_line(body)
    return find_complaint(body)


def _find_refusal(body: str) -> str:
    """What a tool says instead of showing a file; "" where lines are numbered, or too many for a refusal."""
    brief = len(body) < 500 and body.count("\n") < 3 and not _CAT_N.match(body)
    if brief and is_refusal(body):
        return find_informative_line(body)
    return ""


def _count_file_lines(envelope: UnwrappedOutput) -> int:
    """Lines shown: by their own numbers where they have some, else counted, notes of the tool left out."""
    head = envelope.body[:1_000]
    tail = envelope.body[-4_000:]
    first = _CAT_N.search(head)
    last = list(_CAT_N.finditer(tail))
    if first and last and int(last[-1][1]) >= int(first[1]):
        return int(last[-1][1]) - int(first[1]) + 1
    note = _NOTE.search(tail)
    if note:
        body = envelope.body[: len(envelope.body) - len(tail) + note.start()]
    else:
        body = envelope.body
    return UnwrappedOutput(None, body).line_count


def describe_printed_files(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A file printed by a shell command: cat, head, tail, sed -n and their like."""
    command = find_command(action, observation)
    if command is None or not (stages := command.only_pipeline):
        return None
    first = stages[0]
    last = stages[-1]
    if any(stage.program not in READERS or _writes_file(stage) for stage in stages) or not _find_operand_files(first):
        return None
    label = ", ".join(shorten_path(path) for path in _find_operand_files(first)[:3]) + _format_printed_range(last)
    envelope = find_output(action, observation)
    lines = qualify_count(format_count(_count_file_lines(envelope), "line"), envelope.body)
    return Outcome(label, _find_view_problem(observation, envelope) or lines)


def _writes_file(stage: Stage) -> bool:
    return (stage.program == "sed" and not stage.has_option("-n")) or bool(stage.redirect_target)


def _find_operand_files(stage: Stage) -> tuple[str, ...]:
    operands = stage.operands
    if stage.program == "sed":
        return operands[1:]
    if (
        stage.program in ("head", "tail")
        and stage.has_option("-n", "-c")
        and operands[:1]
        and operands[0].lstrip("+-").isdigit()
    ):
        return operands[1:]
    return operands


def _format_printed_range(stage: Stage) -> str:
    """ ":a-b" of the stage that chose the lines."""
    if stage.program == "sed":
        script = next((found for word in stage.words if (found := _SCRIPT.fullmatch(word))), None)
        if script is None:
            return ""
        return f":{script[1]}-{script[2] or script[1]}".replace("$", "end")
    lines = next((word.lstrip("-n") for word in stage.words[1:] if word.lstrip("-n").isdigit()), "")
    if stage.program == "head":
        return f":1-{lines or 10}"
    if stage.program == "tail" and "+" not in stage.text:
        return f":last {lines or 10}"
    return ""


def describe_shell_listing(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A folder listed through a tool made for it."""
    folder = _FOLDER.search(observation.text[:500])
    arguments = decode_arguments(action)
    if folder:
        path = folder[1]
    else:
        path = find_text_argument(arguments, "path", "dir", "directory", "folder", "dir_path", "target_directory")
    if not folder and (not path or arguments.get("command") is not None or not _is_read_call(arguments)):
        return None
    envelope = unwrap_output(observation.text)
    if folder:
        entries = max(0, _count_entries(envelope) - 1)
    else:
        entries = _count_entries(envelope)
    return Outcome(
        shorten_path(path), _find_view_problem(observation, envelope) or format_count(entries, "entry", "entries")
    )


def describe_listing_tool(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A folder listed by a shell command."""
    command = find_command(action, observation)
    if command is None or not command.only_pipeline or command.only_pipeline[0].program not in _LISTING:
        return None
    if any(stage.program in ("wc", "xargs", "awk", "python", "python3") for stage in command.stages):
        return None
    envelope = find_output(action, observation)
    entries = qualify_count(format_count(_count_entries(envelope), "entry", "entries"), envelope.body, command)
    return Outcome(command.label, _find_view_problem(observation, envelope) or entries)


def _count_entries(envelope: UnwrappedOutput) -> int:
    lines = [line for line in envelope.body.split("\n") if line.strip() and not line.startswith("total ")]
    lines = [line for line in lines if not line.rstrip().endswith((" .", " ..", ":"))]
    # `ls` without a terminal prints one name a line; some recordings hold its columns.
    if len(lines) == 1 and "  " in lines[0].strip() and not _is_long_entry(lines[0].lstrip()):
        return len(lines[0].split())
    return len(lines)


def _is_long_entry(line: str) -> bool:
    return bool(re.match(r"[dlbcps-][rwxsStT-]{9}", line))
