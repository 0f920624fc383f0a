"""Every recording of the corpus is read, and holds as many tool turns as were counted by other means."""

from __future__ import annotations

import csv
from collections.abc import Iterator

import pytest

from elision.formats.registry import read_runs
from elision.trajectory.trajectory import Problem, Trajectory
from tests.corpus import CORPUS, needs_corpus

MANIFEST = CORPUS / "MANIFEST.tsv"

#: The corpus's names of formats -> ours.
READ_AS = {
    # Half of the data set Who&When, which AutoGen's Magentic-One made.
    "autogen-magentic": "magentic-one",
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
    "trae-agent": "trae-agent",
}
#: Where the manifest counts otherwise.
COUNTED_OTHERWISE = {
    # 101 action events out of 100 answers: one answer made two calls in parallel, which are one turn.
    "openhands-output/ohb-traj_safety-metrics.json.gz": 100,
    # Instructions of the orchestrator that another agent answered; the manifest counts both sides.
    "autogen-magentic/ww-hc-56.json.gz": 28,
    "autogen-magentic/ww-hc-15.json.gz": 28,
    # Two conversations, of 15 and 24 turns, which the manifest counts as one.
    "trae-agent/trae-trajectory-4b68c8.json.gz": 24,
}


def rows() -> Iterator[tuple[str, str, int]]:
    """(path, format, turns) of every recording, none where the corpus is not there."""
    if MANIFEST.exists():
        with MANIFEST.open(newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                yield row["path"], row["format"], COUNTED_OTHERWISE.get(row["path"], int(row["turns"]))


KNOWN = [row for row in rows() if row[1] in READ_AS]


@needs_corpus("every recording is read whole")
def test_the_corpus_is_covered() -> None:
    """The test below sees every recording; there is none that nobody reads."""
    assert len(KNOWN) == len(list(rows())) == 41


@pytest.mark.parametrize(("path", "format", "turns"), KNOWN, ids=[row[0] for row in KNOWN])
def test_a_recording(path: str, format: str, turns: int) -> None:
    """A recording is read by its reader without a Problem, and its largest run has the tool turns of the manifest."""
    found = list(read_runs(CORPUS / path))
    runs = [item for item in found if isinstance(item, Trajectory)]
    assert [item for item in found if isinstance(item, Problem)] == []
    assert {run.format for run in runs} <= {READ_AS[format]}
    assert max((run.tool_turns for run in runs), default=0) == turns
    assert len({run.id for run in runs}) == len(runs)
