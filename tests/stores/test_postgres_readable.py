"""What only PostgreSQL has of the tables for people: results as rows and JSON, short texts, any name, damage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import StoreError
from elision.stores.postgres.address import parse_address
from elision.stores.postgres.column_values import escape_name
from elision.stores.postgres.column_values import unescape_name as meant
from elision.stores.postgres.store import PostgresStore
from elision.stores.sql_dialect import SHOWN, make_readable
from elision.stores.store_urls import open_store
from elision.trajectory.events import HeadSet, PassDecided, TurnAdded
from elision.trajectory.plan import Edit
from elision.trajectory.turn import Action, Head, Message, Turn, make_content
from tests.stores.postgres_server import make_fresh_url
from tests.stores.session_logs import add_turn, begin_session, hide_results
from tests.stores.test_readable_tables import LONG, ask, list_rows


@pytest.fixture
def store() -> Iterator[PostgresStore]:
    opened = open_store(make_fresh_url())
    assert isinstance(opened, PostgresStore)
    yield opened
    opened.close()


def shown_turns(store: PostgresStore, session: str = "s") -> list[dict[str, Any]]:
    """The rows of `session`, ids and places in the log left out."""
    rows = ask(store, "select to_jsonb(t) from agent_context_turns t where session = ? order by turn", session)
    return [{name: value for name, value in row.items() if name not in ("session_id", "session")} for (row,) in rows]


def test_what_is_folded_shows_its_text(store: PostgresStore) -> None:
    """Until it is whole again."""
    folds = PassDecided(
        call=4, reason="x", edits=(Edit((2, 1), "fold", "[as in t1.1]"), Edit((3, 1), "fold", "[as in t1.1]"))
    )
    unfolds = PassDecided(call=5, reason="x", edits=(Edit((2, 1), "whole"), Edit((3, 1), "fold", "[as in t2.1]")))
    begin_session(store, "s", add_turn(1, "a"), add_turn(2, "a"), add_turn(3, "a"), folds, unfolds)
    _, second, third = (turn["observations"][0] for turn in shown_turns(store))
    assert "placeholder" not in second
    assert "folded_at" not in second
    assert (third["folded_at"], third["placeholder"]) == (5, "[as in t2.1]")


def test_what_is_hidden_shows_since_when_and_by_what(store: PostgresStore) -> None:
    """A masked result says the call and the placeholder, a turn since when a summary stands for it."""
    clip = PassDecided(call=4, reason="fits", edits=(Edit((3, 1), "clip", "long…"),))
    begin_session(
        store, "s", add_turn(1, "a", "b"), add_turn(2, "c"), add_turn(3, "long"), hide_results((1, 2), call=3), clip
    )
    first, second, third = shown_turns(store)
    assert [each.get("masked_at") for each in first["observations"]] == [None, 3]
    assert first["observations"][1]["placeholder"] == "[t1.2]"
    assert (first["masked_at"], second["masked_at"], third["masked_at"]) == (3, None, None)
    assert (third["observations"][0]["clipped_at"], third["observations"][0]["placeholder"]) == (4, "long…")
    store.append("s", (hide_results((1, 1), (2, 1), call=5, covers=2),), after=5, at=1.0)
    assert [each["summarized_at"] for each in shown_turns(store)] == [5, 5, None]
    assert [each["masked_at"] for each in shown_turns(store)] == [3, 5, None]


ARGUMENTS = (
    '{"path": "a.py", "deep": {"list": [1, 2.5, null, true]}}',
    '{"text": "nul \\u0000 and \\ud800 inside", "\\u0000": 1}',
    '{"n": NaN, "i": Infinity}',
    '{"n": 1e999}',
    '{"n": 1' + "0" * 400 + "}",
    '{"a": ' * 400 + "1" + "}" * 400,
    '{"a": ' * 90_000,
    '{"long": "' + "x" * 5_000 + '"}',
    "cat file.py",
    "",
    "[1, 2]",
    "\0",
    "lone \ud800",
)


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=range(len(ARGUMENTS)))
def test_any_arguments_are_stored_and_shown(store: PostgresStore, arguments: str) -> None:
    """JSON where the server can hold it, or the text; never an error."""
    whole = Turn(index=1, actions=(Action(id="a", name="f\0", arguments=arguments),))
    begin_session(store, "s", TurnAdded(whole))
    assert store.turns("s") == [whole]
    (action,) = shown_turns(store)[0]["actions"]
    assert action["tool"] == "f␀"
    assert len(json.dumps(action)) < 4 * SHOWN
    if arguments == ARGUMENTS[0]:
        assert action["arguments"] == json.loads(arguments)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (1_700_000_000.25, datetime(2023, 11, 14, 22, 13, 20, 250_000, tzinfo=UTC)),
        (0.0, datetime(1970, 1, 1, tzinfo=UTC)),
        (1e300, None),
        (-1e15, None),
        (float("inf"), None),
        (float("-inf"), None),
    ],
)
def test_any_time_is_stored_and_shown_if_it_is_a_date(store: PostgresStore, at: float, expected: object) -> None:
    """Sessions keep the number as it was given."""
    begin_session(store, "s", add_turn(1), at=at)
    assert store.info("s").changed == at
    assert ask(store, "select created_at from agent_context_turns") == [(expected,)]


def open_postgres_store(url: str) -> PostgresStore:
    opened = open_store(url)
    assert isinstance(opened, PostgresStore)
    return opened


def test_short_texts_by_option() -> None:
    """With `turns=short` texts are shown by their beginning, with their length, and where the whole is."""
    text = "line\n" * 5_000
    store = open_postgres_store(f"{make_fresh_url()}&turns=short")
    begin_session(store, "s", add_turn(1, text, said=text))
    ((shown_text, chars, texts),) = ask(store, "select text, chars, texts from agent_context_observations")
    assert (len(shown_text), chars, len(texts)) == (SHOWN, len(text), 1)
    assert text.startswith(shown_text.removesuffix("…"))
    assert ask(store, "select encode(address, 'hex') from agent_context_texts") == [(texts[0],)]
    assert ask(store, "select action, observation from agent_context_turns") == [(None, None)]
    store.close()


def test_each_result_is_a_row(store: PostgresStore) -> None:
    """With its whole text."""
    begin_session(store, "s", add_turn(1, LONG, "", "b" * 50))
    rows = ask(store, "select text from agent_context_observations order by position")
    assert rows == [(make_readable(LONG),), ("",), ("b" * 50,)]


def test_a_session_that_is_deleted_meanwhile_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """`compact` writes the whole texts of the sessions that are still there."""
    url = make_fresh_url()
    short = open_postgres_store(f"{url}&turns=short")
    for key in ("gone", "s"):
        begin_session(short, key, add_turn(1, LONG))
    store = open_postgres_store(url)
    length = store.length

    def delete_first(session: str) -> int:
        if session == "gone":
            short.delete(session)
        return length(session)

    monkeypatch.setattr(store, "length", delete_first)
    store.compact()
    assert [row[:2] for row in list_rows(store)] == [(1, make_readable(LONG))]
    store.close()
    short.close()


def test_a_text_is_found_that_was_first_stored_as_something_else(store: PostgresStore) -> None:
    """A prompt that was kept before anybody could search it is found once it is observed."""
    text = "a needle in the prompt " * 40
    begin_session(store, "s", HeadSet(Head(messages=(Message(role="user", content=make_content(text)),))))
    assert store.search("s", "needle") == []
    store.append("s", (add_turn(1, text),), after=1, at=1.0)
    assert [hit.handle for hit in store.search("s", "needle")] == ["t1.1"]


DAMAGE = (
    b"update agent_context_texts set packed = set_byte(packed, 9, 255 - get_byte(packed, 9)) where size = 5000",
    b"update agent_context_log set body = set_byte(body, 7, 255 - get_byte(body, 7)) "
    b"where position = 2 and session_id = (select id from agent_context_sessions where session = 'a')",
    b"delete from agent_context_log "
    b"where position = 2 and session_id = (select id from agent_context_sessions where session = 'b')",
    b"delete from agent_context_turns where turn = 3",
)


def test_damage_is_found_and_read_around(store: PostgresStore) -> None:
    """Changed bytes of a record or of a text, a missing record, and a missing row for people."""
    begin_session(store, "a", add_turn(1, "x" * 5_000), add_turn(2, "y" * 5_001), add_turn(3))
    begin_session(store, "b", add_turn(1), add_turn(2))
    for statement in DAMAGE:
        store._database.write(lambda cursor, statement=statement: cursor.execute(statement))  # type: ignore[misc]
    found = {(finding.place, finding.lost) for finding in store.check()}
    (text,) = {place for place, _ in found if place.startswith("text ")}
    assert found == {
        ("session 'a'", False),
        ("session 'a', record 1", True),
        ("session 'a', record 2", True),
        ("session 'b'", True),
        ("session 'b'", False),
        (text, True),
    }
    assert store.turns("a", 3) == []
    with pytest.raises(StoreError):
        list(store.events("b"))


odd_texts = st.text(alphabet=st.characters() | st.sampled_from("\\\0\ud800u0"))


@given(odd_texts)
def test_names_come_back(name: str) -> None:
    """What is kept can be held by PostgreSQL, and is the name again."""
    held = escape_name(name)
    assert "\0" not in held
    held.encode("utf-8")
    assert meant(held) == name


@given(odd_texts, odd_texts)
def test_two_names_stay_two(first: str, second: str) -> None:
    """No two names are kept as one."""
    assert (escape_name(first) == escape_name(second)) == (first == second)


@given(odd_texts)
def test_shown_text_can_be_held(text: str) -> None:
    """And is as long as the text."""
    assert "\0" not in make_readable(text)
    assert len(make_readable(text).encode("utf-8").decode()) == len(text)


def test_options_are_taken_out_of_the_url() -> None:
    """Ours are read, libpq's are left as they are, the password is not shown."""
    found = parse_address(
        "//u:p%40w@h:5433/db?schema=a%20b&pool=9&timeout=1.5&sslmode=require&options=-c%20work_mem%3D1MB"
    )
    assert (found.schema, found.pool_size, found.timeout_seconds, found.allows_unsafe) == ("a b", 9, 1.5, False)
    assert found.libpq == "postgresql://u:p%40w@h:5433/db?sslmode=require&options=-c%20work_mem%3D1MB"
    assert "p%40w" not in repr(found)


@pytest.mark.parametrize("option", ["schema=", "schema=" + "x" * 64, "schema=a%00b", "pool=0", "timeout=no", "fsync=1"])
def test_options_without_sense_are_refused(option: str) -> None:
    """The error names the option."""
    with pytest.raises(StoreError, match=option.partition("=")[0]):
        parse_address(f"//host/db?{option}")


def test_a_schema_of_any_name_is_a_schema() -> None:
    """Quotes, blanks and capitals in it are part of the name."""
    url = make_fresh_url().replace("schema=", "schema=An%20%22odd%22%3B%20drop--")
    store = open_store(url)
    begin_session(store, "s", add_turn(1, "x" * 600))
    assert store.check() == []
    assert store.compact() >= 0
    store.close()
    store = open_store(url)
    assert store.length("s") == 1
    store.close()
