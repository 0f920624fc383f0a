"""The command line: one command a file. Errors of ours are shown as a sentence, never as a traceback."""

from __future__ import annotations

import importlib.util
import io
import os
import sys

from elision.errors import ElisionError, MissingExtra


def main() -> None:
    """Entry point of the console script `elision`."""
    _replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # Terminals and locales that lack a letter show a question mark for it; nothing is lost to an encoding.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    raise SystemExit(_run_and_report())


def _replace_closed_streams() -> None:
    """Open the null device for each standard stream that the caller closed.

    Python has None in its place, and a file or socket that is opened later would have its number.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", errors="replace", closefd=False))


def _run_and_report() -> int:
    """The exit code: 0, 2 for what the user can mend, 70 after a bug in a reader, 130 after Ctrl-C."""
    try:
        if any(importlib.util.find_spec(name) is None for name in ("click", "rich")):
            raise MissingExtra("the command line", "cli")
        from elision.cli.app import run_app

        code = run_app()
        sys.stdout.flush()
        return code
    except ElisionError as error:
        return _print_error(str(error), 2)
    except KeyboardInterrupt:
        return _print_error("interrupted", 130)
    except BrokenPipeError:
        # `elision view ... | head` closes our output; that is no failure. Python would still flush into it at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as ended:
        # rich ends the process with 1 when our output is closed under it; nothing else here ends it.
        if ended.code == 1:
            return 0
        return int(ended.code or 0)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _print_error(f"{error.filename or 'standard output'}: {error.strerror or error}", 2)


def _print_error(text: str, code: int) -> int:
    print(f"elision: {text}", file=sys.stderr)
    return code
