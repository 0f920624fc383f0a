"""The first picture."""

from __future__ import annotations

import struct
import sys

import pytest

from elision.errors import MissingExtra
from elision.lab.report import html, page_shell, png
from tests.lab.report.studies import hostile, study


def size(picture: bytes) -> tuple[int, int]:
    """Width and height of a PNG, in pixels."""
    head = picture[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def test_picture() -> None:
    """A picture with room for a bar per strategy; hostile names are only text in it."""
    pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
    few, more = size(png.draw_picture(study())), size(png.draw_picture(hostile()))
    assert few[0] > 1_500
    assert more[1] - few[1] >= 80  # one strategy more, at two pixels for one


def test_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without vl-convert the error names the extra to install."""
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    page_shell._load_bundle.cache_clear()
    with pytest.raises(MissingExtra, match=r"needs an extra: .*\[report\]"):
        png.draw_picture(study())
    with pytest.raises(MissingExtra, match=r"needs an extra: .*\[report\]"):
        html.build_page(study())
