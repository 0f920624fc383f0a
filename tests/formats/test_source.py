"""Files, folders and archives become documents."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from elision import zstd
from elision.errors import FormatError
from elision.formats import source
from elision.formats.document import Document
from elision.formats.source import derive_run_name, is_candidate, read_documents
from elision.trajectory.trajectory import Problem


def split(path: Path) -> tuple[list[Document], list[Problem]]:
    found = list(read_documents(path))
    return (
        [item for item in found if isinstance(item, Document)],
        [item for item in found if isinstance(item, Problem)],
    )


def only(path: Path) -> Document:
    found, problems = split(path)
    assert problems == []
    assert len(found) == 1
    return found[0]


def tar_of(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def test_a_plain_file(tmp_path: Path) -> None:
    """A file is one document under the name it was given, whatever it is called."""
    path = tmp_path / "run.whatever"
    path.write_bytes(b"{}")
    assert only(path) == Document(path=str(path), data=b"{}")


def test_gzip_is_known_by_its_bytes(tmp_path: Path) -> None:
    """A gzip is decompressed although its name does not say so, and a false .gz is left as it is."""
    hidden, false = tmp_path / "run.json", tmp_path / "run.json.gz"
    hidden.write_bytes(gzip.compress(b'{"a": 1}'))
    false.write_bytes(b'{"b": 2}')
    assert only(hidden).data == b'{"a": 1}'
    assert only(false).data == b'{"b": 2}'


@pytest.mark.parametrize("name", ["runs.tar", "runs.tar.gz", "runs.tgz", "runs"])
def test_members_of_a_tar(tmp_path: Path, name: str) -> None:
    """Each regular member is a document named behind "!", compressed members unpacked, in the archive's order."""
    mode = "w" if name == "runs.tar" else "w:gz"
    path = tar_of(tmp_path / name, {"b/two.json": b"{}", "a/one.jsonl.gz": gzip.compress(b"[]")}, mode)
    found, problems = split(path)
    assert [(item.path, item.data) for item in found] == [
        (f"{path}!b/two.json", b"{}"),
        (f"{path}!a/one.jsonl.gz", b"[]"),
    ]
    assert problems == []


