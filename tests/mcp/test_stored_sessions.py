"""Which stored sessions a server shows, and what it says of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from elision.errors import MissingStore, SpecError, UnknownHandle
from elision.manager import ContextManager, ContextView
from elision.manager.observation_text import TextPart
from elision.mcp.stored_sessions import SessionScope, StoredSessions
from elision.stores.store import SessionInfo
from tests.cli import stored
from tests.mcp.served import read_sessions

WHOLE = TextPart()


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[ContextView]]:
    """The address of a store with sessions of every kind, and the views of `main`."""
    at = tmp_path_factory.mktemp("kept")
    made = stored.everything(at)
    return stored.url(at), made


@pytest.fixture
def sessions(views: tuple[str, list[ContextView]]) -> Iterator[StoredSessions]:
    opened = read_sessions(views[0])
    yield opened
    opened.close()


def test_word_for_word(sessions: StoredSessions) -> None:
    """Hidden or not, masked or summarized; a part with its line numbers."""
    assert sessions.recall_text("t1.1", "main", WHOLE) == stored.report(1)
    assert sessions.recall_text("t7.1", "main", WHOLE) == stored.report(7)
    assert sessions.recall_text("t1.1", "digested", WHOLE) == stored.report(1)
    assert sessions.recall_text("t1.1", "main", TextPart(head=1)) == "1: report 1"


def test_hostile_text_stays_text(sessions: StoredSessions) -> None:
    """It is returned as it was recorded where it is asked for, and never in a list."""
    assert sessions.recall_text("t1.1", "odd", WHOLE) == stored.HOSTILE * 20
    listed = sessions.list_hidden("odd")
    assert listed["newest"][0]["tool"] == "cat"
    with pytest.raises(UnknownHandle) as raised:
        sessions.recall_text("t99.1", "odd", WHOLE)
    assert "\x1b" not in str(raised.value)


def test_half_a_surrogate_pair_goes_out(tmp_path: Path) -> None:
    """Text that no UTF-8 has is replaced, as JSON could not carry it."""
    with ContextManager(store=stored.url(tmp_path), session="s") as context:
        context.turns.add("", "cat", "a\ud800b")
        context.turns.view()
    sessions = read_sessions(stored.url(tmp_path))
    assert sessions.recall_text("t1.1", "s", WHOLE) == "a\ufffdb"
    assert sessions.search_text("b", "s", 5).encode()
    sessions.close()


def test_what_a_session_came_from(sessions: StoredSessions) -> None:
    """A fork reaches what it shares, a sub-agent what its parent has, by name where it has the like itself."""
    assert sessions.recall_text("t1.1", "main~2", WHOLE) == stored.report(1)
    assert sessions.recall_text("t6.1", "main/scout", WHOLE) == stored.report(6)
    assert sessions.recall_text("main:t1.1", "main/scout", TextPart(head=1)) == "1: report 1"


def test_the_session_that_hides_a_handle_is_meant(tmp_path: Path) -> None:
    """Where no session is named: the one that hides it. If two do, an error says what each has; none is guessed."""
    stored.played(tmp_path, "agent", 7)
    stored.played(tmp_path, "title", 1)
    sessions = read_sessions(stored.url(tmp_path))
    assert sessions.recall_text("t5.1", "", WHOLE) == stored.report(5)
    with pytest.raises(UnknownHandle, match="2 sessions could be meant"):
        sessions.recall_text("t7.1", "", WHOLE)
    assert sessions.list_hidden("")["session"] == "agent"
    stored.played(tmp_path, "helper", 4)
    with pytest.raises(UnknownHandle, match="3 sessions could be meant"):
        sessions.list_hidden("")
    assert sessions.recall_text("t5.1", "", WHOLE) == stored.report(5)
    with pytest.raises(UnknownHandle) as raised:
        sessions.recall_text("t1.1", "", WHOLE)
    assert str(raised.value) == (
        't1.1 is hidden in 2 sessions: agent (look {"at": 1}); helper (look {"at": 1}); give `session`'
    )
    assert sessions.recall_text("t1.1", "agent", WHOLE) == sessions.recall_text("agent:t1.1", "", WHOLE)
    sessions.close()


@pytest.mark.parametrize(
    ("handle", "said"),
    [
        ("t99.1", "session 'main' keeps nothing under t99.1: it has 7 turns"),
        ("t1.9", "session 'main' keeps nothing under t1.9: turn 1 has 1 results"),
        ("t0", "'t0' is not a handle; handles look like t12.1"),
        ("digest me", "'digest me' is not a handle; handles look like t12.1"),
        ("nobody:t1.1", "no session 'nobody'; there are: "),
    ],
)
def test_bad_handles(sessions: StoredSessions, handle: str, said: str) -> None:
    """Each is answered with what there is."""
    with pytest.raises(UnknownHandle) as raised:
        sessions.recall_text(handle, "main", WHOLE)
    assert str(raised.value).startswith(said)


def test_bad_patterns_and_empty_queries(sessions: StoredSessions) -> None:
    """Both are refused with the reason."""
    with pytest.raises(UnknownHandle, match="pattern"):
        sessions.recall_text("t1.1", "main", TextPart(pattern="("))
    with pytest.raises(UnknownHandle, match="query is empty"):
        sessions.search_text("  ", "main", 5)


def test_search(sessions: StoredSessions) -> None:
    """Handles and excerpts, the newest first; a hint where nothing is found."""
    lines = sessions.search_text("checks row", "main", 3).splitlines()
    assert [line.split()[0] for line in lines] == ["t7.1", "t6.1", "t5.1"]
    assert sessions.search_text("unicorn", "main", 3).startswith("[nothing found")


def test_what_is_hidden_now(sessions: StoredSessions, views: tuple[str, list[ContextView]]) -> None:
    """The results that the newest view shows as placeholders, and those that a summary covers."""
    masked = sessions.list_hidden("main")
    assert [entry["handle"] for entry in masked["newest"]] == ["t5.1", "t4.1", "t3.1", "t2.1", "t1.1"]
    assert {entry["instead"] for entry in masked["newest"]} == {"placeholder"}
    assert masked["hidden_results"] == views[1][-1].diagnostics.savings.masked == 5
    digested = sessions.list_hidden("digested")
    assert (digested["summarized_turns"], digested["hidden_results"]) == (6, 6)
    assert {entry["instead"] for entry in digested["newest"]} == {"summary"}
    assert sessions.list_hidden("main/scout")["hidden_results"] == 0


def test_what_a_session_cost(sessions: StoredSessions, views: tuple[str, list[ContextView]]) -> None:
    """The figures of the agent's own diagnostics, and a reason for each part."""
    found = sessions.inspect_session("main", 2)
    costs = views[1][-1].diagnostics.costs
    assert found["cost_usd"] == pytest.approx(costs.ours, rel=0.01)
    assert found["saved_by_hiding_usd"] == pytest.approx(costs.hiding, rel=0.02)
    assert found["calls"] == len(views[1])
    assert found["acting_calls"] == 5
    assert [call["call"] for call in found["newest_acting_calls"]] == [8, 7]
    assert found["newest_acting_calls"][0]["masked"] == ["t5.1"]
    assert found["why"][0].startswith("Hiding cost $0.0168 more")
    assert any("rewritten 5 times by mask" in reason for reason in found["why"])
    assert any("1 recalls put" in reason for reason in found["why"])
    burning = sessions.inspect_session("burning", 5)
    assert any("1 attempts failed" in reason for reason in burning["why"])
    assert any("prices are unknown" in reason for reason in burning["why"])


