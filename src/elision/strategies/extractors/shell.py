"""Shell commands and code cells: exit code, then the error or the last line."""

from __future__ import annotations

import re

from elision.strategies.extractors.arguments import arguments_of, text_at
from elision.strategies.extractors.command import command_of, output_of
from elision.strategies.extractors.envelope import Envelope, opened
from elision.strategies.extractors.failure import error_line, raised
from elision.strategies.extractors.outcome import Outcome, one_line
from elision.trajectory.turn import Action, Observation

#: Names of tools that run code rather than shell commands (globs, any case).
CODE = ("*python*", "*jupyter*", "*ipython*", "*code_interpreter*", "*run_code*", "*notebook*", "*repl*")

_TELLING = re.compile(r"\w{2}|\d")
#: Lines that say nothing of the outcome: what npm echoes, pip's standing advice, notes on a cut output.
_CHATTER = re.compile(r"> |WARNING: Running pip as |\[notice\] |npm notice|\[Showing lines ")
_PROGRESS = re.compile(r"\s{0,10}\d{1,3}\s{1,4}\S{1,12}\s{1,4}\d{1,3}\s{1,4}\S{1,12}\s")


def shell(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """Any shell command."""
    command = command_of(action, observation)
    if command:
        return Outcome(command.label, status(output_of(action, observation)))
    return None


def code(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A code cell: its first telling line stands for it."""
    source = text_at(arguments_of(action), "code", "source", "script", "input")
    if not source and action is not None and action.implicit:
        source = action.arguments
    if not source:
        return None
    lines = [line.strip() for line in source[:4_000].split("\n")]
    own = [line for line in lines if line and not line.startswith(("#", "import ", "from ", "%"))]
    label = next(iter(own or filter(None, lines)), "")
    return Outcome(one_line(label, 64), status(opened(observation.text)))


def status(envelope: Envelope) -> str:
    """Exit code where it was stated, and what the output comes down to."""
    said = _said(envelope)
    if envelope.exit is None:
        return said
    return f"exit {envelope.exit}, {said}"


def _said(envelope: Envelope) -> str:
    if not envelope.body.strip():
        return "no output"
    # With exit 0 a traceback still tells (`cmd | head` hides the code); other error words may be harmless.
    if envelope.exit == 0:
        error = raised(envelope.body)
    else:
        error = error_line(envelope.body)
    return error or _last_line(envelope)


def _empty_talk(line: str) -> bool:
    return bool(_PROGRESS.match(line) or _CHATTER.match(line))


def _last_line(envelope: Envelope) -> str:
    lines = [line for line in envelope.tail.split("\n") if line.strip()]
    telling = [line for line in lines[-30:] if _TELLING.search(line[:400]) and not _empty_talk(line[:100])]
    last = (telling or lines)[-1].strip()
    if len(lines) == 1:
        return last
    return f"last: {last}"
