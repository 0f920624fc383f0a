"""`elision sessions show` at the terminal."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from elision import Advanced
from elision.cli.show_report import FIRST, LAST, SCALE, draw_chart
from elision.engine import Log, LogSetup
from elision.errors import SpecError
from elision.formats.registry import read_runs
from elision.lab.report.report import join_words
from elision.manager import ContextManager, ContextView
from elision.manager.advanced_options import gather_options
from elision.manager.opened_session import Exchanges
from elision.manager.session_history import SessionLog
from elision.stores.sqlite import SqliteStore
from elision.stores.store import NewSession
from elision.strategies.guards import Guards
from elision.strategies.schedules import FixedSchedule
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Masking
from elision.summarizers.summary_checks import SummaryResult
from elision.trajectory.events import SessionOpened
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory
from tests.cli import stored
from tests.cli.in_process import Command

ROOT = Path(__file__).parents[2]


COMMAND = Command("sessions", "show")
printed, refused = COMMAND.print, COMMAND.refuse


def words(text: str) -> str:
    return " ".join(text.split())


# -- a session --------------------------------------------------------------------------------------------------------


def test_totals(kept: tuple[str, list[ContextView]]) -> None:
    """What was sent and what it cost, against sending everything, and how much is hidden now."""
    url, views = kept
    text = words(printed("main", "--store", url))
    newest = views[-1].diagnostics
    assert "tokens in 8 calls over 7 turns" in text
    assert f"${newest.costs.ours:.4f} instead of ${newest.costs.raw:.4f}" in text
    assert "5 of 7 results masked, 2 visible" in text
    assert "rewrites 5 × mask" in text
    assert "main~2 · fork · 4 turns" in text
    assert "main/scout · sub-agent · 2 turns" in text


def test_how_many_calls_were_reported(tmp_path: Path) -> None:
    """The reported sum says of how many calls it is, unless it is of all; at one call, of those before it."""
    messages, url = stored.opening(), stored.url(tmp_path)
    with ContextManager(stored.EAGER, model=stored.MODEL, store=url, session="s") as context:
        for turn in range(1, 4):
            context.prepare(messages)
            if turn == 2:
                context.record({"prompt_tokens": 400, "completion_tokens": 20})
            messages += stored.looked(turn)
    stored.played(tmp_path, "whole", 2)
    reported = r"as reported \$[\d.]+ \(1 of "
    assert re.search(reported + r"3 calls\)", words(printed("s", "--store", url)))
    assert re.search(reported + r"2 calls\)", words(printed("s", "--call", "3", "--store", url)))
    last = words(printed("whole", "--call", "last", "--store", url))
    assert "as reported" in last
    assert "calls)" not in last


def test_every_pass_that_did_something(kept: tuple[str, list[ContextView]]) -> None:
    """Each with its call, its sizes, its handles and its reason; what was read again stands at its call."""
    text = words(printed("main", "--store", kept[0]))
    for turn in range(1, 6):
        assert f"t{turn}.1 look 1.4k why: eligible" in text
    assert text.count("why: ") == 5
    assert "read again: t1.1 (130, by the agent)" in text


def test_summaries_and_those_that_failed(kept: tuple[str, list[ContextView]]) -> None:
    """A summary says which turns and how it came; one that was not taken says why and when the next may come."""
    assert "summarized turns 1-3, 4.4k → 192, without a model why: summary due" in words(
        printed("digested", "--store", kept[0])
    )
    burning = words(printed("burning", "--store", kept[0]))
    assert "no summary (server): the server is on fire" in burning
    assert "not again before call 11" in burning
    assert "1 summary not taken" in burning


def test_a_changed_head(tmp_path: Path) -> None:
    """A new system prompt sends everything anew, and the time line says so."""
    messages = stored.opening()[1:]
    with ContextManager(stored.EAGER, store=stored.url(tmp_path), session="s") as context:
        context.prepare(messages, system="You are careful.")
        messages += stored.looked(1)
        context.prepare(messages, system="You are bold.")
    assert "system prompt, tools or task changed" in printed("s", "--store", stored.url(tmp_path))


def test_the_recall_tools_entered(tmp_path: Path) -> None:
    """The pass that put them into requests says so, once, and its bill has them as the live one had."""
    views = stored.played(tmp_path, "s", 6, tools=[])
    text = printed("s", "--store", stored.url(tmp_path))
    assert text.count("the recall tools entered: everything is sent again") == 1
    told = json.loads(printed("s", "--json", "--store", stored.url(tmp_path)))
    entered = [made["recall_tools_entered"] for made in told["passes"]]
    assert entered == [view.offered and not before.offered for before, view in pairwise([views[0], *views])]
    assert told["costs"]["ours"] == pytest.approx(views[-1].diagnostics.costs.ours, rel=0.01)


def test_a_learned_window(tmp_path: Path) -> None:
    """What the provider said of its window when it refused a call stands at that call."""
    with ContextManager(stored.EAGER, store=stored.url(tmp_path), session="s") as context:
        context.prepare(stored.opening())
        assert context.overflowed("prompt is too long: 210000 tokens > 200000 maximum")
        context.prepare(stored.opening())
    text = printed("s", "--store", stored.url(tmp_path))
    assert "refused: the model's window is 200k tokens" in text
    assert "made 2 times" in printed("s", "--call", "1", "--store", stored.url(tmp_path))


def test_what_the_client_never_saw(tmp_path: Path) -> None:
    """An exchange behind the client's back stands at its call, in sizes, and none of what it says."""
    with ContextManager(stored.EAGER, store=stored.url(tmp_path), session="s") as context:
        context.prepare(stored.opening())
        Exchanges(context._opened).record(node="n", messages=('"secret"', "{}", "{}"), results=("{}",))
    text = printed("s", "--store", stored.url(tmp_path))
    told = "answered here: 3 messages in place of the one that the client saw, 1 result in front of its next"
    assert told in " ".join(text.split())
    assert "secret" not in text
    (made,) = json.loads(printed("s", "--json", "--store", stored.url(tmp_path)))["passes"]
    assert made["exchanged"] == [{"messages": 3, "results": 1}]


