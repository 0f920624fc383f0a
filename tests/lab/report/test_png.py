"""The first picture as a file."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from lacuna.errors import MissingExtra
from lacuna.lab.report import html, png

from .studies import hostile, study


def size(path: Path) -> tuple[int, int]:
    """Width and height of a PNG, in pixels."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def test_picture(tmp_path: Path) -> None:
    """A picture with room for a bar per strategy; hostile names are only text in it."""
    pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
    png.save(study(), tmp_path / "few.png")
    png.save(hostile(), tmp_path / "more.png")
    few, more = size(tmp_path / "few.png"), size(tmp_path / "more.png")
    assert few[0] > 1_500
    assert more[1] - few[1] >= 80  # one strategy more, at two pixels for one


def test_missing_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without vl-convert the error names the extra to install, and nothing is written."""
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    html._vega.cache_clear()
    with pytest.raises(MissingExtra, match=r"needs an extra: .*\[report\]"):
        png.save(study(), tmp_path / "none.png")
    with pytest.raises(MissingExtra, match=r"needs an extra: .*\[report\]"):
        html.page(study())
    assert not list(tmp_path.iterdir())
