"""What holds for the whole run: the profiles of the property tests, the processes that tests start, the summary of what
was skipped, and names that no test asks another machine for.

Profiles: `quick` by default; `soak` with ELISION_SOAK=1, or by HYPOTHESIS_PROFILE.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import inspect
import itertools
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from xdist.scheduler import LoadFileScheduling

from tests.figures import FIGURES, ReportFigures
from tests.processes import (
    MARK,
    kill_leftovers,
    leave_out_certificates,
    make_index_environment,
    mark_descendants,
    restore_interrupts,
)
from tests.soak import SOAK

ROOT = Path(__file__).parents[1]
_FOLDER_NUMBERS = itertools.count()
_PATIENT = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)

# Quick runs are the same every time: a red `make test` must be about the change at hand. Soaks look for what is new.
settings.register_profile("quick", max_examples=10, deadline=None, derandomize=True, suppress_health_check=_PATIENT)
settings.register_profile("soak", max_examples=300, deadline=None, suppress_health_check=_PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "soak" if SOAK else "quick"))

#: Files that take longest, the longest first: at the end all processes are at work on short ones.
LONGEST = (
    "clients/test_litellm",
    "clients/test_wrap",
    "e2e/test_dashboard_in_browser",
    "e2e/test_report_in_browser",
    "cli/test_studies",
    "docs/test_docs",
    "test_house",
    "test_auto",
    "test_typed",
    "trajectory/test_vocabulary",
    "cli/test_wrap",
    "cli/test_replay",
    "study/test_object_store",
    "e2e/test_two_gateways",
    "e2e/test_extras",
    "manager/test_damaged_sessions",
    "docs/test_site",
    "gateway/test_key_leases",
    "study/test_shard_runner",
    "gateway/test_faults_store",
    "stores/test_postgres_faults",
    "stores/test_postgres_crash",
    "e2e/test_recall_through_gateway",
    "testing/loop/test_closed_loop",
    "clients/test_coding_agents",
    "mcp/test_mcp_server",
    "gateway/test_assembly",
    "gateway/test_supervisor",
    "docs/test_recipes",
    "cli/test_gateway_demo",
    "stores/test_contract",
    "stores/linear_hash/test_crashes",
    "stores/linear_hash/test_processes",
    "stores/test_kill",
    "gateway/test_faults_killed",
    "gateway/test_random_agents",
    "gateway/test_random_requests",
    "manager/test_durable",
    "manager/test_live_equals_replay",
    "manager/test_requests",
    "properties/test_corpus_invariants",
    "properties/test_invariants",
    "providers/test_render_corpus",
    # For soaks.
    "e2e/test_fleet",
    "gateway/test_soak",
    "lab/test_bars",
)
_PLACES = {f"tests/{name}.py": place for place, name in enumerate(LONGEST)}
#: Files whose tests share a process, as they share what takes long to start: LiteLLM, a build of this
#: checkout, and the site of its pages.
TOGETHER = {
    "tests/clients/test_mini_swe_agent.py": "tests/clients/test_litellm.py",
    "tests/clients/test_scaffolds.py": "tests/clients/test_litellm.py",
    "tests/test_release.py": "tests/e2e/test_extras.py",
    "tests/e2e/test_site_in_browser.py": "tests/docs/test_site.py",
}


class FilesTogether(LoadFileScheduling):
    """Each file is one process's, and files that are named together are the same one's."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return TOGETHER.get(file, file)


@pytest.fixture(scope="session", autouse=True)
def _names_of_nobody() -> Iterator[None]:
    """Names in `.invalid` are nobody's (RFC 6761). Who would say so is another machine, and may take its time."""
    look_up = socket.getaddrinfo

    def near(host: Any, *others: Any, **named: Any) -> Any:
        told = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
        if told.endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up(host, *others, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", near)
        yield


@pytest.fixture(autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has folders of its own for sessions and caches, which are made when they are used."""
    number = next(_FOLDER_NUMBERS)
    for kind in ("STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path_factory.getbasetemp() / f"{kind.lower()}-{number}"))


def pytest_configure() -> None:
    # Without bytecode each process that a test starts compiles all that it imports, for seconds.
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None) is not None:
        sys.dont_write_bytecode = False
    # What is collected stays to the end. Looking through it for garbage again and again took a third of the run.
    gc.disable()
    restore_interrupts()
    mark_descendants()
    leave_out_certificates()
    # What is registered first runs last: servers that tests share are ended by then, each by whoever started it.
    atexit.register(_end_leftovers)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that all processes end at about the same time.

    What is marked `soak` runs in a soak only. A soak leaves out what `make test` has done already: tests that have no
    longer form.
    """
    left_out = {item for item in items if (_is_longer_in_soak(item) if SOAK else _is_soak_only(item)) != SOAK}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: _PLACES.get(_find_file(item), len(_PLACES)))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(pyfuncitem.obj(**given))
    return True


def pytest_collection_finish() -> None:
    gc.freeze()
    # What a test leaves behind is little. At the usual threshold the collector took a twentieth of the run.
    gc.set_threshold(10_000)
    gc.enable()


def _find_file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesTogether:
    return FilesTogether(config, log)


def pytest_xdist_auto_num_workers() -> int:
    """Return one process more than there are cores: tests wait for servers and other processes."""
    return (os.cpu_count() or 1) + 1


def _is_soak_only(item: pytest.Item) -> bool:
    return item.get_closest_marker("soak") is not None


def _is_longer_in_soak(item: pytest.Item) -> bool:
    """Return whether a test is for soaks, Hypothesis draws more examples for it, or its file asks for more."""
    return _is_soak_only(item) or is_hypothesis_test(getattr(item, "obj", None)) or _asks_for_soak(item.path)


@cache
def _asks_for_soak(file: Path) -> bool:
    text = file.read_text(encoding="utf-8")
    # All cassettes, wherever a file reads them, instead of a few.
    return "tests.soak" in text or "tests.recorded.cassettes" in text


def _end_leftovers() -> None:
    for command in kill_leftovers(os.environ[MARK]):
        print(f"killed, as a test had left it running: {command}")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    command = [str(Path(sys.executable).with_name("uv")), "build", "--quiet", "--out-dir", str(folder), str(ROOT)]
    environment = make_index_environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        pytest.skip(f"nothing could be built here: {done.stderr.strip()[-200:]}")
    return folder


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation as a site. Links to pages, headings and files must resolve: a warning is an error."""
    at = tmp_path_factory.mktemp("site")
    strict = ("--quiet", "--fail-on-warning", "--keep-going", "--nitpicky")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        *strict,
        "-d",
        str(at / "doctrees"),
        str(ROOT / "docs"),
        str(at / "html"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return at / "html"


@pytest.fixture
def report_figures(record_property: Callable[[str, object], None]) -> ReportFigures:
    """What adds a line to the summary of the run, from other processes of it, too."""
    return lambda line: record_property(FIGURES, line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what long trials measured, and what was not checked: one line for each reason, not one for each test."""
    lines = [
        line
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        for name, line in report.user_properties
        if name == FIGURES
    ]
    if lines:
        terminalreporter.section("figures")
    for line in lines:
        terminalreporter.write_line(f"  {line}")
    skipped = Counter(str(report.longrepr[2]) for report in terminalreporter.getreports("skipped"))
    if skipped:
        terminalreporter.section("skipped")
    for reason, count in skipped.most_common():
        terminalreporter.write_line(f"{count:>5}  {reason.removeprefix('Skipped: ')}")
