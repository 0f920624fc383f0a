"""What every store promises about appends that are repeated: with its id, an append is written once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import ConflictError, StoreError
from elision.stores.memory import MemoryStore
from elision.stores.packing import make_batch_id
from elision.stores.store import Store
from elision.trajectory.events import Event, TurnAdded
from elision.trajectory.turn import Opaque, Turn
from tests.stores.conftest import Opener
from tests.stores.session_logs import add_turn, amend_turn, begin_session, list_every_event, new_session, read_log

FIRST, SECOND = b"1" * 16, b"2" * 16


def test_a_repeated_append_is_written_once(store: Store) -> None:
    """It returns the length as after the first time, also after others appended."""
    begin_session(store, "s", add_turn(1))
    events = (add_turn(2, "x" * 5_000), amend_turn(2, "y", node="n2"))
    for _ in range(3):
        assert store.append("s", events, after=1, at=2.0, batch=FIRST) == 3
    assert store.append("s", (add_turn(3),), after=3, at=3.0, batch=SECOND) == 4
    assert store.append("s", (add_turn(4),), after=4, at=4.0) == 5
    before = store.info("s"), store.footprint().records
    assert store.append("s", events, after=1, at=9.0, batch=FIRST) == 3
    assert store.append("s", (add_turn(3),), after=3, at=9.0, batch=SECOND) == 4
    assert (store.info("s"), store.footprint().records) == before
    assert read_log(store) == [add_turn(1), *events, add_turn(3), add_turn(4)]
    assert store.check() == []


def test_every_kind_of_event_is_recognized(store: Store) -> None:
    """Also one whose parts come back as other Python types than they went in."""
    odd = TurnAdded(Turn(index=2, content=(Opaque("image", 1, {"pair": (1, 2), "one": 1.0}),)))
    events = (*list_every_event(), odd)
    store.create(new_session("s"))
    assert store.append("s", events, after=0, at=1.0, batch=FIRST) == len(events)
    assert store.append("s", events, after=0, at=2.0, batch=FIRST) == len(events)


def test_another_id_at_a_taken_place_is_a_conflict(store: Store) -> None:
    """So is no id, where the same records were written with one, and one where they were written without."""
    begin_session(store, "s", add_turn(1))
    store.append("s", (add_turn(2),), after=1, at=1.0, batch=FIRST)
    for after, batch in ((1, SECOND), (1, b""), (0, FIRST), (3, FIRST), (-1, FIRST), (-2, FIRST)):
        with pytest.raises(ConflictError, match="'s'"):
            store.append("s", (add_turn(2),), after=after, at=2.0, batch=batch)
    assert read_log(store) == [add_turn(1), add_turn(2)]


@pytest.mark.parametrize(
    "others",
    [(add_turn(2), add_turn(9)), (add_turn(2),), (add_turn(2), add_turn(3), add_turn(4)), (amend_turn(1),)],
    ids=["different", "fewer", "more", "one"],
)
def test_an_id_with_other_records_is_an_error(store: Store, others: tuple[Event, ...]) -> None:
    """It names session and id. It is no conflict: to read again would not help."""
    begin_session(store, "s", add_turn(1))
    store.append("s", (add_turn(2), add_turn(3)), after=1, at=1.0, batch=FIRST)
    store.append("s", (add_turn(4),), after=3, at=1.0)
    with pytest.raises(StoreError, match=f"'s' has other records of the append {FIRST.hex()}") as error:
        store.append("s", others, after=1, at=2.0, batch=FIRST)
    assert not isinstance(error.value, ConflictError)
    assert store.length("s") == 4


def test_two_appends_are_not_one(store: Store) -> None:
    """Two that follow each other are no append of both, also where a caller gave them one id."""
    begin_session(store)
    store.append("s", (add_turn(1),), after=0, at=1.0, batch=FIRST)
    store.append("s", (add_turn(2),), after=1, at=1.0, batch=FIRST)
    with pytest.raises(StoreError, match="other records"):
        store.append("s", (add_turn(1), add_turn(2)), after=0, at=2.0, batch=FIRST)
    assert store.append("s", (add_turn(1),), after=0, at=2.0, batch=FIRST) == 1
    assert store.append("s", (add_turn(2),), after=1, at=2.0, batch=FIRST) == 2


def test_an_id_is_kept_with_the_first_record_only(store: Store) -> None:
    """At another record of its append it is any other id."""
    begin_session(store, "s", add_turn(1))
    store.append("s", (add_turn(2), add_turn(3)), after=1, at=1.0, batch=FIRST)
    for event in (add_turn(3), add_turn(3, "other")):
        with pytest.raises(ConflictError, match="'s'"):
            store.append("s", (event,), after=2, at=2.0, batch=FIRST)


@pytest.mark.parametrize("batch", [b"1", b"1" * 15, b"1" * 17])
def test_an_id_has_16_bytes(store: Store, batch: bytes) -> None:
    begin_session(store, "s")
    with pytest.raises(StoreError, match=f"16 bytes, not {len(batch)}"):
        store.append("s", (add_turn(1),), after=0, at=1.0, batch=batch)
    with pytest.raises(StoreError, match=f"16 bytes, not {len(batch)}"):
        store.create_with_events(new_session("t"), (add_turn(1),), at=1.0, batch=batch)
    assert store.length("s") == 0


def test_no_records_leave_no_id(store: Store) -> None:
    """An append of nothing changes nothing, with an id as without."""
    begin_session(store)
    assert store.append("s", (), after=0, at=1.0, batch=FIRST) == 0
    assert store.append("s", (add_turn(1),), after=0, at=1.0, batch=FIRST) == 1
    with pytest.raises(ConflictError):
        store.append("s", (), after=0, at=1.0, batch=FIRST)


def test_a_repeated_beginning_is_one_session(store: Store) -> None:
    """With its first records, also where it shares a log, and after others appended."""
    first, events = new_session("s", at=1.0), (add_turn(1, node="n1"), add_turn(2))
    fork, own = new_session("t", parent="s", shared=1, at=2.0), (add_turn(2, "other"),)
    for _ in range(2):
        assert store.create_with_events(first, events, at=3.0, batch=FIRST) == 2
        assert store.create_with_events(fork, own, at=3.0, batch=SECOND) == 2
    store.append("s", (add_turn(3),), after=2, at=4.0)
    listed = store.sessions()
    assert store.create_with_events(first, events, at=9.0, batch=FIRST) == 2
    assert store.append("s", events, after=0, at=9.0, batch=FIRST) == 2
    assert store.sessions() == listed
    assert read_log(store, "t") == [events[0], *own]
    assert store.check() == []


def test_a_taken_name_stays_a_conflict(store: Store) -> None:
    """Where another append began the session, or none did."""
    store.create_with_events(new_session("s"), (add_turn(1),), at=1.0, batch=FIRST)
    store.create(new_session("t"))
    for key, batch in (("s", SECOND), ("s", b""), ("t", FIRST)):
        with pytest.raises(ConflictError, match=f"'{key}'"):
            store.create_with_events(new_session(key), (add_turn(1),), at=2.0, batch=batch)
    with pytest.raises(StoreError, match="other records"):
        store.create_with_events(new_session("s"), (add_turn(2),), at=2.0, batch=FIRST)
    assert read_log(store) == [add_turn(1)]
    assert read_log(store, "t") == []


def test_a_fork_has_the_records_without_the_ids(store: Store) -> None:
    """An append belongs to the session that it was made to."""
    begin_session(store)
    store.append("s", (add_turn(1),), after=0, at=1.0, batch=FIRST)
    store.create_with_events(new_session("t", parent="s", shared=1), (add_turn(2),), at=1.0, batch=SECOND)
    for batch in (FIRST, SECOND):
        with pytest.raises(ConflictError, match="'t'"):
            store.append("t", (add_turn(1),), after=0, at=2.0, batch=batch)
    assert store.append("t", (add_turn(2),), after=1, at=2.0, batch=SECOND) == 2


def test_a_deleted_session_takes_its_ids_along(store: Store) -> None:
    """A new one of the same name begins without them; what others have is kept through that and through compaction."""
    for key in ("s", "other"):
        begin_session(store, key)
        store.append(key, (add_turn(1),), after=0, at=1.0, batch=FIRST)
    store.delete("s")
    store.compact()
    begin_session(store, "s", add_turn(7))
    with pytest.raises(ConflictError):
        store.append("s", (add_turn(1),), after=0, at=1.0, batch=FIRST)
    assert store.append("other", (add_turn(1),), after=0, at=1.0, batch=FIRST) == 1


def test_an_append_that_failed_is_written_when_it_is_repeated(store: Store) -> None:
    """What cannot be packed leaves nothing behind, the id included."""
    begin_session(store, "s", add_turn(1))
    bad = TurnAdded(Turn(index=3, content=(Opaque("image", 1, {"no JSON": object()}),)))
    with pytest.raises(TypeError):
        store.append("s", (add_turn(2), bad), after=1, at=1.0, batch=FIRST)
    assert store.append("s", (add_turn(2),), after=1, at=1.0, batch=FIRST) == 2


def test_an_append_is_recognized_when_the_store_is_opened_again(opener: Opener) -> None:
    """The ids are in the store, not in the process that wrote them."""
    store = opener()
    begin_session(store)
    events = (add_turn(1, "x" * 5_000), add_turn(2))
    store.append("s", events, after=0, at=1.0, batch=FIRST)
    store.append("s", (add_turn(3),), after=2, at=1.0, batch=SECOND)
    store.close()
    store = opener()
    assert store.append("s", events, after=0, at=2.0, batch=FIRST) == 2
    assert store.append("s", (add_turn(3),), after=2, at=2.0, batch=SECOND) == 3
    assert read_log(store) == [*events, add_turn(3)]


def test_threads_that_repeat_one_append_write_it_once(store: Store) -> None:
    """All of them are told the same length."""
    begin_session(store)
    together = threading.Barrier(4, timeout=60)

    def write(_: int) -> int:
        together.wait()
        return store.append("s", (add_turn(1), add_turn(2)), after=0, at=1.0, batch=FIRST)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(write, range(4))) == [2] * 4
    assert read_log(store) == [add_turn(1), add_turn(2)]


class _Step(NamedTuple):
    """writer: of two. repeats: whether its newest append is repeated instead of a new one. lost: its answer is."""

    writer: int
    repeats: bool
    lost: bool


steps = st.lists(st.builds(_Step, st.integers(0, 1), st.booleans(), st.booleans()), max_size=30)


@given(steps)
def test_two_writers_in_any_order_make_one_history(plan: list[_Step]) -> None:
    """Each record of each writer is there once, in the order in which that writer made it, however answers are lost."""
    store = MemoryStore()
    store.create(new_session("s"))
    made: list[list[Event]] = [[], []]
    #: The append of each writer whose outcome it does not know: place, record, id.
    open_appends: list[tuple[int, Event, bytes] | None] = [None, None]

    def write(writer: int, *, lost: bool) -> None:
        """Make or repeat the append of `writer`; where the answer comes it is done."""
        place, event, batch = open_appends[writer] or (store.length("s"), _record(writer, made), make_batch_id())
        if open_appends[writer] is None:
            made[writer].append(event)
        try:
            store.append("s", (event,), after=place, at=1.0, batch=batch)
        except ConflictError:
            # It was not written: the other one was first. It is written behind that.
            open_appends[writer] = (store.length("s"), event, batch)
            write(writer, lost=lost)
            return
        open_appends[writer] = (place, event, batch) if lost else None

    for step in plan:
        if step.repeats and open_appends[step.writer] is None:
            continue
        write(step.writer, lost=step.lost)
    log = read_log(store)
    assert len(log) == len(made[0]) + len(made[1])
    for writer in range(2):
        assert [event for event in log if event in made[writer]] == made[writer]


def _record(writer: int, made: list[list[Event]]) -> Event:
    return add_turn(len(made[writer]) + 1, f"writer {writer}")