def test_every_answer_is_json(sessions: StoredSessions) -> None:
    """Names of sessions and tools come from clients, who may call them anything."""
    for answer in (
        sessions.list_sessions(50, with_costs=True),
        sessions.inspect_session("odd", 5),
        sessions.list_hidden("odd"),
    ):
        assert json.dumps(answer, allow_nan=False).encode()


def test_list_sessions(sessions: StoredSessions) -> None:
    """The one changed last first; costs where they are asked for."""
    found = sessions.list_sessions(2, with_costs=False)
    assert (len(found["sessions"]), found["in_all"]) == (2, 6)
    assert "cost_usd" not in found["sessions"][0]
    every = sessions.list_sessions(50, with_costs=True)["sessions"]
    main = next(entry for entry in every if entry["session"] == "main")
    assert main["cost_usd"] == sessions.inspect_session("main", 1)["cost_usd"]
    assert {entry["relation"] for entry in every} == {"", "fork", "sub-agent"}


def test_a_call_as_it_was_sent(sessions: StoredSessions, views: tuple[str, list[ContextView]]) -> None:
    """The messages are those that the agent sent, early or late in the run."""
    for call, view in ((1, views[1][0]), (5, views[1][4]), ("last", views[1][-1])):
        found = json.loads(sessions.read_call("main", str(call)))
        assert [message["content"] for message in found["messages"]] == [
            message["content"] for message in view.messages
        ]
    assert json.loads(sessions.read_call("main", "8"))["masked"] == ["t5.1"]
    for call in ("0", "99", "first", ""):
        with pytest.raises(SpecError, match="has no call"):
            sessions.read_call("main", call)


def test_a_turn(sessions: StoredSessions) -> None:
    """What was said and called, and each result under its handle."""
    text = sessions.recall_text("t3", "main", WHOLE)
    assert text.startswith("Looking at 3.")
    assert f"[t3.1 look]\n{stored.report(3)}" in text


def test_a_store_that_comes_later(tmp_path: Path) -> None:
    """Hosts start their servers before any agent has made the store."""
    sessions = read_sessions(stored.url(tmp_path))
    with pytest.raises(MissingStore, match="there is no store yet"):
        sessions.list_sessions(5, with_costs=False)
    stored.played(tmp_path, "late", 3)
    assert sessions.list_hidden("late")["hidden_results"] == 1
    sessions.close()


def test_while_the_agent_writes(tmp_path: Path) -> None:
    """Each new turn can be read as soon as the agent's call returned."""
    sessions = read_sessions(stored.url(tmp_path))

    def look(turn: int, context: ContextManager) -> None:
        if turn > 1:
            assert sessions.recall_text(f"t{turn - 1}.1", "", WHOLE) == stored.report(turn - 1)

    stored.played(tmp_path, "live", 6, each=look)
    sessions.close()


