"""A prompt of the user's own for summaries, and the example that the built-in prompt may show.

A template is plain text with markers. It is checked when it is read, and filled in one pass: what the turns contain is
never looked through for markers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elision.errors import SettingError

#: Marker -> what takes its place.
MARKERS: Final[Mapping[str, str]] = {
    "previous": "the previous summary; before the first one the task",
    "turns": "the turns to summarize, each part with its label",
    "tagged_turns": "the same, each turn between <TURN-n> and </TURN-n>",
    "task": "the task, cut to beginning and end where it is long",
    "max_tokens": "the tokens that the summary should have at most: four fifths of its limit",
    "example": "the example of `summary_example`; nothing where that is off",
}
#: Other names of markers, as they are in published prompts.
ALIASES: Final[Mapping[str, str]] = {"previous_context": "previous", "turns_text": "turns"}
#: Bytes of a file with a prompt or an example at most.
LARGEST_FILE: Final = 100_000
_MARKER: Final = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|\{([A-Za-z_]\w*)\}", re.ASCII)

#: What `summary_example` is without an example, and with the built-in one.
OFF: Final = "off"
ON: Final = "on"
#: The built-in example: a small repair, in the sections that the built-in prompt asks for.
EXAMPLE: Final = """\
USER_CONTEXT: Fix how FITS cards write floats: 0.009125 comes out as 0.009124999999999999 and does not fit its card.
COMPLETED: Reproduced it; mod_float() in card.py now keeps the short form; all tests of the module pass.
PENDING: Open a pull request; mention the change in the documentation.
CURRENT_STATE: In the repository's root, nothing running.
CODE_STATE: card.py, mod_float(): formats one value, at most 20 characters.
TESTS: test_format() passes; 1 file run.
CHANGES: card.py: str(val) in place of f"{val:.16G}", because that is the shortest text that reads back the same.
VERSION_CONTROL_STATUS: Branch fix-float-precision, newest commit a1b2c3d, nothing uncommitted.
ATTEMPTS: f"{val:.17G}" in mod_float(): test_format() failed with a card of 82 characters, once.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryPrompt:
    """What a model is asked for a summary.

    template: text with markers; "" for the built-in prompt. example: an example of a summary; "" for none.
    """

    template: str = ""
    example: str = ""

    def fill_template(self, values: Mapping[str, str]) -> str:
        """Return the template with `values` (marker -> text) in the places of its markers, in one pass."""

        def replace_marker(found: re.Match[str]) -> str:
            if found[1] is not None:
                return f"{{{found[1]}}}"
            return values[ALIASES.get(found[2], found[2])]

        return _MARKER.sub(replace_marker, self.template)

    def has_marker(self, name: str) -> bool:
        """Return whether the template has the marker `name`, by this or by another name."""
        return any(found == name for found, _ in _list_markers(self.template))


#: The built-in prompt, without an example.
BUILT_IN: Final = SummaryPrompt()


def load_prompt(path: str | Path | None = None, example: str = OFF) -> SummaryPrompt:
    """Return the prompt in the file `path`, or the built-in one for None.

    example: "on" for the built-in example, "off" for none, else a file with one.

    Raises SettingError, which names file, line and remedy, for a file that cannot be read, a marker that is missing,
    unknown or there twice, and an example that the template has no place for.
    """
    shown = _load_example(example)
    if path is None:
        return SummaryPrompt(example=shown)
    text = _read_text(Path(path).expanduser())
    _check_markers(text, path)
    prompt = SummaryPrompt(template=text, example=shown)
    if shown and not prompt.has_marker("example"):
        raise SettingError(f"{path}: no line has {{example}}; add it, or set summary_example=off")
    return prompt


def _load_example(example: str) -> str:
    match example.strip().lower():
        case "off" | "":
            return ""
        case "on":
            return EXAMPLE
    return _read_text(Path(example.strip()).expanduser())


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingError(f"{path}: cannot be read: {reason}; give the path of a text file") from None
    if len(data) > LARGEST_FILE:
        raise SettingError(f"{path}: larger than {LARGEST_FILE:,} bytes; give a shorter text")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise SettingError(f"{path}:{line}: no UTF-8; save the file as UTF-8") from None
    if not text.strip():
        raise SettingError(f"{path}: empty; write the text into it")
    return text


def _check_markers(text: str, path: str | Path) -> None:
    known = ", ".join(f"{{{name}}}" for name in MARKERS)
    lines: dict[str, int] = {}
    for name, line in _list_markers(text):
        if name not in MARKERS:
            raise SettingError(
                f"{path}:{line}: no marker {{{name}}}; there are {known}; write {{{{{name}}}}} for the text itself"
            )
        kind = "turns" if name == "tagged_turns" else name
        if kind == "turns" and kind in lines:
            raise SettingError(f"{path}:{line}: the turns a second time, after line {lines[kind]}; keep one marker")
        lines.setdefault(kind, line)
    if "turns" not in lines:
        raise SettingError(f"{path}: no line has {{turns}} or {{tagged_turns}}; add one where the turns belong")
    if "previous" not in lines:
        raise SettingError(f"{path}: no line has {{previous}}; add it where the previous summary belongs")


def _list_markers(text: str) -> Iterator[tuple[str, int]]:
    """Yield the markers of `text` by their own names, with their lines."""
    for found in _MARKER.finditer(text):
        if found[2] is not None:
            yield ALIASES.get(found[2], found[2]), text.count("\n", 0, found.start()) + 1
