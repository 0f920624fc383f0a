"""The line of an output that tells why something failed."""

from __future__ import annotations

import re

from elision.strategies.extractors.wrappers import SLICE

_TRACEBACK = re.compile(r"Traceback \(most recent call last\):?[ \t]{0,20}$", re.MULTILINE)
#: What a member of an exception group, a log of containers or a test report puts in front of each line.
_GROUP = "+ Exception Group "
_FRAME = re.compile(r"\s{0,20}File \"[^\"\n]{0,400}?([^\"\n/\\]{1,60})\", line (\d{1,9})")
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,60}(?::(?: .{0,300})?)?\Z")
_CROSSES = ("❌", "✗", "✘", "✖")
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
    """The exception of the last Python traceback in the last SLICE characters of `text`; "" if there is no traceback.

    A traceback whose exception was cut off is named by the last place that it shows, unless an earlier one is whole.
    """
    opening, *tracebacks = _TRACEBACK.split(text[-SLICE:])
    found = cut = ""
    for traceback in tracebacks:
        prefix = opening.rpartition("\n")[2].replace(_GROUP, "| ")
        lines = [line[:400].removeprefix(prefix) for line in traceback.split("\n")[1:]]
        frames = [(number, frame) for number, line in enumerate(lines) if (frame := _FRAME.match(line))]
        if frames:
            number, frame = frames[-1]
            cut = f"Traceback, cut at {frame[1]}:{frame[2]}"
            lines = lines[number + 1 :]
        found = _find_raised(lines) or found
        opening = traceback
    return found or cut


def _find_raised(lines: list[str]) -> str:
    """The line that names the exception, of the `lines` after the frames; "" if it was cut off.

    Buffered output of the program may stand in between.
    """
    outer = [line.rstrip() for line in lines if line.strip() and not line[0].isspace()]
    if outer and _EXCEPTION.match(outer[0]):
        return outer[0]
    return next(filter(_RAISED.match, outer), "") or next(filter(_EXCEPTION.match, outer), "")


def find_crossed_line(text: str) -> str:
    """The first line of the last SLICE characters that a script marked as failed, such as "❌ not loaded"; else ""."""
    lines = (line[:400].strip() for line in text[-SLICE:].split("\n"))
    return next((line for line in lines if line.startswith(_CROSSES)), "")


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
