"""What the agent acts on: tools, the results of actions, a real shell; and what it needs of a context manager.

`elision.ContextManager` is such a context, and a test may bring its own.

In the shell each command is a subprocess in a folder, with limits of time and output. The command is run unchanged. It
gets its own process group, so that a time-out ends everything it started, and an environment without credentials.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from elision.agent.model import Json
from elision.errors import ElisionError
from elision.telemetry.diagnostics import Costs, Diagnostics
from elision.trajectory.redact import DEFAULT
from elision.trajectory.turn import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool in no provider's words. parameters: a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """The result of an action.

    text:      what the model is shown.
    exit_code: of a command; None where there is none. error: whether it failed.
    done:      the task is finished, and `text` is what there is to show for it.
    """

    text: str
    exit_code: int | None = None
    error: bool = False
    done: bool = False


class Environment(Protocol):
    """Anything an agent can act on. `execute` returns a mistake of the model as a result, so that the model sees it."""

    @property
    def tools(self) -> Sequence[Tool]: ...

    def execute(self, action: Action) -> ActionResult: ...


class PreparedContext(Protocol):
    """The context of one call."""

    @property
    def messages(self) -> list[Any]: ...

    @property
    def system(self) -> Any: ...

    @property
    def tools(self) -> Any: ...

    @property
    def extra(self) -> Mapping[str, Any]: ...

    @property
    def betas(self) -> tuple[str, ...]: ...

    @property
    def diagnostics(self) -> Diagnostics: ...


class Context(Protocol):
    """Prepares every call, and answers its own tools."""

    def prepare(self, messages: Sequence[Json], *, system: Any = None, tools: Any = None) -> PreparedContext: ...

    def record(self, usage: Any) -> None:
        """Record what the provider reported for the call prepared last."""
        ...

    def overflowed(self, error: object) -> bool:
        """Return whether `error` says that the prompt was too long. Preparing it again then makes it shorter."""
        ...

    def tool_definitions(self, dialect: str) -> Sequence[Json]: ...

    def handle_tool_call(self, name: str, arguments: str) -> str | None:
        """Return the answer of a tool of the context's own; None for any other tool."""
        ...


@runtime_checkable
class ConversationKeeper(Protocol):
    """A context with a store, which keeps a conversation after its last call, and returns what it cost."""

    def keep(self, messages: Sequence[Json], *, system: Any = None, tools: Any = None) -> Costs: ...


# -- a shell ----------------------------------------------------------------------------------------------------------

#: How an agent may say that it is done, by the first line of an output (mini-swe-agent's word for it).
SENTINEL = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
#: Environment variables whose value is a credential, by their name.
_CREDENTIAL_NAME: Final = re.compile(
    r"(?i)(^|_)(api_?)?keys?(_|$)|token|secret|passw|passphrase|credential|cookie|(^|_)auth(_|$)"
)
#: What keeps programs from waiting for somebody at a terminal.
_NON_INTERACTIVE: Final = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "TERM": "dumb",
    "NO_COLOR": "1",
}
#: Seconds between looks at a command that prints nothing.
_POLL_SECONDS = 0.05
_CHUNK_BYTES = 65_536
#: Bytes that a pipe holds at most, unless root made it larger.
_LARGEST_PIPE_BYTES = 1 << 20

BASH: Final = Tool(
    name="bash",
    description=(
        "Run a command with bash in the working folder. Each call is a shell of its own: folders changed and variables "
        "set are forgotten. There is no terminal and no input. Long output is cut in the middle."
    ),
    parameters={
        "type": "object",
        "properties": {"command": {"type": "string", "description": "What to run."}},
        "required": ["command"],
    },
)
SUBMIT: Final = Tool(
    name="submit",
    description="The task is finished: hand in the result. Nothing is done after this.",
    parameters={
        "type": "object",
        "properties": {"answer": {"type": "string", "description": "What was done, or the answer to the question."}},
        "required": ["answer"],
    },
)


