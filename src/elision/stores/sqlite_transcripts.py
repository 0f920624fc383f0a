"""Turns as SQL reads them in a SQLite store: whole, with what is sent in their place. Made from the log, not read back.

The tables follow the log. A process that opens the file without `?turns=full` does not write them; the next one that
does writes what they lack.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from elision.stores.sqlite_file import read_script, run_script
from elision.stores.turn_texts import join_actions, join_observations, make_readable
from elision.trajectory.events import Event, PassDecided, TurnAdded, TurnAmended, UsageReported
from elision.trajectory.plan import Edit, Summary
from elision.trajectory.turn import Turn

#: The largest whole number of SQLite.
_BIGGEST: Final = 2**63 - 1

_EXISTS: Final = "SELECT 1 FROM sqlite_master WHERE name = 'agent_context_progress'"
_PROGRESS: Final = """
    SELECT records, answered_call, answered_input, answered_output FROM agent_context_progress WHERE session_id = ?"""
_BEHIND: Final = """
    SELECT key FROM sessions WHERE records > coalesce(
      (SELECT records FROM agent_context_progress WHERE session_id = sessions.id), 0)"""
_ADVANCE: Final = """
    INSERT INTO agent_context_progress (session_id, records) VALUES (?, ?)
    ON CONFLICT (session_id) DO UPDATE SET records = excluded.records"""
_PUT_TURN: Final = """
    INSERT OR REPLACE INTO agent_context_turns (
      session_id, session, turn, timestamp, reasoning, said, action, observation, results, model,
      input_tokens, output_tokens)
    VALUES (
      :id, :session, :turn, :timestamp, :reasoning, :said, :action, :observation, :results, :model,
      coalesce(:input, (SELECT input_tokens FROM agent_context_turns WHERE session_id = :id AND turn = :turn),
        (SELECT answered_input FROM agent_context_progress WHERE session_id = :id AND answered_call = :turn)),
      coalesce(:output, (SELECT output_tokens FROM agent_context_turns WHERE session_id = :id AND turn = :turn),
        (SELECT answered_output FROM agent_context_progress WHERE session_id = :id AND answered_call = :turn)))"""
_DROP_PLACES: Final = "DELETE FROM agent_context_placeholders WHERE session_id = :id AND turn = :turn"
_DROP_PLACE: Final = f"{_DROP_PLACES} AND position = :position"
_PUT_PLACE: Final = """
    INSERT OR REPLACE INTO agent_context_placeholders (session_id, turn, position, call, placeholder)
    SELECT :id, :turn, :position, :call, :text
    WHERE EXISTS (
      SELECT 1 FROM agent_context_turns WHERE session_id = :id AND turn = :turn AND results >= :position)"""
_MASK: Final = """
    UPDATE agent_context_turns SET masked_at = coalesce(masked_at, :call)
    WHERE session_id = :id AND turn = :turn AND results >= :position"""
_SUMMARIZE: Final = """
    UPDATE agent_context_turns SET summarized_at = :call
    WHERE session_id = :id AND turn <= :covers AND summarized_at IS NULL"""
_PUT_SUMMARY: Final = """
    INSERT OR REPLACE INTO agent_context_summaries (session_id, session, call, record, covers, summary, block, route)
    VALUES (:id, :session, :call, :record, :covers, :summary, :block, :route)"""
_ANSWER_TURN: Final = """
    UPDATE agent_context_turns SET input_tokens = :input, output_tokens = :output
    WHERE session_id = :id AND turn = :call"""
_ANSWER_SESSION: Final = """
    INSERT INTO agent_context_progress (session_id, records, answered_call, answered_input, answered_output)
    VALUES (:id, 0, :call, :input, :output)
    ON CONFLICT (session_id) DO UPDATE SET
      answered_call = :call, answered_input = :input, answered_output = :output"""
_TABLES: Final = ("turns", "placeholders", "summaries", "progress")
_DELETE: Final = tuple(f"DELETE FROM agent_context_{table} WHERE session_id = ?" for table in _TABLES)

#: Returns the events after a record of a session, with their places in the log.
ReadEvents = Callable[[int], Iterable[tuple[int, Event]]]


def create_tables(connection: sqlite3.Connection) -> None:
    run_script(connection, read_script("sqlite_transcripts.sql"))


def list_sessions_behind(connection: sqlite3.Connection) -> list[bytes]:
    """Return the keys of sessions of which the tables do not show every record."""
    return [key for (key,) in connection.execute(_BEHIND)]


def show_records(
    connection: sqlite3.Connection,
    id: int,
    session: str,
    records: int,
    read_events: ReadEvents,
    *,
    after: int,
    at: float | None,
) -> None:
    """Bring the rows of session `id` up to its `records` records.

    at: when the records after `after` were written, in seconds since the epoch, for turns without a time of their own;
    None where nobody knows.
    """
    row = connection.execute(_PROGRESS, (id,)).fetchone()
    for record, event in read_events(row[0] if row else 0):
        base = {"id": id, "session": make_readable(session), "record": record}
        for statement, parameters in _list_changes(event, base, at if record > after else None):
            connection.execute(statement, parameters)
    connection.execute(_ADVANCE, (id, records))


def delete_rows(connection: sqlite3.Connection, id: int) -> None:
    """Delete the rows of session `id`, if the file has such tables."""
    if connection.execute(_EXISTS).fetchone():
        for statement in _DELETE:
            connection.execute(statement, (id,))


def _list_changes(event: Event, base: dict[str, Any], at: float | None) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(event, TurnAdded | TurnAmended):
        turn = {**base, **_describe_turn(event.turn, at)}
        yield _PUT_TURN, turn
        yield _DROP_PLACES, turn
    elif isinstance(event, PassDecided):
        call = {**base, "call": event.call}
        for edit in event.edits:
            yield from _list_edit_changes(edit, call)
        if event.summary is not None:
            summary = {**call, **_describe_summary(event.summary)}
            yield _SUMMARIZE, summary
            yield _PUT_SUMMARY, summary
    elif isinstance(event, UsageReported):
        usage = {**base, "call": event.call, "input": _limit(event.usage.prompt), "output": _limit(event.usage.output)}
        yield _ANSWER_TURN, usage
        yield _ANSWER_SESSION, usage


def _list_edit_changes(edit: Edit, call: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    turn, position = edit.key
    if edit.kind == "whole":
        yield _DROP_PLACE, {**call, "turn": turn, "position": position}
        return
    if not (1 <= turn <= _BIGGEST and 1 <= position <= _BIGGEST):
        return
    place = {**call, "turn": turn, "position": position, "text": make_readable(edit.text)}
    yield _PUT_PLACE, place
    if edit.kind == "mask":
        yield _MASK, place


def _describe_turn(turn: Turn, at: float | None) -> dict[str, Any]:
    return {
        "turn": turn.index,
        "timestamp": _format_time(at if turn.at is None else turn.at),
        "reasoning": make_readable(turn.reasoning),
        "said": make_readable(turn.text),
        "action": make_readable(join_actions(turn)),
        "observation": make_readable(join_observations(turn)),
        "results": len(turn.observations),
        "model": make_readable(turn.model),
        "input": turn.usage and _limit(turn.usage.prompt),
        "output": turn.usage and _limit(turn.usage.output),
    }


def _describe_summary(summary: Summary) -> dict[str, Any]:
    return {
        "covers": _limit(summary.covers),
        "summary": make_readable(summary.text),
        "block": make_readable(summary.block),
        "route": summary.route,
    }


def _limit(number: int) -> int:
    return min(number, _BIGGEST)


def _format_time(at: float | None) -> str | None:
    if at is None or not math.isfinite(at):
        return None
    try:
        return datetime.fromtimestamp(at, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return None
