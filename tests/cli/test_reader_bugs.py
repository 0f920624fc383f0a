"""A bug in a reader of ours: what could be read is shown, and the exit code is neither success nor a user's mistake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from elision.cli.app import app
from elision.cli.outputs import READER_BUG
from elision.formats import registry
from elision.formats.document import Document, RunOrProblem
from elision.formats.swe_agent import SweAgentReader

SOUND = Path(__file__).parents[1] / "data" / "swe_agent" / "text.traj"


class Failing:
    """The SWE-agent reader, with a bug that shows after the last run of a file called broken."""

    name = "swe-agent"

    def sniff(self, document: Document) -> bool:
        return SweAgentReader().sniff(document)

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        yield from SweAgentReader().read(document)
        if "broken" in document.path:
            raise AttributeError("planted")


@pytest.fixture
def recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a sound file and one at which the reader fails."""
    monkeypatch.setattr(registry, "READERS", (Failing(),))
    for name in ("broken.traj", "sound.traj"):
        (tmp_path / name).write_bytes(SOUND.read_bytes())
    return tmp_path


COMMANDS = {
    "replay": ["replay", "-s", "raw", "-j", "1"],
    "rules": ["replay", "--rules", "-s", "masking"],
    "view": ["view"],
    "playback": ["lab", "playback", "--list"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_bug_has_an_exit_code_of_its_own(recordings: Path, command: str) -> None:
    """Every command that reads recordings shows what it could read, reports the bug and exits with 70."""
    at = recordings / "broken.traj" if command == "view" else recordings
    result = CliRunner().invoke(app, [*COMMANDS[command], str(at)])
    assert result.exit_code == READER_BUG
    assert "a bug in Elision's swe-agent reader" in result.stderr.replace("\n", " ")
    assert result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_bug_the_exit_code_is_0(recordings: Path, command: str) -> None:
    """The same commands on the sound file alone succeed."""
    assert CliRunner().invoke(app, [*COMMANDS[command], str(recordings / "sound.traj")]).exit_code == 0
