"""The documentation's site in a real browser: no table is cut off on a desk, and no page scrolls sideways."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: The headings of the tables that need more room than they have.
_WIDE = (
    "() => [...document.querySelectorAll('article .table-wrapper')]"
    ".filter(node => node.scrollWidth > node.clientWidth + 1).map(node => node.innerText.slice(0, 60))"
)


def test_tables_fit(browser: Browser, site: Path) -> None:
    """Every table fits at 1,280 pixels. On a phone one of many figures scrolls, but never the page."""
    page = browser.new_page()
    wide, scrolling = {}, []
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        name = path.relative_to(site).as_posix()
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            if width == 1280 and (tables := page.evaluate(_WIDE)):
                wide[name] = tables
            if page.evaluate("document.documentElement.scrollWidth") > width:
                scrolling.append((name, width))
    page.close()
    assert (wide, scrolling) == ({}, [])
