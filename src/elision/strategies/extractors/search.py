"""Searches: matches and files counted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from elision.strategies.extractors.command import FILTERS, Stage, find_command, find_output, qualify_count
from elision.strategies.extractors.outcome import (
    Outcome,
    decode_arguments,
    describe_arguments,
    find_text_argument,
    format_count,
    shorten_path,
    shorten_to_line,
)
from elision.strategies.extractors.result_text import UnwrappedOutput, find_complaint, unwrap_output
from elision.trajectory.turn import Action, Observation

#: Names of tools that search text, and of those that search names (globs, any case).
GREPPERS = (
    "*grep*",
    "*search_dir*",
    "*search_file*",
    "*search_files*",
    "*codebase_search*",
    "*code_search*",
    "*search_code*",
    "rg",
)
FINDERS = ("*glob*", "*find_file*", "find", "*file_search*", "fd")
_GREPS = frozenset({"grep", "egrep", "fgrep", "rg", "ag", "ack", "zgrep"})
_FINDS = frozenset({"find", "fd", "fdfind", "locate", "glob"})

_FOUND = re.compile(r"Found (?:a total of )?(\d{1,9}) match(?:es)?\b")
_FILES = re.compile(r"Found (\d{1,9}) files?\n")
_NONE = re.compile(r"no (?:matches|files|results|occurrences) (?:were )?found", re.I)
_IN_FILE = re.compile(r"^\S[^\n]{0,500} \((\d{1,9}) match(?:es)?\)", re.MULTILINE)
_PATHED = re.compile(r"((?:[A-Za-z]:)?[^\s:][^:]{0,300}):(\d{1,7}):")
_PATHED_CONTEXT = re.compile(r"\S[^:]{0,300}?-\d{1,7}-")
_LINED = re.compile(r"\d{1,7}([:-])")
_PREFIXED = re.compile(r"([^\s:]{1,300}):")


def describe_announced_matches(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A search whose answer states its own total (SWE-agent's search_dir, search_file and find_file, and others)."""
    head = unwrap_output(observation.text).body[:500].lstrip()
    found = _FOUND.match(head)
    none = _NONE.match(head)
    if not (found or none):
        return None
    command = find_command(action, observation)
    if command:
        label = command.label
    else:
        label = _label_search(decode_arguments(action)) or describe_arguments(action)
    if none or found is None or found[1] == "0":
        return Outcome(label, "no matches")
    first = head.partition("\n")[2].partition("\n")[0].strip()
    if found[1] == "1" and first:
        return Outcome(label, f"1 match: {first}")
    files = len(_IN_FILE.findall(unwrap_output(observation.text).head_and_tail))
    return Outcome(
        label, format_count(int(found[1]), "match", "matches") + (f" in {format_count(files, 'file')}" if files else "")
    )


