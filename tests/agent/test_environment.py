"""Commands in a real shell: what they print, how they end, and what they never see."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest

from elision.agent.environment import SENTINEL, Shell, remove_credentials
from elision.errors import ElisionError
from elision.strategies.extractors.result_text import unwrap_output
from elision.testing.builders import call


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, seconds=20, output=400)


def ends(pid: int, seconds: float) -> bool:
    """Whether a process is over, or is within `seconds`."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], seconds)[0])
    finally:
        os.close(process)


def test_a_command_runs_in_its_folder(shell: Shell, tmp_path: Path) -> None:
    """What it prints comes back, both streams in order, and what it writes is in the folder."""
    outcome = shell.run("echo one; echo two >&2; pwd; touch made")
    assert outcome.text.splitlines() == ["one", "two", str(tmp_path.resolve())]
    assert (outcome.exit_code, outcome.error, outcome.done) == (0, False, False)
    assert (tmp_path / "made").exists()


def test_a_failure_is_told_with_its_code(shell: Shell) -> None:
    """The code stands behind the output, in words that our own extractors read."""
    outcome = shell.run("echo no; exit 3")
    assert (outcome.exit_code, outcome.error) == (3, True)
    assert outcome.text == "no\n[exit code: 3]"
    assert unwrap_output(outcome.text).exit_code == 3


@pytest.mark.parametrize("command", ["echo 'a b'\"c\" $((1+1)) `echo d`", "cat <<'X'\n$HOME \\n ' \"\nX"])
def test_the_command_is_run_as_it_stands(shell: Shell, command: str) -> None:
    """Quotes, substitutions and here-documents mean what they mean in bash."""
    expected = {"e": "a bc 2 d\n", "c": "$HOME \\n ' \"\n"}[command[0]]
    assert shell.run(command).text == expected


def test_there_is_no_input(shell: Shell) -> None:
    """A program that waits for input finds its end at once."""
    assert shell.run("cat; echo over").text == "over\n"


def test_a_command_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    """At the limit the whole process group dies; what was printed until then is kept."""
    shell = Shell(tmp_path, seconds=0.5)
    outcome = shell.run("sleep 600 & echo $! > child; echo started; sleep 600")
    assert outcome.text.startswith("started\n[the command took longer than 0.5 seconds")
    assert (outcome.exit_code, outcome.error) == (None, True)
    assert ends(int((tmp_path / "child").read_text()), 5)


def test_a_command_that_closed_its_output_is_ended_too(tmp_path: Path) -> None:
    """The limit holds for a command that says nothing more and goes on."""
    outcome = Shell(tmp_path, seconds=0.4).run("exec >&- 2>&-; sleep 600")
    assert outcome.error
    assert "took longer" in outcome.text


def test_what_runs_in_the_background_does_not_hold_the_shell(shell: Shell, tmp_path: Path) -> None:
    """A command is over when bash is, though a child of it still holds the output."""
    outcome = shell.run("sleep 600 & echo $! > child; echo ready")
    assert outcome.text == "ready\n"
    child = int((tmp_path / "child").read_text())
    assert not ends(child, 0)
    os.kill(child, 9)


@pytest.mark.parametrize("noise", ["yes tick", "(while :; do echo tick; done)"])
def test_a_noisy_process_in_the_background_does_not_hold_the_shell(tmp_path: Path, noise: str) -> None:
    """What it prints never ends; the command is over when bash is, and the process lives on though nobody reads."""
    shell = Shell(tmp_path, seconds=20)
    outcome = shell.run(f"{noise} & echo $! > child; echo started >&2")
    child = int((tmp_path / "child").read_text())
    try:
        assert (outcome.exit_code, outcome.error) == (0, False)
        assert "started" in outcome.text or "bytes left out" in outcome.text
        # More than any pipe holds: it would be stopped by a full one, and ended by a closed one.
        before = cpu_ticks(child)
        assert any(cpu_ticks(child) >= before + 5 or ends(child, 0.05) for _ in range(400))
        assert not ends(child, 0)
    finally:
        os.kill(child, 9)


