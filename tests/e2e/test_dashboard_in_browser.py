"""The dashboard in a real browser: it draws, follows what happens, reads what was hidden, and runs nothing of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from starlette.applications import Starlette

import elision
from elision import Advanced
from elision.gateway.dashboard.json_views import encode_key
from elision.gateway.dashboard.pages import make_routes
from elision.manager import ContextManager
from elision.stores.sqlite import SqliteStore
from elision.stores.store import NewSession, Store
from elision.trajectory.events import RequestSent
from tests.cli import stored
from tests.gateway.dashboard.recorded_sessions import (
    HOSTILE,
    MINI,
    PI,
    RecordedClient,
    record_hostile_session,
    record_session,
)
from tests.soak import SOAK, pair_cases

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

#: A schedule that acts at once, so that a few calls show everything.
EAGER = "hybrid(window=4, summarize_at=12, tail=4, schedule=every-turn)"

#: More sessions than are read at once.
MANY = 5_000 if SOAK else 200


class Served:
    """The dashboard of `store` on a free port of loopback, as long as it is used."""

    def __init__(self, store: Store) -> None:
        app = Starlette(routes=make_routes(store))
        self._server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off"))
        self._socket = self._server.config.bind_socket()
        # From now on, and not only once the server is up: who comes earlier waits for it.
        self._socket.listen()
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/"

    def __enter__(self) -> Served:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()
        assert not self._thread.is_alive(), "the page keeps its server from shutting down"


@dataclass
class Opened:
    """A page and everything it did that it should not."""

    page: Page
    origin: str
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def run(self, script: str, argument: object = None) -> Any:
        return self.page.evaluate(script, argument)

    def text(self, selector: str) -> str:
        found: str = self.page.inner_text(selector)
        return " ".join(found.split())

    def until(self, condition: str, argument: object = None) -> None:
        """Wait until the expression `condition` over `text` holds. The page's policy forbids playwright's own way."""
        look = f"""text => new Promise((done, failed) => {{
            const start = performance.now();
            const look = () => {{
                if ({condition}) done();
                else if (performance.now() - start > 60000) failed(new Error('waited in vain'));
                else setTimeout(look, 20);
            }};
            look();
        }})"""
        self.page.evaluate(look, argument)

    def close(self) -> None:
        """Leave the page, which has done nothing wrong; a second time does nothing."""
        if self.page.url == "about:blank":
            return
        done = self.run("localStorage.clear(), [window.violations, window.harmed]")
        self.page.goto("about:blank")
        assert done == [[], None]
        assert self.complaints == []
        assert all(url.startswith(self.origin) for url in self.requests), self.requests

    @property
    def width(self) -> int:
        found: int = self.run("document.documentElement.scrollWidth")
        return found


Open = Callable[..., Opened]
Fresh = tuple[SqliteStore, str]


@pytest.fixture
def opened(empty_pages: Iterator[Page]) -> Iterator[Open]:
    """Opens a dashboard; whatever it did wrong fails the test at its end."""
    pages: list[Opened] = []

    def open_page(
        url: str, session: str = "", *, width: int = 1280, scheme: Any = "light", wait: bool = True
    ) -> Opened:
        page = next(empty_pages)
        result = Opened(page, url)
        page.on("request", lambda request: result.requests.append(request.url))
        page.on("console", lambda message: result.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: result.complaints.append(str(error)))
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.goto(f"{url}#s/{encode_key(session)}" if session else url)
        if wait:
            page.wait_for_selector("#chart svg")
            result.until("document.querySelector('#headline').textContent.match(/Saved|Nothing|Cost/)")
        pages.append(result)
        return result

    yield open_page
    for each in pages:
        each.close()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    """Two sessions of recorded runs and a hostile one."""
    kept = SqliteStore(tmp_path_factory.mktemp("dashboard") / "agent.db")
    record_hostile_session(kept)
    record_session(kept, "marshmallow", MINI, 10, now=1_700_000_100.0)
    record_session(kept, "billing", PI, 24, EAGER, now=1_700_000_200.0, recalls=(12, 14))
    yield kept
    kept.close()


@pytest.fixture(scope="module")
def url(store: SqliteStore) -> Iterator[str]:
    with Served(store) as served:
        yield served.url


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Fresh]:
    """An empty store, and the address of its dashboard. Pages that a test opens are closed before it."""
    kept = SqliteStore(tmp_path / "agent.db")
    with Served(kept) as served:
        yield kept, served.url
    kept.close()


def boxes(opened: Opened, selector: str) -> list[dict[str, float]]:
    script = "s => [...document.querySelectorAll(s)].map(node => node.getBoundingClientRect().toJSON())"
    found: list[dict[str, float]] = opened.run(script, selector)
    return found


@pytest.mark.parametrize(("width", "scheme"), pair_cases([1280, 360], ["light", "dark"]))
def test_it_draws(opened: Open, url: str, width: int, scheme: str) -> None:
    """On a desk, in the dark and on a phone there is everything, and nothing scrolls sideways."""
    page = opened(url, "billing", width=width, scheme=scheme)
    assert "Saved" in page.text("#headline") or "more than" in page.text("#headline")
    assert page.width <= width
    (chart,) = boxes(page, "#chart svg")
    assert chart["right"] <= width
    for mark in (".raw-line", ".sent-line", ".epoch", ".summary-mark", ".recall-mark", ".hit"):
        assert boxes(page, f"#chart {mark}"), mark
    assert len(boxes(page, "#sessions li .spark")) == 3
    assert boxes(page, "#bars rect.c-cache_read")
    for part in ("hidden", "summaries", "events"):
        assert boxes(page, f"#{part} > li"), part
    page.run("document.querySelectorAll('details').forEach(node => node.open = true)")
    assert page.width <= width


@pytest.mark.parametrize("width", [1280, 360])
def test_labels_of_the_chart_stand_apart(opened: Open, url: str, width: int) -> None:
    """No two words of the chart touch, and all of them are within it."""
    page = opened(url, "billing", width=width)
    (chart,) = boxes(page, "#chart")
    texts = boxes(page, "#chart text")
    assert len(texts) >= 8
    for place, one in enumerate(texts):
        assert one["left"] >= chart["left"] - 1
        assert one["right"] <= chart["right"] + 1
        for other in texts[place + 1 :]:
            beside = one["right"] <= other["left"] or other["right"] <= one["left"]
            assert beside or one["bottom"] <= other["top"] + 3 or other["bottom"] <= one["top"] + 3


def test_figures_are_those_of_the_store(opened: Open, url: str, store: SqliteStore) -> None:
    """Calls, tokens and the reason on the page are those of the log."""
    page = opened(url, "billing")
    calls = [event for event in store.events("billing") if isinstance(event, RequestSent)]
    assert page.run("document.getElementById('chart').getAttribute('aria-valuemax')") == str(len(calls))
    assert f"in {len(calls)} calls" in page.text("#session-tiles")
    assert "PRESENT" not in page.text("#held")
    rows = page.run("[...document.querySelectorAll('#held tbody tr')].map(row => Number(row.cells[1].textContent))")
    assert sum(rows) == int(page.text("#held-said").split()[0])


def test_arrow_keys_go_from_call_to_call(opened: Open, url: str) -> None:
    """The chart is a slider: keys move over calls, and what it says goes with them."""
    page = opened(url, "billing")
    page.page.focus("#chart")
    said = "document.getElementById('chart').getAttribute('aria-valuetext')"
    for key, call in (("Home", 1), ("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("End", 24)):
        page.page.keyboard.press(key)
        assert page.text("#call h3") == f"Call {call}"
        assert page.run(said).startswith(f"call {call}, {call} of 24: sent")
    page.page.keyboard.press("Home")
    assert "Masked nothing new: Every result is new, small, protected or hidden already." in page.text("#call")


def test_pointing_tells_a_call(opened: Open, url: str) -> None:
    """Where one points at the chart its call is told."""
    page = opened(url, "billing")
    page.run("document.getElementById('context-part').scrollIntoView()")
    (chart,) = boxes(page, "#chart svg")
    page.page.mouse.move(chart["left"] + 48, chart["top"] + 80)
    assert page.text("#call h3") == "Call 1"
    for share, y in ((0.1, 80), (0.5, 20), (0.99, 240)):
        x = chart["left"] + chart["width"] * share
        page.page.mouse.move(x, chart["top"] + y)
        assert page.text("#tip strong") == page.text("#call h3")
        (tip,) = boxes(page, "#tip")
        assert chart["left"] <= tip["left"], "the tip is beside the pointer and within the chart"
        assert tip["right"] <= chart["right"] + 1
        assert min(abs(tip["left"] - x), abs(tip["right"] - x)) < 60
        assert abs(tip["top"] - chart["top"] - y) < tip["height"] + 40
    page.page.mouse.move(5, 5)
    assert page.run("document.getElementById('tip').hidden")


def test_everything_is_reached_by_keyboard(opened: Open, url: str) -> None:
    """Tab goes through the page: theme, search, sessions, chart, hidden results, each with a ring around it."""
    page = opened(url, "billing")
    seen: list[str] = []
    for _ in range(14):
        page.page.keyboard.press("Tab")
        seen.append(page.run("document.activeElement.id || document.activeElement.className"))
        assert page.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert [each for each in seen if each in ("theme", "search", "chart")] == ["theme", "search", "chart"]
    assert seen.count("open") > 3


def test_a_hidden_result_is_read(opened: Open, url: str, store: SqliteStore) -> None:
    """Enter opens what was hidden, word for word; Escape closes it, and the focus is where it was."""
    page = opened(url, "billing")
    button = page.page.locator("#hidden .open").first
    handle = button.locator(".handle").inner_text()
    button.focus()
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector("#reader[open]")
    turn, position = map(int, handle[1:].split("."))
    page.until(
        "document.getElementById('reader-text').textContent === text",
        store.observation("billing", (turn, position)).text,
    )
    assert handle in page.text("#reader-name")
    command = page.run(
        "document.activeElement.closest('dialog') && document.getElementById('reader-command').textContent"
    )
    assert command == button.locator(".command").text_content()
    placeholder = button.locator(".placeholder")
    if placeholder.count():
        assert page.text("#reader-placeholder") == " ".join((placeholder.text_content() or "").split())
    assert page.run("document.getElementById('reader-placeholder').hidden") == (not placeholder.count())
    page.page.keyboard.press("Escape")
    assert page.run("document.activeElement.querySelector('.handle').textContent") == handle


def test_a_summary_is_read(opened: Open, url: str) -> None:
    """Its text stands behind it."""
    page = opened(url, "billing")
    page.page.locator("#summaries summary").first.click()
    assert len(page.text("#summaries pre")) > 100


def test_nothing_of_a_session_is_run(opened: Open, url: str, store: SqliteStore) -> None:
    """Hostile text is shown as it is, long lines fold, and what would turn it round is a sign."""
    page = opened(url, HOSTILE)
    assert "<script>window.harmed = 1</script>" in page.text("#name")
    assert "<U+202E>txt.exe" in page.text("#session-key")
    assert (
        page.run(
            "document.querySelectorAll('img, iframe, object, main script, main style, [onerror], [onload]').length"
        )
        == 0
    )
    assert page.run("[...document.querySelectorAll('a')].filter(a => a.protocol === 'javascript:').length") == 0
    assert page.width <= 1280
    page.page.locator("#hidden .open", has_text="t2.1").click()
    page.until("document.getElementById('reader-text').textContent.length > 60000")
    assert "\x1b" not in page.run("document.getElementById('reader-text').textContent")
    assert "\u202e" not in page.run("document.body.textContent")
    page.page.click("#reader-more")
    page.until("document.getElementById('reader-text').textContent.length > 120000")
    (text,) = boxes(page, "#reader-text")
    assert text["right"] <= 1280


def test_all_of_it_is_copied(opened: Open, url: str, store: SqliteStore) -> None:
    """Copy takes the whole text as it was, also what is not shown yet and what is shown as a sign."""
    page = opened(url, HOSTILE)
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    page.page.locator("#hidden .open", has_text="t2.1").click()
    page.until("document.getElementById('reader-text').textContent.length > 60000")
    page.page.click("#copy")
    page.until("document.getElementById('reader-state').textContent.startsWith('Copied')")
    kept = store.observation(HOSTILE, (2, 1)).text
    assert page.run("navigator.clipboard.readText().then(text => text.length)") == len(kept)


def test_a_copy_waits_for_the_text(opened: Open, url: str, store: SqliteStore) -> None:
    """Copy that is pressed before the text has arrived takes all of it, in order, and not what is there so far."""
    page = opened(url, HOSTILE)
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    held: list[Route] = []
    page.page.route("**/observations/**", lambda route: held.append(route), times=1)
    with page.page.expect_request("**/observations/**"):
        page.page.locator("#hidden .open", has_text="t2.1").click()
    page.page.click("#copy")
    held[0].continue_()
    page.until("document.getElementById('reader-state').textContent.startsWith('Copied')")
    kept = store.observation(HOSTILE, (2, 1)).text
    assert page.run("navigator.clipboard.readText().then(text => text.length)") == len(kept)


def test_what_cannot_be_read_is_not_copied(opened: Open, url: str) -> None:
    """If the text does not arrive, Copy says so and stops asking."""
    page = opened(url, HOSTILE)
    page.page.locator("#hidden .open", has_text="t2.1").click()
    page.until("document.getElementById('reader-text').textContent.length > 60000")
    page.page.route("**/observations/**", lambda route: route.fulfill(body="no JSON"), times=1)
    page.page.click("#copy")
    page.until("document.getElementById('reader-state').textContent.startsWith('Not copied: ')")


def test_signs_of_two_units_are_read_once(fresh: Fresh, opened: Open) -> None:
    """A text that is longer in JavaScript than in Python, because of its emoji, is shown and copied without a gap."""
    kept, url = fresh
    text = "".join(f"{number} 🍊\n" for number in range(10_000))
    with ContextManager("masking(window=1, schedule=every-turn)", store=kept, session="fruit") as context:
        context.turns.begin("Count.")
        for result in (text, "ok", "ok"):
            context.turns.add("", {"name": "count", "arguments": {}}, result)
        context.turns.view()
    page = opened(url, "fruit")
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    page.page.locator("#hidden .open").first.click()
    page.page.click("#copy")
    page.until("document.getElementById('reader-state').textContent.startsWith('Copied')")
    assert page.run("navigator.clipboard.readText()") == text
    assert page.run("document.getElementById('reader-text').textContent") == text


def test_it_follows_a_session_that_grows(opened: Open, tmp_path: Path) -> None:
    """New calls appear by themselves, made by another process over the same file; place and focus stay."""
    ours, theirs = SqliteStore(tmp_path / "agent.db"), SqliteStore(tmp_path / "agent.db")
    working = RecordedClient(theirs, "growing", PI, EAGER.replace(")", ", fold=false)"))
    working.make_calls(8)
    with Served(ours) as served:
        page = opened(served.url)
        page.page.focus("#chart")
        page.page.keyboard.press("Home")
        page.page.locator("#hidden .open").first.focus()
        page.run("document.activeElement.dataset.mine = 'yes'; scrollTo(0, 700)")
        before = page.run("scrollY")
        working.make_calls(6)
        page.until("document.getElementById('chart').getAttribute('aria-valuemax') === '14'")
        page.until("document.querySelector('#sessions .calls').textContent.startsWith('14 calls')")
        assert page.text("#call h3") == "Call 1"
        assert page.run("document.activeElement.dataset.mine") == "yes"
        assert abs(page.run("scrollY") - before) < 400
        record_session(theirs, "second", MINI, 2, now=1_800_000_000.0)
        page.until("document.querySelectorAll('#sessions > li').length === 2")
        assert page.text("#session-key") == "growing"
        page.close()
    working.close()
    ours.close()
    theirs.close()


def test_shadow_mode_says_so(fresh: Fresh, opened: Open) -> None:
    """Where nothing was changed, nothing was saved: the page says what would have been."""
    kept, url = fresh
    record_session(kept, "shade", MINI, 12, "masking(window=2)", shadow=True)
    page = opened(url, wait=False)
    page.until("document.querySelector('#chart svg') && document.querySelector('#sessions .saved').textContent")
    assert "would have" in page.text("#totals")
    assert "Shadow mode" in page.text("#scope")
    assert "are hypothetical" in page.text("#shadow")


def test_folded_results_are_listed(fresh: Fresh, opened: Open) -> None:
    """What is shorter as it arrives is named, with the line that takes the place of others; it opens whole."""
    kept, url = fresh
    rows = "\n".join(f"warning {number * number}: unit {number} is not used by any other one" for number in range(40))
    with ContextManager("raw(fold=true)", store=kept, session="s", recall="caller") as context:
        context.turns.begin("Build it.")
        for number, text in enumerate((f"The first build.\n{rows}", rows)):
            context.turns.view()
            context.turns.add("", {"name": "bash", "arguments": {"command": f"make {number}"}}, text)
        context.turns.view()
    page = opened(url, wait=False)
    page.until("document.querySelectorAll('#hidden .how').length === 1")
    (folded,) = page.run("[...document.querySelectorAll('#hidden .open')].map(node => node.innerText)")
    assert "t2.1" in folded
    assert "folded" in folded
    assert "[same as lines 2–41 of t1.1" in folded
    assert "0 summarized, 1 visible" in " ".join(page.run("document.body.innerText").split())
    assert "2 calls of 3 hid nothing new." in page.run("document.body.innerText")


def test_a_call_that_returns_a_recall_leaves_the_raw_line(fresh: Fresh, opened: Open) -> None:
    """With nothing hidden it would not be made: the line stays where it is, and no figure says zero."""
    kept, url = fresh
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    messages = stored.opening()
    with ContextManager(EAGER, store=kept, session="s", model=stored.MODEL) as context:
        for number in range(1, 8):
            context.prepare(messages, tools=tools)
            messages += stored.looked(number)
        context.prepare(messages, tools=tools)
        function = {"name": "elision_recall", "arguments": '{"handle": "t1.1"}'}
        result = context.handle_tool_call(**function)
        call = {"id": "r1", "type": "function", "function": function}
        messages += [{"role": "assistant", "tool_calls": [call]}]
        messages += [{"role": "tool", "tool_call_id": "r1", "content": result}]
        context.prepare(messages, tools=tools)
        messages += stored.looked(8)
        context.prepare(messages, tools=tools)
    page = opened(url, "s")
    for line in ("#chart .raw-line", "#sessions .spark .raw-line"):
        drawn = page.run("s => document.querySelector(s).getAttribute('d')", line)
        heights = [float(point.split()[1]) for point in re.split("[ML]", drawn)[1:]]
        assert len(heights) == 10
        assert heights == sorted(heights, reverse=True)
    page.page.focus("#chart")
    for key in ("End", "ArrowLeft"):
        page.page.keyboard.press(key)
    assert "nothing hidden no such call" in page.text("#tip")


def test_the_theme_is_kept(opened: Open, url: str) -> None:
    """The button goes from the system's theme to dark and to light; the next visit has the one that was chosen."""
    page = opened(url, "billing")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.run(ground)
    page.page.click("#theme")
    assert page.run(ground) != light
    page.page.reload()
    page.page.wait_for_selector("#chart svg")
    assert page.text("#theme") == "Theme: dark"
    assert page.run(ground) != light


