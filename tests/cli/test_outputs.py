"""Files that a command writes: whole or not at all, with what was there kept after a failure."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elision.cli.outputs import check_outputs, replace_file
from elision.errors import OutputError


@contextmanager
def small_files(limit: int) -> Iterator[None]:
    """No file of this process grows beyond `limit` bytes meanwhile: a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_is_replaced_by_a_whole_one(tmp_path: Path) -> None:
    """What was there is gone, and nothing else is in the folder."""
    out = tmp_path / "out.json"
    out.write_bytes(b"a much longer old text")
    replace_file(out, [b"new ", b"text"])
    assert out.read_bytes() == b"new text"
    assert os.listdir(tmp_path) == ["out.json"]


def test_what_was_there_stays_after_a_failure_of_the_disk(tmp_path: Path) -> None:
    """The error names the file; neither a piece nor a temporary file is left."""
    out = tmp_path / "out.json"
    out.write_bytes(b"good")
    with small_files(10_000), pytest.raises(OutputError, match=r"out\.json: cannot be written \(File too large\)"):
        replace_file(out, [b"x" * 8_000] * 3)
    assert out.read_bytes() == b"good"
    assert os.listdir(tmp_path) == ["out.json"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError])
def test_what_was_there_stays_after_a_failure_of_the_source(tmp_path: Path, error: type[BaseException]) -> None:
    """Ctrl-C and an error of whoever makes the text pass as they are."""

    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise error

    out = tmp_path / "out.json"
    out.write_bytes(b"good")
    with pytest.raises(error):
        replace_file(out, chunks())
    assert out.read_bytes() == b"good"
    assert os.listdir(tmp_path) == ["out.json"]


def test_nothing_is_left_where_nothing_was(tmp_path: Path) -> None:
    """A failure leaves no empty file."""
    with small_files(10), pytest.raises(OutputError):
        replace_file(tmp_path / "out.json", [b"x" * 100])
    assert os.listdir(tmp_path) == []


def test_permissions_are_kept_and_new_files_follow_the_umask(tmp_path: Path) -> None:
    """A private file is its owner's alone, whatever it was before."""
    old, new, private = (tmp_path / name for name in ("old", "new", "private"))
    old.write_bytes(b"")
    old.chmod(0o640)
    private.write_bytes(b"")
    private.chmod(0o644)
    before = os.umask(0o027)
    try:
        replace_file(old, [b"x"])
        replace_file(new, [b"x"])
        replace_file(private, [b"x"], private=True)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (old, new, private)] == [0o640, 0o640, 0o600]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """The file that it names is replaced, in that file's folder."""
    target, link = tmp_path / "reports" / "today.json", tmp_path / "latest.json"
    target.parent.mkdir()
    target.write_bytes(b"old")
    link.symlink_to(target)
    replace_file(link, [b"new"])
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert os.listdir(target.parent) == ["today.json"]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    """What is no ordinary file, as `--json >(jq .)` gives one, is never replaced by one."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_outputs({"json": pipe})
        replace_file(pipe, [b"text"])
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    with pytest.raises(OutputError, match="/dev/full: cannot be written"):
        replace_file(Path("/dev/full"), [b"text"])


def test_a_name_as_long_as_names_may_be(tmp_path: Path) -> None:
    """The temporary file's own name does not depend on it."""
    out = tmp_path / ("x" * 255)
    check_outputs({"json": out})
    replace_file(out, [b"text"])
    assert out.read_bytes() == b"text"


def test_the_check_leaves_nothing_behind(tmp_path: Path) -> None:
    """Asking whether a file can be written makes none."""
    check_outputs({"json": tmp_path / "out.json", "html": tmp_path / "out.html", "png": None})
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_what_may_not_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    """A folder and a file that are read-only."""
    folder, file = tmp_path / "folder", tmp_path / "out.json"
    folder.mkdir(0o500)
    file.write_bytes(b"")
    file.chmod(0o400)
    for path in (folder / "out.json", file):
        with pytest.raises(OutputError, match="cannot be written"):
            check_outputs({"json": path})


def test_a_read_only_file_system_is_refused_before_the_work() -> None:
    """Whoever asks, root too: nothing can be made in /proc."""
    with pytest.raises(OutputError, match=r"/proc/out\.json: cannot be written"):
        check_outputs({"json": Path("/proc/out.json")})
