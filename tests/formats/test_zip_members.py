"""Zip members in memory."""

from __future__ import annotations

import io
import zipfile

import pytest

from elision.errors import FormatError
from elision.formats import compressed_files
from elision.formats.compressed_files import ZipMembers
from tests.work import count_calls


def archive(method: int = zipfile.ZIP_DEFLATED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as writer:
        writer.writestr("a/b.json", "x" * 5000)
        writer.writestr("c.json", "{}")
    return target.getvalue()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_are_read_by_name(method: int) -> None:
    """Stored and deflated members come back whole, named in archive order."""
    members = ZipMembers("x.zip", archive(method))
    assert members.names == ["a/b.json", "c.json"]
    assert members.read_member("a/b.json") == b"x" * 5000


def test_a_member_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpacking stops at the limit, and the error names the member."""
    monkeypatch.setattr(compressed_files, "MEMBER_SIZE_LIMIT", 4999)
    with pytest.raises(FormatError, match=r"x\.zip!a/b\.json: unpacks to more than"):
        ZipMembers("x.zip", archive()).read_member("a/b.json")


def test_an_encrypted_member_is_refused() -> None:
    """A member with a password cannot be read, and the error says so."""
    data = bytearray(archive())
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    with pytest.raises(FormatError, match="encrypted"):
        ZipMembers("x.zip", bytes(data)).read_member("a/b.json")


def test_no_zip_raises() -> None:
    """What is no zip is a FormatError that names the file."""
    with pytest.raises(FormatError, match=r"x\.zip: a broken zip"):
        ZipMembers("x.zip", b"PK\x03\x04 nothing more")


def test_members_are_read_with_work_that_grows_with_their_number() -> None:
    """The directory of the zip is read once, not again for each member."""

    def read_all(count: int) -> int:
        target = io.BytesIO()
        with zipfile.ZipFile(target, "w") as writer:
            for number in range(count):
                writer.writestr(f"{number}.json", "{}")
        members = ZipMembers("x.zip", target.getvalue())
        return count_calls(lambda: [members.read_member(name) for name in members.names])

    assert read_all(80) < 5 * read_all(20)
