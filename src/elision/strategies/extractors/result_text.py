"""The text of a result: what an environment wraps around it, and the line of it that tells why something failed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from elision.strategies.extractors.outcome import find_number_argument
from elision.trajectory.foreign_text import parse_json

#: Characters looked at from each end of an observation.
SLICE = 20_000
#: JSON beyond this many characters is not parsed.
JSON_CHARS = 1_000_000

_TAGGED = re.compile(r"<(?:returncode|exit_code)>\s*(-?\d{1,9})\s*</")
_OUTPUT = re.compile(r"<(output|output_head|stdout)>\n?")
_FIRST_LINE = re.compile(
    r"\s*(?:Error:\s*)?(?:exit[ _]code|exit status|returncode):?\s*(-?\d{1,9})[ \t]*(?:\n|\Z)", re.I
)
_CODEX = re.compile(r"(?:[^\n]{0,200}\n){0,6}?Output:\n")
_PROCESS = re.compile(r"Process exited with code (-?\d{1,9})")
_BRACKETED = re.compile(r"\[[^\[\]\n]{0,80}exit code:?\s*(-?\d{1,9})\.?\]", re.I)
_LAST_LINE = re.compile(
    r"(?:command|process)[^\n]{0,40}?exited with (?:exit )?(?:code|status):?\s*(-?\d{1,9})\.?"
    r"|exit code:?\s*(-?\d{1,9})\.?",
    re.I,
)
_TRAILERS = (
    "(Open file:",
    "(Current directory:",
    "(Interactive session:",
    "bash-$",
    "[Current working directory:",
    "[Python interpreter:",
    "[The command completed with exit code",
    "[Command finished with exit code",
    "[Jupyter current working directory:",
    "[Jupyter Python interpreter:",
)
_DONE = re.compile(r"///PROCESS-DONE:(-?\d{1,9}):PROCESS-DONE///\s*\Z")
_SILENT = ("your command ran successfully and did not produce any output", "(no output)", "command ran without output")
_EXIT_KEYS = ("exit_code", "exitCode", "returncode", "return_code")
_OUTPUT_KEYS = ("output", "stdout", "stderr", "aggregated_output", "result")

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
_COMPLAINT = re.compile(
    r"\S{1,120}: .{0,300}?(?:command not found|no such file or directory|permission denied|not found\Z|cannot access"
    r"|cannot open|segmentation fault|syntax error|timed out|no module named|unrecognized arguments|is a directory)",
    re.I,
)
_CRASHED = ("Segmentation fault", "Killed", "Aborted", "fatal: not a git repository")
_REFUSAL = re.compile(
    r"\s*(?:<[\w-]{1,30}>\s*)?(?:\*\*\s*)?(?:error|invalid|failed|no replacement|no match|could not|cannot"
    r"|string to replace"
    r"|old_str|old text|file has not been read|file does not exist|file not found|found \d{1,6} (?:matches|occurrences)"
    r"|your (?:proposed )?edit has introduced|no such file|patch failed|the edit|permission denied"
    r"|command aborted|operation aborted)",
    re.I,
)


@dataclass(frozen=True, slots=True)
class UnwrappedOutput:
    """An output without its wrapping.

    exit_code: the exit code, if the environment stated one.
    body: the output itself, of any length.
    """

    exit_code: int | None
    body: str

    @property
    def head(self) -> str:
        """The first SLICE characters."""
        return self.body[:SLICE]

    @property
    def tail(self) -> str:
        """The last SLICE characters."""
        return self.body[-SLICE:]

    @property
    def head_and_tail(self) -> str:
        """Head and tail: the whole body where it is short."""
        if len(self.body) <= 2 * SLICE:
            return self.body
        return f"{self.head}\n{self.tail}"

    @property
    def line_count(self) -> int:
        """Lines of the body, blank ones included."""
        if self.body.strip():
            return self.body.count("\n") + 1
        return 0

    @property
    def has_failed(self) -> bool:
        """Whether a non-zero exit code was stated."""
        return bool(self.exit_code)

    def state_exit(self, words: str) -> str:
        """Return `words` after the exit code, if one was stated: "exit 0, 3 lines"."""
        return words if self.exit_code is None else f"exit {self.exit_code}, {words}"

    def state_failure(self, words: str) -> str:
        """Return `words` after the exit code, if one was stated that is not 0."""
        return self.state_exit(words) if self.exit_code else words


@lru_cache(maxsize=4)
def unwrap_output(text: str) -> UnwrappedOutput:
    """`text` out of its envelope. The small cache serves extractors that look at the same observation in turn."""
    for opener in (_unwrap_tags, _unwrap_json, _unwrap_lines):
        if (envelope := opener(text)) is not None:
            return UnwrappedOutput(envelope.exit_code, _remove_notices(envelope.body))
    return UnwrappedOutput(None, _remove_notices(text))


def decode_json(text: str) -> Any:
    """The JSON object or array that `text` is; None where it is neither, or too large or too deep to read."""
    if len(text) > JSON_CHARS or text[:1_000].lstrip()[:1] not in ("{", "["):
        return None
    value = parse_json(text)
    return value if isinstance(value, dict | list) else None


def _unwrap_tags(text: str) -> UnwrappedOutput | None:
    code = _TAGGED.search(text[:400]) or _TAGGED.search(text[-400:])
    if code is None:
        return None
    if (start := _OUTPUT.search(text[:2_000])) is None:
        return UnwrappedOutput(int(code[1]), _TAGGED.sub("", text[:400]) + text[400:])
    end = text.rfind("</output", start.end())
    return UnwrappedOutput(int(code[1]), text[start.end() : end if end >= 0 else None])


def _unwrap_json(text: str) -> UnwrappedOutput | None:
    value = decode_json(text)
    if not isinstance(value, dict):
        return None
    metadata = value.get("metadata")
    code = find_number_argument(value, *_EXIT_KEYS)
    if code is None and isinstance(metadata, dict):
        code = find_number_argument(metadata, *_EXIT_KEYS)
    parts = [value[key] for key in _OUTPUT_KEYS if isinstance(value.get(key), str)]
    if not parts or (code is None and "success" not in value and "stdout" not in value):
        return None
    return UnwrappedOutput(code, "\n".join(part for part in parts if part))


def _unwrap_lines(text: str) -> UnwrappedOutput | None:
    head = text[:1_000]
    tail = text[-1_000:]
    if code := _FIRST_LINE.match(head):
        rest = text[code.end() :]
        if rest.startswith("Wall time:"):
            header = _CODEX.match(rest[:1_500])
        else:
            header = None
        return UnwrappedOutput(int(code[1]), rest[header.end() :] if header else rest)
    if (code := _PROCESS.search(head)) and (header := _CODEX.match(text[:1_500])):
        return UnwrappedOutput(int(code[1]), text[header.end() :])
    if codes := list(_BRACKETED.finditer(tail)):
        start = len(text) - len(tail) + codes[-1].start()
        return UnwrappedOutput(int(codes[-1][1]), text[:start])
    last = tail.rstrip().rpartition("\n")[2]
    if code := _LAST_LINE.fullmatch(last.strip()):
        return UnwrappedOutput(int(code[1] or code[2]), text.rstrip()[: -len(last)])
    return None


def _remove_notices(text: str) -> str:
    """Without prompts, reminders and the like around the output."""
    if text.startswith("OBSERVATION:\n"):
        text = text[len("OBSERVATION:\n") :]
    if text.startswith("<tool_use_error>"):
        text = text.removeprefix("<tool_use_error>").removesuffix("</tool_use_error>")
    reminder = text.rfind("<system-reminder>", max(0, len(text) - 3_000))
    if reminder > 0 and text[-200:].rstrip().endswith("</system-reminder>"):
        text = text[:reminder]
    text = _remove_trailers(text)
    tail = text[-200:]
    if done := _DONE.search(tail):
        text = text[: len(text) - len(tail) + done.start()]
    silent = text[:200].strip().lower().startswith(_SILENT)
    if silent and len(text) < 200:
        return ""
    return text.removesuffix("\n")


def _remove_trailers(text: str) -> str:
    for _ in range(len(_TRAILERS)):
        stripped = text.rstrip()
        start = max(stripped.rfind("\n", max(0, len(stripped) - 1_000)) + 1, 0)
        if not stripped[start : start + 60].startswith(_TRAILERS):
            return text
        text = stripped[:start]
    return text


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
        if _MARKED.match(line) or _COMPLAINT.match(line) or line.startswith(_CRASHED):
            return line
    return next((line for line in lines if _TOOLS.match(line)), "")


def is_refusal(text: str) -> bool:
    """Whether a file tool's answer begins as a refusal."""
    return bool(_REFUSAL.match(text[:500]))


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
        if _MARKED.match(line) or _COMPLAINT.match(line):
            return line
    return ""
