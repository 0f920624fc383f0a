"""Files that were written or changed: which, and whether it worked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from elision.strategies.extractors.arguments import PATH_KEYS, decode_arguments, find_text_argument
from elision.strategies.extractors.command import Command, find_command, find_output
from elision.strategies.extractors.failure import find_complaint, find_informative_line, is_refusal
from elision.strategies.extractors.outcome import Outcome, format_count, shorten_path
from elision.strategies.extractors.wrappers import UnwrappedOutput, unwrap_output
from elision.trajectory.turn import Action, Observation

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
_WINDOW = re.compile(r"\[File: ([^\n]{1,500}?) \(\d{1,9} lines total\)\]")
_LINE_EDIT = re.compile(r"\s*edit (\d{1,9}:\d{1,9})")
_PATCHED = re.compile(r"^(?:\*\*\* (?:Update|Add|Delete) File: |\+\+\+ b?/?)([^\n\t]{1,300})", re.MULTILINE)
_LINT = re.compile(r"^- ([^\n]{3,300})", re.MULTILINE)
_UPDATED = "File updated. Please review"
_SYNTAX = "introduced new syntax error"


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
    summary_line = find_informative_line(body) or "failed"
    if envelope.has_failed:
        return f"exit {envelope.exit_code}, {summary_line}"
    return summary_line


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
    found = _WINDOW.search(body[:2_000]) or re.search(r"\(Open file: ([^\n]{1,500})\)", body[-600:])
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
    if envelope.has_failed or (problem := find_complaint(body)):
        summary_line = find_complaint(body) or body[:2_000].partition("\n")[0] or "no output"
        return Outcome(label, f"exit {envelope.exit_code}, {summary_line}" if envelope.has_failed else problem)
    if body and not _WINDOW.match(body[:600]):
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
