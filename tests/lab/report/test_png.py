"""The first picture."""

from __future__ import annotations

import struct
import sys

import pytest

from elision.errors import MissingExtra, OutputError
from elision.lab.report import svg
from elision.lab.report.page import draw_picture
from elision.lab.report.replay_report import build_replay_report
from tests.lab.report.studies import hostile, study


def size(picture: bytes) -> tuple[int, int]:
    """Width and height of a PNG, in pixels."""
    head = picture[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def test_picture() -> None:
    """A picture with room for a bar per strategy; hostile names are only text in it."""
    pytest.importorskip("resvg_py", reason="the extra `report` is not installed")
    few, more = (size(svg.render_png(draw_picture(build_replay_report(found)))) for found in (study(), hostile()))
    assert few[0] > 1_500
    assert more[1] > few[1]  # one strategy more


def test_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without resvg the error names the extra to install."""
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(MissingExtra, match=r"needs an extra: .*\[report\]"):
        svg.render_png(draw_picture(build_replay_report(study())))


def test_a_picture_without_letters_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a font resvg leaves out every text and says nothing."""
    pytest.importorskip("resvg_py", reason="the extra `report` is not installed")
    monkeypatch.setattr(svg, "FONT", "a font that is not there")
    svg._has_fonts.cache_clear()
    try:
        with pytest.raises(OutputError, match="no font"):
            svg.render_png(draw_picture(build_replay_report(study())))
    finally:
        svg._has_fonts.cache_clear()
