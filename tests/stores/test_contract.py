"""What every store promises (`elision.stores.store`): logs, turns, forks, lineage, closing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from elision.errors import ConflictError, StoreError, UnknownHandle
from elision.stores.store import NewSession, NonBlockingLength, SessionInfo, Store
from elision.trajectory.events import Event, TurnAdded
from elision.trajectory.turn import Action, Observation, Opaque, Text, Turn
from tests.stores.conftest import Opener
from tests.stores.session_logs import (
    ODD_KEYS,
    add_turn,
    amend_turn,
    begin_session,
    list_every_event,
    make_turn,
    new_session,
    read_log,
)

# --- logs --------------------------------------------------------------------------------------------------------


def test_a_new_session_is_empty(store: Store) -> None:
    """It exists, has no records and no turns, and was changed when it began."""
    store.create(new_session("s", family="team", at=7.25))
    assert store.length("s") == 0
    assert read_log(store) == []
    assert store.turns("s") == []
    found = store.info("s")
    assert found == SessionInfo(
        key="s", family="team", parent="", relation="", begun=7.25, changed=7.25, records=0, turns=0
    )


def test_events_come_back_equal_and_in_order(store: Store) -> None:
    """Every kind of event survives, in batches and one by one."""
    events = list_every_event()
    begin_session(store)
    assert store.append("s", events[:4], after=0, at=2.0) == 4
    for number, event in enumerate(events[4:], start=4):
        assert store.append("s", (event,), after=number, at=3.0) == number + 1
    assert tuple(read_log(store)) == events
    assert store.length("s") == len(events)


def test_events_behind_a_record(store: Store) -> None:
    """`after` leaves out what came up to it; behind the end there is nothing."""
    events = list_every_event()
    begin_session(store, "s", *events)
    assert tuple(store.events("s", after=3)) == events[3:]
    assert list(store.events("s", after=len(events))) == []
    assert list(store.events("s", after=len(events) + 5)) == []


def test_a_length_that_is_known_at_once(store: Store) -> None:
    """Where a store tells it without waiting, it is the length, and an unknown session is named."""
    if not isinstance(store, NonBlockingLength):
        pytest.skip("this store waits for a server or a lock")
    begin_session(store, "s", *list_every_event())
    assert store.try_length("s") == store.length("s") == len(list_every_event())
    with pytest.raises(UnknownHandle, match="nobody"):
        store.try_length("nobody")


def test_events_are_those_of_the_moment_of_the_call(store: Store) -> None:
    """A log that grows while it is read ends where it ended."""
    begin_session(store, "s", *(add_turn(index) for index in range(1, 700)))
    reading = store.events("s")
    assert next(reading) == add_turn(1)
    store.append("s", (add_turn(700),), after=699, at=2.0)
    assert len(list(reading)) == 698


def test_a_writer_that_is_behind_gets_a_conflict(store: Store) -> None:
    """Whoever has not seen the newest record writes nothing."""
    begin_session(store, "s", add_turn(1), add_turn(2))
    for after in (0, 1, 3):
        with pytest.raises(ConflictError, match="'s'"):
            store.append("s", (add_turn(9),), after=after, at=9.0)
    assert read_log(store) == [add_turn(1), add_turn(2)]
    assert store.info("s").changed == 1.0


def test_a_taken_key_is_a_conflict(store: Store) -> None:
    """The session that is there stays as it is."""
    begin_session(store, "s", add_turn(1), family="first")
    with pytest.raises(ConflictError, match="'s'"):
        store.create(new_session("s", family="second"))
    assert store.info("s").family == "first"
    assert store.length("s") == 1


def test_a_session_that_begins_with_its_first_records(store: Store) -> None:
    """Both are there, or neither; where it shares a log, its own records stand behind what it shares."""
    assert store.create_with_events(new_session("s", family="team", at=1.0), (add_turn(1), add_turn(2)), at=2.0) == 2
    assert (read_log(store), store.info("s").begun, store.info("s").changed) == ([add_turn(1), add_turn(2)], 1.0, 2.0)
    assert store.create_with_events(new_session("t", parent="s", shared=1), (add_turn(2, "other"),), at=3.0) == 2
    assert read_log(store, "t") == [add_turn(1), add_turn(2, "other")]
    assert store.create_with_events(new_session("empty", at=4.0), (), at=5.0) == 0
    assert store.info("empty").changed == 4.0
    with pytest.raises(ConflictError, match="'s'"):
        store.create_with_events(new_session("s"), (add_turn(9),), at=9.0)
    bad = TurnAdded(Turn(index=1, content=(Opaque("image", 1, {"no JSON": object()}),)))
    with pytest.raises(TypeError):
        store.create_with_events(new_session("bad"), (add_turn(1, "x" * 5_000), bad), at=9.0)
    with pytest.raises(UnknownHandle, match="'bad'"):
        store.info("bad")
    assert read_log(store) == [add_turn(1), add_turn(2)]


def test_an_append_is_all_or_nothing(store: Store) -> None:
    """If the last of several events cannot be written, none is, and the session goes on."""
    begin_session(store, "s", add_turn(1))
    bad = TurnAdded(Turn(index=3, content=(Opaque("image", 1, {"no JSON": object()}),)))
    with pytest.raises(TypeError):
        store.append("s", (add_turn(2, "x" * 5_000), bad), after=1, at=2.0)
    assert read_log(store) == [add_turn(1)]
    assert store.append("s", (add_turn(2),), after=1, at=2.0) == 2
    assert store.turns("s") == [make_turn(1), make_turn(2)]


def test_appending_nothing_changes_nothing(store: Store) -> None:
    """It still tells a writer that is behind."""
    begin_session(store, "s", add_turn(1))
    assert store.append("s", (), after=1, at=9.0) == 1
    assert store.info("s").changed == 1.0
    with pytest.raises(ConflictError):
        store.append("s", (), after=0, at=9.0)


def test_info_counts(store: Store) -> None:
    """Records, the newest turn, the last change, and the bytes before packing."""
    begin_session(store, "s", add_turn(1, "x" * 1_000))
    store.append("s", (amend_turn(1, "y" * 2_000), add_turn(2)), after=1, at=5.5)
    found = store.info("s")
    assert (found.records, found.turns, found.begun, found.changed) == (3, 2, 1.0, 5.5)
    assert 3_000 < found.raw_bytes < 4_500


UNKNOWN: dict[str, Callable[[Store], object]] = {
    "append": lambda store: store.append("none", (add_turn(1),), after=0, at=1.0),
    "length": lambda store: store.length("none"),
    "events": lambda store: store.events("none"),
    "turns": lambda store: store.turns("none"),
    "observation": lambda store: store.observation("none", (1, 1)),
    "search": lambda store: store.search("none", "word"),
    "search for nothing": lambda store: store.search("none", ""),
    "info": lambda store: store.info("none"),
    "delete": lambda store: store.delete("none"),
    "fork": lambda store: store.create(new_session("s", parent="none", shared=1)),
}


def test_an_unknown_session_is_named(store: Store, subtests: pytest.Subtests) -> None:
    """Every method that takes a session says which one is not there, at once."""
    begin_session(store, "nones")
    for name, call in UNKNOWN.items():
        with subtests.test(name), pytest.raises(UnknownHandle, match="'none'"):
            call(store)


# --- what is in events -------------------------------------------------------------------------------------------

TEXTS = (
    "",
    "\0",
    "a\0b" * 300,
    "lone \ud800 surrogate \udfff" * 100,
    "\r\n\t\x1b[31mred\x1b[0m",
    "大小 🗿 e\u0301 é \u202e" * 50,
    "{'blob': 'x'} \\u0000 %s {}",
    "x" * 511,
    "x" * 512,
    "x" * 513,
)


def test_any_text_comes_back(store: Store) -> None:
    """Said, reasoned, called or observed: letter for letter."""
    for number, text in enumerate(TEXTS):
        whole = Turn(
            index=1,
            content=(Text(text), Text(text)),
            reasoning=text,
            actions=(Action(id="a", name=text, arguments=text),),
            observations=(Observation(action_id="a", tool=text, content=(Text(text),), tags=frozenset({text})),),
        )
        begin_session(store, f"s{number}", TurnAdded(whole))
        assert read_log(store, f"s{number}") == [TurnAdded(whole)]
        assert store.observation(f"s{number}", (1, 1)).text == text


def test_a_huge_text_comes_back(store: Store) -> None:
    """Two megabytes that hardly compress."""
    text = "".join(f"{number * number:x} " for number in range(260_000))
    assert len(text) > 2_000_000
    begin_session(store, "s", add_turn(1, text), add_turn(2))
    assert store.observation("s", (1, 1)).text == text
    assert store.length("s") == 2


def test_opaque_parts_come_back(store: Store) -> None:
    """Data that nobody understands is kept, small, large, empty and absent."""
    parts = (
        Opaque("image", 1_200, {"type": "image", "source": {"data": "A" * 4_000}}),
        Opaque("thinking", 3, {"signature": "s", "n": [1, 2.5, None, True, {"deep": "\ud800"}]}),
        Opaque("empty", 0, {}),
        Opaque("none"),
    )
    whole = Turn(index=1, content=parts, observations=())
    begin_session(store, "s", TurnAdded(whole))
    assert store.turns("s") == [whole]


# --- turns -------------------------------------------------------------------------------------------------------


def test_turns_by_range(store: Store) -> None:
    """Both ends included, other events left out, whatever is not there is no error."""
    begin_session(
        store,
        "s",
        *list_every_event()[:2],
        add_turn(1),
        *list_every_event()[4:6],
        add_turn(2),
        add_turn(3),
        add_turn(4),
    )
    assert [each.index for each in store.turns("s")] == [1, 2, 3, 4]
    assert [each.index for each in store.turns("s", 2, 3)] == [2, 3]
    assert [each.index for each in store.turns("s", 3)] == [3, 4]
    assert [each.index for each in store.turns("s", last=1)] == [1]
    assert store.turns("s", 5) == store.turns("s", 3, 2) == store.turns("s", 0, 0) == []


def test_an_amended_turn_stands_as_it_is_now(store: Store) -> None:
    """Turns and observations are the newest form; the log keeps both."""
    begin_session(
        store, "s", add_turn(1, "one"), add_turn(2, "old", "gone"), amend_turn(2, "new"), amend_turn(2, "newer")
    )
    assert store.turns("s", 2) == [make_turn(2, "newer")]
    assert store.observation("s", (2, 1)).text == "newer"
    with pytest.raises(UnknownHandle, match=r"t2\.2"):
        store.observation("s", (2, 2))
    assert read_log(store) == [
        add_turn(1, "one"),
        add_turn(2, "old", "gone"),
        amend_turn(2, "new"),
        amend_turn(2, "newer"),
    ]
    assert store.info("s").turns == 2


def test_what_is_not_there_is_named(store: Store) -> None:
    """No such turn, or no such result in it."""
    begin_session(store, "s", add_turn(1, "a", "b"), add_turn(2))
    for key in ((0, 1), (1, 0), (1, 3), (2, 1), (-1, 1), (1, -1), (3, 1), (10**12, 1)):
        with pytest.raises(UnknownHandle, match=rf"t{key[0]}\.{key[1]}"):
            store.observation("s", key)


# --- forks -------------------------------------------------------------------------------------------------------


def test_a_fork_begins_with_a_copy(store: Store) -> None:
    """The shared records, their turns, nodes and words; then both go their own ways."""
    long = "shared words " * 100
    begin_session(store, "s", add_turn(1, long, node="n1"), add_turn(2, "left out", node="n2"), at=1.0)
    store.create(new_session("fork", parent="s", shared=1, at=2.0))
    assert read_log(store, "fork") == [add_turn(1, long, node="n1")]
    assert store.append("fork", (add_turn(2, "other", node="n2x"),), after=1, at=3.0) == 2
    assert store.turns("fork") == [make_turn(1, long), make_turn(2, "other")]
    assert store.turns("s") == [make_turn(1, long), make_turn(2, "left out")]
    assert [hit.turn for hit in store.search("fork", "shared")] == [1]
    assert store.search("fork", "left") == []
    assert store.locate("f", ["n1"]) == ("fork", 1)
    assert store.locate("f", ["n1", "n2"]) == ("s", 2)


def test_a_fork_says_where_it_is_from(store: Store) -> None:
    """Parent and relation, and the counts of what it shares."""
    begin_session(store, "s", add_turn(1, "x" * 1_000), add_turn(2), add_turn(3))
    store.create(NewSession(key="b", family="f", at=2.0, parent="s", relation="replaced", shared=2))
    found = store.info("b")
    assert (found.parent, found.relation, found.records, found.turns) == ("s", "replaced", 2, 2)
    assert (found.begun, found.changed) == (2.0, 2.0)
    assert 1_000 < found.raw_bytes < store.info("s").raw_bytes


def test_a_fork_outlives_its_parent(store: Store) -> None:
    """And its own forks; nothing that it shares goes with the parent."""
    long = "kept " * 300
    begin_session(store, "s", add_turn(1, long, node="n1"), add_turn(2, long + "2", node="n2"))
    store.create(new_session("b", parent="s", shared=2))
    store.create(new_session("c", parent="b", shared=1))
    store.delete("s")
    store.delete("b")
    store.compact()
    assert store.turns("c") == [make_turn(1, long)]
    assert store.observation("c", (1, 1)).text == long
    assert [hit.turn for hit in store.search("c", "kept")] == [1]
    assert store.locate("f", ["n1", "n2"]) == ("c", 1)
    assert store.check() == []


def test_an_amended_turn_in_a_fork(store: Store) -> None:
    """A fork from before the amendment has the turn as it was then."""
    begin_session(store, "s", add_turn(1, "old", node="n1"), amend_turn(1, "new", node="n1b"))
    store.create(new_session("before", parent="s", shared=1))
    store.create(new_session("behind", parent="s", shared=2))
    assert store.turns("before") == [make_turn(1, "old")]
    assert store.turns("behind") == [make_turn(1, "new")]
    assert store.locate("f", ["n1"]) == ("before", 1)


def test_a_fork_cannot_share_more_than_there_is(store: Store) -> None:
    """The parent's log is shorter: a conflict, and no session."""
    begin_session(store, "s", add_turn(1))
    with pytest.raises(ConflictError, match="'s'"):
        store.create(new_session("b", parent="s", shared=2))
    assert [info.key for info in store.sessions()] == ["s"]


