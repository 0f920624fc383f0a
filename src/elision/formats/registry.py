"""List every format that Elision reads, and read a path with whichever fits."""

from __future__ import annotations

import logging
import re
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from elision.errors import FormatError
from elision.formats.anthropic_messages import AnthropicMessagesReader
from elision.formats.atif import AtifReader
from elision.formats.claude_code import ClaudeCodeReader
from elision.formats.codex import CodexReader
from elision.formats.document import (
    Document,
    FormatReader,
    RunOrProblem,
    peek_objects,
    quote_beginning,
    read_json_value,
)
from elision.formats.elision_export import ElisionExportReader
from elision.formats.gemini_cli import GeminiCliReader
from elision.formats.inspect_ai import InspectAiReader
from elision.formats.magentic_one import MagenticOneReader
from elision.formats.managed_agents import ManagedAgentsReader
from elision.formats.mini_swe_agent import MiniSweAgentReader
from elision.formats.openai_chat import OpenAIChatReader
from elision.formats.openai_responses import OpenAIResponsesReader
from elision.formats.opencode import OpenCodeReader
from elision.formats.openhands_events import OpenHandsEventsReader
from elision.formats.openhands_output import OpenHandsOutputReader, OpenHandsSessionReader
from elision.formats.pi_session import PiSessionReader
from elision.formats.source import is_candidate, read_documents
from elision.formats.swe_agent import SweAgentReader
from elision.formats.tau2 import Tau2Reader
from elision.formats.trae_agent import TraeAgentReader
from elision.trajectory.trajectory import Problem

#: In the order in which they are asked: formats that name themselves first, plain provider messages last.
READERS: tuple[FormatReader, ...] = (
    ElisionExportReader(),
    OpenHandsEventsReader(),
    OpenHandsSessionReader(),
    InspectAiReader(),
    MiniSweAgentReader(),
    SweAgentReader(),
    OpenHandsOutputReader(),
    AtifReader(),
    Tau2Reader(),
    ClaudeCodeReader(),
    CodexReader(),
    ManagedAgentsReader(),
    GeminiCliReader(),
    OpenCodeReader(),
    TraeAgentReader(),
    MagenticOneReader(),
    PiSessionReader(),
    OpenAIResponsesReader(),
    AnthropicMessagesReader(),
    OpenAIChatReader(),
)

#: What a reader may raise because of the file. Anything else is a bug of the reader, and is reported as one.
_MALFORMED_ERRORS = (ValueError, RecursionError)

#: How the reason begins where a file is sound and yet in none of the formats.
_UNKNOWN = "no known trajectory format"
#: How LangChain's own messages begin, saved as dictionaries or by `dumpd`, within so many bytes.
_LANGCHAIN = re.compile(rb'"type": ?"(?:human|ai)"|"langchain(?:_core)?", ?"schema", ?"messages"')
_LOOK = 20_000

_log = logging.getLogger(__name__)


def read_runs(path: Path) -> Iterator[RunOrProblem]:
    """Yield every run at or below `path`, and every Problem found on the way; ids are unique within a file.

    A file in a folder or archive that is no recording is passed over, or is a Problem if it is called like one. The
    files of a folder that is laid out like a recording, but is in no known format, are read one by one.

    Raises FormatError if `path` is a file in no known format, or holds no run.
    """
    runs = 0
    reasons = list[str]()
    is_whole = False
    for document in read_documents(path):
        # The very file that was asked for, not one that was found in it.
        is_named = isinstance(document, Document) and document.path == str(path)
        is_whole = is_whole or is_named
        for found in read_document(document, named=is_named):
            if isinstance(found, Problem):
                reasons.append(str(found))
            else:
                runs += 1
            yield found
    if not runs and (path.is_dir() or not is_whole):
        raise FormatError(_describe_no_run(path, reasons))


def find_reader(document: Document) -> FormatReader | None:
    """Return the first reader that knows the format of `document`."""
    return _choose_reader(document)[0]


def _choose_reader(document: Document) -> tuple[FormatReader | None, list[Problem]]:
    """Return the first reader that knows the format of `document`, and the bugs of readers that were asked before."""
    bugs: list[Problem] = []
    try:
        for reader in READERS:
            try:
                if reader.sniff(document):
                    return reader, bugs
            except MemoryError:
                raise
            except _MALFORMED_ERRORS as error:
                _log.warning("%s: the %s reader could not look at it", document.path, reader.name, exc_info=error)
            except Exception as error:  # noqa: BLE001 - a bug costs one file, not all
                bugs.append(_report_bug(reader, document, error))
        return None, bugs
    finally:
        # Many times the bytes of the file, while it is read once more.
        document.peeked.clear()