TOP = "Math.round(document.getElementById('name').getBoundingClientRect().top)"


@pytest.mark.parametrize("way", ["tap", "Enter", "tap again"])
def test_on_a_phone_a_session_that_is_picked_comes_into_view(opened: Open, url: str, way: str) -> None:
    """Where it stands below the list, its heading comes up and has the focus; the page's own looks move neither."""
    page = opened(url, "billing", width=390)
    page.page.set_viewport_size({"width": 390, "height": 844})
    assert page.run("scrollY") == 0
    assert page.run(TOP) > 844 / 2
    name = "billing" if way == "tap again" else "marshmallow"
    link = page.page.locator("#sessions a", has_text=name)
    if way == "Enter":
        link.focus()
        page.page.keyboard.press("Enter")
    else:
        link.click()
    page.until(f"document.getElementById('session-key').textContent === text && {TOP} < 60", name)
    assert page.run(TOP) >= 0
    assert page.run("document.activeElement.id") == "name"
    page.page.locator("#theme").focus()
    page.run("scrollTo(0, 0)")
    page.page.wait_for_timeout(2_000)
    assert page.run("scrollY") == 0
    assert page.run("document.activeElement.id") == "theme"


def test_on_a_desk_a_session_that_is_picked_moves_nothing(opened: Open, url: str) -> None:
    """Beside the list it is in view already, and the focus stays where the arrow of the mouse is."""
    page = opened(url, "billing")
    page.page.locator("#sessions a", has_text="marshmallow").click()
    page.until("document.getElementById('session-key').textContent === 'marshmallow'")
    assert page.run("scrollY") == 0
    assert page.run("document.activeElement.hash.startsWith('#s/')")


