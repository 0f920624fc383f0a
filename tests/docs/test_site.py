"""The documentation as a site: it builds without a warning, and asks no other machine for anything."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

from tests.docs.blocks import DOCS, ROOT

#: Elements whose address a browser loads by itself, each with the attributes that hold one.
LOADING = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "img": ("src", "srcset"),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
}
#: Links of a page's head that name another page and load nothing.
NAMING = {"author", "canonical", "next", "prev", "search", "index"}


class Loads(HTMLParser):
    """Collects the addresses that a browser loads when it opens a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and set((values.get("rel") or "").split()) & NAMING:
            return
        self.addresses += [values[name] or "" for name in LOADING.get(tag, ()) if name in values]


def test_every_page_is_built(site: Path) -> None:
    """Each Markdown file of the documentation is a page, and the navigation of the first page leads to it."""
    navigation = (site / "index.html").read_text(encoding="utf-8")
    for page in DOCS:
        path = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / path).is_file()
        assert path.name == "index.html" or f'class="reference internal" href="{path}"' in navigation


def test_the_sidebar_has_four_groups_that_expand(site: Path) -> None:
    """The group of the page is open and the others are closed; on the first page the first group is open."""
    for name, opened in (("index", "Start"), ("guides/privacy", "Guides"), ("concepts/glossary", "Concepts")):
        text = (site / f"{name}.html").read_text(encoding="utf-8")
        groups = re.findall(r'<details class="group"( open)?><summary>(.*?)</summary>\s*<ul', text)
        assert [re.sub(r"<.*?>", "", title) for _, title in groups] == ["Start", "Guides", "Concepts", "Reference"]
        assert [re.sub(r"<.*?>", "", title) for is_open, title in groups if is_open] == [opened]


def test_no_outside_request(site: Path) -> None:
    """No page loads a script, a style, a font or a picture from another machine."""
    for page in site.rglob("*.html"):
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert loads.addresses
        assert [each for each in loads.addresses if re.search(r"(^|[ ,])(\w+:)?//", each)] == [], page
    for style in site.rglob("*.css"):
        outside = re.findall(
            r"url\(\s*['\"]?(?:https?:)?//[^)]*\)|@import[^;]*//[^;]*", style.read_text(encoding="utf-8")
        )
        assert outside == [], style


def test_every_page_has_a_way_on(site: Path) -> None:
    """Each page leads to the index and to the next page or the one before."""
    for page in DOCS:
        path = page.relative_to(ROOT / "docs").with_suffix(".html")
        text = (site / path).read_text(encoding="utf-8")
        assert 'class="next-page"' in text or 'class="prev-page"' in text, page
        assert "index.html" in text or path.name == "index.html"
