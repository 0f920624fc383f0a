"""Copies between stores, and out of files of logs: whole, resumable, never over something else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from elision.errors import ConflictError, CorruptError, FormatError, StoreError, UnknownHandle
from elision.stores.memory import MemoryStore
from elision.stores.session_copy import CopyResult, LogFile, copy_all, copy_session, format_log
from elision.stores.store import Store
from elision.trajectory.events import Event, RecallExchanged, decode_event
from elision.trajectory.redact import DEFAULT
from tests.stores.session_logs import ODD_KEYS, add_turn, begin_session, list_every_event, new_session, read_log


@pytest.fixture
def source() -> Store:
    """Two sessions, a fork and an empty one."""
    store = MemoryStore()
    begin_session(store, "a", *list_every_event(), at=1.0)
    begin_session(
        store, "long", *(add_turn(index, f"text {index} " * 99, node=f"n{index}") for index in range(1, 600)), at=2.0
    )
    store.create(new_session("fork", parent="long", shared=300, at=3.0))
    store.append("fork", (add_turn(301, "other"),), after=300, at=5.0)
    store.create(new_session("empty", at=4.0))
    return store


def same(one: Store, two: Store) -> bool:
    return one.sessions() == two.sessions() and all(
        list(one.events(info.key)) == list(two.events(info.key)) for info in one.sessions()
    )


def test_everything_is_copied(source: Store, store: Store) -> None:
    """Sessions, their times and parents, and every event; then a second time nothing is left to do."""
    done = list(copy_all(source, store))
    assert done == [
        CopyResult(key="a", is_new=True, existing_records=0, added_records=len(list_every_event())),
        CopyResult(key="long", is_new=True, existing_records=0, added_records=599),
        CopyResult(key="empty", is_new=True, existing_records=0, added_records=0),
        CopyResult(key="fork", is_new=True, existing_records=0, added_records=301),
    ]
    assert same(source, store)
    assert all(
        isinstance(each, CopyResult) and not each.is_new and not each.added_records for each in copy_all(source, store)
    )
    assert store.locate("f", ["n1", "n300"]) == source.locate("f", ["n1", "n300"])


class Breaking(MemoryStore):
    """Fails in the middle of a log."""

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        for number, event in enumerate(super().events(session, after), start=after + 1):
            if session == "long" and number > 400:
                raise CorruptError("record 401 is damaged")
            yield event


def test_a_copy_goes_on_where_it_stopped(source: Store) -> None:
    """What was copied in front of a failure is kept, and not copied again."""
    target, breaking = MemoryStore(), Breaking()
    assert len(list(copy_all(source, breaking))) == 4
    done = list(copy_all(breaking, target))
    assert [type(each) for each in done] == [CopyResult, CorruptError, CopyResult, CopyResult]
    assert target.length("long") == 256
    assert copy_session(source, source.info("long"), target) == CopyResult(
        key="long", is_new=False, existing_records=256, added_records=343
    )
    assert same(source, target)


def test_a_copy_of_what_grew_is_brought_up_to_date(source: Store) -> None:
    """Only what is new is written; a target that went on by itself is left as it is."""
    target = MemoryStore()
    list(copy_all(source, target))
    source.append("long", (add_turn(600),), after=599, at=9.0)
    target.append("a", (add_turn(2),), after=len(list_every_event()), at=9.0)
    assert [each.added_records for each in copy_all(source, target) if isinstance(each, CopyResult)] == [0, 0, 0, 1]
    assert target.length("a") == len(list_every_event()) + 1


def test_nothing_is_overwritten(source: Store) -> None:
    """Another session of the same name, or one that goes on otherwise, is named; the others are copied."""
    target = MemoryStore()
    begin_session(target, "a", add_turn(1), family="other", at=1.0)
    begin_session(target, "long", add_turn(1, "not the same"), at=2.0)
    done = list(copy_all(source, target))
    assert [str(each) for each in done if isinstance(each, StoreError)] == [
        "session 'a' already exists and is different",
        "session 'long' already exists and differs from record 1 on",
    ]
    assert read_log(target, "a") == [add_turn(1)]
    assert target.length("fork") == 301


def test_only_what_is_named_is_copied(source: Store) -> None:
    """By its name."""
    target = MemoryStore()
    list(copy_all(source, target, ["fork"]))
    assert [info.key for info in target.sessions()] == ["fork"]


# --- files -------------------------------------------------------------------------------------------------------


def written(store: Store, path: Path) -> LogFile:
    lines = [line for info in store.sessions() for line in format_log(info, store.events(info.key))]
    path.write_text("".join(f"{line}\n" for line in lines), "ascii")
    return LogFile(path)


def test_a_file_of_logs_is_a_copy(source: Store, store: Store, tmp_path: Path) -> None:
    """Out of one store and into another: nothing changes, whatever keys and texts there are."""
    for key in ODD_KEYS:
        begin_session(source, key, add_turn(1, f"lone \ud800 in {key}"), family=key, at=6.0)
    file = written(source, tmp_path / "logs.jsonl")
    assert file.sessions() == source.sessions()
    assert all(isinstance(each, CopyResult) for each in copy_all(file, store))
    assert same(source, store)


def test_secrets_within_exchanges_are_replaced() -> None:
    """What the client never saw is JSON within JSON: a secret behind an escaped line break is found."""
    store = MemoryStore()
    said = json.dumps({"role": "tool", "content": "key:\nAKIAQYLPMN5HHHFPZAM2"})
    begin_session(store, "s", RecallExchanged(call=1, node="n", messages=("no JSON", said), results=(said,)))
    lines = list(format_log(store.info("s"), store.events("s"), DEFAULT))
    assert "AKIA" not in "".join(lines)
    event = decode_event(json.loads(lines[1]))
    assert isinstance(event, RecallExchanged)
    assert event.messages[0] == "no JSON"
    assert json.loads(event.messages[1]) == {"role": "tool", "content": "key:\n[redacted: aws-key]"}


def test_a_file_of_logs_is_read_from_anywhere(source: Store, tmp_path: Path) -> None:
    """Behind a record, to the end of a session and no further; an unknown session is named."""
    file = written(source, tmp_path / "logs.jsonl")
    assert list(file.events("a", after=7)) == list(list_every_event()[7:])
    assert list(file.events("empty")) == []
    with pytest.raises(UnknownHandle, match="'none'"):
        file.events("none")


def broken(line: int, change: dict[str, object]) -> list[str]:
    """The lines of a session, one of them changed."""
    store = MemoryStore()
    begin_session(store, "s", *list_every_event())
    lines = list(format_log(store.info("s"), store.events("s")))
    lines[line] = json.dumps({**json.loads(lines[line]), **change})
    return lines


BROKEN = {
    "cut off": (broken(0, {})[:-1], r"logs\.jsonl:1: this session has no end; the file was cut off"),
    "half a line": ([*broken(0, {})[:-1], '{"e": "tu'], r"logs\.jsonl:12: it is not a record of a log"),
    "a record less": ([*broken(0, {})[:4], broken(0, {})[-1]], r"logs\.jsonl:5: 10 records are announced, 3 are there"),
    "newer": (broken(0, {"format": "elision.log/9"}), r"logs\.jsonl:1: .*newer than this Elision reads; update"),
    "a run": (['{"format":"elision.trajectory/1"}'], r"logs\.jsonl:1: .*`elision replay`"),
    "a wrong relation": (
        broken(0, {"session": {"relation": "x"}}),
        r"logs\.jsonl:1: unreadable session \(.*`\$\.relation`",
    ),
    "no times": (broken(0, {"session": {"key": "s"}}), r"logs\.jsonl:1: unreadable session \(.*`family`"),
    "no session": (broken(0, {"session": 1}), r"logs\.jsonl:1: `session` is no object"),
    "an unknown event": (broken(2, {"e": "later"}), r"logs\.jsonl:3: unreadable record .*'later'"),
    "no object": (["[1]"], r"logs\.jsonl:1: no JSON object"),
}


@pytest.mark.parametrize(("lines", "said"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_refused_whole(tmp_path: Path, lines: list[str], said: str) -> None:
    """Before anything is copied, with file, line and mend."""
    path = tmp_path / "logs.jsonl"
    path.write_text("\n".join(lines) + "\n", "ascii")
    with pytest.raises(FormatError, match=said):
        LogFile(path)


def test_secrets_are_replaced_if_asked(tmp_path: Path) -> None:
    """And the log says that it is no copy any more."""
    store = MemoryStore()
    begin_session(store, "s", add_turn(1, "export AWS_KEY=AKIAIOSFODNN7EXAMPLE"))
    lines = list(format_log(store.info("s"), store.events("s"), DEFAULT))
    assert "AKIA" not in "".join(lines)
    assert json.loads(lines[0])["redacted"] is True
    assert "AKIA" in "".join(format_log(store.info("s"), store.events("s")))


def test_a_conflict_is_an_error_of_one_session(source: Store) -> None:
    """`copy_session` raises it."""
    target = MemoryStore()
    begin_session(target, "a", family="other")
    with pytest.raises(ConflictError, match="'a'"):
        copy_session(source, source.info("a"), target)
