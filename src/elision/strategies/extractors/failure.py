"""The line of an output that tells why something failed."""

from __future__ import annotations

import re

from elision.strategies.extractors.wrappers import SLICE

_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(
    r"(?:E\s{1,7})?(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Fault)\b(?::.{0,300})?\Z"
)
_MARKED = re.compile(
    r"(?:\S{1,120}:\s{0,3})?(?:fatal error|fatal|error|panic|critical|error\[\w{1,10}\]|error TS\d{1,6})[:!\]]"
    r"|npm err(?:or)?[:!]|CMake Error at |npm error \S",
    re.I,
)
_TOOLS = re.compile(r"(?:g?make(?:\[\d{1,3}\])?: \*\*\*|E: )\s{0,3}\S")
_SAID = re.compile(
    r"\S{1,120}: .{0,300}?(?:command not found|no such file or directory|permission denied|not found\Z|cannot access"
    r"|cannot open|segmentation fault|syntax error|timed out|no module named|unrecognized arguments|is a directory)",
    re.I,
)
_CRASHED = ("Segmentation fault", "Killed", "Aborted", "fatal: not a git repository")
_REFUSED = re.compile(
    r"\s*(?:<[\w-]{1,30}>\s*)?(?:\*\*\s*)?(?:error|invalid|failed|no replacement|no match|could not|cannot"
    r"|string to replace"
    r"|old_str|old text|file has not been read|file does not exist|file not found|found \d{1,6} (?:matches|occurrences)"
    r"|your (?:proposed )?edit has introduced|no such file|patch failed|the edit|permission denied"
    r"|command aborted|operation aborted)",
    re.I,
)


def find_exception_line(text: str) -> str:
    """The message of the last Python traceback in the last SLICE characters of `text`; "" if there is none."""
    tail = text[-SLICE:]
    start = tail.rfind(_TRACEBACK)
    if start < 0:
        return ""
    opening = tail[tail.rfind("\n", 0, start) + 1 : start]
    indent = len(opening) if not opening.strip() else 0
    for line in tail[start:].split("\n")[1:]:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            return line.strip()[:400]
    return ""


def find_error_line(text: str) -> str:
    """The most telling error line: the last exception, else the first line that names an error; "" if none does."""
    if found := find_exception_line(text):
        return found
    if len(text) <= 2 * SLICE:
        ends = text
    else:
        ends = f"{text[:SLICE]}\n{text[-SLICE:]}"
    lines = [line[:400].strip() for line in ends.split("\n")]
    for line in reversed(lines):
        if _RAISED.match(line):
            return line.removeprefix("E ").strip()
    for line in lines:
        if _MARKED.match(line) or _SAID.match(line) or line.startswith(_CRASHED):
            return line
    return next((line for line in lines if _TOOLS.match(line)), "")


def is_refusal(text: str) -> bool:
    """Whether a file tool's answer begins as a refusal."""
    return bool(_REFUSED.match(text[:500]))


def find_informative_line(text: str) -> str:
    """The first line of a refusal that says more than "ERROR:" does."""
    lines = [line.strip() for line in text[:4_000].split("\n") if line.strip()]
    return next((line for line in lines if not line.rstrip(":*! ").isalpha()), " ".join(lines[:1]))


def find_complaint(text: str) -> str:
    """The error of a short answer that is nothing but an error, such as "cat: x: No such file"; "" for anything else.

    A file or a list of matches may speak of errors without being one, so only two lines or fewer are looked at.
    """
    brief = text[:2_000].strip()
    if len(text) > 2_000 or brief.count("\n") > 1:
        return ""
    for line in brief.split("\n"):
        if _MARKED.match(line) or _SAID.match(line):
            return line
    return ""
