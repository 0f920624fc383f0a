"""`elision sessions` at the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.cli.session_names import ShortNames, choose_session, walk_session_trees
from elision.errors import ElisionError, StoreError, UnknownHandle
from elision.manager import ContextManager, ContextView
from elision.stores.sqlite import SqliteStore
from elision.stores.store import NewSession, SessionInfo
from elision.trajectory.events import RequestSent
from tests.cli import stored
from tests.cli.in_process import Command

printed = Command("sessions").print


def read_table(text: str) -> list[str]:
    """The lines of the table: its heading without the rule below it, and its rows."""
    lines = text.splitlines()
    rule = next(place for place, line in enumerate(lines) if line.startswith("──"))
    return [lines[rule - 1], *lines[rule + 1 :]]


def rows(text: str) -> dict[str, dict[str, Any]]:
    return {row["session"]: row for row in json.loads(text)["sessions"]}


def test_newest_first_with_branches_below(kept: tuple[str, list[ContextView]]) -> None:
    """Families stand by their newest change; forks and sub-agents below the session they came from."""
    names = [line.split("  ")[0].strip() for line in read_table(printed("--store", kept[0]))[1:7]]
    assert names == [
        "odd[red]name[/red]",
        "burning",
        "digested",
        "main",
        "├─ main~2 (fork)",
        "└─ main/scout (sub-agent)",
    ]


@pytest.mark.parametrize("width", [60, 80, 100, 160, 220])
def test_fits(kept: tuple[str, list[ContextView]], width: int) -> None:
    """No line is wider than the terminal, no number is cut, and what was saved is there at every width."""
    text = printed("--store", kept[0], width=width)
    table = read_table(text)[:7]
    assert all(len(line) <= width for line in text.splitlines())
    assert "saved" in table[0]
    assert not any("…" in line for line in table)


def test_long_names_give_way(tmp_path: Path) -> None:
    """A name that takes all the room is cut at its end; the numbers stay."""
    stored.played(tmp_path, "x" * 300, 1)
    line = read_table(printed("--store", stored.url(tmp_path), width=80))[1]
    assert len(line) <= 80
    assert "xxx…" in line
    assert line.rstrip().endswith(" ago")


def test_a_name_of_36_characters_leaves_the_cost(tmp_path: Path) -> None:
    """Frameworks name sessions by UUIDs: the task is shown instead, after a short name that finds the session."""
    for name in ("0b9f5a52-1c8e-4f0e-9d53-6a2f5f0c7d11", "7d3c1e90-5c1b-4a57-8f4e-0f6f6b1a2c33"):
        stored.played(tmp_path, name, 12)
    header, line, *_ = read_table(printed("--store", stored.url(tmp_path), width=80))
    assert {"turns", "sent", "cost", "saved", "changed"} <= set(header.split())
    assert line.startswith("7d3c1e90  Find the slow module. ")
    assert "7d3c1e90-5c1b-4a57-8f4e" in printed("show", "7d3c1e90", "--store", stored.url(tmp_path))


def test_a_long_task_gives_way(tmp_path: Path) -> None:
    """It is one line without control characters, and is cut at its end so that every figure stays."""
    messages = [{"role": "user", "content": "Fix \x1b[31mthe\nprinter " + "and so on " * 40}, *stored.looked(1)]
    with ContextManager("raw", store=stored.url(tmp_path), session="long", model=stored.MODEL) as context:
        context.prepare(messages)
    for width in (60, 80, 120):
        header, line = read_table(printed("--store", stored.url(tmp_path), width=width))[:2]
        assert "  Fix the printer and so on" in line
        assert "…" in line
        assert len(line) <= width
        assert "saved" in header
    assert rows(printed("--store", stored.url(tmp_path), "--json"))["long"]["task"].startswith("Fix the printer and")


def test_names_are_only_text(kept: tuple[str, list[ContextView]]) -> None:
    """Nothing in a name reaches the terminal as more than letters."""
    text = printed("--store", kept[0])
    assert "\x1b" not in text
    assert "[red]name[/red]" in text


def test_what_the_live_passes_told(kept: tuple[str, list[ContextView]]) -> None:
    """Tokens, epochs and dollars are those of the diagnostics that the agent was given."""
    url, views = kept
    row = rows(printed("--store", url, "--json"))["main"]
    newest = views[-1].diagnostics
    assert row["calls"] == len(views)
    assert row["sent_tokens"] == sum(view.diagnostics.after for view in views)
    assert row["raw_tokens"] == sum(view.diagnostics.raw for view in views)
    assert row["epochs"] == newest.epoch
    assert row["rewrites"] == newest.rewrites
    assert row["recalls"] == 1
    assert row["costs"]["ours"] == pytest.approx(newest.costs.ours)
    assert row["costs"]["saved"] == pytest.approx(newest.costs.saved)
    assert row["model"] == stored.MODEL
    assert row["strategy"] == "masking(schedule=every-turn, window=2)"


def test_failed_summaries_are_told(kept: tuple[str, list[ContextView]]) -> None:
    """Summaries that were asked for and not taken stand beside those that were."""
    header, *lines = read_table(printed("--store", kept[0], width=160))
    (failing,) = [line.split() for line in lines if line.startswith("burning")]
    assert header.split()[-2:] == ["failed", "changed"]
    assert failing[-4] == "1"
    assert rows(printed("--store", kept[0], "--json"))["burning"]["failed_summaries"] == 1


def test_an_unknown_model_is_said(kept: tuple[str, list[ContextView]]) -> None:
    """Where no model is named the usual prices count, and the page says so; a model that is named prices all."""
    said = "Sessions without a known model are priced as anthropic"
    assert said in " ".join(printed("--store", kept[0]).split())
    assert said not in " ".join(printed("--store", kept[0], "--model", "claude-haiku-4-5").split())
    assert rows(printed("--store", kept[0], "--json"))["burning"]["prices"] == "anthropic (no model named)"


def test_models_without_prices_are_named(tmp_path: Path) -> None:
    """A model that no table knows is priced as another's, so its name is there: prices can be given."""
    stored.played(tmp_path, "known", 1)
    assert "prices" not in printed("--store", stored.url(tmp_path))
    for number in range(5):
        stored.played(tmp_path, f"s{number}", 1, model=f"nobody-{number}-knows")
    text = " ".join(printed("--store", stored.url(tmp_path)).split())
    named = "nobody-0-knows, nobody-1-knows, nobody-2-knows and 2 more"
    assert f"No prices are known for {named}: priced as anthropic. --model prices all alike" in text
    assert "Sessions without a known model" not in text
    listed = rows(printed("--store", stored.url(tmp_path), "--json"))
    assert listed["s1"]["prices"] == "anthropic (no prices are known for nobody-1-knows)"


