"""Studies on S3, by a real server; and the same calls on fsspec's own store in memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from elision.study.study_folder import StudyFolder
from tests.cli.in_process import run_elision
from tests.cli.test_calibration import BILLS, session
from tests.processes import start_process
from tests.study.made_runs import read_rows, write_runs
from tests.study.test_manifest import write_set

OPTIONS = ("-s", "raw", "-s", "masking", "--tokens", "estimate", "--prices", "anthropic", "--no-hindsight")
SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
server.start()
print("port", server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The address of an empty bucket of a server that this fixture starts."""
    pytest.importorskip("moto.server", reason="moto is not installed: studies on S3 are not tried")
    pytest.importorskip("s3fs", reason="s3fs is not installed: studies on S3 are not tried")
    command = [sys.executable, "-c", SERVER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with start_process(command, text=True, **pipes) as server, pytest.MonkeyPatch.context() as patch:
        assert server.stdout is not None
        port = next(line.split()[1] for line in server.stdout if line.startswith("port "))
        patch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        fsspec.filesystem("s3").mkdir("s3://elision-runs")
        yield "s3://elision-runs"
        fsspec.filesystem("s3").clear_instance_cache()


def make_corpus(folder: Path) -> Path:
    """Runs as files, in a tar, in a zip and in a data set."""
    write_runs(folder / "day=2026-11-02" / "tag=search", 3, turns=4)
    loose = write_runs(folder.parent / "loose", 4, turns=4, first=20)
    with tarfile.open(folder / "more.tar.gz", "w:gz") as archive:
        archive.add(loose, "more")
    with zipfile.ZipFile(folder / "yet-more.zip", "w") as packed:
        for file in sorted(loose.iterdir())[:2]:
            packed.write(file, file.name)
    write_set(folder / "set.parquet", 5)
    return folder


def test_a_study_in_a_bucket(bucket: str, tmp_path: Path) -> None:
    """Runs and study on S3: the rows, the report and a query are those of the same runs in a folder."""
    corpus = make_corpus(tmp_path / "runs")
    store = fsspec.filesystem("s3")
    store.put(str(corpus), f"{bucket}/", recursive=True)
    study = f"{bucket}/study"
    result = run_elision("replay", f"{bucket}/runs", "--out", study, "--workers", "1", *OPTIONS)
    assert result.returncode == 0, result.stderr
    local = tmp_path / "study"
    assert run_elision("replay", corpus, "--out", local, "--workers", "1", *OPTIONS).returncode == 0
    copy = tmp_path / "copy"
    store.invalidate_cache()
    store.get(study, str(copy), recursive=True)
    ours, theirs = read_rows(copy), read_rows(local)
    assert len(ours) == (3 + 4 + 2 + 5) * 3
    place = str(corpus)
    for found, expected in zip(ours, theirs, strict=True):
        assert found["file"] == expected["file"].replace(place, f"{bucket}/runs")
        same = {name: value for name, value in expected.items() if name not in ("run", "file")}
        assert {name: found[name] for name in same} == same
    assert {row["tag"] for row in ours} == {"", "search"}
    report = run_elision("replay", "--report", study)
    assert report.stdout == result.stdout
    assert "14 runs" in report.stdout
    count = run_elision("replay", "--report", study, "--sql", "select count(distinct run) from rows")
    assert count.stdout.splitlines() == ["count(DISTINCT run)", "14"]


def test_a_study_in_a_bucket_is_continued(bucket: str, tmp_path: Path) -> None:
    """A part that is there is not made again; another price list is refused."""
    write_runs(tmp_path / "few", 2, turns=3)
    store = fsspec.filesystem("s3")
    store.put(str(tmp_path / "few"), f"{bucket}/", recursive=True)
    command = ("replay", f"{bucket}/few/*.json", "--out", f"{bucket}/second", "--shard", "0/1")
    assert run_elision(*command, *OPTIONS).returncode == 0
    (part,) = StudyFolder(f"{bucket}/second").list_names("rows")
    before = store.info(f"{bucket}/second/rows/{part}")["LastModified"]
    again = run_elision(*command, *OPTIONS)
    assert again.returncode == 0
    assert "0 to do" in again.stderr
    store.invalidate_cache()
    assert store.info(f"{bucket}/second/rows/{part}")["LastModified"] == before
    refused = run_elision(*command, "-s", "raw", "--prices", "openai", "--no-hindsight")
    assert refused.returncode == 2
    assert 'prices "anthropic" / "openai"' in refused.stderr


def test_an_audit_in_a_bucket(bucket: str, tmp_path: Path) -> None:
    """Logs and audit on S3 have the bill of the same logs in a folder."""
    logs = tmp_path / "logs"
    logs.mkdir()
    session(logs / "a.jsonl", *BILLS[:2])
    session(logs / "b.jsonl", *BILLS)
    store = fsspec.filesystem("s3")
    store.put(str(logs), f"{bucket}/", recursive=True)
    options = ("--workers", "1", "--tokens", "estimate", "--json")
    remote = run_elision("audit", f"{bucket}/logs", "--out", f"{bucket}/audit", *options)
    local = run_elision("audit", logs, "--out", tmp_path / "audit", *options)
    assert (remote.returncode, local.returncode) == (0, 0), remote.stderr + local.stderr
    found, expected = json.loads(remote.stdout), json.loads(local.stdout)
    assert (found["calls"], found["copied_calls"]) == (len(BILLS), 2)
    place = str(logs)
    assert json.loads(json.dumps(expected).replace(place, f"{bucket}/logs")) == found


def test_a_bucket_that_does_not_exist(bucket: str, tmp_path: Path) -> None:
    """Runs that are not there, and a study that cannot be written, are sentences."""
    missing = run_elision("replay", "s3://elision-nowhere/runs", "--out", tmp_path / "study", *OPTIONS)
    assert missing.returncode == 2
    assert "s3://elision-nowhere/runs" in missing.stderr
    write_runs(tmp_path / "runs", 1, turns=3)
    refused = run_elision("replay", tmp_path / "runs", "--out", "s3://elision-nowhere/study", *OPTIONS)
    assert refused.returncode == 2
    assert "s3://elision-nowhere/study/manifest.parquet: cannot be written" in refused.stderr
    assert "Traceback" not in missing.stderr + refused.stderr


def test_any_store_that_fsspec_opens() -> None:
    """The folder of a study keeps its promises on fsspec's store in memory, which GCS' and Azure's behave as."""
    folder = StudyFolder("memory://bucket/study")
    assert not folder.exists("study.json")
    assert folder.list_names("rows") == set()
    folder.write("rows/part-1", b"one")
    folder.write("rows/part-1", b"two")
    assert folder.list_names("rows") == {"part-1"}
    assert folder.read("rows/part-1") == b"two"
    with pytest.raises(FileNotFoundError):
        folder.read("rows/part-2")
    folder.remove("rows/part-1")
    folder.remove("rows/part-1")
    assert folder.list_names("rows") == set()
    assert folder.locate("rows/part-1") == "memory:///bucket/study/rows/part-1"