def test_a_session_may_name_a_parent_that_is_not_there(store: Store) -> None:
    """As long as it shares nothing with it: a sub-agent's run may outlive, or precede, what is kept of its parent."""
    store.create(new_session("b", parent="gone"))
    assert store.info("b").parent == "gone"
    assert store.length("b") == 0


# --- lineage -----------------------------------------------------------------------------------------------------


def test_the_longest_known_history_is_found(store: Store) -> None:
    """The last node that anybody holds, and the turn that it names."""
    begin_session(store, "s", add_turn(1, node="n1"), add_turn(2, node="n2"), add_turn(3, node="n3"))
    assert store.locate("f", ["n1", "n2", "n3", "n4"]) == ("s", 3)
    assert store.locate("f", ["n1", "n2", "other"]) == ("s", 2)
    assert store.locate("f", ["other"]) is None
    assert store.locate("f", []) is None
    assert store.locate("f", [""]) is None


def test_of_several_the_one_changed_last_is_found(store: Store) -> None:
    """A fork that went on, or its parent if that did."""
    begin_session(store, "s", add_turn(1, node="n1"), at=1.0)
    store.create(new_session("b", parent="s", shared=1, at=2.0))
    assert store.locate("f", ["n1"]) == ("b", 1)
    store.append("s", (add_turn(2),), after=1, at=3.0)
    assert store.locate("f", ["n1"]) == ("s", 1)