def test_shadow_mode(tmp_path: Path) -> None:
    """Sessions whose requests went out as they came are marked, and the page says what their figures are."""
    stored.played(tmp_path, "plain", 5)
    assert "shadow" not in printed("--store", stored.url(tmp_path), width=160)
    stored.played(tmp_path, "watched", 5, shadow=True)
    text = printed("--store", stored.url(tmp_path), width=160)
    assert [("shadow" in line) for line in text.splitlines() if line.startswith(("plain", "watched"))] in (
        [False, True],
        [True, False],
    )
    assert "requests were sent unchanged, and the figures are hypothetical" in " ".join(text.split())


def test_standing_still(tmp_path: Path) -> None:
    """A session whose turns repeat themselves is marked, without any guard being set."""
    messages = stored.opening()
    with ContextManager("raw", store=stored.url(tmp_path), session="stuck") as context:
        for _ in range(7):
            messages += stored.looked(1, "no such file")
        context.prepare(messages)
    assert "no progress: 7 turns" in printed("--store", stored.url(tmp_path), width=80)


def test_guards_of_the_settings(kept: tuple[str, list[ContextView]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that the settings name is held against every session."""
    monkeypatch.setenv("AGENT_CONTEXT_MAX_TURNS", "8")
    lines = printed("--store", kept[0], width=100).splitlines()
    assert [line.split()[0] for line in lines if "turn limit" in line] == ["digested"]


def test_sizes_read_no_log(kept: tuple[str, list[ContextView]], monkeypatch: pytest.MonkeyPatch) -> None:
    """--sizes asks the store for its list alone."""
    monkeypatch.setattr(SqliteStore, "events", None)
    text = printed("--store", kept[0], "--sizes")
    assert "main~2  fork of main" in text
    assert "saved" not in text
    assert rows(printed("--store", kept[0], "--sizes", "--json"))["main"]["turns"] == 7


def test_the_newest_twenty(tmp_path: Path) -> None:
    """Twenty sessions unless all are asked for; logs of the others are not read."""
    url = stored.url(tmp_path)
    store = SqliteStore(tmp_path / "agent.db")
    for number in range(25):
        store.create(NewSession(key=f"s{number:02}", family=f"s{number:02}", at=float(number)))
    store.close()
    text = printed("--store", url)
    assert "s24" in text
    assert "s04" not in text
    assert "5 more sessions; --all lists them" in text
    assert "s00" in printed("--store", url, "--all")
    assert len(rows(printed("--store", url, "--json"))) == 25


def test_a_log_that_is_none(tmp_path: Path) -> None:
    """A session that cannot be read is said to be so, and the others are shown."""
    stored.played(tmp_path, "good", 1)
    store = SqliteStore(tmp_path / "agent.db")
    store.create(NewSession(key="bad", family="bad", at=2e9))
    store.append("bad", [RequestSent(call=1, at=None, model="", tokens=3)], after=0, at=2e9)
    store.close()
    text = printed("--store", stored.url(tmp_path))
    assert "bad cannot be read: session 'bad': its log is not a session's" in text
    assert "good" in text
    assert "not a session's" in rows(printed("--store", stored.url(tmp_path), "--json"))["bad"]["fault"]


@pytest.mark.parametrize("scheme", ["sqlite", "linear-hash"])
def test_beside_an_agent_that_writes(tmp_path: Path, scheme: str) -> None:
    """A store is read while an agent has it open, and shows what the agent was given so far."""
    url = f"{scheme}:////{str(tmp_path / 'store').lstrip('/')}"
    messages = stored.opening()
    with ContextManager(stored.EAGER, store=url, session="live") as context:
        for turn in range(1, 4):
            context.prepare(messages)
            assert rows(printed("--store", url, "--json"))["live"]["calls"] == turn
            messages += stored.looked(turn)


def test_no_sessions(tmp_path: Path) -> None:
    """An empty store is told in a sentence; one that is not there is an error."""
    SqliteStore(tmp_path / "agent.db").close()
    assert printed("--store", stored.url(tmp_path)) == "The store keeps no sessions yet.\n"
    with pytest.raises(StoreError, match="there is no store"):
        printed("--store", stored.url(tmp_path / "elsewhere"))


def test_the_store_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --store the one of the settings is read."""
    stored.played(tmp_path, "from-settings", 1)
    monkeypatch.setenv("AGENT_CONTEXT_STORE", stored.url(tmp_path))
    assert "from-settings" in printed()


# -- names ------------------------------------------------------------------------------------------------------------


def info(key: str, parent: str = "", changed: float = 0.0) -> SessionInfo:
    return SessionInfo(
        key=key,
        family=key,
        parent=parent,
        relation="fork" if parent else "",
        begun=0.0,
        changed=changed,
        records=0,
        turns=0,
    )


KNOWN = [info("task-42"), info("task-7"), info("task-42~2", "task-42"), info("review")]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("task-42", "task-42"),
        ("task-42~2", "task-42~2"),
        ("rev", "review"),
        ("task-4", "task-42"),
        ("task-42~", "task-42~2"),
    ],
)
def test_a_name_or_its_beginning(name: str, key: str) -> None:
    """The whole name, or a beginning that only one session and its branches have."""
    assert choose_session(KNOWN, name).key == key