def test_a_session_is_named_by_its_task(opened: Open, url: str, fruits: str) -> None:
    """The list shows the task, the model and the API of the client, and the id small; the page finds by each."""
    page = opened(fruits, "apples")
    row = page.text("#sessions li:has([aria-current])")
    for each in ("Count the apples.", "gpt-5", "apples"):
        assert each in row
    assert "claude-sonnet-4-5 · Anthropic Messages" in opened(url, "billing").text("#sessions")
    page.page.fill("#search", "count THE orang")
    page.until("document.querySelectorAll('#sessions > li').length === 1")
    assert "Count the oranges." in page.text("#sessions")


def test_tasks_that_begin_alike_are_named_from_where_they_part(fresh: Fresh, opened: Open) -> None:
    """A scaffold begins each task with the same words; they tell no session from another."""
    kept, url = fresh
    scaffold = "You are given a repository and an issue. Solve the following issue within the repository: "
    for what in ("printer", "parser"):
        with ContextManager("masking", store=kept, session=f"s-{what}", model="gpt-5") as context:
            context.prepare([{"role": "user", "content": f"{scaffold}the {what} fails"}])
    page = opened(url, wait=False)
    page.until("document.querySelectorAll('#sessions .model').length === 2")
    names = page.run("[...document.querySelectorAll('#sessions bdi')].map(node => node.textContent)")
    assert sorted(names) == ["… parser fails", "… printer fails"]


