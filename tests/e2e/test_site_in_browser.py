"""The documentation's site in a real browser: no table is cut off on a desk, and no page scrolls sideways."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.test_site import site as site

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: The headings of the tables that need more room than they have.
_WIDE = (
    "() => [...document.querySelectorAll('article .table-wrapper')]"
    ".filter(node => node.scrollWidth > node.clientWidth + 1).map(node => node.innerText.slice(0, 60))"
)


@pytest.mark.parametrize("width", [1280, 390])
def test_tables_fit(browser: Browser, site: Path, width: int) -> None:
    """Every table fits at 1,280 pixels. On a phone one of many figures scrolls, but never the page."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    wide, scrolling = {}, []
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        name = path.relative_to(site).as_posix()
        if width == 1280 and (tables := page.evaluate(_WIDE)):
            wide[name] = tables
        if page.evaluate("document.documentElement.scrollWidth") > width:
            scrolling.append(name)
    page.close()
    assert (wide, scrolling) == ({}, [])
