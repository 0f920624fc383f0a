"""The secret of a gateway's keys, and the sample requests that warm it up."""

from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import sys
import time
from http.client import HTTPConnection
from itertools import cycle
from pathlib import Path

import pytest

from elision.errors import StoreError
from elision.gateway import assembly, worker
from elision.gateway.assembly import Gateway, build_gateway, keep_in_file, load_gateway_secret
from elision.gateway.request_record import RequestRecord
from elision.gateway.worker import Worker
from elision.stores.memory import MemoryStore
from elision.stores.store_urls import open_store
from tests.gateway.conversation_bytes import APIS, PATHS, make_body
from tests.gateway.gateway_trial import answer_soundly, open_trial
from tests.gateway.loopback_gateway import TIMEOUT_SECONDS, make_settings, run_gateway
from tests.gateway.scripted_upstream import run_scripted_upstream


@pytest.mark.parametrize("scheme", ["sqlite", "linear-hash"])
def test_two_gateways_on_one_store_have_one_secret(scheme: str, tmp_path: Path) -> None:
    """It is made at the first start, for its owner's eyes alone, and found at every later one."""
    place = f"{scheme}:///{tmp_path}/kept"
    found = make_settings(store=place, gateway_off=False)
    store = open_store(place)
    try:
        first, second = load_gateway_secret(found, store), load_gateway_secret(found, store)
    finally:
        store.close()
    assert first == second
    assert len(first) == 32
    (kept,) = tmp_path.glob("*.secret")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_another_store_has_another_secret(tmp_path: Path) -> None:
    """What one store says of a key tells nothing to whoever has another."""
    assert keep_in_file(tmp_path / "one", b"1" * 32) != keep_in_file(tmp_path / "other", b"2" * 32)


def test_who_comes_second_takes_the_first_ones(tmp_path: Path) -> None:
    """Two that begin at once agree: whole files alone are put there, and never over another."""
    assert keep_in_file(tmp_path / "kept", b"1" * 32) == keep_in_file(tmp_path / "kept", b"2" * 32) == b"1" * 32
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]


def test_the_setting_goes_before_what_is_kept() -> None:
    """Gateways with stores of their own can be made to name a client alike."""
    found = make_settings(gateway_secret="given-to-all-of-them", gateway_off=False)
    assert load_gateway_secret(found, MemoryStore()) == b"given-to-all-of-them"
    assert "given-to-all-of-them" not in repr(found)


@pytest.mark.parametrize("text", ["", "not hex", "abcd"])
def test_a_damaged_file_is_told_of(text: str, tmp_path: Path) -> None:
    """It is never replaced in silence: every client would be somebody else."""
    (tmp_path / "kept").write_text(text)
    with pytest.raises(StoreError, match="holds no secret"):
        keep_in_file(tmp_path / "kept", b"1" * 32)
    assert (tmp_path / "kept").read_text() == text


def test_a_place_that_takes_no_file_is_told_of(tmp_path: Path) -> None:
    """With what can be done instead."""
    with pytest.raises(StoreError, match="ELISION_GATEWAY_SECRET"):
        keep_in_file(tmp_path / "nowhere" / "kept", b"1" * 32)


async def families(place: str, **given: str) -> set[str]:
    """What a gateway on the store at `place` calls the client of one request, and of all before."""

    async with open_trial(store=place, **given) as (gateway, *_):
        assert (await gateway.ask(make_body("openai", 2), "authorization: Bearer sk-1")).status == 200
    store = open_store(place)
    try:
        return {info.family for info in store.sessions()}
    finally:
        store.close()


async def test_a_client_has_one_name_at_all_gateways_of_a_store(tmp_path: Path) -> None:
    """Its history goes on wherever it asks; under another secret it is somebody else."""
    place = f"sqlite:///{tmp_path}/kept.db"
    (first,) = await families(place)
    assert first.startswith("k")
    assert await families(place) == {first}
    assert len(await families(place, gateway_secret="another-secret-altogether")) == 2


#: Requests of each API: steps, whether streamed, lines of a result.
SHAPES = ((0, False, 60), (12, True, 60), (13, True, 60), (14, False, 60), (2, False, 20_000))
#: A gateway that says where it is; and at each line of its input, what was loaded since the line before.
PROGRAM = """
import json, sys
from pathlib import Path
from elision.gateway.server import GatewayThread
from elision.gateway.settings import gateway_settings
from elision.trajectory import vocabulary
loads = []
read_ranks = vocabulary._read_ranks
vocabulary._read_ranks = lambda found: loads.append(found.file) or read_ranks(found)
upstream = sys.argv[1]
names = ("openai", "anthropic")
providers = {f"gateway_upstream_{name}": upstream for name in names}
found = gateway_settings({}, Path.cwd(), gateway_port=0, gateway_log="json", store="sqlite:///kept.db", **providers)
with GatewayThread(found) as gateway:
    print(gateway.url, flush=True)
    before = set()
    for line in sys.stdin:
        print(json.dumps([sorted(set(sys.modules) - before), loads]), flush=True)
        before, loads[:] = set(sys.modules), []
"""