@given(
    st.lists(
        st.from_regex(r"(session-)?[0-3]{8,10}-[0-3]{4}(~[2-4])?|k7/[a-f]{12}|task-\d", fullmatch=True), unique=True
    )
)
def test_short_names_find_their_sessions(keys: list[str]) -> None:
    """Whatever else the store holds, a short name is unique, also that of a branch."""
    every = [info(key, key.partition("~")[0] if "~" in key else "") for key in keys]
    names = ShortNames(every)
    for key in keys:
        assert choose_session(every, names.shorten(key)).key == key


@pytest.mark.parametrize(
    ("key", "short"),
    [
        ("76172da2-16057b10", "76172da2"),
        ("76172da2-16057b10~2", "76172da2~2"),
        ("session-0a1b2c3d4e5f", "session-0a1b2c3d"),
        ("k7/76172da2-16057b10", "k7/76172da2"),
        ("refactor-the-parser", "refactor-the-parser"),
        ("deadbeef", "deadbeef"),
    ],
)
def test_only_generated_names_are_shortened(key: str, short: str) -> None:
    """A name that a person chose is shown as it is."""
    assert ShortNames([info(key), info("other")]).shorten(key) == short


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("task", "'task' begins the names of 2 sessions: task-42, task-7"),
        ("taks-42", "no session 'taks-42'; the nearest: task-42, task-42~2, task-7"),
        ("VIEW", "no session 'VIEW'; the nearest: review"),
        ("zzz", "no session 'zzz'; the newest: task-42, task-7, task-42~2, review"),
        ("", "no session '?'; the nearest: task-42"),
    ],
)
def test_the_nearest_names(name: str, said: str) -> None:
    """A name that is none is answered with those there are."""
    with pytest.raises(UnknownHandle) as raised:
        choose_session(KNOWN, name)
    assert str(raised.value).startswith(said)


def test_a_store_without_sessions() -> None:
    """Where there are none the error says that."""
    with pytest.raises(ElisionError, match="the store keeps none yet"):
        choose_session([], "x")


@given(st.lists(st.integers(-1, 12), max_size=12))
def test_every_session_stands_once(parents: list[int]) -> None:
    """Whatever the parents, one that is gone or a circle of them: no session is left out, none stands twice."""
    every = [info(str(number), "" if parent < 0 else str(parent)) for number, parent in enumerate(parents)]
    listed = [each.key for _, each in walk_session_trees(every)]
    assert sorted(listed) == sorted(each.key for each in every)
