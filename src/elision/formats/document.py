"""One file of a recording as readers see it: a name and its bytes, already out of any gzip, tar or folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from elision.trajectory.trajectory import Problem, Trajectory

#: What a reader yields: runs, and what it could not read, in any order.
RunOrProblem: TypeAlias = Trajectory | Problem


@dataclass(frozen=True, slots=True)
class Document:
    """One file, or one folder (or tar) whose files belong together.

    path:    as the user named it, a member after "!": "runs.tar.gz!a/b.json". For messages only; never opened again.
    data:    the bytes, decompressed; b"" for a folder.
    members: for a folder or tar: relative path -> bytes, sorted by path. Empty for a single file.
    peeked:  what sniffing has parsed so far: by line the objects in it, by 0 the value of the whole file.
    """

    path: str
    data: bytes = b""
    members: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    peeked: dict[int, Any] = field(default_factory=dict, hash=False, compare=False, repr=False)


class FormatReader(Protocol):
    """One recorded format. Registered in `formats.registry`."""

    @property
    def name(self) -> str:
        """Return the name of the format; a plain class attribute will do."""
        ...

    def sniff(self, document: Document) -> bool:
        """Return whether `document` is in this format, by content. Cheap; does not raise."""
        ...

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        """Yield every run in `document`. A broken record becomes a Problem with its line, and reading continues.

        Raises FormatError only if nothing can be read.
        """
        ...