def read_document(document: Document | Problem, *, named: bool) -> Iterator[RunOrProblem]:
    """Yield what one document holds. named: the user named it, so that FormatError is raised for an unknown format."""
    if isinstance(document, Problem):
        yield document
        return
    reader, bugs = _choose_reader(document)
    yield from bugs
    if reader is None and document.members:
        for name, data in document.members.items():
            yield from read_document(Document(path=f"{document.path.rstrip('/')}/{name}", data=data), named=False)
        return
    if reader is None:
        yield from _report_unknown(document, named=named and not bugs)
        return
    try:
        yield from _rename_duplicates(_read_guarded(reader, document))
    except FormatError as error:
        if named:
            raise
        yield Problem(file=document.path, line=None, reason=_strip_path(str(error), document.path))


def _read_guarded(reader: FormatReader, document: Document) -> Iterator[RunOrProblem]:
    """Yield what `reader` finds. Only here, malformed content or a bug becomes a Problem instead of a traceback."""
    anything = False
    try:
        for found in reader.read(document):
            anything = True
            yield found
    except (FormatError, MemoryError):
        raise
    except _MALFORMED_ERRORS as error:
        _log.warning("%s: the %s reader gave up", document.path, reader.name, exc_info=error)
        reason = f"not a sound {reader.name} file ({type(error).__name__}: {error}); the rest of it is left out"
        yield Problem(file=document.path, line=None, reason=reason)
        return
    except Exception as error:  # noqa: BLE001 - a bug costs one file, not all
        yield _report_bug(reader, document, error)
        return
    if not anything:
        article = "an" if reader.name[0] in "aeiou" else "a"
        reason = f"{article} {reader.name} file without any assistant message"
        yield Problem(file=document.path, line=None, reason=reason)


def _report_bug(reader: FormatReader, document: Document, error: Exception) -> Problem:
    """Report an error that no file should cause. It is a bug of ours, so the Problem names the place in our code."""
    _log.error("%s: a bug in the %s reader", document.path, reader.name, exc_info=error)
    innermost = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(innermost.filename).name}:{innermost.lineno}"
    reason = (
        f"a bug in Elision's {reader.name} reader, no fault of the file ({type(error).__name__}: {error}; {place}); "
        "the rest of it is left out; please report it"
    )
    return Problem(file=document.path, line=None, reason=reason, kind="bug")


def _rename_duplicates(found: Iterator[RunOrProblem]) -> Iterator[RunOrProblem]:
    """Yield the same items, with a new id for each run whose id was taken before."""
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
        if id != item.id:
            item = replace(item, id=id)
        yield item


def _report_unknown(document: Document, *, named: bool) -> Iterator[Problem]:
    if named:
        why = _explain_unknown(document)
        known = f"; formats known: {_list_format_names()}" if why.startswith(_UNKNOWN) else ""
        raise FormatError(f"{document.path}: {why}{known}")
    if is_candidate(document.path):
        yield Problem(file=document.path, line=None, reason=f"{_explain_unknown(document)}; left out")


def _explain_unknown(document: Document) -> str:
    """Explain why a file is no recording: broken JSON first, as its format does not matter then."""
    if not document.data:
        return "the file is empty; record or copy it again"
    begins = f"it begins with {quote_beginning(document)}"
    if document.data[:256].lstrip().startswith((b"{", b"[")) and not peek_objects(document, 1):
        try:
            read_json_value(document)
        except FormatError as error:
            return f"{_strip_path(str(error), document.path)}; {begins}"
    if _LANGCHAIN.search(document.data[:_LOOK]):
        return "LangChain's own messages; save what langchain_core's convert_to_openai_messages makes of them"
    return f"{_UNKNOWN}; {begins}"


def _strip_path(message: str, path: str) -> str:
    """Return a FormatError's message without its leading file name, which is given elsewhere; line and column stay."""
    return message.removeprefix(path).removeprefix(":").strip()


def _describe_no_run(path: Path, reasons: list[str]) -> str:
    text = f"{path}: no trajectory in it."
    if reasons:
        text += f" First problem: {reasons[0]}."
    if not reasons or any(_UNKNOWN in reason for reason in reasons):
        text += f" Formats known: {_list_format_names()}"
    return text


def _list_format_names() -> str:
    return ", ".join(reader.name for reader in READERS)