KEY = "k" + "0" * 32


def make_info(key: str, family: str = "", parent: str = "", changed: float = 0.0) -> SessionInfo:
    relation = "fork" if parent else ""
    return SessionInfo(
        key=key,
        family=family or key,
        parent=parent,
        relation=relation,  # type: ignore[arg-type]
        begun=0.0,
        changed=changed,
        records=1,
        turns=1,
    )


SESSIONS = [
    make_info("chat-7-bb", f"{KEY}/chat-7", changed=9),
    make_info("chat-7-aa", f"{KEY}/chat-7", changed=8),
    make_info("chat-7-bb~2", f"{KEY}/chat-7", parent="chat-7-bb", changed=7),
    make_info("anonymous-cc", "anonymous", changed=6),
    make_info("run-1/scout", parent="run-1", changed=5),
    make_info("run-1", changed=4),
    make_info("run-1~2", parent="run-1", changed=3),
    make_info("run-2", changed=2),
]


def list_keys(**options: str) -> list[str]:
    return [info.key for info in SessionScope(**options).list_visible(SESSIONS)]


def choose(name: str = "", **options: str) -> str:
    return SessionScope(**options).choose_session(SESSIONS, name).key


def refuse(name: str = "", **options: str) -> str:
    with pytest.raises(UnknownHandle) as raised:
        choose(name, **options)
    return str(raised.value)


def test_everything_is_shown_by_default() -> None:
    """In the order of the store."""
    assert list_keys() == [info.key for info in SESSIONS]


def test_one_session_and_its_relatives() -> None:
    """What it came from and what came from it, but no sibling."""
    assert list_keys(session="run-1") == ["run-1/scout", "run-1", "run-1~2"]
    assert list_keys(session="run-1~2") == ["run-1", "run-1~2"]
    assert list_keys(session="chat-7") == ["chat-7-bb", "chat-7-aa", "chat-7-bb~2"]
    assert list_keys(session="not yet there") == []


def test_prefix_and_owner() -> None:
    """Names that begin so; an API key's namespace or a whole family, never a part of either."""
    assert list_keys(prefix="run-") == ["run-1/scout", "run-1", "run-1~2", "run-2"]
    assert list_keys(owner="anonymous") == ["anonymous-cc"]
    assert list_keys(owner=KEY) == list_keys(owner=f"{KEY}/chat-7") == ["chat-7-bb", "chat-7-aa", "chat-7-bb~2"]
    assert list_keys(owner="k000") == []
    assert list_keys(prefix="run-", session="run-1", owner="run-1") == ["run-1/scout", "run-1"]


def test_a_list_that_grows(tmp_path: Path) -> None:
    """The sessions that a file names, and their relatives; none while it is not there."""
    scope = SessionScope(listing=tmp_path / "sessions.txt")
    assert scope.list_visible(SESSIONS) == []
    assert scope.listing is not None
    scope.listing.write_text("run-2\n", encoding="utf-8")
    assert scope.choose_session(SESSIONS).key == "run-2"
    scope.listing.write_text("run-2\nrun-1\nnever seen\n", encoding="utf-8")
    assert [info.key for info in scope.list_visible(SESSIONS)] == ["run-1/scout", "run-1", "run-1~2", "run-2"]


def test_a_name_or_its_beginning() -> None:
    """Exact names first; a session rather than its own branches; the newest of one conversation at the gateway."""
    assert choose("run-1") == "run-1"
    assert choose("run-1/s") == "run-1/scout"
    assert choose("chat-7") == "chat-7-bb"
    assert choose(session="chat-7") == "chat-7-bb"
    assert choose("chat-7-aa", session="chat-7") == "chat-7-aa"
    assert choose("anon") == "anonymous-cc"


def test_a_guess_is_never_made() -> None:
    """Where several could be meant, the one changed last is not taken: two agents may be running."""
    assert refuse("run-") == "2 sessions could be meant: run-1, run-2; give one as `session`"
    assert refuse().startswith("5 sessions could be meant: chat-7-bb, chat-7-aa, anonymous-cc, run-1, run-2")
    assert choose(prefix="run-2") == "run-2"


def test_sessions_of_others_are_not_named() -> None:
    """An error lists what is shown, and reads the same whether a hidden session exists or not."""
    assert refuse("run-2", session="run-1") == "no session 'run-2'; there are: run-1/scout, run-1, run-1~2"
    assert refuse("run-9", session="run-1") == "no session 'run-9'; there are: run-1/scout, run-1, run-1~2"
    assert refuse("run-2", owner="nobody") == "no session 'run-2' is shown here yet"
    assert refuse(session="later") == "no session 'later' is shown here yet"


def test_parents_that_go_round_in_a_circle() -> None:
    """A damaged store ends no search for relatives."""
    circle = [make_info("a", parent="b"), make_info("b", parent="a"), make_info("c")]
    assert [info.key for info in SessionScope(session="a").list_visible(circle)] == ["a", "b"]