def test_an_amended_history_is_found_by_its_new_node_alone(store: Store) -> None:
    """What the turn was is not what the session goes on with."""
    begin_session(store, "s", add_turn(1, node="n1"), add_turn(2, node="n2"), amend_turn(2, node="n2b"))
    assert store.locate("f", ["n1", "n2b"]) == ("s", 2)
    assert store.locate("f", ["n1", "n2"]) == ("s", 1)


def test_families_do_not_see_each_other(store: Store) -> None:
    """The same history in two families is two histories."""
    begin_session(store, "a", add_turn(1, node="n1"), family="one", at=1.0)
    begin_session(store, "b", add_turn(1, node="n1"), family="two", at=2.0)
    assert store.locate("one", ["n1"]) == ("a", 1)
    assert store.locate("two", ["n1"]) == ("b", 1)
    assert store.locate("on", ["n1"]) is store.locate("%", ["n1"]) is store.locate("", ["n1"]) is None


def test_a_long_history_is_looked_up(store: Store) -> None:
    """Thousands of nodes in one question."""
    begin_session(store, "s", *(add_turn(index, node=f"n{index}") for index in range(1, 50)))
    nodes = [f"n{index}" for index in range(1, 5_000)]
    assert store.locate("f", nodes) == ("s", 49)


