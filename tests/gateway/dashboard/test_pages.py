"""The dashboard's API: figures of the store, asked again at the price of what is new."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from elision import Advanced
from elision.cli.app import app
from elision.errors import UnknownHandle
from elision.gateway.dashboard.json_views import MAX_TEXT_CHARS, decode_key, encode_key
from elision.gateway.dashboard.pages import POLICY
from elision.gateway.dashboard.session_cache import SessionCache, find_command
from elision.manager import ContextManager
from elision.stores.memory import MemoryStore
from elision.stores.sqlite import SqliteStore
from elision.stores.store import NewSession
from elision.trajectory.events import RequestSent, SessionOpened
from elision.trajectory.turn import Action, Observation, Text, Turn
from tests.cli import stored
from tests.gateway.dashboard.api_client import DashboardClient
from tests.gateway.dashboard.recorded_sessions import (
    GPT,
    HOSTILE,
    MINI,
    PI,
    SONNET,
    RecordedClient,
    SteppingClock,
    record_hostile_session,
    record_session,
)

OBSERVATION = "/elision/api/sessions/{}/observations/{}"


def shown(place: Path, session: str) -> Any:
    """What `elision sessions show --json` says."""
    url = f"sqlite:////{str(place).lstrip('/')}"
    result = CliRunner().invoke(app, ["sessions", "show", session, "--json", "--store", url])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("session", ["billing", "printer"])
def test_figures_are_those_of_show(asking: DashboardClient, place: Path, session: str) -> None:
    """Every call and every total is what the command line says of the session."""
    told, known = asking.get_session(session), shown(place, session)
    assert len(told["made"]) == len(known["passes"]) > 10
    for made, passed in zip(told["made"], known["passes"], strict=True):
        assert {name: made[name] for name in passed} == passed
    for name in (
        "costs",
        "savings",
        "epochs",
        "rewrites",
        "summaries",
        "recalls",
        "model",
        "strategy",
        "hint",
        "report",
    ):
        assert told[name] == known[name]


def test_parts_are_all_of_the_bill(asking: DashboardClient) -> None:
    """What the parts cost is what the session cost, ours as well as had everything been sent; recalls are within."""
    for session in ("billing", "printer"):
        told = asking.get_session(session)
        figures, costs = told["figures"], told["costs"]
        assert sum(figures["parts"].values()) == pytest.approx(figures["usd"]) == pytest.approx(costs["ours"])
        assert sum(figures["raw_parts"].values()) == pytest.approx(figures["raw_usd"]) == pytest.approx(costs["raw"])
        assert figures["saved_usd"] == pytest.approx(costs["saved"])
        assert figures["recalls_usd"] == pytest.approx(costs["recalls"])
        assert figures["parts"]["output"] == pytest.approx(figures["raw_parts"]["output"])
    assert asking.get_session("billing")["figures"]["recalls_usd"] > 0


def test_as_billed_is_what_providers_reported(asking: DashboardClient) -> None:
    """The hit share and the bill are sums of the usage that came with the answers."""
    told = asking.get_session("billing")
    usages = [made["usage"] for made in told["made"]]
    prompt = sum(usage["input"] + usage["cache_read"] + usage["cache_write"] for usage in usages)
    figures = told["figures"]
    assert figures["reported"] == len(usages)
    assert figures["hit"] == pytest.approx(sum(usage["cache_read"] for usage in usages) / prompt)
    assert figures["billed_usd"] == pytest.approx(told["costs"]["billed"])
    assert figures["billed_usd"] == pytest.approx(sum(made["billed_usd"] for made in told["made"]))


def test_totals_are_the_sum_of_the_sessions(asking: DashboardClient) -> None:
    """The header's figures are those of the list, and the list's those of each session."""
    totals, listed = asking.get_path("/elision/api/totals").json, asking.get_path("/elision/api/sessions").json
    assert [each["name"] for each in listed["sessions"]] == ["printer", "billing"]
    assert (totals["sessions"], totals["unread"], totals["faults"]) == (2, 0, 0)
    for name in ("saved_usd", "usd", "sent_tokens", "billed_read", "summaries"):
        assert totals[name] == pytest.approx(sum(each[name] for each in listed["sessions"]))
    for each in listed["sessions"]:
        assert each["saved_usd"] == pytest.approx(asking.get_session(each["name"])["costs"]["saved"])
        assert len(each["points"]) <= 60


def test_models_without_prices_are_named(tmp_path: Path) -> None:
    """Beside how many sessions of theirs are priced as another's; a session that names no model is counted alone."""
    for number in range(6):
        stored.played(tmp_path, f"odd-{number}", 1, model=f"nobody-{number % 5}-knows")
    stored.played(tmp_path, "nameless", 1, model="")
    stored.played(tmp_path, "known", 1)
    totals = DashboardClient(SqliteStore(tmp_path / "agent.db")).get_path("/elision/api/totals").json
    assert (totals["unpriced"], totals["unpriced_models"]) == (7, [f"nobody-{number}-knows" for number in range(3)])


