"""Writes whole texts into the rows of turns, and the summaries, that `turns=short` cut."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from elision.errors import UnknownHandle
from elision.stores.packing import get_packer
from elision.stores.postgres.connection import Cursor, PostgresDatabase
from elision.stores.postgres.readable_tables import describe_summary, describe_texts
from elision.stores.postgres.record_batches import RecordBatch, read_batches
from elision.stores.postgres.session_rows import find_session_id, find_session_row, parse_session_row
from elision.stores.postgres.statements import find_statement
from elision.stores.postgres.text_escapes import unescape_name
from elision.trajectory.events import PassDecided, TurnAdded, TurnAmended


def show_whole_turns(database: PostgresDatabase) -> None:
    """Do it for every session that has cut rows."""
    rows = database.read(lambda cursor: cursor.execute(find_statement("cut_sessions")).fetchall())
    for (name,) in rows:
        # It may be deleted meanwhile.
        with suppress(UnknownHandle):
            _show_whole_session(database, unescape_name(name))


def _show_whole_session(database: PostgresDatabase, session: str) -> None:
    row = database.read(partial(find_session_row, session=session))
    records = parse_session_row(row).records
    for batch in read_batches(database, partial(find_session_id, session=session), 0, records):
        database.write(partial(_show_whole_batch, session=session, batch=batch), patient=True)


def _show_whole_batch(cursor: Cursor, session: str, batch: RecordBatch) -> None:
    id = find_session_id(cursor, session)
    for position, event in batch.unpack_events(get_packer()):
        place = {"id": id, "record": position}
        if isinstance(event, TurnAdded | TurnAmended):
            texts = describe_texts(event.turn)
            cursor.execute(find_statement("show_whole"), {**place, "turn": event.turn.index, **texts})
        elif isinstance(event, PassDecided) and event.summary is not None:
            summary = describe_summary(event.summary)
            cursor.execute(find_statement("put_summary"), {**place, "call": event.call, **summary})
