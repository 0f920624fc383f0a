"""Every recording of the corpus is read, and holds as many tool turns as were counted by other means."""

from __future__ import annotations

import csv
from collections.abc import Iterator

import pytest
from tests.corpus import CORPUS, needs_corpus

from lacuna.errors import FormatError
from lacuna.formats.registry import READERS, read
from lacuna.trajectory.trajectory import Problem, Trajectory

MANIFEST = CORPUS / "MANIFEST.tsv"

#: The corpus's names of formats -> ours.
READ_AS = {
    "claude-code": "claude-code",
    # Its `messages` are Anthropic's, word for word.
    "cline": "anthropic-messages",
    "inspect-ai": "inspect-ai",
    "mini-swe-agent": "mini-swe-agent",
    "openai-messages": "openai-chat",
    "openhands-output": "openhands-output",
    "openhands-v1-events": "openhands-events",
    "pi-session": "pi-session",
    "swe-agent-traj": "swe-agent",
    "tau2-bench": "tau2-bench",
}
#: Where the manifest counts otherwise. This file holds 101 action events out of 100 answers: one answer made two calls
#: in parallel, which are one turn.
COUNTED_OTHERWISE = {"openhands-output/ohb-traj_safety-metrics.json.gz": 100}


def rows() -> Iterator[tuple[str, str, int]]:
    """(path, format, turns) of every recording, none where the corpus is not there."""
    if MANIFEST.exists():
        with MANIFEST.open(newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                yield row["path"], row["format"], COUNTED_OTHERWISE.get(row["path"], int(row["turns"]))


KNOWN = [row for row in rows() if row[1] in READ_AS]
UNKNOWN = [row[0] for row in rows() if row[1] not in READ_AS]


@needs_corpus("every recording is read whole")
def test_the_corpus_is_covered() -> None:
    """The tests below see every recording."""
    assert (len(KNOWN), len(UNKNOWN)) == (38, 3)


@pytest.mark.parametrize(("path", "format", "turns"), KNOWN, ids=[row[0] for row in KNOWN])
def test_a_recording(path: str, format: str, turns: int) -> None:
    """A recording is read by its reader without a Problem, and its largest run has the tool turns of the manifest."""
    found = list(read(CORPUS / path))
    runs = [item for item in found if isinstance(item, Trajectory)]
    assert [item for item in found if isinstance(item, Problem)] == []
    assert {run.format for run in runs} <= {READ_AS[format]}
    assert max((run.tool_turns for run in runs), default=0) == turns
    assert len({run.id for run in runs}) == len(runs)


@pytest.mark.parametrize("path", UNKNOWN)
def test_an_unknown_format(path: str) -> None:
    """A recording in a format that nobody reads here is an error that names those that are read."""
    with pytest.raises(FormatError) as caught:
        list(read(CORPUS / path))
    assert all(reader.name in str(caught.value) for reader in READERS)