def test_what_a_fork_shares_counts_once(tmp_path: Path) -> None:
    """A fork's own figures leave out the calls of its parent; the whole log is what its page shows."""
    store = SqliteStore(tmp_path / "agent.db")
    eager, clock, messages = "masking(window=2, schedule=every-turn)", SteppingClock(1_700_000_000.0), stored.opening()
    with ContextManager(eager, store=store, session="main", model=SONNET, advanced=Advanced(clock=clock)) as context:
        for turn in range(1, 9):
            context.prepare(messages)
            messages = [*messages, *stored.looked(turn)]
        whole = DashboardClient(store).get_session("main")["figures"]
        messages = messages[: 2 + 2 * 5]
        for turn in range(1, 5):
            messages = [*messages, *stored.looked(turn, stored.report(10 + turn))]
            context.prepare(messages)
    asking = DashboardClient(store)
    listed = {each["name"]: each for each in asking.get_path("/elision/api/sessions").json["sessions"]}
    fork, main = listed["main~2"], listed["main"]
    assert main["usd"] == pytest.approx(whole["usd"])
    assert (fork["relation"], fork["shared"], fork["calls"]) == ("fork", 6, 4)
    told = asking.get_session("main~2")
    own = [made["bill"]["usd"] for made in told["made"][6:]]
    assert fork["all_calls"] == len(told["made"]) == 10
    assert sum(fork["parts"].values()) - fork["parts"]["output"] == pytest.approx(sum(own))
    assert 0 < fork["parts"]["output"] < told["figures"]["parts"]["output"]
    assert asking.get_path("/elision/api/totals").json["calls"] == 12
    assert [each["name"] for each in asking.get_session("main")["branches"]] == ["main~2"]
    store.close()


def test_only_what_is_new(asking: DashboardClient) -> None:
    """Whoever knows the first calls is told the others."""
    whole = asking.get_session("billing")
    rest = asking.get_session("billing", "?after=15")
    assert rest["first"] == 15
    assert rest["made"] == whole["made"][15:]
    assert asking.get_session("billing", "?after=999")["made"] == []


def test_unchanged_answers_cost_nothing(asking: DashboardClient) -> None:
    """An answer that the asker has is not sent again; HEAD is answered like GET."""
    for path in ("/", "/elision/page.js", "/elision/api/totals", "/elision/api/sessions"):
        first = asking.get_path(path)
        again = asking.get_path(path, if_none_match=first.headers["etag"])
        assert (first.status, again.status, again.body) == (200, 304, b"")
        assert again.headers["content-security-policy"] == POLICY
        assert asking.get_path(path, "HEAD").status == 200