def test_savings_of_the_passes_add_up(kept: tuple[str, list[ContextView]]) -> None:
    """What stands beside the passes is what the whole session saved, as nothing is saved before the first of them."""
    told = json.loads(printed("main", "--json", "--store", kept[0]))
    saved = [
        float(_money(line))
        for line in printed("main", "--store", kept[0]).splitlines()
        if " → " in line and "+" in line
    ]
    assert sum(saved) == pytest.approx(told["costs"]["saved"], abs=0.0005)


def _money(line: str) -> str:
    (found,) = [word for word in line.split() if "$" in word]
    return found.replace("−", "-").replace("$", "")


@pytest.mark.parametrize("width", [60, 80, 100, 160])
@pytest.mark.parametrize("session", ["main", "burning", "digested", "odd"])
def test_fits(kept: tuple[str, list[ContextView]], session: str, width: int) -> None:
    """No line is wider than the terminal."""
    assert all(len(line) <= width for line in printed(session, "--store", kept[0], width=width).splitlines())


def test_nothing_acts_on_the_terminal(kept: tuple[str, list[ContextView]]) -> None:
    """Names of sessions and tools come as letters, markup and all."""
    for more in ([], ["--call", "last"]):
        text = printed("odd", *more, "--store", kept[0])
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)
    assert "[red]name[/red]" in printed("odd", "--store", kept[0])


def test_full_names_every_result(tmp_path: Path) -> None:
    """The four largest results of a pass by name, and all of them with --full."""
    stored.played(tmp_path, "s", 8, Masking(window=2, schedule=FixedSchedule(mask_calls=frozenset({9}))))
    url = stored.url(tmp_path)
    assert "and 2 more" in printed("s", "--store", url)
    assert "t6.1 look" in printed("s", "--full", "--store", url)
    assert "and 2 more" not in printed("s", "--full", "--store", url)


