"""Files that were read, written or changed, and folders that were listed: which, and whether it worked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from elision.strategies.extractors.command import Command, Stage, find_command, find_output, qualify_count
from elision.strategies.extractors.outcome import (
    PATH_KEYS,
    Outcome,
    decode_arguments,
    find_number_argument,
    find_text_argument,
    format_count,
    shorten_path,
)
from elision.strategies.extractors.result_text import (
    UnwrappedOutput,
    find_complaint,
    find_informative_line,
    is_refusal,
    unwrap_output,
)
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
_LONG_ENTRY = re.compile(r"\s*[dlbcps-][rwxsStT-]{9}")
#: Names of tools that change files (globs, any case).
EDITORS = (
    "*edit*",
    "*write*",
    "*str_replace*",
    "*create_file*",
    "*replace*",
    "*patch*",
    "*insert*",
    "create",
    "*file_tool*",
    "*update_file*",
)

_OLD = ("old_str", "old_string", "old_text", "oldText", "oldString", "old_content", "search")
_NEW = ("new_str", "new_string", "new_text", "newText", "newString", "new_content", "replace", "insert_text")
_WHOLE = ("file_text", "content", "contents", "text")
_EDIT_WINDOW = re.compile(r"\[File: ([^\n]{1,500}?) \(\d{1,9} lines total\)\]")
_LINE_EDIT = re.compile(r"\s*edit (\d{1,9}:\d{1,9})")
_PATCHED = re.compile(r"^(?:\*\*\* (?:Update|Add|Delete) File: |\+\+\+ b?/?)([^\n\t]{1,300})", re.MULTILINE)
_LINT = re.compile(r"^- ([^\n]{3,300})", re.MULTILINE)
_UPDATED = "File updated. Please review"
_SYNTAX = "introduced new syntax error"
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
        return envelope.state_failure("no output") if envelope.has_failed else "empty"
    if observation.error or envelope.has_failed:
        return envelope.state_failure(find_complaint(body) or find_informative_line(body))
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
    for stage in stages:
        writes_file = bool(stage.redirect_target) or (stage.program == "sed" and not stage.has_option("-n"))
        if stage.program not in READERS or writes_file:
            return None
    paths = _find_operand_files(first)
    if not paths:
        return None
    label = ", ".join(map(shorten_path, paths[:3])) + _format_printed_range(last)
    envelope = find_output(action, observation)
    lines = qualify_count(format_count(_count_file_lines(envelope), "line"), envelope.body)
    return Outcome(label, _find_view_problem(observation, envelope) or lines)


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


def describe_listing_tool(action: Action | None, observation: Observation, text: str) -> Outcome | None:
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


def describe_shell_listing(action: Action | None, observation: Observation, text: str) -> Outcome | None:
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
    if len(lines) == 1 and "  " in lines[0].strip() and not _LONG_ENTRY.match(lines[0]):
        return len(lines[0].split())
    return len(lines)


def describe_edit(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A change through a tool made for it."""
    arguments = decode_arguments(action)
    label = _label_edit(action, arguments)
    if not label or not _is_edit_call(arguments):
        return None
    envelope = unwrap_output(observation.text)
    if problem := _find_edit_problem(observation, envelope):
        return Outcome(label, problem)
    return Outcome(label, _describe_change(arguments, envelope))


def _label_edit(action: Action | None, arguments: Mapping[str, Any]) -> str:
    if path := find_text_argument(arguments, *PATH_KEYS):
        return shorten_path(path)
    patch = find_text_argument(arguments, "patch", "input", "diff", "patchText") or (
        action.arguments if action and not arguments else ""
    )
    paths = list(dict.fromkeys(found.strip() for found in _PATCHED.findall(patch[:100_000])))
    return ", ".join(shorten_path(path) for path in paths[:3]) + (
        f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    )


