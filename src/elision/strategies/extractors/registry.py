"""Which extractor reads which tool's observations, in order."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from elision.errors import CallbackError, describe_error
from elision.strategies.extractors import files, json_data, search, shell, web
from elision.strategies.extractors.command import SHELLS
from elision.strategies.extractors.outcome import (
    RESULT_CHARS,
    Extractor,
    Outcome,
    describe_arguments,
    find_tool_name,
    format_count,
    matches_tool,
    shorten_to_line,
)
from elision.strategies.extractors.result_text import find_error_line, unwrap_output
from elision.trajectory.turn import Action, Observation, Opaque, Turn

#: A first sentence that is long enough to stand alone.
_SENTENCE = re.compile(r"\S[^\n]{14,90}?[.!?。](?=\s+\S)")

_log: Final = logging.getLogger("elision.strategies")


def describe_anything(action: Action | None, observation: Observation, text: str) -> Outcome:
    """Describe a result of any kind: the last resort."""
    envelope = unwrap_output(observation.text)
    summary_line = ""
    if observation.error or envelope.has_failed:
        summary_line = find_error_line(envelope.body)
    summary_line = summary_line or _find_opening_line(envelope.head)
    if not summary_line:
        kinds = [part.kind for part in observation.content if isinstance(part, Opaque)]
        summary_line = ", ".join(format_count(kinds.count(kind), kind) for kind in dict.fromkeys(kinds)) or "no output"
    return Outcome(describe_arguments(action), envelope.state_exit(summary_line))


def _find_opening_line(head: str) -> str:
    """The first lines, as many as fit."""
    shown = ""
    for line in head[:4_000].split("\n"):
        if not any(char.isalnum() for char in line[:400]):
            continue
        if shown.endswith((":", ";", ",", ".")):
            link = " "
        else:
            link = "; "
        if shown:
            longer = f"{shown}{link}{line.strip()}"
        else:
            longer = line.strip()
        if not shown and (sentence := _SENTENCE.match(longer)):
            return sentence[0]
        if shown and len(longer) > RESULT_CHARS - 20:
            break
        shown = longer
    return shown or shorten_to_line(head[:4_000], RESULT_CHARS)


@dataclass(frozen=True, slots=True)
class Registration:
    """tools: globs on the tool's name, any case."""

    extractor: Extractor
    tools: tuple[str, ...] = ("*",)


def log_failure(error: CallbackError) -> None:
    """Log that an extractor failed."""
    _log.warning("%s", error)


@dataclass(frozen=True, slots=True, eq=False)
class Extractors:
    """An ordered table; the first extractor that answers wins, the generic one stands behind all.

    report: called with the error of an extractor that fails; the others are asked then, as if it had no answer.
    Equal to itself alone: an extractor may be anything that can be called, also what has no hash.
    """

    registrations: tuple[Registration, ...] = ()
    report: Callable[[CallbackError], None] = log_failure

    def register(self, extractor: Extractor, *, tools: Sequence[str] = ("*",)) -> Extractors:
        """The same table with `extractor` in front, asked about tools whose name fits one of the globs `tools`."""
        return replace(self, registrations=(Registration(extractor, tuple(tools)), *self.registrations))

    def find_outcome(self, turn: Turn, observation: Observation) -> Outcome:
        """What happened in `observation` of `turn`. Never raises: see `report`."""
        return _find_outcome(self, turn.find_action(observation), observation, turn.text)


@lru_cache(maxsize=128)
def _find_outcome(table: Extractors, action: Action | None, observation: Observation, text: str) -> Outcome:
    # The small cache serves the digest, which looks again at what placeholders were written for some 40 turns before.
    for registration in _list_registrations(table, find_tool_name(action, observation)):
        try:
            found = _ask_extractor(registration, action, observation, text)
        except CallbackError as error:
            table.report(error)
            continue
        if found is not None:
            return found
    return describe_anything(action, observation, text)


@lru_cache(maxsize=256)
def _list_registrations(table: Extractors, tool: str) -> tuple[Registration, ...]:
    """The registrations whose extractors are asked about observations of `tool`, in order."""
    return tuple(each for each in table.registrations if matches_tool(tool, each.tools))


def _ask_extractor(
    registration: Registration, action: Action | None, observation: Observation, text: str
) -> Outcome | None:
    """What one extractor says. Raises CallbackError for all that it may raise, and for an answer that is none."""
    try:
        found = registration.extractor(action, observation, text)
        if found is not None and not isinstance(found, Outcome):
            raise TypeError(f"it gave a {type(found).__name__}; give an Outcome or None")
    except Exception as error:
        tools = ", ".join(map(repr, registration.tools))
        raise CallbackError(f"the extractor for {tools} failed: {describe_error(error)}") from error
    return found


#: Most special first. What a command does decides before what its output looks like.
BUILT_IN = Extractors(
    (
        Registration(files.describe_line_edit),
        Registration(files.describe_file_window),
        Registration(search.describe_announced_matches),
        Registration(files.describe_edit, files.EDITORS),
        Registration(files.describe_listing_tool, files.LISTERS),
        Registration(files.describe_file_view, files.VIEWERS),
        Registration(search.describe_grep_tool, search.GREPPERS),
        Registration(search.describe_glob_tool, search.FINDERS),
        Registration(files.describe_printed_files, SHELLS),
        Registration(files.describe_shell_listing, SHELLS),
        Registration(search.describe_shell_search, SHELLS),
        Registration(files.describe_shell_write, SHELLS),
        Registration(shell.describe_test_run, (*SHELLS, "*test*")),
        Registration(shell.describe_git_command, SHELLS),
        Registration(shell.describe_diff, SHELLS),
        Registration(web.describe_fetched_page, SHELLS),
        Registration(web.describe_browser_page, web.BROWSERS),
        Registration(json_data.describe_json),
        Registration(json_data.describe_table),
        Registration(web.describe_page_error, web.BROWSERS),
        Registration(shell.describe_shell_command, SHELLS),
        Registration(shell.describe_code_run, shell.CODE),
    )
)