def test_a_played_provider_bills_nobody(fresh: Fresh, opened: Open) -> None:
    """The page says who answered, and nowhere that it was billed."""
    kept, url = fresh
    messages = [{"role": "user", "content": "hello"}]
    with ContextManager("masking", store=kept, session="s", model="gpt-5") as context:
        context.prepare(messages)
        context.record({"prompt_tokens": 1_000, "completion_tokens": 5, "played": True})
    page = opened(url)
    assert "Nothing was billed" in page.text("#played")
    assert "a played provider answered" in page.text("#session-tiles")
    assert "nothing was billed" in page.text("#scope")
    assert "billed, as reported" not in page.text("body")


def test_the_legend_has_the_signs_that_occur(opened: Open, url: str, fruits: str) -> None:
    """A session without a summary or recall has no such signs."""
    key = "#chart-key"
    assert "recall" in opened(url, "billing").text(key)
    page = opened(url, "marshmallow")
    marks = page.run("['.summary-mark', '.recall-mark', '.head-mark'].some(s => document.querySelector(`#chart ${s}`))")
    assert not marks
    for sign in ("summary", "recall", "head changed", "simulated"):
        assert sign not in page.text(key)


def test_calls_are_downloaded(opened: Open, url: str) -> None:
    """Both links give a file of this session's calls."""
    page = opened(url, "billing")
    for ending in ("csv", "json"):
        with page.page.expect_download() as download:
            page.page.click(f"#export-{ending}")
        assert download.value.suggested_filename == f"elision-billing.{ending}"


