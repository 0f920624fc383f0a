"""What PostgreSQL keeps: values of columns, batches of records, and a check of everything.

Values are names, dates, calls and results as JSON, and the words that are searched. PostgreSQL's text has no NUL and no
lone surrogates. Names (keys, families, nodes) must come back letter for letter and stay readable, so only what it
cannot hold is written as an escape; texts that people read have replacement characters instead. Texts inside JSON are
shown up to SHOWN characters. `texts` of a result: addresses of what is kept apart.

Records of a log are read with the large texts that they need, in few statements and in batches of limited size.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from elision.errors import CorruptError
from elision.stores.packing import LARGE_IN_TURN, Packer, get_packer, hash_text
from elision.stores.postgres.connection import Cursor, PostgresDatabase
from elision.stores.sql_dialect import SHOWN, load_statements, make_readable, shorten_text
from elision.stores.store import Finding, SessionInfo
from elision.stores.store_base import LogCheck, split_words
from elision.trajectory.events import Event, TurnAdded, TurnAmended
from elision.trajectory.trajectory import join_argument_text
from elision.trajectory.turn import Action, Content, Observation, Text, Turn

_SQL: Final = load_statements("postgres")
#: Of a batch: records, and bytes before packing (one record may be more).
RECORDS = 500
BYTES = 16_000_000
#: Texts that the check reads in one go.
_TEXTS: Final = 100
#: Largest distance from the epoch, in seconds, that PostgreSQL takes as a date.
_ERAS: Final = 6e10
_ODD: Final = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPE: Final = re.compile(r"\\(\\|0|u[0-9a-f]{4})")


def escape_name(name: str) -> str:
    r"""Return `name` without NUL and lone surrogates: `\0`, `\ud800`; a backslash is doubled.

    `unescape_name` reverses it.
    """
    return _ODD.sub(_escape_character, name)


def unescape_name(name: str) -> str:
    """Return what `escape_name` was given."""
    return _ESCAPE.sub(_unescape_character, name)


def is_escaped_name(name: str) -> bool:
    """Return whether `escape_name` returns `name` for some name. It returns no other."""
    return escape_name(unescape_name(name)) == name


def _escape_character(match: re.Match[str]) -> str:
    letter = match[0]
    return {"\\": r"\\", "\0": r"\0"}.get(letter) or f"\\u{ord(letter):04x}"


def _unescape_character(match: re.Match[str]) -> str:
    mark = match[1]
    return {"\\": "\\", "0": "\0"}.get(mark) or chr(int(mark[1:], 16))


def convert_time(at: float) -> float | None:
    """Return `at`, seconds since the epoch, if the server takes it as a date."""
    return at if math.isfinite(at) and abs(at) < _ERAS else None


def describe_turn(event: TurnAdded | TurnAmended) -> dict[str, Any]:
    """Return the columns that SQLite's table of turns does not have, and a shorter name of the model."""
    turn = event.turn
    return {
        "node": escape_name(event.node),
        "actions": _encode_json([_describe_action(action) for action in turn.actions]),
        "observations": _encode_json([_describe_observation(each) for each in turn.observations]),
        "model": shorten_text(turn.model),
    }


def list_words(turn: Turn) -> Iterator[dict[str, Any]]:
    """Yield the words of the assistant's text and calls, then of each result.

    words: of texts within the record. texts: the addresses of those apart.
    """
    calls = [join_argument_text(action) for action in turn.actions if not action.implicit]
    pieces: list[tuple[Sequence[str], Content]] = [([turn.reasoning, *calls], turn.content)]
    pieces.extend(((), observation.content) for observation in turn.observations)
    for position, (inside, parts) in enumerate(pieces):
        small = (part.text for part in parts if isinstance(part, Text) and len(part.text) < LARGE_IN_TURN)
        texts = [_hash_text(text) for text in _list_large_texts(parts)]
        yield {"position": position, "words": join_words(*inside, *small), "texts": texts}


def find_words_apart(event: Event) -> dict[bytes, str]:
    """Return the words of each text of `event` that can be searched and is kept apart, by its address."""
    words: dict[bytes, str] = {}
    if isinstance(event, TurnAdded | TurnAmended):
        for parts in (event.turn.content, *(observation.content for observation in event.turn.observations)):
            for text in _list_large_texts(parts):
                words[_hash_text(text)] = join_words(text)
    return words


def join_words(*texts: str) -> str:
    """Return the different words of `texts`, folded, with one blank between two: no word of a query holds a blank."""
    words: dict[str, None] = {}
    for text in texts:
        words.update(dict.fromkeys(split_words(text)))
    return " ".join(words)


def _describe_action(action: Action) -> dict[str, Any]:
    return {
        "id": shorten_text(action.id),
        "tool": shorten_text(action.name),
        "arguments": _describe_arguments(action),
    }


