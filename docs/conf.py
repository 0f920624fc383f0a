"""The site: these pages by Sphinx, MyST and Furo. `make docs` builds it.

The pages stay plain Markdown, so two things are done while they are read. The lists of `index.md` become the
navigation: a heading is a group that expands, each link in its list a page. Pages that live elsewhere in the repository
(CONTRIBUTING and CHANGELOG) are read from there, with their links turned.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any, Final

from docutils import nodes

DOCS: Final = Path(__file__).parent
ROOT: Final = DOCS.parent

project = "Elision"
author = "Elision contributors"
project_copyright = author
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["images"]
# Anchors of headings as GitHub makes them, so that a link works there and here.
myst_heading_anchors = 4
# A dot-separated word such as `elision.toml` is no address.
myst_linkify_fuzzy_links = False
# Some pages that live elsewhere begin with a heading of their own.
suppress_warnings = ["myst.header"]

# Every reference to a document, a heading or a name of ours must resolve. Types of other packages have no page here.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!elision\.).*"), ("py:.*", r"elision\.\w+\..*")]

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
# Off: the signature of the context manager is made of its options, and has no source with these defaults.
autodoc_preserve_defaults = False
add_module_names = False
python_maximum_signature_line_length = 80
# Docstrings write `code` with one backtick.
default_role = "code"

# Quotes and ellipses alone: two dashes begin an option.
smartquotes_action = "qe"
html_theme = "furo"
html_title = f"Elision {release}"
html_show_sphinx = False
html_copy_source = False
# Pictures that raw HTML names, which Sphinx does not collect, and the style of the groups in the sidebar.
html_static_path = ["images", "style"]
html_css_files = ["groups.css"]
pygments_style = "friendly"
pygments_dark_style = "native"

_LINK: Final = re.compile(r"(\]\(|\b(?:src|srcset|href)=\")([^)\"\s]+)")
#: The space between a figure and its percent sign.
_PERCENT: Final = re.compile(r"(?<=\d) (?=%)")
#: A group in the sidebar, as Sphinx writes it: its heading, then its pages.
_GROUP: Final = re.compile(
    r'<p class="caption"[^>]*>(.*?)</p>\s*(<ul.*?</ul>)(?=\s*(?:<p class="caption"|</div>|$))', re.DOTALL
)


#: A line of a docstring that begins the description of one argument or field.
_FIELD: Final = re.compile(r"(\w+(?:, \w+)*): +(\S.*)")


def setup(app: Any) -> None:
    app.connect("source-read", read_page)
    app.connect("doctree-read", bind_figures)
    app.connect("autodoc-process-docstring", list_fields)
    # After the theme, which makes the sidebar.
    app.connect("html-page-context", fold_groups, priority=900)


def bind_figures(app: Any, doctree: nodes.document) -> None:
    """Let no line end between a figure and its percent sign. Code stays as it is."""
    for text in list(doctree.findall(nodes.Text)):
        if _PERCENT.search(text) and not isinstance(text.parent, nodes.literal | nodes.literal_block | nodes.raw):
            text.parent.replace(text, nodes.Text(_PERCENT.sub("\xa0", text)))


def fold_groups(app: Any, name: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Make each group of the sidebar one that expands. That of the page is open; on the first page, the first one."""
    first = name == "index"

    def fold(found: re.Match[str]) -> str:
        nonlocal first
        is_open = first or "current" in found[2]
        first = False
        return f'<details class="group"{" open" if is_open else ""}><summary>{found[1]}</summary>{found[2]}</details>'

    context["furo_navigation_tree"] = _GROUP.sub(fold, context.get("furo_navigation_tree", ""))


def list_fields(app: Any, kind: str, name: str, item: Any, options: Any, lines: list[str]) -> None:
    """Make `name: text` lines of a docstring, and the lines that continue each, a list."""
    listed: list[str] = []
    inside = False
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found:
            names = ", ".join(f"``{each}``" for each in found[1].split(", "))
            listed += [*([] if inside else [""]), f"- {names}: {found[2]}"]
        elif inside and line.strip() and not line.startswith(("Raises", "Returns", "See")):
            listed.append(f"  {line.strip()}")
        else:
            listed += [*([""] if inside else []), line]
            inside = False
        inside = inside or bool(found)
    lines[:] = listed


def read_page(app: Any, name: str, source: list[str]) -> None:
    """Replace the text of a page by what Sphinx is to read."""
    source[0] = turn_links(source[0], name)
    if name == "index":
        source[0] += "\n" + "\n".join(build_navigation(source[0]))


def build_navigation(index: str) -> list[str]:
    """Return a hidden table of contents for each group of the index."""
    lines: list[str] = []
    for group in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        pages = re.findall(r"^- \[([^]]+)\]\(([\w/-]+)\.md\)", group, re.MULTILINE)
        lines += ["```{toctree}", ":hidden:", f":caption: {group.partition(chr(10))[0]}", ""]
        lines += [f"{title} <{page}>" for title, page in pages]
        lines += ["```", ""]
    return lines


def turn_links(text: str, name: str) -> str:
    """Return the text of page `name` with its links as Sphinx needs them.

    A link to the README leads to the first page. Another Markdown file of the repository, such as CHANGELOG.md, is
    linked as a file, since Sphinx takes it for a page.
    """
    home = (DOCS / name).parent

    def turn(found: re.Match[str]) -> str:
        target = found[2]
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        path, hash_sign, heading = target.partition("#")
        place = Path(os.path.normpath(home / path))
        if found[1] != "](" and place.parent == DOCS / "images":
            place = DOCS / "_static" / place.name
        if place == ROOT / "README.md":
            place = DOCS / "index.md"
        turned = os.path.relpath(place, home)
        if place.suffix == ".md" and not place.is_relative_to(DOCS):
            return f"{found[1]}path:{turned}"
        return found[1] + turned + hash_sign + heading

    return _LINK.sub(turn, text)
