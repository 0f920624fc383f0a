"""Which live session a request goes on with."""

from __future__ import annotations

import asyncio
import json
from operator import is_
from typing import Any

import pytest

from elision.gateway import incoming_messages
from elision.gateway import live_sessions as sessions_of
from elision.gateway.identity import ClientIdentity
from elision.gateway.incoming_messages import IncomingMessages
from elision.gateway.live_sessions import MAX_SEARCHED_SESSIONS, LiveSession, SessionRegistry
from elision.gateway.request_body import RequestBody, UnreadableBody, decode_message
from elision.manager.opened_session import OpenedSession
from elision.stores.memory import MemoryStore
from tests.flat_options import open_session

Json = dict[str, Any]
TASK = {"role": "user", "content": "Fix the parser."}


def made(name: str, family: str, api: str, model: str, parent: str, role: str) -> OpenedSession:
    return open_session("raw", store=MemoryStore(), session=name, family=family, dialect=api, parent=parent)


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def sessions(
    *, most: int = 100, memory: int = 1 << 30, idle: float = 1e9, clock: Clock | None = None
) -> SessionRegistry:
    return SessionRegistry(made, max_sessions=most, memory_bytes=memory, idle_seconds=idle, clock=clock or Clock())


def who(namespace: str = "k1", session: str = "") -> ClientIdentity:
    return ClientIdentity(namespace=namespace, session=session)


def body(messages: list[Json], api: Any = "openai") -> RequestBody:
    return RequestBody.parse(json.dumps({"model": "m", "messages": messages}).encode(), api)