def test_many_passes(tmp_path: Path) -> None:
    """Of very many passes the first and the newest are listed, with what those between saved; --full lists all."""
    stored.played(tmp_path, "s", 40)
    url = stored.url(tmp_path)
    text = printed("s", "--store", url)
    assert "14 passes between; --full lists them" in text
    assert "t8.1 look" in text
    assert "t9.1 look" not in text
    assert "t38.1 look" in text
    assert text.count("why: ") == FIRST + LAST
    whole = printed("s", "--full", "--store", url)
    assert whole.count("why: ") == 38
    assert "between" not in whole


def test_no_call_yet(tmp_path: Path) -> None:
    """A session that was only begun is shown as that."""
    store = SqliteStore(tmp_path / "agent.db")
    store.create(NewSession(key="new", family="new", at=1.0))
    store.append("new", [SessionOpened(strategy="masking")], after=0, at=1.0)
    store.close()
    assert "no call yet, 0 turns kept" in printed("new", "--store", stored.url(tmp_path))
    assert "no call was made yet" in refused(SpecError, "new", "--call", "1", "--store", stored.url(tmp_path))


def test_shadow_mode(tmp_path: Path) -> None:
    """Of a session whose requests went out as they came it is said that its figures are hypothetical."""
    stored.played(tmp_path, "s", 5, shadow=True)
    assert "shadow requests were sent unchanged; all of this is hypothetical" in words(
        printed("s", "--store", stored.url(tmp_path))
    )


def test_nothing_hidden(tmp_path: Path) -> None:
    """Where no pass acted, the reason of the last one is told."""
    stored.played(tmp_path, "s", 1)
    assert "Nothing was hidden in 2 calls; at the last one: nothing eligible." in printed(
        "s", "--store", stored.url(tmp_path)
    )


def test_results_that_are_folded(tmp_path: Path) -> None:
    """Folded results are counted, and nothing is said to be whole."""
    with ContextManager("raw(fold=true)", store=stored.url(tmp_path), session="s") as context:
        context.turns.begin("Build it.", tools=[{"name": "bash", "input_schema": {"type": "object"}}])
        for number in range(3):
            context.turns.view()
            call = {"name": "bash", "arguments": {"command": f"make {number}"}}
            context.turns.add("", call, f"{stored.report(1)}\n{number}")
        context.turns.view()
    text = words(printed("s", "--store", stored.url(tmp_path)))
    assert "0 of 3 results masked, 3 visible, 2 of them folded" in text
    assert re.search(r"folded 2 results, [\d.k]+ → [\d.k]+ ", text)


def test_nothing_is_masked_where_results_are_folded(tmp_path: Path) -> None:
    """A session that folds alone hid nothing, and saved all the same."""
    with ContextManager("raw(fold=true)", store=stored.url(tmp_path), session="s") as context:
        context.turns.begin("Build it.")
        for number in range(3):
            context.turns.view()
            context.turns.add("", {"name": "bash", "arguments": {"command": f"make {number}"}}, stored.report(1))
        context.turns.view()
    text = words(printed("s", "--store", stored.url(tmp_path)))
    assert "Nothing was masked or summarized in 4 calls; at the last one: nothing eligible." in text


def test_commands_name_the_session(kept: tuple[str, list[ContextView]]) -> None:
    """What is printed below the table can be typed, with a handle that is hidden."""
    text = words(printed("main", "--store", kept[0]))
    assert "elision sessions recall main t1.1; a call as it was sent: elision sessions show main --call N" in text