def describe_grep_tool(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """Text searched through a tool made for it."""
    arguments = decode_arguments(action)
    label = _label_search(arguments)
    if not label:
        return None
    names_only = arguments.get("output_mode") == "files_with_matches"
    envelope = unwrap_output(observation.text)
    matches = _describe_matches(envelope, names_only=names_only, prefixed=False, context=False)
    return Outcome(label, qualify_count(matches, envelope.body))


def describe_glob_tool(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """Names searched through a tool made for it."""
    label = _label_search(decode_arguments(action))
    if label:
        envelope = unwrap_output(observation.text)
        matches = _describe_matches(envelope, names_only=True, prefixed=False, context=False)
        return Outcome(label, qualify_count(matches, envelope.body))
    return None


def describe_shell_search(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A search by a shell command: grep, rg, git grep, find, or a file piped into one."""
    command = find_command(action, observation)
    stage = _find_search_stage(command.only_pipeline) if command else None
    if command is None or stage is None:
        return None
    if stage.program in _FINDS:
        names_only = not _runs_grep(stage) or any(word in ("-l", "-rl", "-il", "-ln") for word in stage.words)
    else:
        names_only = stage.has_option("-l", "-L", "--files-with-matches", "--files")
    context = stage.has_option("-A", "-B", "-C", "--context") or any(
        re.fullmatch(r"-\d{1,3}", word) for word in stage.words
    )
    prefixed = stage.has_option("-r", "-R", "-H", "--recursive") or len(stage.operands) > 2 or stage.program == "git"
    if stage.has_option("-c", "--count") and stage.program not in _FINDS:
        return None
    envelope = find_output(action, observation)
    matches = _describe_matches(envelope, names_only=names_only, prefixed=prefixed, context=context)
    return Outcome(command.label, qualify_count(matches, envelope.body, command))


def _find_search_stage(stages: tuple[Stage, ...]) -> Stage | None:
    """Return the stage that searches, if what follows it only chooses lines and what precedes it only supplies them."""
    place = next((place for place, stage in enumerate(stages) if _searches(stage)), None)
    if place is None:
        return None
    stage, rest = stages[place], stages[place + 1 :]
    is_supplied = place == 0 or stages[0].program in ("cat", "git", "ls", "find")
    runs_others = any(word in ("-exec", "-execdir", "-delete") for word in stage.words) and not _runs_grep(stage)
    if runs_others or not is_supplied or not all(map(_chooses_lines, rest)) or stages[-1].redirect_target:
        return None
    return next(filter(_is_xargs_grep, rest), stage)


def _searches(stage: Stage) -> bool:
    is_git_grep = stage.program == "git" and stage.words[1:2] == ("grep",)
    return stage.program in _GREPS | _FINDS or is_git_grep or _is_xargs_grep(stage)


def _chooses_lines(stage: Stage) -> bool:
    return stage.program in FILTERS or _is_xargs_grep(stage)


def _runs_grep(stage: Stage) -> bool:
    """Whether it is a `find -exec grep`."""
    return stage.program in _FINDS and any(word in _GREPS for word in stage.words)


def _is_xargs_grep(stage: Stage) -> bool:
    return stage.program == "xargs" and any(word in _GREPS for word in stage.words)


def _label_search(arguments: Mapping[str, Any]) -> str:
    what = find_text_argument(
        arguments, "pattern", "regex", "query", "search_term", "glob", "glob_pattern", "file_name", "name"
    )
    where = find_text_argument(arguments, "path", "dir", "directory", "file", "include")
    if not what:
        return ""
    return f"'{shorten_to_line(what, 40)}'" + (f" in {shorten_path(where)}" if where and where != "." else "")


def _describe_matches(envelope: UnwrappedOutput, *, names_only: bool, prefixed: bool, context: bool) -> str:
    body = envelope.body.strip()
    if not body or _NONE.match(body[:200].lstrip()):
        return "no matches"
    if problem := find_complaint(body):
        return envelope.state_failure(problem)
    if stated := _FILES.match(body[:100]):
        return format_count(int(stated[1]), "file")
    # Complaints of the search program are no matches.
    lines = [line for line in envelope.body.split("\n") if line.strip() and ": Permission denied" not in line[-60:]]
    if names_only:
        if len(lines) == 1:
            return f"1 path: {shorten_path(lines[0])}"
        return format_count(len(lines), "path")
    return _describe_lines(lines, prefixed=prefixed, context=context)


def _describe_lines(lines: list[str], *, prefixed: bool, context: bool) -> str:
    """Return how many matches there are, in how many files where the lines name them.

    Lines are counted where matches cannot be told from their context.
    """
    matches = 0
    files = set()
    for line in lines:
        start = line[:400]
        if found := _PATHED.match(start):
            matches += 1
            files.add(found[1])
        elif lined := _LINED.match(start):
            matches += lined[1] == ":"
        elif prefixed and not context and (found := _PREFIXED.match(start)):
            matches += 1
            files.add(found[1])
        elif not context and line != "--" and not _PATHED_CONTEXT.match(start):
            matches += 1
    if not matches:
        return format_count(len(lines), "line")
    if matches == len(lines) == 1:
        return f"1 match: {lines[0].strip()[:200]}"
    return format_count(matches, "match", "matches") + (f" in {format_count(len(files), 'file')}" if files else "")
