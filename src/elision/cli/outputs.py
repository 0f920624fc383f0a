"""Where a command's output goes: the console, the progress of a long command, and the files that it writes.

Lines end where their text does, unless they go to a terminal. Files are checked before the work begins, and replaced
when the new one is whole.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shlex
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from datetime import date
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, cast

import click
from rich.console import Console

from elision.config.setting_readers import conceal_password
from elision.errors import OutputError
from elision.lab.report.figures import neutralize_text
from elision.lab.report.report import Provenance, Report, encode_report
from elision.trajectory.redact import DEFAULT
from elision.trajectory.trajectory import Problem

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: Blanks at a line's end, with which rich fills tables and wrapped paragraphs up.
_BLANKS: Final = re.compile(r" +(?=\n)")


class _TrimmedStream:
    """A text stream to which lines are written without blanks at their ends."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(_BLANKS.sub("", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def open_console(*, is_stderr: bool = False, quiet: bool = False) -> Console:
    """Return a console on standard output, or standard error. Lines that are piped or saved end without blanks."""
    stream = sys.stderr if is_stderr else sys.stdout
    file = None if stream.isatty() else cast(IO[str], _TrimmedStream(stream))
    return Console(file=file, stderr=is_stderr, quiet=quiet)


@contextmanager
def page_output(console: Console) -> Iterator[None]:
    """Show what is printed inside in the user's pager, as git does, if standard output is a terminal."""
    if not console.is_terminal:
        yield
        return
    # Colours pass, and what fits on one screen needs no key to leave.
    os.environ.setdefault("LESS", "-FRX")
    with console.pager(styles=True):
        yield


#: Seconds between two lines where no terminal is; a command that takes less prints none.
SECONDS = 10.0


class ProgressMeter:
    """Shows on `notes` how far a command is, inside a `with` block. doing: what it does, in a word."""

    def __init__(self, notes: Console, doing: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._notes = notes
        self._doing = doing
        self._clock = clock
        self._printed = clock()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> ProgressMeter:
        if self._notes.is_terminal and not self._notes.quiet:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=self._notes, transient=True)
            self._task = self._bar.add_task(self._doing, total=None)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, text: str, share: float | None = None) -> None:
        """Show `text`, such as "3 of 16 replays finished". share: of all work that is done; None if that is unknown."""
        text = neutralize_text(text)
        if self._bar is not None and self._task is not None:
            total = None if share is None else 1.0
            self._bar.update(self._task, description=f"{self._doing}: {text}", completed=share or 0.0, total=total)
            return
        now = self._clock()
        if now - self._printed >= SECONDS:
            self._printed = now
            self._notes.print(text, markup=False, highlight=False, soft_wrap=True)


#: Neither success (0) nor something that the user can mend (2). EX_SOFTWARE of sysexits.h.
READER_BUG = 70


def exit_on_reader_bug(problems: Iterable[Problem]) -> None:
    """Report the first bug of ours among `problems` on standard error and exit with `READER_BUG`; else do nothing.

    Call it last: what could be read is shown first.
    """
    bugs = [problem for problem in problems if problem.kind == "bug"]
    if bugs:
        others = f" (and {len(bugs) - 1} more)" if len(bugs) > 1 else ""
        print(f"elision: {neutralize_text(str(bugs[0]))}{others}", file=sys.stderr)
        raise click.exceptions.Exit(READER_BUG)


# -- files ------------------------------------------------------------------------------------------------------------


#: How our own files begin; a file that begins otherwise is somebody else's and is not overwritten.
OWN_BEGINNINGS: Final[Mapping[str, tuple[bytes, ...]]] = {
    "html": (b"<!doctype html>",),
    "png": (b"\x89PNG",),
    "svg": (b"<svg",),
    # Whoever wrote the settings: `elision tune` checks itself whether it may replace them.
    "toml": (b"",),
    "out": (b'"format":"elision.',),
}


def make_provenance(recorded: str = "") -> Provenance:
    """Return what a report made now says of its making. recorded: models and bills of the runs."""
    # Without the passwords that addresses in it have.
    command = DEFAULT.redact_text(shlex.join(["elision", *map(conceal_password, sys.argv[1:])]))
    return Provenance(version=version("elision"), date=date.today().isoformat(), command=command, recorded=recorded)


def check_outputs(files: Mapping[str, Path | None], inputs: Iterable[Path] = ()) -> None:
    """Raise OutputError for a file that cannot or must not be written. files: kind -> path; "-" is standard output.

    Nothing is created or changed. Raises MissingExtra for a PNG without resvg.
    """
    if files.get("png"):
        # Slow to import: it draws.
        from elision.lab.report.svg import load_resvg

        load_resvg()
    sources = {path.resolve() for path in inputs}
    taken: set[Path] = set()
    for kind, path in files.items():
        if path is None or str(path) == "-":
            continue
        where = path.resolve()
        if where in sources or where in taken:
            raise OutputError(f"--{kind} {path}: that file is used already in this command; name another one")
        taken.add(where)
        _check_writable(kind, path)