class Shell:
    """An environment of two tools, `bash` and `submit`.

    folder: where commands run. seconds: that one may take. output: characters of it that are shown, head and tail.
    keep:   names of environment variables that are passed on though they look like credentials.
    """

    tools: Sequence[Tool] = (BASH, SUBMIT)

    def __init__(self, folder: Path, *, seconds: float = 120.0, output: int = 16_000, keep: Sequence[str] = ()) -> None:
        if not folder.is_dir():
            raise ElisionError(f"{folder}: is not a folder")
        self.folder = folder
        self.seconds = seconds
        self.output = output
        self._variables = {**remove_credentials(os.environ, keep), **_NON_INTERACTIVE}

    def execute(self, action: Action) -> ActionResult:
        """Run a command, or take the final result. A wrong call is a result with an error."""
        if action.name == SUBMIT.name:
            answer = action.decoded_arguments.get("answer")
            return ActionResult(text=answer if isinstance(answer, str) else action.arguments, done=True)
        if action.name != BASH.name:
            return ActionResult(text=f"There is no tool {action.name!r}; there are: bash, submit.", error=True)
        command = action.decoded_arguments.get("command")
        if not isinstance(command, str) or not command.strip():
            return ActionResult(text='The arguments of bash are {"command": "…"}.', error=True)
        return self.run(command)

    def run(self, command: str) -> ActionResult:
        """Return what `command` printed, and how it ended."""
        if "\0" in command:
            return ActionResult(text="A command cannot hold a zero byte.", error=True)
        try:
            process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self.folder,
                env=self._variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return ActionResult(text=f"The command could not be started: {error.strerror}.", error=True)
        with process:
            try:
                kept, late = self._collect_output(process)
            except BaseException:
                _kill_group(process)
                raise
        return self._make_result(kept.decode(), None if late else process.returncode)

    def _collect_output(self, process: subprocess.Popen[bytes]) -> tuple[_OutputBuffer, bool]:
        """Return the output, and whether the command took too long and was ended.

        A command is over when bash is: what it left running in the background keeps running, and what that prints from
        then on is dropped.
        """
        assert process.stdout is not None
        output = process.stdout.fileno()
        kept = _OutputBuffer(self.output)
        ends = time.monotonic() + self.seconds
        with selectors.DefaultSelector() as waiting:
            waiting.register(output, selectors.EVENT_READ)
            while (left := ends - time.monotonic()) > 0:
                is_ready = bool(waiting.select(min(_POLL_SECONDS, left)))
                # Asked before the pipe is read: what bash wrote is in there then.
                if process.poll() is not None:
                    if not _read_rest(output, waiting, kept):
                        _drop_output(output)
                    return kept, False
                if is_ready:
                    chunk = os.read(output, _CHUNK_BYTES)
                    kept.append(chunk)
                    if not chunk:
                        return kept, _runs_longer_than(process, max(0.0, ends - time.monotonic()))
        _kill_group(process)
        return kept, True

    def _make_result(self, text: str, code: int | None) -> ActionResult:
        first, _, rest = text.partition("\n")
        if code == 0 and first.strip() == SENTINEL:
            return ActionResult(text=rest, exit_code=0, done=True)
        if code is None:
            note = f"[the command took longer than {self.seconds:g} seconds and was ended]"
            return ActionResult(text=f"{text.rstrip()}\n{note}".lstrip(), error=True)
        if code:
            return ActionResult(text=f"{text.rstrip()}\n[exit code: {code}]".lstrip(), exit_code=code, error=True)
        return ActionResult(text=text, exit_code=0)


def remove_credentials(variables: Mapping[str, str], keep: Sequence[str] = ()) -> dict[str, str]:
    """Return `variables` without those that hold a credential, by their name or by the form of their value."""
    return {
        name: value
        for name, value in variables.items()
        if name in keep or not (_CREDENTIAL_NAME.search(name) or DEFAULT.redact_text(value) != value)
    }


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the command and all it started that is still in its group."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _read_rest(output: int, waiting: selectors.BaseSelector, kept: _OutputBuffer) -> bool:
    """Read what the pipe `output` holds now, at most the size of a pipe. Return whether nobody can write to it."""
    left = _LARGEST_PIPE_BYTES
    while left > 0 and waiting.select(0):
        chunk = os.read(output, min(left, _CHUNK_BYTES))
        if not chunk:
            return True
        kept.append(chunk)
        left -= len(chunk)
    return False


def _drop_output(output: int) -> None:
    """Read the pipe `output` to its end in a thread: whatever writes to it must not be stopped by a full or closed
    pipe."""
    copy = os.dup(output)

    def drop() -> None:
        try:
            while os.read(copy, _CHUNK_BYTES):
                pass
        finally:
            os.close(copy)

    threading.Thread(target=drop, name="elision-background-output", daemon=True).start()


def _runs_longer_than(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Return whether a command that closed its output still ran after `seconds`, and was ended then."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        _kill_group(process)
        return True
    return False


@dataclass(slots=True)
class _OutputBuffer:
    """Head and tail of a stream of bytes, whatever its length. limit: characters, or thereabouts."""

    limit: int
    size: int = 0
    head: bytearray = field(default_factory=bytearray)
    tail: deque[bytes] = field(default_factory=deque)
    tail_size: int = 0

    def append(self, chunk: bytes) -> None:
        self.size += len(chunk)
        room = max(0, self.limit // 2 - len(self.head))
        self.head += chunk[:room]
        if rest := chunk[room:]:
            self.tail.append(rest)
            self.tail_size += len(rest)
        while self.tail and self.tail_size - len(self.tail[0]) >= self.limit - self.limit // 2:
            self.tail_size -= len(self.tail.popleft())

    def decode(self) -> str:
        tail = b"".join(self.tail)[-(self.limit - self.limit // 2) :]
        left = self.size - len(self.head) - len(tail)
        if left <= 0:
            return (bytes(self.head) + tail).decode("utf-8", "replace")
        note = f"\n[… {left:,} bytes left out …]\n"
        return self.head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace")