def test_changes_of_another_process_show(tmp_path: Path) -> None:
    """What somebody else writes to the same file is in the next answer, also the usage of a call known already."""
    ours, theirs = SqliteStore(tmp_path / "agent.db"), SqliteStore(tmp_path / "agent.db")
    asking = DashboardClient(ours)
    assert asking.get_path("/elision/api/totals").json["sessions"] == 0
    working = RecordedClient(theirs, "s", MINI)
    working.make_calls(3)
    assert len(asking.get_session("s")["made"]) == 3
    working.make_calls(2)
    working.close()
    told = asking.get_session("s", "?after=2")
    assert [made["call"] for made in told["made"]] == [3, 4, 5]
    assert all(made["usage"] for made in told["made"])
    assert told == DashboardClient(theirs).get_session("s", "?after=2")
    ours.close()
    theirs.close()


def test_a_session_begun_anew_under_its_old_name(tmp_path: Path) -> None:
    """A deleted session is forgotten, and one of the same name is read from its beginning."""
    store = MemoryStore()
    asking = DashboardClient(store)
    record_session(store, "s", MINI, 4)
    assert len(asking.get_session("s")["made"]) == 4
    store.delete("s")
    assert asking.get_path(f"/elision/api/sessions/{encode_key('s')}").status == 404
    record_session(store, "s", MINI, 6, now=1_700_200_000.0)
    assert len(asking.get_session("s")["made"]) == 6


def test_hidden_texts_word_for_word(asking: DashboardClient, kept: SqliteStore) -> None:
    """Behind the handle of everything that was hidden stands what the agent was shown once."""
    told = asking.get_session("billing")
    hidden = [each["handle"] for made in told["made"] for each in made["masked"] + made["covered"]]
    assert len(set(hidden)) > 10
    for handle in sorted(set(hidden)):
        turn, position = map(int, handle[1:].split("."))
        answer = asking.get_path(OBSERVATION.format(encode_key("billing"), handle)).json
        assert answer["text"] == kept.observation("billing", (turn, position)).text[:MAX_TEXT_CHARS]


def test_a_long_text_comes_in_slices() -> None:
    """A line of a megabyte is told piece by piece, and the pieces are the whole."""
    store = MemoryStore()
    record_hostile_session(store)
    asking, found = DashboardClient(store), ""
    path = OBSERVATION.format(encode_key(HOSTILE), "t2.1")
    letters = asking.get_path(path).json["letters"]
    while len(found) < letters:
        piece = asking.get_path(f"{path}?start={len(found)}").json
        assert 0 < len(piece["text"]) <= MAX_TEXT_CHARS
        found += piece["text"]
        assert piece["end"] == len(found)
    assert found == store.observation(HOSTILE, (2, 1)).text
    assert letters > 1_000_000


@pytest.mark.parametrize("handle", ["t1", "t0.1", "t1.0", "x", "t999999999999999999999.1", "t1.1%0a", "..", "t٣.1"])
def test_what_is_no_handle(asking: DashboardClient, handle: str) -> None:
    """It is refused as not there, as JSON."""
    answer = asking.get_path(OBSERVATION.format(encode_key("billing"), handle))
    assert answer.status == 404
    assert "error" in answer.json or handle == ".."


@pytest.mark.parametrize("name", ["k", "kAAAA", "%00", "k%C3%A4", "=", encode_key("none")])
def test_what_is_no_session(asking: DashboardClient, name: str) -> None:
    """Any piece of a path is answered, and names no session that is not there."""
    assert asking.get_path(f"/elision/api/sessions/{name}").status == 404


@pytest.mark.parametrize("query", ["after=-1", "after=x", "after=1e3", "after=²", "limit=99999999999999999999"])
def test_what_is_no_number(asking: DashboardClient, query: str) -> None:
    """It is refused with the way to mend it."""
    answer = asking.get_path(f"/elision/api/sessions?{query}")
    assert answer.status == 400
    assert "whole number" in answer.json["error"]


@given(st.text(alphabet=st.characters()))
def test_any_text_names_a_session(key: str) -> None:
    """Keys go into paths and come back, lone surrogates included; the name is one piece of a path."""
    assert decode_key(encode_key(key)) == key
    assert encode_key(key).isascii()
    assert "/" not in encode_key(key)
    assert "." not in encode_key(key)


