"""Takes the picture of the dashboard that the README shows: `python docs/update_dashboard.py`. Needs a Chromium.

The sample runs are worked through behind a context manager first, against a provider that is played; look at the
picture before committing it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import uvicorn
from playwright.sync_api import sync_playwright
from starlette.applications import Starlette

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.gateway.dashboard.recorded_sessions import GPT, MINI, OPENHANDS, PI, SWE_AGENT, record_session  # noqa: E402

from elision.gateway.dashboard.pages import make_routes  # noqa: E402
from elision.stores.sqlite import SqliteStore  # noqa: E402
from elision.stores.store import Store  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "dashboard.png"
#: A window's size in pixels.
SIZE = (1280, 1600)


def filled(store: Store) -> None:
    """Four sessions, the newest of them live."""
    now = time.time()
    record_session(store, "sympy-20801", SWE_AGENT, 84, "masking(window=10)", api="openai", model=GPT, now=now - 9_000)
    record_session(store, "pylint-crash", OPENHANDS, 60, now=now - 5_000)
    record_session(store, "marshmallow-1343", MINI, 120, "masking", model="claude-haiku-4-5", now=now - 3_000)
    # 200 calls, nine seconds each: the last one is of just now.
    record_session(
        store, "pi-session", PI, 200, "hybrid(window=10, summarize_at=43)", now=now - 1_830, recalls=(58, 130)
    )


def picture(store: Store, path: Path) -> None:
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=make_routes(store)), port=0, log_level="warning"))
    socket = server.config.bind_socket()
    serving = threading.Thread(target=server.run, kwargs={"sockets": [socket]})
    serving.start()
    with sync_playwright() as playwright:
        found = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="light")
        page.goto(f"http://127.0.0.1:{socket.getsockname()[1]}/")
        page.wait_for_selector("#chart svg")
        page.wait_for_selector("#sessions li:nth-child(4) .spark")
        page.screenshot(path=str(path))
        browser.close()
    server.should_exit = True
    serving.join()
    socket.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        kept = SqliteStore(Path(name) / "agent.db")
        filled(kept)
        picture(kept, PICTURE)
        kept.close()
