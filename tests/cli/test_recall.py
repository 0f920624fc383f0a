"""`elision sessions recall` at the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from elision.cli.options import Output
from elision.errors import SettingError, UnknownHandle
from elision.manager import ContextManager
from elision.trajectory.foreign_text import make_visible
from tests.cli import stored
from tests.cli.in_process import Command


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    at = tmp_path_factory.mktemp("kept")
    stored.everything(at)
    return stored.url(at)


COMMAND = Command("sessions", "recall")
run, printed, refused = COMMAND.run, COMMAND.print, COMMAND.refuse


def test_word_for_word(url: str) -> None:
    """All of a result, hidden or not, however long."""
    assert printed("main", "t1.1", "--store", url) == f"{stored.report(1)}\n"
    assert printed("main", "t7.1", "--store", url) == f"{stored.report(7)}\n"


def test_what_summaries_cover(url: str) -> None:
    """A result behind a summary is there as well."""
    assert printed("digested", "t1.1", "--store", url) == f"{stored.report(1)}\n"


def test_parts(url: str) -> None:
    """Lines, a pattern, a beginning: with line numbers."""
    assert printed("main", "t1.1", "--lines", "1-2", "--store", url).splitlines()[0] == "1: report 1"
    assert len(printed("main", "t1.1", "--head", "3", "--store", url).splitlines()) == 3
    lines = printed("main", "t1.1", "--pattern", "^row 30:", "--store", url).splitlines()
    assert lines[2].startswith("32: row 30: module_1_30.py")
    assert len(lines) == 5


def test_from_a_fork_and_a_sub_agent(url: str) -> None:
    """A branch reaches what it shares, a sub-agent what its parent has, by name if it has the like itself."""
    assert printed("main~2", "t1.1", "--store", url) == f"{stored.report(1)}\n"
    assert printed("main/scout", "t6.1", "--store", url) == f"{stored.report(6)}\n"
    assert printed("main/scout", "main:t1.1", "--head", "1", "--store", url) == "1: report 1\n"
    assert (
        refused(UnknownHandle, "main", "digested:t1.1", "--store", url) == "session 'main' did not come from 'digested'"
    )


def test_control_characters_are_signs(url: str) -> None:
    """What a terminal would act on is shown, and does nothing."""
    first = printed("odd", "t1.1", "--head", "1", "--store", url)
    assert first == "1: ␛]0;owned␇␛[2Jfine<U+009B>31m<U+202E>txt.exe [bold]no markup[/bold] :smile:\n"


def test_raw_is_byte_for_byte(url: str) -> None:
    """--raw writes what the tool wrote, nothing before or behind it."""
    result = run("odd", "t1.1", "--raw", "--store", url)
    assert result.stdout_bytes == (stored.HOSTILE * 20).encode()


def test_raw_of_broken_text(tmp_path: Path) -> None:
    """Half a surrogate pair, as JSON may bring it, is written and stops nothing."""
    with ContextManager(store=stored.url(tmp_path), session="s") as context:
        context.turns.add("", "cat", "a\ud800b\r\nc")
        context.turns.view()
    assert run("s", "t1.1", "--raw", "--store", stored.url(tmp_path)).stdout_bytes == b"a\xed\xa0\x80b\r\nc"
    assert printed("s", "t1.1", "--store", stored.url(tmp_path)) == "a?b\nc\n"


def test_search(url: str) -> None:
    """A line for each place where all the words stand, the newest turn first, whole where another program reads."""
    lines = printed("main", "--search", "module_3_7", "--store", url).splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("t3.1  look  ")
    many = printed("main", "--search", "checks row", "--store", url).splitlines()
    assert [line.split()[0] for line in many] == [f"t{turn}.1" for turn in range(7, 0, -1)]
    assert "does not occur" in refused(UnknownHandle, "main", "--search", "unicorn", "--store", url)


@pytest.mark.parametrize(
    ("handle", "said"),
    [
        ("t1.2", "session 'main' keeps nothing under t1.2: turn 1 has only t1.1"),
        ("t0", "'t0' is not a handle; handles look like t12.1; --search WORDS finds results by their words"),
        ("t99.1", "session 'main' keeps nothing under t99.1: its turns are 1 to 7"),
        ("12", "'12' is not a handle; handles look like t12.1; --search WORDS finds results by their words"),
    ],
)
def test_what_there_is_instead(url: str, handle: str, said: str) -> None:
    """A handle that names nothing is answered with what there is."""
    assert refused(UnknownHandle, "main", handle, "--store", url) == said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["main"], "give a handle"),
        (["main", "t1.1", "--search", "x"], "--search searches the whole session"),
        (["main", "t1.1", "--head", "3", "--lines", "1-2"], "--lines and --head contradict each other"),
    ],
)
def test_options_that_contradict(url: str, arguments: list[str], said: str) -> None:
    """Options that cannot be meant together are refused before anything is read."""
    assert said in refused(SettingError, *arguments, "--store", "sqlite:///not-there.db")


def test_the_nearest_session(url: str) -> None:
    """A wrong name is answered with the nearest."""
    assert "the nearest: digested" in refused(UnknownHandle, "degisted", "t1.1", "--store", url)


def test_raw_is_not_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal never gets what it would act on."""
    from elision.cli import recall as module

    class Terminal:
        @staticmethod
        def isatty() -> bool:
            return True

    monkeypatch.setattr(module, "sys", type("Sys", (), {"stdout": Terminal, "maxsize": 1}))
    with pytest.raises(SettingError, match="send it to a file or a pipe"):
        module.recall(session="main", name="t1.1", raw=True, output=Output())


def test_signs() -> None:
    """Every control character has a sign; lines, tabs and letters are left alone."""
    assert make_visible("a\tb\r\nc\x00\x7f\u2028é") == "a\tb\nc␀␡<U+2028>é"
