"""Shell commands and code cells: exit code, then the error or the last line."""

from __future__ import annotations

import re

from elision.strategies.extractors.command import find_command, find_output
from elision.strategies.extractors.failure import find_crossed_line, find_error_line, find_exception_line
from elision.strategies.extractors.outcome import Outcome, decode_arguments, find_text_argument, shorten_to_line
from elision.strategies.extractors.wrappers import UnwrappedOutput, unwrap_output
from elision.trajectory.turn import Action, Observation

#: Names of tools that run code rather than shell commands (globs, any case).
CODE = ("*python*", "*jupyter*", "*ipython*", "*code_interpreter*", "*run_code*", "*notebook*", "*repl*")

_INFORMATIVE = re.compile(r"\w{2}|\d")
#: Lines that say nothing of the outcome: what npm echoes, pip's standing advice, notes on a cut output.
_CHATTER = re.compile(r"> |WARNING: Running pip as |\[notice\] |npm notice|\[Showing lines ")
_PROGRESS = re.compile(r"\s{0,10}\d{1,3}\s{1,4}\S{1,12}\s{1,4}\d{1,3}\s{1,4}\S{1,12}\s")


def describe_shell_command(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """Any shell command."""
    command = find_command(action, observation)
    if command:
        return Outcome(command.label, describe_status(find_output(action, observation)))
    return None


def describe_code_run(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A code cell: its first informative line stands for it."""
    source = find_text_argument(decode_arguments(action), "code", "source", "script", "input")
    if not source and action is not None and action.implicit:
        source = action.arguments
    if not source:
        return None
    lines = [line.strip() for line in source[:4_000].split("\n")]
    own = [line for line in lines if line and not line.startswith(("#", "import ", "from ", "%"))]
    label = next(iter(own or filter(None, lines)), "")
    return Outcome(shorten_to_line(label, 64), describe_status(unwrap_output(observation.text)))


def describe_status(envelope: UnwrappedOutput) -> str:
    """Exit code where it was stated, and what the output comes down to."""
    summary_line = _find_last_words(envelope)
    if envelope.exit_code is None:
        return summary_line
    return f"exit {envelope.exit_code}, {summary_line}"


def _find_last_words(envelope: UnwrappedOutput) -> str:
    if not envelope.body.strip():
        return "no output"
    # With exit 0 a traceback still tells, since `cmd | head` hides the code, and so does a cross. Other
    # error words may be harmless.
    if envelope.exit_code == 0:
        error = find_exception_line(envelope.body)
    else:
        error = find_error_line(envelope.body)
    return error or find_crossed_line(envelope.body) or _find_last_line(envelope)


def _is_chatter(line: str) -> bool:
    return bool(_PROGRESS.match(line) or _CHATTER.match(line))


def _find_last_line(envelope: UnwrappedOutput) -> str:
    lines = [line for line in envelope.tail.split("\n") if line.strip()]
    informative = [line for line in lines[-30:] if _INFORMATIVE.search(line[:400]) and not _is_chatter(line[:100])]
    last = (informative or lines)[-1].strip()
    if len(lines) == 1:
        return last
    return f"last: {last}"