def test_the_page_names_its_version_and_its_documentation(opened: Open, url: str) -> None:
    """Version, page of the documentation and an icon of its own, without another address."""
    page = opened(url, "billing")
    assert f"Elision {elision.__version__}" in page.text("footer")
    guide = page.run("document.querySelector('footer > p:last-child code').textContent")
    assert (Path(elision.__file__).parents[2] / guide).exists()


# -- one session after another -----------------------------------------------------------------------------------------

#: What each of two sessions reads: the same handles, other tools and other words.
FRUITS = ("apples", "oranges")


def fruity(store: Store, fruit: str, now: float) -> None:
    """A session whose every result is of `fruit`; each has the same handles, calls and summary places."""
    clock = iter(range(10_000))
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Count the {fruit}."}]
    with ContextManager(
        "hybrid(window=1, summarize_at=4, tail=2, schedule=every-turn)",
        store=store,
        session=fruit,
        model="gpt-5",
        advanced=Advanced(clock=lambda: now + next(clock)),
    ) as context:
        for number in range(1, 9):
            context.prepare(messages)
            if number == 7:
                context.session.recall("t1.1")
            call = {"id": f"c{number}", "type": "function", "function": {"name": f"count_{fruit}", "arguments": "{}"}}
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            lines = "\n".join(f"{fruit} number {each}, row {number}" for each in range(40 if fruit == "apples" else 90))
            messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": lines})
        context.prepare(messages)