def _describe_arguments(action: Action) -> Any:
    """Return arguments decoded, for queries like `actions -> 0 -> 'arguments' ->> 'path'`; long ones as text."""
    if len(action.arguments) > SHOWN:
        return shorten_text(action.arguments)
    try:
        decoded = _clean_value(dict(action.decoded_arguments))
        json.dumps(decoded, allow_nan=False)
    except (ValueError, RecursionError):
        return shorten_text(action.arguments)
    return decoded or shorten_text(action.arguments)


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return make_readable(value)
    if isinstance(value, dict):
        return {make_readable(name): _clean_value(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_clean_value(inner) for inner in value]
    return value


def _describe_observation(observation: Observation) -> dict[str, Any]:
    text = observation.text
    return {
        "tool": shorten_text(observation.tool),
        "error": observation.error,
        "chars": len(text),
        "text": shorten_text(text),
        "texts": [_hash_text(each).hex() for each in _list_large_texts(observation.content)],
    }


def _list_large_texts(content: Content) -> Iterator[str]:
    return (part.text for part in content if isinstance(part, Text) and len(part.text) >= LARGE_IN_TURN)


def _hash_text(text: str) -> bytes:
    return hash_text(text.encode("utf-8", "surrogatepass"))


def _encode_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


# -- batches of records -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """bodies: by position, in order. texts: packed, by address."""

    bodies: Sequence[tuple[int, bytes]]
    texts: Mapping[bytes, bytes]

    def unpack_events(self) -> Iterator[tuple[int, Event]]:
        """Yield the records, each with its position; no connection is needed. Raises CorruptError."""
        packer = get_packer()
        for position, body in self.bodies:
            (event,) = packer.unpack(body, self.texts.__getitem__)
            yield position, event


def read_records(cursor: Cursor, session: int, positions: Sequence[int]) -> RecordBatch:
    """Return the records at `positions` of the log, in order. Raises CorruptError if one is missing."""
    parameters = {"id": session, "positions": list(positions)}
    rows = cursor.execute(_SQL["records"], parameters).fetchall()
    missing = len({*positions}) - len(rows)
    if missing:
        raise CorruptError(f"{missing} records of a session are missing from its log")
    return _add_texts(cursor, rows)


def read_batch(cursor: Cursor, session: int, after: int, last: int) -> RecordBatch:
    """Return the next records after `after`, up to a batch of them."""
    asked = {"id": session, "after": after, "last": last, "records": RECORDS, "bytes": BYTES}
    return _add_texts(cursor, cursor.execute(_SQL["log"], asked).fetchall())


def _add_texts(cursor: Cursor, rows: Sequence[tuple[int, list[bytes], bytes]]) -> RecordBatch:
    addresses = {address for _, apart, _ in rows for address in apart}
    texts: list[tuple[bytes, bytes]] = []
    if addresses:
        texts = cursor.execute(_SQL["texts"], {"addresses": list(addresses)}).fetchall()
    return RecordBatch([(position, body) for position, _, body in rows], dict(texts))


# -- the check --------------------------------------------------------------------------------------------------------


def find_damage(database: PostgresDatabase, packer: Packer, sessions: Sequence[SessionInfo]) -> Iterator[Finding]:
    """Yield what is wrong with the logs of `sessions`, the tables made from them, and all texts; nothing is changed."""
    if database.address.allows_unsafe and _read_rows(database, "server")[0][2] != "on":
        yield Finding(place="server", what="it runs with fsync = off and may lose what it acknowledged")
    for name, *_ in _read_rows(database, "sessions", since=float("-inf")):
        if not is_escaped_name(name):
            yield Finding(place="agent_context_sessions", what=f"{name!r} is not a session name", lost=True)
    for info in sessions:
        yield from _check_log(database, packer, info)
    for session, records, turns in _read_rows(database, "check_strays"):
        what = f"the row of session {session} is lost: {records} records and {turns} turns belong to none"
        yield Finding(place="agent_context_sessions", what=what, lost=True)
    yield from _check_texts(database, packer)


def _read_rows(database: PostgresDatabase, statement: str, **parameters: object) -> list[Any]:
    """Return all that `statement` finds, without a time limit: it reads whole tables."""
    return database.read(lambda cursor: cursor.execute(_SQL[statement], parameters).fetchall(), patient=True)


def _check_log(database: PostgresDatabase, packer: Packer, info: SessionInfo) -> Iterator[Finding]:
    place = f"session {info.key!r}"
    named = {"key": escape_name(info.key)}
    for id, _ in database.read(lambda cursor: cursor.execute(_SQL["session"], named).fetchall()):
        for records, kept_records, turns, shown in _read_rows(database, "check_counts", id=id):
            if records != kept_records:
                yield Finding(place=place, what=f"{kept_records} of {records} records are in its log", lost=True)
            if turns != shown:
                yield Finding(place=place, what=f"agent_context_turns has {shown} of its {turns} turns")
        after = 0
        log_check = LogCheck()
        read = partial(read_batch, session=id, last=info.records)
        while (batch := database.read(partial(read, after=after), patient=True)).bodies:
            for position, body in batch.bodies:
                try:
                    events = packer.unpack(body, batch.texts.__getitem__)
                except CorruptError as error:
                    log_check.skip()
                    yield Finding(place=f"{place}, record {position}", what=str(error), lost=True)
                    continue
                for what in filter(None, map(log_check.find_gap, events)):
                    yield Finding(place=f"{place}, record {position}", what=what, lost=True)
            after = batch.bodies[-1][0]


def _check_texts(database: PostgresDatabase, packer: Packer) -> Iterator[Finding]:
    address = b""
    while texts := _read_rows(database, "check_texts", after=address, records=_TEXTS):
        for address, packed in texts:
            what = ""
            try:
                if hash_text(packer.decompress(packed)) != address:
                    what = "its text does not match its address"
            except CorruptError as error:
                what = str(error)
            if what:
                yield Finding(place=f"text {address.hex()}", what=what, lost=True)