def test_json_has_every_pass(kept: tuple[str, list[ContextView]]) -> None:
    """As JSON each pass says what the agent's diagnostics said."""
    url, views = kept
    passes = json.loads(printed("main", "--json", "--store", url))["passes"]
    assert len(passes) == len(views)
    for told, view in zip(passes, views, strict=True):
        live = view.diagnostics
        assert told["tokens"] == {"before": live.before, "after": live.after, "raw": live.raw}
        assert [each["handle"] for each in told["masked"]] == [each.handle for each in live.masked]
        assert (told["reason"], told["epoch"]) == (live.reason, live.epoch)
        assert told["costs"]["ours"] == pytest.approx(live.costs.ours)
        assert told["costs"]["raw"] == pytest.approx(live.costs.raw)
    assert [told["phase"] for told in passes] == [view.diagnostics.phase for view in views]
    assert passes[4]["recalled"] == [{"handle": "t1.1", "tokens": 130, "by": "tool"}]


def test_json_has_the_report_of_the_session(kept: tuple[str, list[ContextView]]) -> None:
    """The value that the agent's context manager has: phases, summaries, savings, efficiency, composition."""
    told = json.loads(printed("main", "--json", "--store", kept[0]))
    report = told["report"]
    assert (report["phase"], report["calls"]) == ("masking", told["calls"])
    assert report["savings"]["tokens"] == told["raw_tokens"] - told["sent_tokens"]
    assert report["savings"]["estimated_cost"] == pytest.approx(told["costs"]["saved"])
    assert report["efficiency"] == pytest.approx(told["costs"]["ours"] / told["costs"]["raw"])
    assert report["composition"]["observation_share"] > 0.5


# -- one call ---------------------------------------------------------------------------------------------------------


def test_a_call_as_it_was_sent(kept: tuple[str, list[ContextView]]) -> None:
    """The messages of a call are those that the agent's client was given."""
    url, views = kept
    for number, view in enumerate(views, start=1):
        assert json.loads(printed("main", "--call", str(number), "--json", "--store", url))["messages"] == view.messages


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "openai-responses"])
def test_turns_by_hand_as_they_were_sent(tmp_path: Path, dialect: Any) -> None:
    """Of turns that were added by hand every call is the same bytes, cache markers included."""
    views = []
    with ContextManager(
        stored.HYBRID, store=stored.url(tmp_path), session="s", advanced=Advanced(dialect=dialect)
    ) as context:
        context.turns.begin("Look around.", system="Be brief.")
        for number in range(1, 8):
            views.append(context.turns.view())
            context.turns.add("Hm.", {"name": "look", "arguments": {"at": number}}, stored.report(number))
        views.append(context.turns.view())
    for number, view in enumerate(views, start=1):
        shown = json.loads(printed("s", "--call", str(number), "--json", "--store", stored.url(tmp_path)))
        assert json.dumps(shown["messages"]) == json.dumps(view.messages)
        assert (shown["system"] or None) == view.system


def test_the_page_of_a_call(kept: tuple[str, list[ContextView]]) -> None:
    """The view, what its pass did, what it cost, what the provider reported and what was read again behind it."""
    text = words(printed("main", "--call", "5", "--store", kept[0]))
    assert "Call 5 of 8" in text
    assert "t2.1 look masked now, was" in text
    assert "for the prompt · so far" in text
    assert f"reported {kept[1][4].diagnostics.after:,} tokens" in text
    assert "recalled t1.1 after this call" in text
    assert "no summary (server)" in printed("burning", "--call", "6", "--store", kept[0])


@pytest.mark.parametrize("call", ["0", "9", "-1", "first", "\x1b[31m"])
def test_a_call_that_was_not_made(kept: tuple[str, list[ContextView]], call: str) -> None:
    """The error says which there are."""
    assert refused(SpecError, "main", f"--call={call}", "--store", kept[0]).endswith(
        "give a number from 1 to 8, or last"
    )


