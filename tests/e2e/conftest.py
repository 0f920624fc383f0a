"""A real browser for the tests that need one. Without it they are skipped, and the summary says so aloud."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
_skipped: list[str] = []


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium, Debian's or whichever is on the path.

    Closed behind each file: while it is open its event loop runs, and no other test could start one.
    """
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        _skip(f"no browser: none of {', '.join(_NAMES)} is on the path")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _skip("playwright is not installed: pip install -e '.[dev]'")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=list(_ARGUMENTS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def empty_pages(browser: Browser) -> Iterator[Page]:
    """Pages that tests have left for `about:blank`, or else new ones: to make one takes longer than most tests.

    They count violations of their policy in `window.violations`.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.add_init_script(
        "window.violations = []; document.addEventListener('securitypolicyviolation',"
        " event => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));"
    )

    def find_pages() -> Iterator[Page]:
        while True:
            yield next((page for page in context.pages if page.url == "about:blank"), None) or context.new_page()

    return find_pages()


def _skip(reason: str) -> None:
    _skipped.append(reason)
    pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say aloud that pages were not looked at."""
    for reason in dict.fromkeys(_skipped):
        terminalreporter.write_line(f"WARNING: pages were NOT tested in a browser: {reason}", yellow=True, bold=True)