def call(number: int, told: str = "") -> list[Json]:
    """One turn: a call, and its result."""
    id = f"call_{number}{told}"
    function = {"name": "bash", "arguments": json.dumps({"command": f"step {number}{told}"})}
    return [
        {"role": "assistant", "content": None, "tool_calls": [{"id": id, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": id, "content": f"result {number}{told}"},
    ]


def steps(count: int) -> list[Json]:
    """The task, and so many turns."""
    return [TASK, *(message for number in range(1, count + 1) for message in call(number))]


def asked(
    known: SessionRegistry, messages: list[Json], *, whom: ClientIdentity | None = None, answered: bool = True
) -> LiveSession:
    """A request that was answered before the next comes."""
    live = known.claim_session(whom or who(), "openai", body(messages))
    known.release_session(live, answered=answered)
    return live


async def test_a_session_has_its_messages_once() -> None:
    """The bytes for the next comparison are those of the conversation, which the library reads without a copy."""
    known = sessions()
    for turns in range(1, 4):
        messages = [TASK, *(message for number in range(turns) for message in call(number))]
        live = asked(known, messages)
        view = live.context.prepare(live.conversation.messages)
    previous = live.previous_body
    assert previous is not None
    assert all(map(is_, previous.messages, (message.raw for message in live.conversation.messages)))
    assert all(map(is_, view.messages, live.conversation.messages))
    assert len(previous.messages) == len(view.messages) == 7


async def test_same_words_of_two_agents_are_two_sessions() -> None:
    """The same first request again, behind an answer or while it is on its way, is another agent's."""
    known = sessions()
    one = asked(known, [TASK])
    other = known.claim_session(who(), "openai", body([TASK]))
    third = known.claim_session(who(), "openai", body([TASK]))
    assert len({id(one), id(other), id(third)}) == 3
    for live in (other, third):
        known.release_session(live, answered=True)
    ours = asked(known, [TASK, *call(1, "a")])
    theirs = asked(known, [TASK, *call(1, "b")])
    assert ours is not theirs
    assert asked(known, [TASK, *call(1, "a"), *call(2)]) is ours
    assert asked(known, [TASK, *call(1, "b"), *call(2)]) is theirs


async def test_a_first_request_that_failed_is_tried_again() -> None:
    """A client whose first request got no answer asks once more in the same session."""
    known = sessions()
    assert asked(known, [TASK], answered=False) is asked(known, [TASK])


async def test_moved_markers_and_new_ids_are_no_change() -> None:
    """A message that says the same in other bytes is known, and goes on as it came last."""
    known = sessions()
    marked = {**TASK, "content": [{"type": "text", "text": "Fix it.", "cache_control": {"type": "ephemeral"}}]}
    plain = {**TASK, "content": [{"type": "text", "text": "Fix it."}], "name": None}
    live = asked(known, [marked])
    again = [dict(message) for message in call(1)]
    again[0]["tool_calls"] = [{**again[0]["tool_calls"][0], "id": "other"}]
    again[1]["tool_call_id"] = "other"
    asked(known, [marked, *call(1)])
    assert asked(known, [plain, *again, *call(2)]) is live
    assert json.loads(live.conversation.messages[0].raw) == plain
    assert live.conversation.messages[0].json == plain


async def test_an_undo_stays_with_its_agent_and_a_fork_in_flight_does_not() -> None:
    """A history that goes back is the same session's where nobody waits, and another one's where somebody does."""
    known = sessions()
    long = steps(3)
    live = asked(known, long)
    assert asked(known, [*steps(1), *call(2, "other")]) is live
    known.claim_session(who(), "openai", body([*steps(1), *call(2, "other"), *call(3)]))
    fork = known.claim_session(who(), "openai", body([*steps(1), *call(2, "third")]))
    assert fork is not live


async def test_branches_that_take_turns_get_sessions_of_their_own() -> None:
    """Two agents that go on from one history in turns are told apart after a few changes of sides."""
    known = sessions()
    shared = steps(1)
    asked(known, shared)
    for number in range(2, 9):
        left = asked(known, [*shared, *(each for n in range(2, number) for each in call(n, "l")), *call(number, "l")])
        right = asked(known, [*shared, *(each for n in range(2, number) for each in call(n, "r")), *call(number, "r")])
    assert left is not right


async def test_twins_stay_two() -> None:
    """Agents that say the same from first to last, one a step ahead, keep a session each; a retry keeps its own."""
    known = sessions()
    ahead, behind = asked(known, [TASK]), asked(known, [TASK])
    assert ahead is not behind
    history = [TASK]
    for number in range(1, 4):
        history = [*history, *call(number)]
        assert {asked(known, history), asked(known, history)} == {ahead, behind}
    further = asked(known, [*history, *call(4), *call(5)])
    assert {asked(known, [*history, *call(4)]), further} == {ahead, behind}
    history = [*history, *call(4), *call(5)]
    asked(known, history)
    flying = known.claim_session(who(), "openai", body([*history, *call(6)]))
    other = known.claim_session(who(), "openai", body([*history, *call(6)]))
    assert {flying, other} == {ahead, behind}
    known.mark_answered(other)
    assert known.claim_session(who(), "openai", body([*history, *call(6), *call(7)])) is other
    alone = sessions()
    first = asked(alone, steps(1))
    assert asked(alone, steps(1)) is first


@pytest.mark.parametrize("flying", [True, False])
async def test_agents_that_part_at_a_result_keep_a_session_each(flying: bool) -> None:
    """The same call of two agents, answered otherwise: who waits is not taken for another one's changed mind."""
    known = sessions()
    both = {id(asked(known, [TASK])), id(asked(known, [TASK]))}
    left, right = call(1), [call(1)[0], {**call(1)[1], "content": "another result"}]
    one = known.claim_session(who(), "openai", body([TASK, *left]))
    if not flying:
        known.release_session(one, answered=True)
    other = known.claim_session(who(), "openai", body([TASK, *right]))
    assert {id(one), id(other)} == both
    if flying:
        third = known.claim_session(who(), "openai", body([TASK, right[0], {**right[1], "content": "a third one"}]))
        assert id(third) not in both


async def test_keys_share_nothing() -> None:
    """The same history under another key, or another session id of the client, is another session."""
    known = sessions()
    history = steps(1)
    found = {id(asked(known, history, whom=whom)) for whom in (who("k1"), who("k2"), who("k1", "s"))}
    assert len(found) == 3
    assert {live.family for live in known} == {"k1", "k2", "k1/s"}


async def test_a_compaction_by_the_client_is_recognised() -> None:
    """A client that replaced its history but for some of its messages goes on in its session."""
    known = sessions()
    live = asked(known, steps(3))
    summary = {"role": "user", "content": "Summary of what was done so far."}
    assert asked(known, [summary, *call(2), *call(3)]) is live
    assert asked(known, [{"role": "user", "content": "Another task."}, *call(9)]) is not live


async def test_a_client_may_compact_for_ever() -> None:
    """A client that compacts now and then keeps its session, however often it does."""
    known = sessions()
    history, first = [TASK], asked(known, [TASK])
    for number in range(1, 61):
        history = [*history, *call(number)]
        assert asked(known, history) is first, number
        if not number % 10:
            summary = {"role": "user", "content": f"Summary of {number} steps."}
            history = [summary, *history[-4:]]


async def test_who_did_some_of_the_same_is_no_compaction() -> None:
    """An agent that comes in the midst of its run, and did some of what another did, is not that one rewritten."""
    known = sessions()
    live = asked(known, steps(2))
    other = [{"role": "user", "content": "Another task."}, *call(1), *call(2), *call(3)]
    assert asked(known, other) is not live


async def test_a_request_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message of a request is read once, however many sessions begin with its words, and a known one never."""
    read: list[bytes] = []

    def counted(raw: bytes) -> Json:
        read.append(raw)
        return decode_message(raw)

    monkeypatch.setattr(incoming_messages, "decode_message", counted)

    known = sessions()
    for agent in range(20):
        asked(known, [TASK, *(message for number in range(5) for message in call(number, f"a{agent}"))])
    read.clear()
    mine = [TASK, *(message for number in range(5) for message in call(number, "mine"))]
    asked(known, mine)
    assert len(read) == len(set(read)) <= len(mine)
    read.clear()
    asked(known, [*mine, *call(6)])
    # One where the others parted, and two that are new.
    assert len(read) <= 3


async def test_openings_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """First messages that never come again are let go of by their size, not by their number alone."""
    monkeypatch.setattr(sessions_of, "MAX_OPENING_BYTES", 10_000)

    known = sessions()
    for number in range(50):
        asked(known, [{"role": "user", "content": f"{number} " * 500}])
    assert sum(map(len, known._openings)) <= 10_000


async def test_the_least_used_are_closed() -> None:
    """Sessions beyond the number, the memory or the idle time are closed; one in flight never is."""
    clock = Clock()
    known = sessions(most=2, clock=clock)
    flying = known.claim_session(who("k0"), "openai", body([TASK]))
    for number in range(1, 5):
        asked(known, [TASK], whom=who(f"k{number}"))
    assert flying in list(known)
    assert len(known) == 2
    late = sessions(idle=10.0, clock=clock)
    asked(late, [TASK])
    clock.now = 11.0
    newest = asked(late, [TASK], whom=who("k2"))
    assert list(late) == [newest]
    small = sessions(memory=1, clock=clock)
    asked(small, [TASK])
    newest = asked(small, [TASK], whom=who("k2"))
    assert list(small) == [newest]
    for each in (known, late, small):
        await each.close()


async def test_evicted_sessions_are_closed_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request may take the place of many: they are closed in turn, and none is closed twice or left open."""
    at_work: list[str] = []
    closed: list[str] = []

    async def close(session: LiveSession) -> None:
        at_work.append(session.name)
        await asyncio.sleep(0)
        assert at_work == [session.name]
        at_work.remove(session.name)
        closed.append(session.name)

    monkeypatch.setattr(sessions_of, "_close_context", close)
    clock = Clock()
    known = sessions(idle=10.0, clock=clock)
    names = [asked(known, [TASK], whom=who(f"k{number}")).name for number in range(50)]
    clock.now = 11.0
    asked(known, [TASK], whom=who("last"))
    assert len(known) == 1
    while len(closed) < len(names):
        await asyncio.sleep(0)
    assert closed == names
    monkeypatch.undo()
    await known.close()


async def test_at_the_end_sessions_are_closed_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits for its store holds up no other."""
    closed: list[str] = []

    known = sessions()
    names = [asked(known, [TASK], whom=who(f"k{number}")).name for number in range(9)]
    others_closed = asyncio.Event()

    async def close(session: LiveSession) -> None:
        if session.name == names[0]:
            await others_closed.wait()
        closed.append(session.name)
        if len(closed) == len(names) - 1:
            others_closed.set()

    monkeypatch.setattr(sessions_of, "_close_context", close)
    await asyncio.wait_for(known.close(), 60)
    assert closed[-1] == names[0]
    assert sorted(closed) == sorted(names)


async def test_a_message_that_is_none_is_unreadable() -> None:
    """Messages that are no objects are nothing to take apart."""
    with pytest.raises(UnreadableBody):
        sessions().claim_session(who(), "openai", RequestBody.parse(b'{"model": "m", "messages": ["text"]}', "openai"))


async def test_answers_that_others_gave_are_noticed() -> None:
    """Where more than one answer is new another process gave some of them, and the log is to be read first."""
    known = sessions()
    live = asked(known, [TASK])
    live.is_stale = False
    assert not asked(known, steps(1)).is_stale
    assert asked(known, steps(3)).is_stale
    live.is_stale = False
    asked(known, steps(4), answered=False)
    assert not live.is_stale
    assert asked(known, steps(4)).is_stale


async def test_a_history_that_is_cut_short_is_found_all_the_same() -> None:
    """An undo of several turns leaves a shorter history than was known, and nothing in it was said by others."""
    known = sessions()
    live = asked(known, [TASK])
    for count in range(1, 5):
        asked(known, steps(count))
    live.is_stale = False
    assert asked(known, steps(1)) is live
    assert not live.is_stale


async def test_what_an_agent_sees_otherwise_is_its_own() -> None:
    """Two agents that did the same and see different results stay apart, though the one is ahead, done or under way."""
    for flying in (False, True):
        known = sessions()
        ahead, behind = asked(known, [TASK]), asked(known, [TASK])
        for live in (ahead, behind):
            short = IncomingMessages(live.conversation.dialect, body(steps(1)).messages)
            short.extend_conversation(live.conversation)
        done, (spoke, seen) = steps(1), call(2)
        asked(known, [*done, spoke, seen])
        first = next(live for live in (ahead, behind) if len(live.conversation) == 5)
        other = {ahead, behind}.difference({first}).pop()
        if flying:
            assert known.claim_session(who(), "openai", body([*done, spoke, seen, *call(3)])) is first
        else:
            assert asked(known, [*done, spoke, seen, *call(3)]) is first
        assert asked(known, [*done, spoke, {**seen, "content": "something else"}]) is other


async def test_a_compaction_behind_many_others() -> None:
    """However many agents of its key were asked in between, a client that compacts is known again; among the newest of
    them, so is the request that a body goes on from."""
    known = sessions(most=5_000)
    history = steps(4)
    first = asked(known, history, whom=who(session="A"))
    for number in range(MAX_SEARCHED_SESSIONS + 50):
        asked(known, [{"role": "user", "content": f"task {number}"}], whom=who(session=f"S{number}"))
    newer = body([{"role": "user", "content": "task 200"}, *call(1)])
    assert known.find_continued("k1", "openai", newer.raw) is not None
    compacted = [{"role": "user", "content": "Summary: so far"}, *call(3), *call(4)]
    assert asked(known, compacted, whom=who(session="A")) is first


async def test_a_sub_agent_names_the_session_that_started_it() -> None:
    """The parent is the newest session of that id which is at hand; without one, or with one of another key, none."""
    known = sessions()
    parent = asked(known, steps(1), whom=who(session="main"))
    asked(known, [TASK, *call(2)], whom=who("k2", session="main"))
    started = ClientIdentity(namespace="k1", session="main:a1", parent="main")
    child = asked(known, [{"role": "user", "content": "Look for it."}], whom=started)
    assert child.opened.options.advanced.parent == parent.opened.name
    stranger = ClientIdentity(namespace="k3", session="main:a1", parent="main")
    assert asked(known, [TASK, *call(3)], whom=stranger).opened.options.advanced.parent == ""
    assert parent.opened.options.advanced.parent == ""