# --- isolation ---------------------------------------------------------------------------------------------------


def test_odd_keys_are_keys_like_any_other(store: Store) -> None:
    """As sessions, families, parents and nodes: told apart, found again, deleted alone."""
    for number, key in enumerate(ODD_KEYS, start=1):
        begin_session(store, key, add_turn(1, f"text {number}", node=key), family=key)
    for number, key in enumerate(ODD_KEYS, start=1):
        assert store.info(key).key == store.info(key).family == key
        assert store.observation(key, (1, 1)).text == f"text {number}"
        assert [hit.session for hit in store.search(key, "text")] == [key]
        assert store.locate(key, [key]) == ((key, 1) if key else None)
        store.create(new_session("fork of " + key, parent=key, shared=1))
        assert store.info("fork of " + key).parent == key
    store.delete(ODD_KEYS[5])
    left = {info.key for info in store.sessions()}
    assert left == ({*ODD_KEYS} | {"fork of " + key for key in ODD_KEYS}) - {ODD_KEYS[5]}


def test_sessions_do_not_see_each_other(store: Store) -> None:
    """Handles, words and counts of one are nothing to the other."""
    begin_session(store, "a", add_turn(1, "alpha"), add_turn(2, "alpha"))
    begin_session(store, "ab", add_turn(1, "beta"))
    assert store.search("ab", "alpha") == []
    assert store.turns("ab") == [make_turn(1, "beta")]
    with pytest.raises(UnknownHandle):
        store.observation("ab", (2, 1))


