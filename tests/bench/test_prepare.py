"""The plumbing of `python -m benchmarks prepare`: session, bound, split and peers; never how fast it is."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from benchmarks import peers
from benchmarks.__main__ import BENCHMARKS
from benchmarks.bound import bound
from benchmarks.peers import PEERS, Peer, PeerError, environment, interpreter
from benchmarks.prepare import ANTHROPIC, OPENAI, PARTS, REST, measure, renewed
from benchmarks.session import Chat, anthropic, chat, texts
from benchmarks.split import Split

from tests.docs.blocks import ROOT, blocks, commands

PAGE = ROOT / "docs" / "internals" / "performance.md"


@pytest.fixture(scope="module")
def short() -> Chat:
    return chat(40, 40 * 4_500)


def test_the_session_is_the_same_each_time(short: Chat) -> None:
    """The same turns and bytes at every run, near the size asked for, and no two results alike."""
    assert chat(40, 40 * 4_500) == short
    assert len(short.turns) == 40
    assert 0.9 < short.bytes / (40 * 4_500) < 1.2
    results = [turn[1]["content"] for turn in short.turns]
    assert len(set(results)) == 40


def test_both_shapes_say_the_same(short: Chat) -> None:
    """What is measured in Anthropic's shape is the session that is measured in OpenAI's."""
    other = anthropic(short)
    assert [turn[1]["content"][0]["content"] for turn in other.turns] == [turn[1]["content"] for turn in short.turns]
    assert len(other.turns) == len(short.turns)


def test_the_bound_is_of_every_text(short: Chat, tmp_path: Path) -> None:
    """Each of its three parts is measured, and the bare log has a row for the head and one for each turn."""
    found = bound(short, tmp_path)
    assert min(found.counting, found.appending, found.hashing) > 0
    assert found.sum == found.counting + found.appending + found.hashing
    assert (tmp_path / "bare.db").stat().st_size > sum(len(text.encode()) for text in texts(short.turns[0]))


@pytest.mark.parametrize("shape", [OPENAI, ANTHROPIC])
def test_a_session_is_measured_call_by_call(short: Chat, tmp_path: Path, shape: str) -> None:
    """One time a call, something sent, and every turn on the disk."""
    found = measure(anthropic(short) if shape == ANTHROPIC else short, tmp_path, shape)
    assert len(found.seconds) == 40
    assert found.sent > 0
    assert found.disk > 0


def test_deferred_work_is_waited_for(short: Chat, tmp_path: Path) -> None:
    """With time between the calls the session is the same; only the measured part is another."""
    (tmp_path / "waits").mkdir()
    back_to_back = measure(short, tmp_path, OPENAI)
    critical_path = measure(short, tmp_path / "waits", OPENAI, waits=True)
    assert len(critical_path.seconds) == 40
    assert (critical_path.sent, critical_path.masked) == (back_to_back.sent, back_to_back.masked)


def test_messages_read_anew_are_other_objects(short: Chat) -> None:
    """The client that reads its messages from JSON passes equal ones, none the same object."""
    first, second = list(renewed(short))[3:5]
    assert first == second[: len(first)]
    assert not {id(message) for message in first} & {id(message) for message in second}


def test_the_split_is_exclusive() -> None:
    """What a timed function calls of the others is not counted twice, and afterwards all is as it was."""

    now = 0.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    class Work:
        def outer(self) -> None:
            wait(1)
            self.inner()
            wait(2)

        def inner(self) -> None:
            wait(10)

    before = (Work.outer, Work.inner)
    with Split(lambda: now).watching([("outer", Work, "outer"), ("inner", Work, "inner")]) as watch:
        Work().outer()
    assert watch.seconds == {"outer": 3, "inner": 10}
    assert (Work.outer, Work.inner) == before


def test_every_part_is_there() -> None:
    """The functions that are timed apart exist under the names they are looked up by, and no label is used twice."""
    assert all(callable(getattr(owner, name)) for _, owner, name in PARTS)
    labels = [label for label, _, _ in PARTS]
    assert len({*labels, REST}) == len(labels) + 1


def test_an_interpreter_is_looked_for() -> None:
    """One that is new enough is found; where there is none it is said."""
    assert interpreter(sys.version_info.minor) == Path(sys.executable)
    with pytest.raises(PeerError, match=r"needs Python 3\.99"):
        interpreter(99)


def test_a_peer_that_cannot_be_installed_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No uv on the machine: the reason is told, and nothing is half made."""
    monkeypatch.setattr(peers, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PeerError, match="uv"):
        environment(Peer(package="nothing", script="nothing.py"))
    assert list(tmp_path.iterdir()) == []


def test_scripts_of_the_peers_are_there() -> None:
    """Every peer has the script that it names, which imports nothing of Elision."""
    for peer in PEERS:
        text = (ROOT / "benchmarks" / "peers" / peer.script).read_text(encoding="utf-8")
        assert "elision" not in text


def test_figures_of_the_page_carry_their_command() -> None:
    """Each table of measured figures stands below the command that prints it, and that benchmark exists."""
    shown = [block for block in blocks(PAGE) if block.language]
    assert shown
    for block in shown:
        assert block.language == "console"
        for command in commands(block):
            name = command.text.split()[3]
            assert command.text.startswith("python3 -m benchmarks ")
            assert name in BENCHMARKS
            assert command.printed[0] == f"== {name}"


def test_the_page_shows_what_the_benchmark_prints() -> None:
    """Every row of the split that the page shows is one of the benchmark's."""
    shown = re.findall(r"^  (\S.*?) +[\d.]+ % +[\d.]+ x counting$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(shown) >= 3
    assert set(shown) <= {REST, *(label for label, _, _ in PARTS)}