@pytest.fixture(scope="module")
def fruits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    kept = SqliteStore(tmp_path_factory.mktemp("fruits") / "agent.db")
    for place, fruit in enumerate(FRUITS):
        fruity(kept, fruit, 1_700_000_000.0 + 1_000 * place)
    with Served(kept) as served:
        yield served.url
    kept.close()


def other(fruit: str) -> str:
    (found,) = set(FRUITS) - {fruit}
    return found


def is_all_of(page: Opened, fruit: str) -> None:
    """Rows, summaries, events, figures and the text behind each row are this session's."""
    assert page.text("#session-key") == fruit
    assert page.text("#name") == f"Count the {fruit}."
    rows = page.text("#hidden")
    assert f"count_{fruit}" in rows
    page.run("document.querySelectorAll('#session details').forEach(node => node.open = true)")
    for part in ("hidden", "summaries", "events", "session-tiles", "kin"):
        assert other(fruit) not in page.text(f"#{part}"), part
    button = page.page.locator("#hidden .open").first
    handle = button.locator(".handle").inner_text()
    button.click()
    page.until("document.getElementById('reader-text').textContent.includes(text)", f"{fruit} number 0")
    assert page.text("#reader-name") == f"{handle} count_{fruit}"
    shown, size = button.locator(".size").inner_text(), page.text("#reader-said")
    assert size.startswith(shown.split(" → ")[0].removesuffix(" tokens"))
    page.page.keyboard.press("Escape")