def _is_edit_call(arguments: Mapping[str, Any]) -> bool:
    if not arguments or arguments.get("command") in ("create", "str_replace", "insert", "undo_edit", "write", "edit"):
        return True
    return any(
        key in arguments
        for key in (*_OLD, *_NEW, *_WHOLE, "edits", "patch", "input", "diff", "patchText", "insert_line")
    )


def _find_edit_problem(observation: Observation, envelope: UnwrappedOutput) -> str:
    body = envelope.body.strip()[:4_000]
    if _SYNTAX in body[:400]:
        lint = _LINT.search(body)
        return f"rejected: {lint[1] if lint else 'syntax error'}"
    if not (observation.error or envelope.has_failed or is_refusal(body)):
        return ""
    return envelope.state_failure(find_informative_line(body) or "failed")


def _describe_change(arguments: Mapping[str, Any], envelope: UnwrappedOutput) -> str:
    command = arguments.get("command")
    if command == "undo_edit":
        return "undone"
    old, new, whole = (find_text_argument(arguments, *keys) for keys in (_OLD, _NEW, _WHOLE))
    if whole and not old and not new:
        if command == "create" or "created" in envelope.head[:300].lower():
            verb = "created"
        else:
            verb = "written"
        return f"{verb}, {format_count(_count_lines(whole), 'line')}"
    edits = arguments.get("edits")
    if isinstance(edits, list) and edits:
        return f"edited, {format_count(len(edits), 'edit')}"
    if old or new:
        return f"edited, +{_count_lines(new)} -{_count_lines(old)} lines"
    return "edited"


def _count_lines(text: str) -> int:
    if text:
        return text.rstrip("\n").count("\n") + 1
    return 0


def describe_line_edit(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """SWE-agent's edit of the open file: its answer is a window of the changed file, or a refusal."""
    body = observation.text
    refused = _SYNTAX in body[:400]
    if not refused and _UPDATED not in body[-1_000:] and _UPDATED not in body[:500]:
        return None
    if action:
        lines = _LINE_EDIT.match(action.arguments)
    else:
        lines = None
    found = _EDIT_WINDOW.search(body[:2_000]) or re.search(r"\(Open file: ([^\n]{1,500})\)", body[-600:])
    path = shorten_path(found[1]) if found else ""
    if lines:
        place = f"{path}:{lines[1].replace(':', '-')}"
    else:
        place = path
    result = _find_edit_problem(observation, unwrap_output(body)) or "edited"
    return Outcome(place or "edit", result)


def describe_shell_write(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A file written by a shell command: a redirected heredoc or echo, tee, sed -i, patch, and SWE-agent's create."""
    command = find_command(action, observation)
    if command is None or not (label := _find_redirect_target(command)):
        return None
    envelope = find_output(action, observation)
    body = envelope.body.strip()
    problem = find_complaint(body)
    if envelope.has_failed or problem:
        problem = problem or body[:2_000].partition("\n")[0] or "no output"
        return Outcome(label, envelope.state_failure(problem))
    if body and not _EDIT_WINDOW.match(body[:600]):
        return Outcome(label, body[-2_000:].strip().rpartition("\n")[2])
    return Outcome(label, "edited" if command.only_pipeline[0].program in ("sed", "perl") else "written")


def _find_redirect_target(command: Command) -> str:
    """The file that the only pipeline writes; "" if it writes none, or there is more than one pipeline."""
    if not command.only_pipeline:
        return ""
    first = command.only_pipeline[0]
    last = command.only_pipeline[-1]
    if first.program in ("cat", "echo", "printf", "sed", "awk") and last.redirect_target:
        return shorten_path(last.redirect_target)
    if last.program == "tee" and last.operands:
        return shorten_path(last.operands[0])
    if first.program in ("sed", "perl") and first.has_option("-i", "--in-place") and first.operands:
        return shorten_path(first.operands[-1])
    if first.program == "create" and len(first.operands) == 1:
        return shorten_path(first.operands[0])
    return ""
