"""What made a report: a value that its maker hands in, so that the same study makes the same page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """version: of Elision. date: ISO, of the day. command: the command line. recorded: models and bills of the runs."""

    version: str
    date: str
    command: str
    recorded: str = ""
