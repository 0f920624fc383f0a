"""What an environment wraps around an output: exit codes, prompts, reminders."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

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
    if _find_exit_code(value) is not None:
        code = _find_exit_code(value)
    else:
        code = _find_exit_code(metadata if isinstance(metadata, dict) else {})
    parts = [value[key] for key in _OUTPUT_KEYS if isinstance(value.get(key), str)]
    if not parts or (code is None and "success" not in value and "stdout" not in value):
        return None
    return UnwrappedOutput(code, "\n".join(part for part in parts if part))


def _find_exit_code(value: dict[str, Any]) -> int | None:
    for key in _EXIT_KEYS:
        code = value.get(key)
        if isinstance(code, int) and not isinstance(code, bool) and abs(code) < 10**9:
            return code
    return None


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