def ask(url: str, path: str, body: bytes | None = None) -> int:
    """The status of an answer that is read to its end."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=TIMEOUT_SECONDS)
    connection.request("GET" if body is None else "POST", path, body, {"content-type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def drive(process: subprocess.Popen[str]) -> tuple[list[str], list[str]]:
    """Modules and vocabularies that were loaded before ready, and by first requests after it; as the program says."""
    assert process.stdin is not None
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    while ask(url, "/readyz") != 200:
        # It needs the processor for what it loads.
        time.sleep(0.02)
    print(file=process.stdin, flush=True)
    _, loaded = json.loads(process.stdout.readline())
    assert sorted(set(loaded)) == ["o200k_base.tiktoken.gz"]
    words = cycle(("дом", "गर्म"))
    for api in APIS:
        for steps, stream, lines in SHAPES:
            body = make_body(api, steps, stream=stream, lines=lines, word=next(words))
            assert ask(url, PATHS[api], body) == 200
    print(file=process.stdin, flush=True)
    modules, loaded = json.loads(process.stdout.readline())
    return modules, loaded


def test_the_first_request_after_ready_loads_nothing(tmp_path: Path) -> None:
    """No module is imported and no vocabulary loaded by requests of any API, small, streamed or large."""

    async def run() -> tuple[list[str], list[str]]:
        async with run_scripted_upstream(answer_soundly) as upstream:
            command = [sys.executable, "-W", "error", "-c", PROGRAM, upstream.url]
            pipe = subprocess.PIPE
            with subprocess.Popen(command, cwd=tmp_path, stdin=pipe, stdout=pipe, text=True) as process:
                return await asyncio.to_thread(drive, process)

    assert asyncio.run(run()) == ([], [])


def test_a_sample_request_of_each_api_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are answered, results of each API are hidden, and nothing is logged as a fault."""
    records: list[RequestRecord] = []

    def build_watched(*given: object) -> Gateway:
        settings, store, _ = given
        return build_gateway(settings, store, records.append)  # type: ignore[arg-type]

    monkeypatch.setattr(assembly, "build_gateway", build_watched)
    monkeypatch.setattr(assembly, "_is_done", False)
    assembly.serve_sample_requests(make_settings(gateway_off=False))
    assert {(record.status, record.cause) for record in records} == {(200, "")}
    assert {record.api for record in records if record.how == "view"} == set(assembly._SAMPLES)


async def test_sample_requests_leave_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is stored, logged, counted or asked of a real provider."""
    monkeypatch.setattr(assembly, "_is_done", False)
    records: list[RequestRecord] = []
    found = make_settings(
        "http://127.0.0.1:9",
        gateway_off=False,
        store=f"sqlite:///{tmp_path}/kept.db",
        log="json",
        metrics="prometheus",
        gateway_session_max_turns=1,
    )

    watched = Worker(found, records.append)
    before = watched._render_metrics()
    await asyncio.to_thread(watched.warm_up)
    assert watched._render_metrics() == before
    assert list(watched.store.sessions()) == []
    assert len(watched.gateway.sessions) == 0
    await watched.close()
    assert assembly._is_done
    assert records == []
    assert caplog.records == []


async def test_a_worker_is_ready_when_it_is_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load balancers send no request to one that has yet to load something; /readyz says what it waits for."""
    async with run_gateway(make_settings("http://127.0.0.1:9")) as gateway:
        client = await gateway.connect()
        monkeypatch.setattr(gateway.worker, "_is_warm", False)
        got = await client.request("GET", "/readyz")
        assert got.status == 503
        assert got.json()["warm"] is False
        monkeypatch.setattr(gateway.worker, "_is_warm", True)
        assert (await client.request("GET", "/readyz")).status == 200
        client.close()


async def test_a_worker_that_cannot_load_everything_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """It becomes ready all the same: a request that needs what is missing passes unchanged."""

    def fail() -> None:
        raise OSError("no vocabulary")

    monkeypatch.setattr(worker, "list_models", fail)

    found = Worker(make_settings(gateway_off=False))
    with pytest.raises(OSError, match="no vocabulary"):
        await asyncio.to_thread(found.warm_up)
    assert found._is_warm
    await found.close()