def test_sessions_are_listed_the_one_changed_last_first(store: Store) -> None:
    """Creating and appending are changes; each says the same as `info`."""
    assert store.sessions() == []
    for key, at in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
        store.create(new_session(key, at=at))
    store.append("a", (add_turn(1),), after=0, at=4.0)
    assert [info.key for info in store.sessions()] == ["a", "c", "b"]
    assert store.sessions() == [store.info(key) for key in ("a", "c", "b")]


# --- threads -----------------------------------------------------------------------------------------------------


def test_threads_write_their_own_sessions(store: Store) -> None:
    """Nothing is lost and nothing is mixed up."""

    def write(key: str) -> None:
        begin_session(store, key)
        for index in range(1, 26):
            store.append(key, (add_turn(index, f"{key} {index} " * 60),), after=index - 1, at=1.0)
            store.search(key, "a")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, "abcd"))
    for key in "abcd":
        assert store.turns(key) == [make_turn(index, f"{key} {index} " * 60) for index in range(1, 26)]


def test_threads_race_for_one_session(store: Store) -> None:
    """Each record is written by one of them; the others are told."""
    begin_session(store)
    start, won = threading.Barrier(4), [0] * 4

    def write(number: int) -> None:
        start.wait()
        for after in range(20):
            try:
                store.append("s", (add_turn(after + 1, f"by {number}"),), after=after, at=1.0)
                won[number] += 1
            except ConflictError:
                continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert sum(won) == store.length("s") > 0
    assert [each.index for each in store.turns("s")] == list(range(1, store.length("s") + 1))


# --- opening and closing -----------------------------------------------------------------------------------------

CLOSED: dict[str, Callable[[Store], object]] = {
    "create": lambda store: store.create(new_session("t")),
    "create_with_events": lambda store: store.create_with_events(new_session("t"), (add_turn(1),), at=1.0),
    "append": lambda store: store.append("s", (add_turn(2),), after=1, at=1.0),
    "length": lambda store: store.length("s"),
    "events": lambda store: list(store.events("s")),
    "turns": lambda store: store.turns("s"),
    "observation": lambda store: store.observation("s", (1, 1)),
    "search": lambda store: store.search("s", "x"),
    "locate": lambda store: store.locate("f", ["n1"]),
    "sessions": lambda store: store.sessions(),
    "info": lambda store: store.info("s"),
    "delete": lambda store: store.delete("s"),
    "purge": lambda store: store.purge(older_than=9.0),
    "footprint": lambda store: store.footprint(),
    "compact": lambda store: store.compact(),
    "check": lambda store: store.check(),
}


