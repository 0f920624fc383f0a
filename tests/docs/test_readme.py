"""The README fits three minutes."""

from __future__ import annotations

import re

from elision.lab.run_loading import RECOMMENDED
from tests.docs.blocks import README, ROOT, prose

TEXT = README.read_text(encoding="utf-8")


def test_it_is_short() -> None:
    """At most 100 lines."""
    assert len(TEXT.splitlines()) <= 100


def test_the_first_screen_has_the_fact_its_number_and_the_status() -> None:
    """Before the first section: what it is, the saving with its command, the picture, the status, the documentation."""
    first = TEXT.partition("\n## ")[0]
    for text in (
        "make demo",
        "−41 %",
        "+34 %",
        "<picture>",
        "**Status: alpha, not yet published.**",
        "on a live account",
        "docs/index.md",
    ):
        assert text in first
    assert len(first.splitlines()) <= 24


def test_its_pictures_are_there() -> None:
    """One for light and one for dark, and a text for those who see none."""
    named = re.findall(r'(?:src|srcset)="([^"]+)"', TEXT)
    assert named == ["docs/images/saving-dark.png", "docs/images/saving-light.png"]
    assert all((ROOT / name).read_bytes().startswith(b"\x89PNG") for name in named)
    assert re.search(r'alt="[^"]{40,}"', TEXT)


def test_it_recommends_the_default() -> None:
    """The strategy that the report recommends."""
    assert f"**Start with `{RECOMMENDED}`, the default**" in prose(README)