@given(st.text(max_size=20))
def test_any_name_is_a_key_or_refused(name: str) -> None:
    """What is no name is UnknownHandle and nothing else."""
    with contextlib.suppress(UnknownHandle):
        assert isinstance(decode_key(name), str)


def test_sessions_page_by_page(tmp_path: Path) -> None:
    """The newest first, some at a time, found by a part of the name in any case."""
    store = MemoryStore()
    for number in range(30):
        store.create(NewSession(key=f"Run/{number:02}", family="f", at=1_700_000_000.0 + number))
    asking = DashboardClient(store)
    first = asking.get_path("/elision/api/sessions").json
    assert first["found"] == 30
    assert [each["name"] for each in first["sessions"]] == [f"Run/{number:02}" for number in range(29, 9, -1)]
    rest = asking.get_path("/elision/api/sessions?after=20&limit=500").json
    assert [each["name"] for each in rest["sessions"]] == [f"Run/{number:02}" for number in range(9, -1, -1)]
    found = asking.get_path("/elision/api/sessions?search=rUN%2F07").json
    assert [each["name"] for each in found["sessions"]] == ["Run/07"]


def test_live_is_what_changed_lately() -> None:
    """Five minutes; and what this process answers just now is told beside it."""
    store = MemoryStore()
    store.create(NewSession(key="s", family="f", at=1_700_000_000.0))
    asking = DashboardClient(store, busy=lambda: {"s"}, shadow=True)
    for now, live in ((1_700_000_299.0, True), (1_700_000_301.0, False)):
        asking.now = now
        (row,) = asking.get_path("/elision/api/sessions").json["sessions"]
        assert (row["live"], row["busy"]) == (live, True)
        assert asking.get_path("/elision/api/totals").json["live"] == live
    assert asking.get_path("/elision/api/totals").json["shadow"] is True


def test_shadow_mode_is_summed_apart() -> None:
    """What would have been saved is no part of what was; the session says what it is."""
    store = MemoryStore()
    record_session(store, "real", MINI, 12, "masking(window=2, schedule=every-turn)")
    before = DashboardClient(store).get_path("/elision/api/totals").json
    record_session(store, "shade", MINI, 12, "masking(window=2, schedule=every-turn)", shadow=True)
    asking = DashboardClient(store)
    totals = asking.get_path("/elision/api/totals").json
    assert {name: totals[name] for name in ("calls", "usd", "saved_usd")} == {
        name: before[name] for name in ("calls", "usd", "saved_usd")
    }
    assert (before["would"]["calls"], totals["would"]["calls"]) == (0, 12)
    real, shade = asking.get_session("real"), asking.get_session("shade")
    assert (real["shadow"], shade["shadow"]) == (False, True)
    # Sizes are on the scale that each session has learned: the provider counts other prompts.
    masked = [[[each["text"] for each in made["masked"]] for made in told["made"]] for told in (real, shade)]
    assert masked[0] == masked[1]
    assert any(masked[0])
    assert shade["figures"]["sent_tokens"] < shade["figures"]["raw_tokens"]
    assert shade["figures"]["billed_tokens"] > real["figures"]["billed_tokens"]


def test_a_log_that_cannot_be_read() -> None:
    """It is a row that says so and is counted; the others are there."""
    store = MemoryStore()
    record_session(store, "good", MINI, 3)
    store.create(NewSession(key="bad", family="f", at=1.0))
    store.append(
        "bad", [SessionOpened(strategy="raw"), RequestSent(call=1, at=None, model="", tokens=1)], after=0, at=1.0
    )
    asking = DashboardClient(store)
    totals = asking.get_path("/elision/api/totals").json
    assert (totals["faults"], totals["calls"]) == (1, 3)
    row = asking.get_path("/elision/api/sessions").json["sessions"][1]
    assert "its log is not a session's" in row["fault"]
    answer = asking.get_path(f"/elision/api/sessions/{encode_key('bad')}")
    assert answer.status == 503
    assert "its log is not a session's" in answer.json["error"]


