"""A drawing as a PNG file. Needs resvg, which draws SVG without a browser, and fonts of the system."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Final

from elision.errors import MissingExtra, OutputError
from elision.lab.report.svg import FONT

#: Pixels of the picture per pixel of the drawing.
SCALE: Final = 2


def render_png(svg: str) -> bytes:
    """Return a picture as a PNG file's bytes. Raises MissingExtra without resvg, OutputError without a font."""
    resvg = load_resvg()
    if not _has_fonts():
        raise OutputError("--png: this system has no font; install one, such as fonts-dejavu-core, or write --html")
    picture: bytes = resvg.svg_to_bytes(svg_string=svg, zoom=SCALE)
    return picture


def load_resvg() -> ModuleType:
    """Return the module resvg_py. Raises MissingExtra without it."""
    try:
        import resvg_py
    except ImportError:
        raise MissingExtra("a picture (--png)", "report") from None
    return resvg_py


@cache
def _has_fonts() -> bool:
    """Whether texts are drawn: without a font resvg leaves them out and says nothing."""
    frame = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{}</svg>'
    text = '<text x="2" y="16" font-family="{}" font-size="14">M</text>'
    resvg = load_resvg()
    blank, written = (resvg.svg_to_bytes(svg_string=frame.format(content)) for content in ("", text.format(FONT)))
    return bool(blank != written)