def test_two_tabs_show_each_its_own_session(opened: Open, fruits: str) -> None:
    """Two tabs of one browser go different ways, and each shows one session alone: handles, calls and places repeat in
    every session, and nothing of the one shown before stays on the page."""
    first, second = opened(fruits, "apples"), opened(fruits, "oranges")
    for page, fruit in ((first, "apples"), (second, "oranges")):
        page.until("document.getElementById('session-key').textContent === text", fruit)
        is_all_of(page, fruit)
    first.page.locator("#sessions a", has_text="oranges").click()
    second.page.locator("#sessions a", has_text="apples").click()
    for page, fruit in ((first, "oranges"), (second, "apples")):
        page.until("document.getElementById('session-key').textContent === text", fruit)
        is_all_of(page, fruit)


def test_a_row_opens_the_text_of_its_own_session(opened: Open, fruits: str) -> None:
    """A row that is still on the page while another session is on its way opens what it names."""
    page = opened(fruits, "apples")
    page.until("document.getElementById('session-key').textContent === 'apples'")
    # The answer about the other session does not come.
    page.page.route(f"**/sessions/{encode_key('oranges')}?**", lambda route: None)
    with page.page.expect_request(f"**/sessions/{encode_key('oranges')}?**"):
        page.page.locator("#sessions a", has_text="oranges").click()
    assert page.text("#session-key") == "apples"
    page.page.locator("#hidden .open").first.click()
    page.until("document.getElementById('reader-text').textContent.includes('apples number 0')")
    assert "count_apples" in page.text("#reader-name")
    page.page.unroute_all(behavior="ignoreErrors")


