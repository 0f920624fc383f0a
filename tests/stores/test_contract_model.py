"""Every store does, step by step, what the memory store does (hypothesis, stateful)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from elision.errors import ElisionError
from elision.stores.memory import MemoryStore
from elision.stores.store import Store
from elision.stores.store_urls import open_store
from elision.trajectory.events import Event
from tests.soak import leave_to_soak
from tests.stores.implementations import DURABLE, STORES
from tests.stores.session_logs import add_turn, amend_turn, new_session

KEYS = ("a", "b", "a%", "'")
keys = st.sampled_from(KEYS)
families = st.sampled_from(["f", "g"])
nodes = st.sampled_from(["", "n1", "n2", "n3", "n4"])
texts = st.text(alphabet="abcAB _é\0\ud800", max_size=8) | st.sampled_from(["abc " * 200, "B" * 600])
times = st.integers(0, 9).map(float)
#: Few, so that one comes again, at its place and at others, with the same records and with others.
batches = st.sampled_from([b"", *(bytes([number]) * 16 for number in range(4))])


class Comparison(RuleBasedStateMachine):
    """Drives a store and the model alike; results and errors are the same after each step."""

    url = "memory:"

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.place = self.fresh(Path(self.folder.name))
        self.store: Store = open_store(self.place)
        self.model = MemoryStore()
        #: What was appended so far, as it was given.
        self.appends: list[tuple[str, tuple[Event, ...], int, bytes]] = []

    @staticmethod
    def fresh(folder: Path) -> str:
        raise NotImplementedError

    made = Bundle("made")

    def same(self, name: str, *given: object, **named: object) -> object:
        """Call both; their answers are equal, and so are the kinds of their errors."""
        answers: list[object] = []
        for each in (self.store, self.model):
            try:
                found = getattr(each, name)(*given, **named)
                answers.append(list(found) if name == "events" else found)
            except ElisionError as error:
                answers.append(type(error))
        assert answers[0] == answers[1], name
        return answers[0]

    @rule(target=made, key=keys, family=families, at=times)
    def create(self, key: str, family: str, at: float) -> str:
        self.same("create", new_session(key, family=family, at=at))
        return key

    @rule(target=made, key=keys, parent=keys, shared=st.integers(0, 6), at=times)
    def fork(self, key: str, parent: str, shared: int, at: float) -> str:
        self.same("create", new_session(key, parent=parent, shared=shared, at=at))
        return key

    def same_append(self, key: str, events: tuple[Event, ...], after: int, at: float, batch: bytes) -> None:
        """Call both, and remember it."""
        self.appends.append((key, events, after, batch))
        self.same("append", key, events, after=after, at=at, batch=batch)

    @rule(
        key=made,
        results=st.lists(texts, max_size=3),
        node=nodes,
        at=times,
        amend=st.booleans(),
        late=st.booleans(),
        batch=batches,
    )
    def append(self, key: str, results: list[str], node: str, at: float, amend: bool, late: bool, batch: bytes) -> None:
        try:
            info = self.model.info(key)
        except ElisionError:
            self.same_append(key, (add_turn(1),), 0, at, batch)
            return
        if amend and info.turns:
            event = amend_turn(info.turns, *results, node=node)
        else:
            event = add_turn(info.turns + 1, *results, node=node)  # type: ignore[assignment]
        self.same_append(key, (event,), info.records - late, at, batch)

    @rule(key=keys, parent=keys, shared=st.integers(0, 3), results=st.lists(texts, max_size=2), at=times, batch=batches)
    def begin(self, key: str, parent: str, shared: int, results: list[str], at: float, batch: bytes) -> None:
        session = new_session(key, parent=parent, shared=shared, at=at)
        events = [add_turn(shared + number, result) for number, result in enumerate(results, start=1)]
        self.same("create_with_events", session, events, at=at, batch=batch)
        self.appends.append((key, tuple(events), shared, batch))

    @rule(data=st.data(), at=times)
    def repeat(self, data: st.DataObject, at: float) -> None:
        """Any append again, whatever became of its session; where it was written with an id it changes nothing."""
        if not self.appends:
            return
        key, events, after, batch = data.draw(st.sampled_from(self.appends))
        self.same("append", key, events, after=after, at=at, batch=batch)

    @rule(key=made, results=st.lists(texts, max_size=2), at=times, batch=batches)
    def append_several(self, key: str, results: list[str], at: float, batch: bytes) -> None:
        try:
            info = self.model.info(key)
        except ElisionError:
            return
        events = tuple(add_turn(info.turns + step, *results, node=f"n{step}") for step in (1, 2, 3))
        self.same_append(key, events, info.records, at, batch)

    @rule(key=made, query=texts, limit=st.integers(0, 5))
    def search(self, key: str, query: str, limit: int) -> None:
        self.same("search", key, query, limit)

    @rule(family=families, known=st.lists(nodes, max_size=4))
    def locate(self, family: str, known: list[str]) -> None:
        self.same("locate", family, known)

    @rule(key=made, first=st.integers(-1, 4), last=st.none() | st.integers(-1, 6))
    def turns(self, key: str, first: int, last: int | None) -> None:
        self.same("turns", key, first, last)

    @rule(key=made, handle=st.tuples(st.integers(0, 4), st.integers(0, 3)))
    def observation(self, key: str, handle: tuple[int, int]) -> None:
        self.same("observation", key, handle)

    @rule(key=consumes(made))
    def delete(self, key: str) -> None:
        self.same("delete", key)

    @rule(at=times)
    def purge(self, at: float) -> None:
        gone = [each.purge(older_than=at).sessions for each in (self.store, self.model)]
        assert gone[0] == gone[1]

    @rule()
    def compact(self) -> None:
        self.store.compact()
        assert self.store.check() == []

    @rule()
    def open_again(self) -> None:
        if type(self.store) is not MemoryStore:
            self.store.close()
            self.store = open_store(self.place)

    @invariant()
    def logs_are_equal(self) -> None:
        self.same("sessions")
        for info in self.model.sessions():
            self.same("events", info.key)
            self.same("length", info.key)
        ours, theirs = self.store.footprint(), self.model.footprint()
        assert (ours.sessions, ours.records, ours.turns, ours.raw_bytes) == (
            theirs.sessions,
            theirs.records,
            theirs.turns,
            theirs.raw_bytes,
        )

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


@pytest.mark.parametrize("name", leave_to_soak(DURABLE, "pgbouncer"))
def test_a_store_does_what_the_model_does(name: str) -> None:
    """Any sequence of calls has the answers, errors and logs of the memory store."""
    machine = type(f"Compare_{name}", (Comparison,), {"fresh": staticmethod(STORES[name])})
    examples = min(settings.default.max_examples, 400)
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=25))