def cpu_ticks(pid: int) -> int:
    """Processor time that a process has used."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


def test_the_last_words_of_a_command_are_heard(shell: Shell) -> None:
    """What bash printed just before its end is read, though a child holds the output open."""
    for _ in range(20):
        outcome = shell.run("sleep 600 & echo $! > child; head -c 300 /dev/zero | tr '\\0' x; echo last")
        os.kill(int((shell.folder / "child").read_text()), 9)
        assert outcome.text.endswith("last\n")


def test_long_output_keeps_head_and_tail(shell: Shell) -> None:
    """The middle is left out, and its size is said; memory does not grow with it."""
    outcome = shell.run("echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert outcome.text.startswith("first\nxxx")
    assert outcome.text.endswith("xxx\nlast\n")
    assert "[… 2,999,612 bytes left out …]" in outcome.text
    assert len(outcome.text) < 450


@pytest.mark.parametrize("size", [0, 1, 399, 400, 401, 801])
def test_output_is_whole_up_to_the_limit(shell: Shell, size: int) -> None:
    """Nothing is left out of what fits, and of what does not, only what does not."""
    text = shell.run(f"head -c {size} /dev/zero | tr '\\0' x").text
    assert text.count("x") == min(size, 400)
    assert ("left out" in text) == (size > 400)


def test_bytes_that_are_no_text_are_shown_as_such(shell: Shell) -> None:
    """Broken UTF-8 becomes replacement letters, never an error."""
    assert "�" in shell.run("printf '\\xff\\xfe'").text


def test_credentials_are_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable whose name or value is a credential's reaches a command, unless it is asked for."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("GITHUB_TOKEN", "t")
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:hunter2hunter2@db.example.com/x")
    monkeypatch.setenv("HARMLESS", "yes")
    said = Shell(tmp_path, keep=["GITHUB_TOKEN"]).run("env").text
    assert "HARMLESS=yes" in said
    assert "GITHUB_TOKEN=t" in said
    assert "OPENAI_API_KEY" not in said
    assert "hunter2" not in said


def test_names_of_credentials() -> None:
    """What is called a key, token, secret or password is one; a keyboard or an author is none."""
    bad = ("AWS_SECRET_ACCESS_KEY", "KEY", "MY_PASSWORD", "npm_token", "SSH_AUTH_SOCK", "SIGNING_KEYS", "GH_COOKIE")
    good = ("PATH", "KEYBOARD", "MONKEY", "LANG", "GIT_AUTHOR_NAME", "HOME")
    assert remove_credentials(dict.fromkeys((*bad, *good), "1")) == dict.fromkeys(good, "1")


def test_handing_in(shell: Shell) -> None:
    """`submit` is the end with its answer, and so is an output that begins with the sentinel."""
    assert shell.execute(call("submit", answer="All mended.")).done
    assert shell.execute(call("submit", answer="All mended.")).text == "All mended."
    outcome = shell.execute(call("bash", command=f"echo {SENTINEL}; echo the patch"))
    assert (outcome.done, outcome.text) == (True, "the patch\n")
    assert not shell.execute(call("bash", command=f"echo {SENTINEL}; exit 1")).done


@pytest.mark.parametrize(
    "action",
    [
        call("teleport", to="Mars"),
        call("bash"),
        call("bash", command=7),
        call("bash", command="  "),
        call("bash", command="echo \0"),
        call("bash", command="x" * 3_000_000),
    ],
)
def test_what_is_wrong_with_a_call_is_told(shell: Shell, action: object) -> None:
    """A call that cannot be run is an outcome, never an exception."""
    outcome = shell.execute(action)  # type: ignore[arg-type]
    assert outcome.error
    assert outcome.text


def test_a_folder_must_be_one(tmp_path: Path) -> None:
    """Working in what is no folder is refused before anything runs."""
    with pytest.raises(ElisionError, match="not a folder"):
        Shell(tmp_path / "nowhere")