def test_hiding_and_caching_are_told_apart(opened: Open, url: str) -> None:
    """A client that sets no cache breakpoints: what they save is named beside what hiding saves, wherever that is."""
    page = opened(url, "billing")
    assert "by hiding" in page.text("#headline")
    for part in ("scope", "totals", "session-tiles", "costs"):
        assert "cache breakpoints" in page.text(f"#{part}"), part
    hiding, caching = page.run(
        "[...document.querySelectorAll('#costs tr.quiet td:last-child')].slice(-2).map(cell => cell.textContent)"
    )
    # The eager schedule of this session costs more than it saves; its breakpoints save all the same.
    assert hiding.startswith("+$")
    assert caching.startswith("−$")


def fill_store(store: SqliteStore, number: int) -> None:
    """Add `number` sessions of one call each, the last one the newest."""
    record_session(store, "pattern", MINI, 1, now=1_700_000_000.0)
    events = list(store.events("pattern"))
    for place in range(number):
        key, at = f"filled-{place:04}", 1_700_001_000.0 + place
        store.create_with_events(NewSession(key=key, family=key, at=at), events, at=at)


def test_a_walk_from_the_first_visit_to_many_sessions(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty at first; then one session, then 200, in a soak 5,000, in the tab that stays open; a second tab, a phone,
    and the dark."""
    monkeypatch.setattr("elision.gateway.dashboard.pages.READ_SECONDS", 0.005)
    kept = SqliteStore(tmp_path / "agent.db")
    with Served(kept) as served:
        page = opened(served.url, wait=False)
        page.until("document.getElementById('headline').textContent.startsWith('Ready')")
        assert "No session yet" in page.text("#empty")
        assert f"OPENAI_BASE_URL={served.url}v1" in page.text("#way-openai")
        assert f"ANTHROPIC_BASE_URL={served.url.rstrip('/')}" in page.text("#way-anthropic")
        assert page.width <= 1280

        record_session(kept, "first", PI, 24, EAGER, now=1_700_000_000.0)
        page.page.wait_for_selector("#chart svg")
        page.until("document.getElementById('headline').textContent.match(/Saved|Cost/)")
        assert page.text("#session-key") == "first"
        assert not page.page.is_visible("#empty")
        # What one session says of itself is not said of all sessions as well.
        assert not page.page.is_visible("#totals")

        fill_store(kept, MANY)
        page.until("document.getElementById('totals').innerText.includes(text)", f"of {MANY + 2:,} sessions")
        # Their logs are read bit by bit, and the page says how many are still to come.
        assert re.search(r"[\d,]+ sessions still to be read", page.text("#scope"))
        page.until("document.getElementById('found').textContent === text", f"The newest 20 of {MANY + 2:,} sessions")
        assert page.run("document.querySelectorAll('#sessions li').length") == 20
        monkeypatch.setattr("elision.gateway.dashboard.pages.READ_SECONDS", 0.25)
        # The session that was looked at is still the one that is shown.
        assert page.text("#session-key") == "first"
        page.page.fill("#search", "filled-0042")
        page.until("document.getElementById('found').textContent === '1 session found'")
        page.page.click("#sessions a")
        page.until("document.getElementById('session-key').textContent === 'filled-0042'")

        second = opened(served.url, "first", width=390, scheme="dark")
        assert second.text("#session-key") == "first"
        assert second.width <= 390
        assert second.run("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 25)"
        assert page.text("#session-key") == "filled-0042"
        for each in (page, second):
            assert each.run(_CUT) == []
            each.close()
    kept.close()


#: Texts and tables that reach beyond the window, and boxes whose content does not fit them.
_CUT = """[...document.querySelectorAll('main *, nav *, header *, #totals *')].filter(node => {
    const box = node.getBoundingClientRect(), style = getComputedStyle(node);
    if (!box.width || node.closest('svg, pre') || style.overflowX !== 'visible') return false;
    return box.right > innerWidth + 1 || box.left < -1;
}).map(node => `${node.tagName} ${node.id} ${node.className} ${node.textContent.slice(0, 40)}`)"""