def test_a_closed_store_says_so(store: Store, subtests: pytest.Subtests) -> None:
    """Whatever is asked of it; closing it twice is nothing."""
    begin_session(store, "s", add_turn(1, "x", node="n1"))
    store.close()
    store.close()
    for name, call in CLOSED.items():
        with subtests.test(name), pytest.raises(StoreError, match="closed"):
            call(store)


def test_what_was_written_is_there_when_opened_again(opener: Opener) -> None:
    """Logs, turns, forks, lineage and search."""
    first, events = opener(), list_every_event()
    begin_session(first, "s", *events, at=3.0)
    first.create(new_session("b", parent="s", shared=4, at=4.0))
    listed = first.sessions()
    first.close()
    second = opener()
    assert tuple(read_log(second)) == events
    assert second.sessions() == listed
    assert second.turns("b") == second.turns("s") == [events[3].turn]  # type: ignore[union-attr]
    assert second.locate("f", ["n1b"]) == ("b", 1)
    assert [hit.handle for hit in second.search("s", "more")] == ["t1.2"]
    assert second.check() == []


def test_a_store_that_was_not_closed_is_opened_again(opener: Opener) -> None:
    """What was acknowledged is there, whoever still holds the place; or the second is told who does."""
    first = opener()
    begin_session(first, "s", add_turn(1, "x" * 1_000))
    try:
        second = opener()
    except ConflictError:
        first.close()
        second = opener()
    assert second.turns("s") == [make_turn(1, "x" * 1_000)]


def test_events_of_a_closed_store_are_not_half_read(store: Store) -> None:
    """A log that is being read when the store is closed goes on to its end or says so."""
    events: list[Event] = [add_turn(index) for index in range(1, 1_200)]
    begin_session(store, "s", *events)
    reading = store.events("s")
    found = [next(reading)]
    store.close()
    try:
        found.extend(reading)
    except StoreError:
        return
    assert found == events


# --- lists of sessions -------------------------------------------------------------------------------------------


def families(store: Store, prefix: str) -> list[str]:
    return [info.family for info in store.sessions(family_prefix=prefix)]


def test_sessions_of_a_family_and_of_those_that_begin_like_it(store: Store) -> None:
    """By the letters that the family begins with, in the order of all lists."""
    for at, family in enumerate(("k1", "k1/a", "k10", "k2", "xk1", "")):
        store.create(new_session(f"s{at}", family=family, at=float(at)))
    assert families(store, "k1") == ["k10", "k1/a", "k1"]
    assert families(store, "k1/") == ["k1/a"]
    assert families(store, "k1/a/b") == []
    assert families(store, "") == ["", "xk1", "k2", "k10", "k1/a", "k1"]


def test_any_text_begins_a_family(store: Store) -> None:
    """Letters that a database has a meaning for are letters, and so is what stands at the end of an alphabet."""
    for name in (*filter(None, ODD_KEYS), "k" * 200):
        store.create(new_session("own", family=name, at=1.0))
        store.create(new_session("below", family=f"{name}\U0010ffff\U0010ffff", at=2.0))
        store.create(new_session("other", family=f"x{name}", at=3.0))
        assert [info.key for info in store.sessions(family_prefix=name)] == ["below", "own"], name
        assert [info.key for info in store.sessions(family_prefix=f"{name}\U0010ffff")] == ["below"], name
        for key in ("own", "below", "other"):
            store.delete(key)


def test_sessions_that_changed_since(store: Store) -> None:
    """Then or later; a session that was written to counts as of that write, and both conditions hold together."""
    for at, family in enumerate(("k1", "k1", "k2"), start=1):
        store.create(new_session(f"s{at}", family=family, at=float(at)))
    store.append("s1", list_every_event()[:1], after=0, at=5.0)
    assert [info.key for info in store.sessions(changed_since=3.0)] == ["s1", "s3"]
    assert [info.key for info in store.sessions(family_prefix="k1", changed_since=2.0)] == ["s1", "s2"]
    assert [info.key for info in store.sessions(family_prefix="k1", changed_since=5.5)] == []
    assert len(store.sessions()) == 3
