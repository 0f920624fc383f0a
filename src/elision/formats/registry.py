"""Every format Elision reads, and reading a path with whichever fits."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from elision.errors import FormatError
from elision.formats.anthropic_messages import AnthropicMessages
from elision.formats.atif import Atif
from elision.formats.claude_code import ClaudeCode
from elision.formats.codex import Codex
from elision.formats.document import Document, Found, Reader
from elision.formats.elision_export import ElisionExport
from elision.formats.gemini_cli import GeminiCli
from elision.formats.inspect_ai import InspectAi
from elision.formats.lines import begins_with, json_value, peek
from elision.formats.magentic_one import MagenticOne
from elision.formats.managed_agents import ManagedAgents
from elision.formats.mini_swe_agent import MiniSweAgent
from elision.formats.openai_chat import OpenAIChat
from elision.formats.openai_responses import OpenAIResponses
from elision.formats.opencode import OpenCode
from elision.formats.openhands_events import OpenHandsEvents
from elision.formats.openhands_output import OpenHandsOutput
from elision.formats.openhands_session import OpenHandsSession
from elision.formats.pi_session import PiSession
from elision.formats.source import documents, is_candidate
from elision.formats.swe_agent import SweAgent
from elision.formats.tau2 import Tau2
from elision.formats.trae_agent import TraeAgent
from elision.trajectory.trajectory import Problem, Trajectory

#: In the order in which they are asked: formats that name themselves first, plain provider messages last.
READERS: tuple[Reader, ...] = (
    ElisionExport(),
    OpenHandsEvents(),
    OpenHandsSession(),
    InspectAi(),
    MiniSweAgent(),
    SweAgent(),
    OpenHandsOutput(),
    Atif(),
    Tau2(),
    ClaudeCode(),
    Codex(),
    ManagedAgents(),
    GeminiCli(),
    OpenCode(),
    TraeAgent(),
    MagenticOne(),
    PiSession(),
    OpenAIResponses(),
    AnthropicMessages(),
    OpenAIChat(),
)

#: What a reader may raise because of the file. Anything else is a bug of the reader, and is reported as one.
_MALFORMED = (ValueError, RecursionError)

#: How the reason begins where a file is sound and yet in none of the formats.
_UNKNOWN = "no known trajectory format"

_log = logging.getLogger(__name__)


def read(path: Path) -> Iterator[Found]:
    """Every run at or below `path`, and every Problem met on the way; ids are unique within a file.

    A file in a folder or archive that is no recording is passed over, or is a Problem if it is called like one. So is
    each file of a folder that is laid out like a recording, but is in no known format.
    Raises FormatError where `path` is a file in no known format, or holds no run at all.
    """
    runs = 0
    reasons = list[str]()
    is_whole = False
    for document in documents(path):
        is_named = _is_named(document, path)
        is_whole = is_whole or is_named
        for found in _read_one(document, named=is_named):
            runs += isinstance(found, Trajectory)
            if isinstance(found, Problem):
                reasons += [str(found)]
            else:
                reasons += []
            yield found
    if not runs and (path.is_dir() or not is_whole):
        raise FormatError(_no_run(path, reasons))


def _is_named(document: Document | Problem, path: Path) -> bool:
    """Whether `document` is the very file that was asked for, not one that was found in it."""
    return isinstance(document, Document) and document.path == str(path)


def reader_of(document: Document) -> Reader | None:
    """The first reader that knows the format of `document`."""
    return _choose_reader(document)[0]


def _choose_reader(document: Document) -> tuple[Reader | None, list[Problem]]:
    """The first reader that knows the format of `document`, and the bugs met in those that were asked."""
    bugs: list[Problem] = []
    for reader in READERS:
        try:
            if reader.sniff(document):
                return reader, bugs
        except MemoryError:
            raise
        except _MALFORMED as error:
            _log.warning("%s: the %s reader could not look at it", document.path, reader.name, exc_info=error)
        except Exception as error:  # noqa: BLE001 - a bug costs one file, not all
            bugs.append(_report_bug(reader, document, error))
    return None, bugs


def _read_one(document: Document | Problem, *, named: bool) -> Iterator[Found]:
    if isinstance(document, Problem):
        yield document
        return
    reader, bugs = _choose_reader(document)
    yield from bugs
    if reader is None and document.members:
        for name, data in document.members.items():
            yield from _read_one(Document(path=f"{document.path.rstrip('/')}/{name}", data=data), named=False)
        return
    if reader is None:
        yield from _unknown(document, named=named and not bugs)
        return
    try:
        yield from _unique(_contained(reader, document))
    except FormatError as error:
        if named:
            raise
        yield Problem(file=document.path, line=None, reason=_without(str(error), document.path))


def _contained(reader: Reader, document: Document) -> Iterator[Found]:
    """What `reader` finds. The one place where malformed content, or a bug, becomes a Problem and no traceback."""
    anything = False
    try:
        for found in reader.read(document):
            anything = True
            yield found
    except (FormatError, MemoryError):
        raise
    except _MALFORMED as error:
        _log.warning("%s: the %s reader gave up", document.path, reader.name, exc_info=error)
        reason = f"not a sound {reader.name} file ({type(error).__name__}: {error}); the rest of it is left out"
        yield Problem(file=document.path, line=None, reason=reason)
        return
    except Exception as error:  # noqa: BLE001 - a bug costs one file, not all
        yield _report_bug(reader, document, error)
        return
    if not anything:
        yield Problem(file=document.path, line=None, reason=f"{_a(reader.name)} file without any assistant message")


def _report_bug(reader: Reader, document: Document, error: Exception) -> Problem:
    """An error that no file should cause: ours to mend, so it names where in our code it happened."""
    _log.error("%s: a bug in the %s reader", document.path, reader.name, exc_info=error)
    innermost = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(innermost.filename).name}:{innermost.lineno}"
    reason = (
        f"a bug in Elision's {reader.name} reader, no fault of the file ({type(error).__name__}: {error}; {place}); "
        "the rest of it is left out; please report it"
    )
    return Problem(file=document.path, line=None, reason=reason, kind="bug")


def _unique(found: Iterator[Found]) -> Iterator[Found]:
    """The same, a run whose id was taken before renamed."""
    taken: Counter[str] = Counter()
    for item in found:
        if isinstance(item, Problem):
            yield item
            continue
        id = item.id
        while taken[id]:
            taken[item.id] += 1
            id = f"{item.id} ({taken[item.id]})"
        taken[id] += 1
        yield item if id == item.id else replace(item, id=id)


def _unknown(document: Document, *, named: bool) -> Iterator[Problem]:
    if named:
        raise FormatError(f"{document.path}: {_with_names(_why(document))}")
    if is_candidate(document.path):
        yield Problem(file=document.path, line=None, reason=f"{_why(document)}; left out")


def _why(document: Document) -> str:
    """What keeps a file from being a recording: broken JSON first, for then its format does not matter."""
    if not document.data:
        return "the file is empty"
    begins = f"it begins with {begins_with(document)}"
    if document.data[:256].lstrip().startswith((b"{", b"[")) and not peek(document, 1):
        try:
            json_value(document)
        except FormatError as error:
            return f"{_without(str(error), document.path)}; {begins}"
    return f"{_UNKNOWN}; {begins}"


def _with_names(why: str) -> str:
    """`why`, and the formats that are known where that is what was wrong."""
    if why.startswith(_UNKNOWN):
        return f"{why}; formats known: {_names()}"
    return why


def _a(name: str) -> str:
    """The name of a format with its article."""
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _without(message: str, path: str) -> str:
    """A FormatError's message without its leading file name, which stands elsewhere; line and column stay."""
    return message.removeprefix(path).removeprefix(":").strip()


def _no_run(path: Path, reasons: list[str]) -> str:
    if reasons:
        first = f" First problem: {reasons[0]}."
    else:
        first = ""
    strange = not reasons or any(_UNKNOWN in reason for reason in reasons)
    return f"{path}: no trajectory in it.{first}{f' Formats known: {_names()}' if strange else ''}"


def _names() -> str:
    return ", ".join(reader.name for reader in READERS)