def test_a_store_that_fails() -> None:
    """It is said in JSON, and the page itself still comes."""
    store = MemoryStore()
    asking = DashboardClient(store)
    store.close()
    for path in ("totals", "sessions", f"sessions/{encode_key('s')}"):
        answer = asking.get_path(f"/elision/api/{path}")
        assert answer.status == 503
        assert "the store does not serve" in answer.json["error"]
    assert asking.get_path("/").status == 200


def test_the_page_asks_for_its_own_files_alone(asking: DashboardClient) -> None:
    """Each file that the page and its scripts name is served, with the policy; no other address is in them."""
    page = asking.get_path("/").body.decode()
    scripts = list(re.findall(r'(?:src|href)="/elision/([\w.]+)"', page))
    for name in scripts:
        text = asking.get_path(f"/elision/{name}").body.decode()
        scripts += [each for each in re.findall(r'from "\./([\w.]+)"', text) if each not in scripts]
        assert set(re.findall(r"https?://[^\s\"'`]+", text)) <= {"http://www.w3.org/2000/svg"}
        for never in ("innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "document.write"):
            assert never not in text
    assert sorted(scripts) == ["chart.js", "details.js", "icon.svg", "page.js", "style.css", "words.js"]
    assert "default-src 'none'" in asking.get_path("/").headers["content-security-policy"]
    assert "http" not in page.replace("http-equiv", "")
    assert asking.get_path("/elision/secret.js").status == 404
    assert asking.get_path("/elision/..%2fpages.py").status == 404


def test_other_methods_are_refused(asking: DashboardClient) -> None:
    """Nothing here changes anything."""
    for path in ("/", "/elision/api/totals", "/elision/page.js"):
        assert asking.get_path(path, "POST").status == 405


def test_many_at_once(kept: SqliteStore) -> None:
    """Several threads that ask at once all get the same answer."""
    asking, found = DashboardClient(kept), []
    threads = [
        threading.Thread(target=lambda: found.append(asking.get_path("/elision/api/totals").body)) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert {json.loads(each)["unread"] for each in found} == {0}
    assert len({json.loads(each)["usd"] for each in found}) == 1


def test_few_accounts_are_kept(tmp_path: Path) -> None:
    """With room for one log the answers are the same; the other is read again."""
    store = MemoryStore()
    for name in ("a", "b"):
        record_session(store, name, PI, 6)
    small = SessionCache(store, kept_bytes=1)
    large = SessionCache(store)
    for key in ("a", "b", "a", "b"):
        assert small.load_account(key) == large.load_account(key)
        assert small.kept_count == 1
    assert large.kept_count == 2


def test_a_browser_that_asks_for_an_icon_is_answered(asking: DashboardClient) -> None:
    """It gets the page's own icon."""
    assert asking.get_path("/favicon.ico").body == asking.get_path("/elision/icon.svg").body
    assert asking.get_path("/favicon.ico").headers["content-type"] == "image/svg+xml"


def test_sessions_bear_their_task_model_and_api(asking: DashboardClient) -> None:
    """They are found by each of them, in any case."""
    rows = {each["name"]: each for each in asking.get_path("/elision/api/sessions").json["sessions"]}
    assert rows["printer"]["task"].startswith("We're currently solving the following issue within our repository")
    assert (rows["billing"]["model"], rows["billing"]["api"]) == (SONNET, "Anthropic Messages")
    for search, name in (("CURRENTLY solving", "printer"), (GPT, "printer"), ("anthropic mess", "billing")):
        found = asking.get_path(f"/elision/api/sessions?search={quote(search)}").json
        assert [each["name"] for each in found["sessions"]] == [name], search
    assert asking.get_session("printer")["task"] == rows["printer"]["task"]


def test_hidden_results_have_their_command_and_the_size_that_the_placeholder_states(asking: DashboardClient) -> None:
    """One count for all: tokens of the text alone."""
    commands = []
    for made in asking.get_session("printer")["made"]:
        for each in made["masked"]:
            result = made["results"][each["handle"]]
            assert f"{result['tokens']} tokens hidden" in each["text"]
            assert result["left"] < each["left"]
            commands.append(result["command"])
    assert "python reproduce.py" in commands


def test_calls_are_exported(asking: DashboardClient) -> None:
    """As CSV with a line for each call, as JSON with everything the API has of each."""
    told = asking.get_session("billing")
    path = f"/elision/api/sessions/{encode_key('billing')}/calls"
    exported = asking.get_path(f"{path}.json")
    assert exported.json["calls"] == told["made"]
    assert exported.json["task"] == told["task"]
    answer = asking.get_path(f"{path}.csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="elision-billing.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.body.decode())))
    assert [int(row["call"]) for row in rows] == [made["call"] for made in told["made"]]
    assert sum(int(row["sent_tokens"]) for row in rows) == told["figures"]["sent_tokens"]
    assert sum(float(row["reported_usd"]) for row in rows) == pytest.approx(told["figures"]["billed_usd"])
    assert asking.get_path(f"/elision/api/sessions/{encode_key('none')}/calls.csv").status == 404


