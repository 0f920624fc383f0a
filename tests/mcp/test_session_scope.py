"""Which sessions a server shows, and which of them a call means."""

from __future__ import annotations

from pathlib import Path

import pytest

from elision.errors import UnknownHandle
from elision.mcp.stored_sessions import SessionScope
from elision.stores.store import SessionInfo

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