def test_nothing_leaves_a_tar(tmp_path: Path) -> None:
    """Links and devices inside a tar are passed over, and a hostile name is only a label: nothing is written."""
    (tmp_path / "secret.json").write_text('{"secret": 1}')
    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            link = tarfile.TarInfo("link.json")
            link.type, link.linkname = kind, str(tmp_path / "secret.json")
            tar.addfile(link)
        info = tarfile.TarInfo("../../outside.json")
        info.size = 2
        tar.addfile(info, io.BytesIO(b"{}"))
    before = sorted(tmp_path.rglob("*"))
    assert [(item.path, item.data) for item in split(path)[0]] == [(f"{path}!../../outside.json", b"{}")]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_in_order(tmp_path: Path) -> None:
    """A folder gives its files recursively and sorted; files that cannot be recordings are not read."""
    for name in ("b/2.json", "a/1.jsonl", "a/picture.png", "z.traj"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\x89PNG" if name.endswith("png") else b"{}")
    names = [Path(item.path).relative_to(tmp_path).as_posix() for item in split(tmp_path)[0]]
    assert names == ["a/1.jsonl", "b/2.json", "z.traj"]


def test_an_unusual_name_is_read_for_its_first_bytes(tmp_path: Path) -> None:
    """A file in a folder that is not called like a recording is read if it begins like one."""
    (tmp_path / "rollout").write_bytes(b' {"a": 1}')
    (tmp_path / "notes.txt").write_bytes(b"hello")
    assert [Path(item.path).name for item in split(tmp_path)[0]] == ["rollout"]


EVENTS = {
    "c/base_state.json": b"{}",
    "c/events/event-00000-a.json": b'{"n": 0}',
    "c/events/event-00001-b.json": b'{"n": 1}',
    "c/other.json": b"[]",
    "d/events/event-00000-c.json": b'{"n": 2}',
}


def expected_groups(root: str) -> list[tuple[str, list[str]]]:
    return [
        (f"{root}c", ["base_state.json", "events/event-00000-a.json", "events/event-00001-b.json"]),
        (f"{root}d", ["events/event-00000-c.json"]),
        (f"{root}c/other.json", []),
    ]


def test_event_folders_are_one_document_each(tmp_path: Path) -> None:
    """A folder with events/event-*.json, and its state file, is one document with members."""
    for name, data in EVENTS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    found, problems = split(tmp_path)
    assert [(item.path.rstrip("/"), list(item.members)) for item in found] == expected_groups(f"{tmp_path}/")
    assert problems == []


def test_event_folders_in_a_tar(tmp_path: Path) -> None:
    """The same inside an archive, also where the members of two conversations are mixed."""
    names = sorted(EVENTS, key=lambda name: name[::-1])
    path = tar_of(tmp_path / "c.tar.gz", {name: EVENTS[name] for name in names})
    found, problems = split(path)
    assert sorted((item.path, list(item.members)) for item in found) == sorted(expected_groups(f"{path}!"))
    assert problems == []


def test_the_events_folder_itself(tmp_path: Path) -> None:
    """Naming the folder that holds the event files works too."""
    (tmp_path / "event-00000-a.json").write_bytes(b"{}")
    assert list(only(tmp_path).members) == ["event-00000-a.json"]


def test_truncated_gzip_comes_as_far_as_it_goes(tmp_path: Path) -> None:
    """Of a truncated gzip all that decompresses is offered, with a Problem."""
    whole = os.urandom(300_000).hex().encode()
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(gzip.compress(whole)[:-5_000])
    found, problems = split(path)
    assert len(found[0].data) > len(whole) * 0.9
    assert whole.startswith(found[0].data)
    assert "breaks off" in problems[0].reason


def test_zstd_is_known_by_its_bytes(tmp_path: Path) -> None:
    """Codex packs its older logs so: several frames are one file, and the name of the run has no suffix."""
    path = tmp_path / "rollout-1.jsonl.zst"
    path.write_bytes(zstd.compress(b'{"a": 1}\n' * 50_000) + zstd.compress(b'{"b": 2}\n'))
    assert only(path).data == b'{"a": 1}\n' * 50_000 + b'{"b": 2}\n'
    assert only(tmp_path).path == str(path)
    assert derive_run_name(path.name) == "rollout-1"


def test_truncated_zstd_comes_as_far_as_it_goes(tmp_path: Path) -> None:
    """A log that is still written, or was damaged, is read as far as it goes, with a Problem."""
    whole = os.urandom(900_000).hex().encode()
    path = tmp_path / "run.jsonl.zst"
    packed = zstd.compress(whole)
    path.write_bytes(packed[:-200_000])
    found, problems = split(path)
    assert len(found[0].data) > len(whole) * 0.3
    assert whole.startswith(found[0].data)
    assert "breaks off" in problems[0].reason
    path.write_bytes(packed[:8] + b"\xff" * 4_000)
    assert "broken zstd" in split(path)[1][0].reason


def test_truncated_tar_keeps_its_first_members(tmp_path: Path) -> None:
    """Of a truncated archive the whole members before the break are offered, with a Problem."""
    path = tar_of(tmp_path / "runs.tar.gz", {"1.json": b"{}", "2.json": os.urandom(200_000)})
    path.write_bytes(path.read_bytes()[:-50_000])
    found, problems = split(path)
    assert found[0] == Document(path=f"{path}!1.json", data=b"{}")
    assert any("breaks off" in problem.reason for problem in problems)


def test_an_archive_in_an_archive_is_reported(tmp_path: Path) -> None:
    """A tar inside a tar is not opened, and not lost silently."""
    inner = tar_of(tmp_path / "inner.tar", {"1.json": b"{}"}, "w").read_bytes()
    found, problems = split(tar_of(tmp_path / "outer.tar", {"inner.json": inner}, "w"))
    assert found == []
    assert "archive inside an archive" in problems[0].reason


def test_a_bomb_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that decompresses beyond the limit is a Problem, not a memory error."""
    monkeypatch.setattr(source, "SIZE_LIMIT", 1_000_000)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 5_000_000))
    found, problems = split(path)
    assert found == []
    assert "left out" in problems[0].reason


def test_what_does_not_exist(tmp_path: Path) -> None:
    """A path that cannot be read is a FormatError that names it."""
    with pytest.raises(FormatError, match=r"nowhere\.json: there is no such file or folder"):
        list(read_documents(tmp_path / "nowhere.json"))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/django-1.traj.gz", "django-1"),
        ("a.tar.gz!b/django-1.traj.json", "django-1"),
        ("x.jsonl", "x"),
        ("folder/conversation/", "conversation"),
        ("v1.2.json", "v1.2"),
        ("plain", "plain"),
    ],
)
def test_run_names(path: str, name: str) -> None:
    """A run is named after its file, without folders and suffixes."""
    assert derive_run_name(path) == name


def test_candidates_are_known_by_name() -> None:
    """Files called like recordings are told apart from others, compressed or not."""
    assert all(is_candidate(name) for name in ("a.json", "a.JSONL", "a.traj.gz", "a.eval"))
    assert not any(is_candidate(name) for name in ("a.png", "README.md", "a.gz"))
