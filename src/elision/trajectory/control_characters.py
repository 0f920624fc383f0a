"""Control characters of recorded texts, on which a terminal would act: left out, or made visible."""

from __future__ import annotations

import re

# CSI sequences; OSC, DCS, SOS, PM and APC strings; two-letter escapes.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
# Control characters but newline and tab, and what turns the direction of writing.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def escape_controls(text: str) -> str:
    """`text` without anything that a terminal would act on but newlines; tabs are four letters wide."""
    clean = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _CONTROLS.sub("", clean).encode("utf-8", "replace").decode("utf-8").expandtabs(4)


def make_visible(text: str) -> str:
    """`text` with a sign for everything that a terminal would act on, and newlines and tabs as they are."""

    def picture_control(found: re.Match[str]) -> str:
        """Unicode's picture of a control character; others by their number."""
        code = ord(found[0])
        if code < 0x20 or code == 0x7F:
            return chr(0x2421 if code == 0x7F else 0x2400 + code)
        return f"<U+{code:04X}>"

    clean = _CONTROLS.sub(picture_control, text.replace("\r\n", "\n"))
    return clean.encode("utf-8", "replace").decode("utf-8")