# -- how it is worked out ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["masking(window=10)", "hybrid(window=10, summarize_at=20)"])
@pytest.mark.parametrize("name", ["openhands-pylint.tar.gz", "swe-agent-sympy-20801.traj.gz"])
def test_bills_within_a_percent(tmp_path: Path, name: str, strategy: str) -> None:
    """Without writing placeholders again a bill is within a per cent of that of the session taken up whole."""
    (run,) = (each for each in read_runs(ROOT / "examples" / "runs" / name) if isinstance(each, Trajectory))
    with ContextManager(
        strategy, model=stored.MODEL, store=stored.url(tmp_path), session="s", advanced=Advanced(clock=stored.Clock())
    ) as context:
        context.turns.begin(run.head)
        for turn in run.turns[:60]:
            context.turns.view()
            context.turns.append(turn)
        context.turns.view()
    store = SqliteStore(tmp_path / "agent.db")
    events, info, sizer = list(store.events("s")), store.info("s"), Sizer(make_counter())
    store.close()
    whole = Log.fold(events, LogSetup(parse_strategy(strategy), find_prices(stored.MODEL), sizer))
    account = SessionLog(info=info, events=events, sizer=sizer, guards=Guards()).build_report()
    assert account.final is not None
    assert account.final.costs.ours == pytest.approx(whole.money.spent_usd, rel=0.01)
    assert account.final.costs.raw == pytest.approx(whole.money.raw_spent_usd)


def test_the_chart() -> None:
    """What was sent is drawn to scale, raw is shaded above it, and the scale names the top."""
    rows = [join_words(row) for row in draw_chart([60, 30, 60], [60, 90, 120], SCALE + 3)]
    assert rows[0].strip().startswith("120")
    assert rows[3][SCALE:].rstrip() == "█░█"
    assert rows[0][SCALE:].rstrip() == "  ░"


def test_many_calls_in_few_cells() -> None:
    """Of several calls in one cell the largest shows, and no row is too wide."""
    sent = [10] * 500
    sent[250] = 100
    rows = [join_words(row) for row in draw_chart(sent, sent, 40)]
    assert all(len(row) <= 40 for row in rows)
    assert rows[0].count("█") == 1


def test_raw_leaves_the_chart() -> None:
    """A raw context many times as large does not press what was sent to the ground."""
    rows = [join_words(row) for row in draw_chart([100, 100], [100, 100_000], SCALE + 2)]
    assert rows[0].strip().startswith("400")
    assert rows[-1][SCALE:] == "██"


# -- the texts of summaries --------------------------------------------------------------------------------------------


def write_hostile(request: SummaryRequest) -> SummaryResult:
    """A model's summary with markup in it, over many lines, and a name with an escape sequence."""
    lines = [f"COMPLETED: turn {request.turns[-1].index} [red]done[/red]", *(f"line {n}" for n in range(6))]
    return SummaryResult(text="\n".join(lines), input=900, output=40, usd=0.0125, writer="writer\x1b[5m-1")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    at = tmp_path_factory.mktemp("written")
    stored.played(at, "written", 8, stored.HYBRID, summarizer=write_hostile)
    return stored.url(at)


def test_summaries_are_listed(written: str) -> None:
    """With turns, call, tokens, writer and cost; the beginning of the text, or with --full all of it."""
    text = printed("written", "--store", written)
    listed = text[text.index("\nsummaries\n") :]
    assert re.search(r"turns 1-3 at call 6, \d+ tokens, by writer\S*-1, \$0.0125", listed)
    assert "  COMPLETED: turn 3 [red]done[/red]\n" in listed
    assert "… 4 more lines; --full prints all" in listed
    assert "line 5" not in listed
    assert "\x1b" not in listed
    whole = printed("written", "--store", written, "--full")
    assert "  line 5\n" in whole
    assert "more lines" not in whole