def replace_file(path: Path, chunks: Iterable[bytes], *, private: bool = False) -> None:
    """Write `chunks` to a temporary file in the folder of `path`, and rename it to `path` when it is whole.

    After any failure, Ctrl-C included, `path` is unchanged and the temporary file is gone. A symbolic link is followed;
    a file that is replaced keeps its permissions. What is no ordinary file, such as a pipe, is written to directly.
    private: readable by its owner alone. Raises OutputError where the system refuses to write; errors of `chunks` pass.
    """
    if _is_special(path):
        with _name_file_in_errors(path), path.open("wb") as device:
            device.writelines(chunks)
        return
    target = path.resolve()
    temporary = target.with_name(f".elision-{secrets.token_hex(8)}")
    with _name_file_in_errors(path):
        kept = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
        file = _create_temporary(temporary, 0o600 if private else kept)
    try:
        for chunk in chunks:
            with _name_file_in_errors(path):
                file.write(chunk)
        with _name_file_in_errors(path):
            file.flush()
            os.fsync(file.fileno())
            file.close()
            os.replace(temporary, target)
    except BaseException:
        # Closing flushes: on a full disk that fails once more, and the first error is the one to show.
        with suppress(OSError):
            file.close()
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def encode_text(text: str) -> bytes:
    """Return `text` as UTF-8. Lone surrogates, as names of files may hold, become JSON's escapes of them."""
    return text.encode(errors="backslashreplace")


def show_report(
    report: Report,
    files: Mapping[str, Path | None],
    *,
    as_json: bool,
    note: Callable[[str], None],
    render: Callable[[str], bytes] | None,
    problems: Iterable[Problem],
    finished: bool,
) -> None:
    """Write and print `report`, as `Output.show` says. note: prints on standard error.

    The files come first: a reader that closes our output must not cost them. The first refusal costs neither the other
    files nor what is printed.
    """
    failure = _write_files(files, lambda kind: _render_file(report, kind, render), note)
    if as_json:
        sys.stdout.write(json.dumps(encode_report(report), indent=1, allow_nan=False) + "\n")
        sys.stdout.flush()
    else:
        # Slow to import; JSON needs none of it.
        from elision.lab.report.terminal import print_report

        console = open_console()
        with page_output(console) if report.is_paged else nullcontext():
            print_report(report, console)
    if failure is not None:
        raise failure
    if not finished:
        raise click.exceptions.Exit(130)
    exit_on_reader_bug(problems)


def _render_file(report: Report, kind: str, render: Callable[[str], bytes] | None) -> bytes:
    from elision.lab.report.page import build_page, draw_picture

    if kind == "html":
        return encode_text(build_page(report))
    if kind == "png":
        from elision.lab.report.svg import render_png

        return render_png(draw_picture(report))
    assert render is not None
    return render(kind)


def _write_files(
    files: Mapping[str, Path | None], render: Callable[[str], bytes], note: Callable[[str], None]
) -> OutputError | None:
    """Write what is asked for, and name it. Return the first refusal."""
    failure = None
    for kind, path in files.items():
        if path is None:
            continue
        content = render(kind)
        if str(path) == "-":
            sys.stdout.buffer.write(content)
            continue
        try:
            replace_file(path, [content])
            note(f"wrote {path}")
        except OutputError as error:
            failure = failure or error
    return failure


def _check_writable(kind: str, path: Path) -> None:
    if path.is_dir() or not path.name:
        raise OutputError(f"--{kind} {path}: that is a folder; name a file in it")
    if not path.absolute().parent.is_dir():
        raise OutputError(f"--{kind} {path}: there is no folder {path.parent}; make it first")
    with _name_file_in_errors(path, f"--{kind} "):
        if path.is_file():
            with path.open("rb") as file:
                start = file.read(200)
            if start.strip() and not any(mark in start for mark in OWN_BEGINNINGS[kind]):
                raise OutputError(f"--{kind} {path}: it exists and is not a report of Elision; name another file")
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if not _is_special(path):
            # The new file comes into this folder before it takes the old one's place.
            tempfile.TemporaryFile(dir=path.resolve().parent).close()


def _is_special(path: Path) -> bool:
    """Whether `path` is there and no ordinary file: a pipe, a device."""
    return path.exists() and not path.is_file()


def _create_temporary(path: Path, mode: int | None) -> BinaryIO:
    """Return a new file with the permissions `mode`; None: those that the process gives to new files."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666 if mode is None else 0o600)
    if mode is not None:
        os.fchmod(descriptor, mode)
    return os.fdopen(descriptor, "wb")


@contextmanager
def _name_file_in_errors(path: Path, option: str = "") -> Iterator[None]:
    """Raise the system's refusals as an OutputError that names `path`."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{option}{path}: cannot be written ({error.strerror or error}); name a file elsewhere"
        ) from error