def test_no_cell_of_an_export_is_a_formula() -> None:
    """Text of sessions that a table program would run begins with an apostrophe; the file name is plain."""
    store = MemoryStore()
    key = '=cmd|"x"!A1 Ä; name=a'
    with ContextManager("masking", store=store, session=key, model="=HYPERLINK(1)") as context:
        context.prepare([{"role": "user", "content": "hello"}])
    answer = DashboardClient(store).get_path(f"/elision/api/sessions/{encode_key(key)}/calls.csv")
    (row,) = csv.DictReader(io.StringIO(answer.body.decode()))
    assert row["model"] == "'=HYPERLINK(1)"
    assert answer.headers["content-disposition"] == 'attachment; filename="elision-cmd-x-A1-name-a.csv"'


def test_calls_of_a_played_provider_are_counted_apart() -> None:
    """Nobody billed them: the log keeps who answered, and the sums say it."""
    store = MemoryStore()
    messages = [{"role": "user", "content": "hello"}]
    with ContextManager("masking", store=store, session="s", model=GPT) as context:
        context.prepare(messages)
        context.record({"prompt_tokens": 100, "completion_tokens": 5, "played": True})
        context.prepare([*messages, {"role": "assistant", "content": "hi"}, *messages])
        context.record({"prompt_tokens": 120, "completion_tokens": 5})
    told = DashboardClient(store).get_session("s")
    first, second = told["made"]
    assert (first["usage"]["played"], second["usage"]["played"]) == (True, False)
    figures = told["figures"]
    assert (figures["reported"], figures["played"]) == (2, 1)
    assert figures["played_usd"] == pytest.approx(first["billed_usd"])
    assert figures["played_usd"] > 0
    assert figures["billed_usd"] == pytest.approx(first["billed_usd"] + second["billed_usd"])


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ("ls -l", "ls -l"),
        ('{"command": "ls\\n-l", "timeout": 5}', "ls -l timeout=5"),
        ('{"command": ["bash", "-c", "ls"]}', "bash -c ls"),
        ('{"depth": 2, "filter": {"a": 1}}', 'depth=2 filter={"a": 1}'),
        ("{}", ""),
        ('{"path": "' + "x" * 5_000 + '"}', "x" * 399 + "…"),
    ],
)
def test_a_command_in_one_line(arguments: str, command: str) -> None:
    """The command alone if there is one, names and values otherwise."""
    action = Action(id="c", name="bash", arguments=arguments)
    result = Observation(action_id="c", tool="bash", content=(Text("done"),))
    turn = Turn(index=1, actions=(action,), observations=(result,))
    assert find_command([turn], (1, 1)) == command
    assert find_command([turn], (1, 2)) == find_command([turn], (2, 1)) == ""