def test_json_has_the_texts(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a key of their own, with what the context manager's list has; redacted by the settings in force."""
    monkeypatch.setenv("AGENT_CONTEXT_REDACT_PATTERNS", "step=turn \\d+")
    (first, *others) = json.loads(printed("written", "--store", written, "--json"))["summary_texts"]
    assert first["text"].startswith("COMPLETED: [redacted: step] [red]done[/red]\nline 0\n")
    assert (first["covers_turns"], first["call"], first["usd"]) == ([1, 3], 6, 0.0125)
    with ContextManager(stored.HYBRID, model=stored.MODEL, store=written, session="written") as context:
        found = context.session.summaries()
    assert [entry.covers_turns for entry in found] == [tuple(each["covers_turns"]) for each in (first, *others)]
    assert [(entry.call, entry.tokens, entry.writer) for entry in found] == [
        (each["call"], each["tokens"], each["writer"]) for each in (first, *others)
    ]


def test_a_session_without_summaries_lists_none(kept: tuple[str, list[ContextView]]) -> None:
    assert "\nsummaries\n" not in printed("main", "--store", kept[0])
    assert json.loads(printed("main", "--store", kept[0], "--json"))["summary_texts"] == []
    assert re.search(r"turns 1-3 at call 6, \d+ tokens, by digest\n", printed("digested", "--store", kept[0]))


@pytest.mark.parametrize("model", ["claude-opus-4-8", "claude-sonnet-4-5", "gpt-5"])
@pytest.mark.parametrize("names_model", [True, False])
def test_a_call_is_on_the_scale_of_its_session(tmp_path: Path, model: str, names_model: bool) -> None:
    """A masked result has the same size in the list and on the page of its call, whoever knows the model: the session
    or its calls alone. The page says how its figures compare with what placeholders state."""
    given = {"model": model} if names_model else {}
    messages = stored.opening()
    with ContextManager(stored.EAGER, store=stored.url(tmp_path), session="s", **gather_options(given)) as context:
        for turn in range(1, 5):
            messages += stored.looked(turn)
            context.prepare(messages, model=model)
    newest = json.loads(printed("s", "--json", "--store", stored.url(tmp_path)))["passes"][-1]
    (masked,) = newest["masked"]
    page = words(printed("s", "--call", "last", "--store", stored.url(tmp_path)))
    assert f"t2.1 look masked now, was {masked['tokens']:,} tokens {masked['left']:,} tokens" in page
    assert f"sent {newest['tokens']['after']:,} tokens" in page
    assert f"sending everything ({newest['tokens']['raw']:,})" in page
    rate = {"claude-opus-4-8": "1.60", "claude-sonnet-4-5": "1.25"}.get(model)
    assert (f"scale {rate} tokens for each one" in page) if rate else ("scale" not in page)
    assert "beside" not in page


def test_a_call_names_what_the_client_did_not_show(tmp_path: Path) -> None:
    """Tools of 9,000 tokens that no message has are in what was sent, and are named as such."""
    messages = stored.opening()
    with ContextManager(stored.EAGER, store=stored.url(tmp_path), session="s", model="gpt-5") as context:
        view = context.prepare(messages)
        context.record({"prompt_tokens": view.diagnostics.after + 9_000, "completion_tokens": 20})
        view = context.prepare([*messages, *stored.looked(1)])
    page = words(printed("s", "--call", "last", "--store", stored.url(tmp_path)))
    assert f"sent {view.diagnostics.after:,} tokens" in page
    assert "elsewhere 9,000 of the tokens sent are in no message above" in page


def test_what_was_folded_is_said(tmp_path: Path) -> None:
    """In the list of calls, and in what is hidden now; what is shown whole again is named."""
    text = "\n".join(f"line {number} says what the {number * 7919}th word of it is" for number in range(40))
    url = f"sqlite:///{tmp_path / 'store.db'}"
    plan = "masking(window=2, fold=true, schedule=every-turn, gist=0)"
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Mend the parser."}]
    with ContextManager(plan, store=url, session="folds", recall="caller") as context:
        context.prepare(messages)
        for number in range(3):
            call = {"id": f"c{number}", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": text})
            context.prepare(messages)
    output = printed("folds", "--store", url, width=160)
    assert re.search(r"folded 1 result, \S+ → \d+: t3\.1 bash", output)
    assert "shown whole again: t2.1" in output
    assert "1 of 3 results masked, 2 visible, 1 of them folded" in output
    assert re.search(r"folded +2 results, \S+ → \d+ · 1 × one shown in full again", output)
