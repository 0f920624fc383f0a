"""A summary's way into a session: requested without secrets, checked, billed; a failed one changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from elision.engine import Log, LogSetup, decide, make_plain_terms, run_pass
from elision.errors import SummaryError
from elision.strategies.spec import parse_strategy
from elision.summarizers.factory import make_summarizer
from elision.summarizers.summary_acceptance import CircuitBreaker, RequestRedactor, build_request
from elision.trajectory.events import PassDecided, SummaryFailed
from elision.trajectory.plan import Edit, LivePrefix, SummaryRequest
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.redact import DEFAULT, NO_REDACTION
from elision.trajectory.turn import Head, Message, make_content
from tests.summarizers.scripted_server import Reply, reply_chat, reply_error, serve_script
from tests.summarizers.turns import make_turn

KEY = "gh" + "p_Zq7Wm2Xc9Vb4Nn8Kk1Jj6Hh3Gg5Ff0Ddabcd"
GOOD = "COMPLETED: read src/parser.py; parse_line fails with ValueError in tests/test_parser.py."
STRATEGY = "summarization(every=3, tail=1, schedule=every-turn, fold=false)"


def session(turns: int = 4) -> Log:
    """A session whose next pass wants a summary; a key lies in every turn of it."""
    found = Log.fold((), LogSetup(parse_strategy(STRATEGY), find_price_set("uncached")))
    found.set_head(Head(messages=(Message(role="user", content=make_content("Mend the parser.")),)))
    for index in range(1, turns + 1):
        command = f"GITHUB_TOKEN={KEY} pytest tests/test_parser.py src/parser.py -k parse_line"
        found.add_turn(make_turn(index, "I test it.", command=command, result=f"ValueError: {KEY}\n" * 60, error=True))
    return found


def passed(*script: Reply, kind: str = "openai") -> tuple[Log, list[dict[str, Any]]]:
    """A session after one pass with a model at a scripted server, and the requests it got."""
    found = session()
    with serve_script(*script) as server:
        run_pass(decide(found, make_plain_terms()), make_summarizer(f"{kind}:m", api_key="k", base_url=server.url))
    return found, server.bodies


def summary_of(found: Log) -> str:
    assert found.newest_call is not None
    summary = found.newest_call.decided.summary
    return summary.text if summary else ""


def test_a_secret_reaches_neither_the_model_nor_the_summary() -> None:
    """From raw turn to view: the key is in the turns, and nowhere in the request or the record of them."""
    found, bodies = passed(reply_chat(f"{GOOD} With GITHUB_TOKEN={KEY}."))
    assert KEY not in json.dumps(bodies)
    assert KEY not in summary_of(found)
    assert "GITHUB_TOKEN=[redacted: " in summary_of(found)
    assert KEY in found.state.turns[0].observations[0].text


def test_a_callable_of_ones_own_is_redacted_too() -> None:
    """Whoever wrote it, what stands in the view is clean."""
    found = session()
    run_pass(decide(found, make_plain_terms()), lambda request: f"{GOOD} {KEY}")
    assert summary_of(found).endswith("[redacted: github-token]")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "empty"),
        ("The agent made good progress.", "facts-lost"),
        ("x" * 100_000, "garbage"),
    ],
)
def test_a_failed_candidate_changes_nothing_and_is_seen(text: str, cause: str) -> None:
    """The view goes out as it was; the log says what was asked, why it was not taken, and what it cost."""
    found = session()
    raw = found.state.make_raw_view().tokens
    view = run_pass(decide(found, make_plain_terms()), lambda request: text)
    assert summary_of(found) == ""
    assert view.tokens == raw
    (event,) = [event for event in found.events if isinstance(event, SummaryFailed)]
    assert (event.cause, event.retry_at > event.call) == (cause, True)
    assert event.reason


def test_what_a_model_failed_at_is_billed() -> None:
    """Two refusals cost what their provider says they did."""
    found, _ = passed(reply_chat("I'm sorry, I can't."), reply_chat("I'm sorry, I can't."))
    (event,) = [event for event in found.events if isinstance(event, SummaryFailed)]
    assert (event.cause, event.input, event.cached, event.output) == ("refusal", 1800, 600, 120)


def test_what_no_model_answered_is_not_billed() -> None:
    """A request that was turned down costs nothing."""
    found, _ = passed(reply_error(401, "no such key"))
    (event,) = [event for event in found.events if isinstance(event, SummaryFailed)]
    assert (event.cause, event.input, event.usd) == ("rejected", 0, 0.0)


def test_a_summary_error_says_why() -> None:
    """Raised without a cause it has one all the same."""
    assert SummaryError("no").cause == "other"


@pytest.mark.parametrize("odd", ["\ud83d", "\udcff\ud800", "\x00", "\x1b[2J", "\x9b31m"], ids=ascii)
def test_a_summary_can_be_sent_in_every_later_request(odd: str) -> None:
    """Half of an emoji, NUL or a terminal sequence in it does not stay for ever; the words do."""
    found = session()
    run_pass(decide(found, make_plain_terms()), lambda _: f"{GOOD} {odd} And more.")
    assert GOOD in summary_of(found)
    view = found.newest_call.view if found.newest_call else None
    assert view is not None
    block = next(segment.text for segment in view.segments if segment.kind == "summary")
    assert block.encode("utf-8")
    assert odd not in block


def test_what_a_summary_quotes_can_be_sent_too() -> None:
    """A protected result, and the user's old words, stand in the block; half of an emoji in them is replaced."""
    kept = parse_strategy('summarization(every=3, tail=1, schedule=every-turn, rules=rule(args="*first*", keep=true))')
    found = Log.fold((), LogSetup(replace(kept, keep_user_tokens=0), find_price_set("uncached")))
    found.set_head(Head(messages=(Message(role="user", content=make_content("Mend the parser.")),)))
    said = (Message(role="user", content=make_content("Hurry \ud83d")),)
    for index in range(1, 5):
        command = "pytest -k first" if index == 1 else "pytest"
        added = make_turn(index, "I test it.", command=command, result="ok \ud83d\n" * (30 if index == 1 else 600))
        found.add_turn(msgspec.structs.replace(added, interjections=said))
    run_pass(decide(found, make_plain_terms()), lambda _: GOOD)
    assert found.state.summary is not None
    assert "ok \ufffd" in found.state.summary.block
    assert "Hurry \ufffd" in found.state.summary.block
    found.state.summary.block.encode("utf-8")


def test_a_secret_in_parts_is_redacted() -> None:
    """What is taken out between its parts does not bring it together behind the redaction's back."""
    found = session()
    run_pass(decide(found, make_plain_terms()), lambda _: f"{GOOD} The key is {KEY[:6]}\x00{KEY[6:]}.")
    assert KEY not in summary_of(found)
    assert GOOD in summary_of(found)


def test_a_bug_in_the_checks_rejects_the_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass goes on without it, and asking backs off: whatever happened, the call is paid."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError("ours")

    found, asked = session(), []

    def write(request: SummaryRequest) -> str:
        asked.append(request)
        return GOOD

    monkeypatch.setattr("elision.summarizers.summary_acceptance.check_summary", broken)
    for index in range(5, 25):
        run_pass(decide(found, make_plain_terms()), write)
        found.add_turn(make_turn(index, "I test it.", command="pytest", result="ValueError\n" * 60))
    assert len(asked) == 3
    assert [event.cause for event in found.events if isinstance(event, SummaryFailed)] == ["other"] * 3
    assert found.money.summaries.input > 0


def test_what_the_view_shows_beside_a_summary() -> None:
    """Of later turns: their results as the view has them, without what placeholders leave out."""
    log = Log.fold((), LogSetup(parse_strategy(STRATEGY), find_price_set("uncached")))
    for index in range(1, 5):
        log.add_turn(make_turn(index, "", command="ls", result=f"kept_{index}\nleft_out_{index}"))
    log.state.fold_event(PassDecided(5, "x", (Edit((3, 1), "mask", "kept_3"),)))
    asked = build_request(log.state, 2, 1_000, newest=3)
    assert {item for item in asked.shown if item.startswith(("kept", "left"))} == {"kept_3"}
    whole = build_request(log.state, 2, 1_000, newest=4).shown
    assert {"kept_4", "left_out_4"} <= whole


def test_waits_grow_and_the_circuit_opens() -> None:
    """Each failure in a row waits longer; at the limit the circuit is open."""
    breaker = CircuitBreaker()
    assert [breaker.record_failure(100), breaker.record_failure(105)] == [105, 115]
    assert [breaker.record_failure(115), breaker.record_failure(115)] == [175, 175]
    assert not breaker.may_ask(174)
    assert breaker.may_ask(175)


def test_success_forgets() -> None:
    """One summary that is taken closes the circuit."""
    breaker = CircuitBreaker()
    for call in range(5):
        breaker.record_failure(call)
    breaker.record_success()
    assert breaker.may_ask(0)
    assert breaker.record_failure(10) == 15


MODEL_KEY = "sk-" + "proj-Zq7Wm2Xc9Vb4Nn8Kk1Jj6Hh3Gg5Ff0Dd"
ASKED = SummaryRequest(
    previous=f"was {MODEL_KEY}",
    task=f"use {MODEL_KEY}",
    turns=(
        make_turn(
            1,
            f"I use {MODEL_KEY}",
            command=f"export K={MODEL_KEY}",
            result=f"K={MODEL_KEY}",
            user=f"and {MODEL_KEY}",
        ),
    ),
    max_tokens=100,
    live=LivePrefix(dialect="openai", messages=({"role": "user", "content": MODEL_KEY},)),
)


def test_every_text_is_clean() -> None:
    """Previous summary, task, words, arguments, results and interjections; the live prefix stays, byte for byte."""
    redactor = RequestRedactor(DEFAULT)
    clean = redactor.redact(ASKED)
    assert MODEL_KEY not in repr((clean.previous, clean.task, clean.turns))
    assert redactor.hits == 6
    assert clean.live is ASKED.live
    assert clean.turns[0].actions[0].decoded_arguments == {"command": "export K=[redacted: openai-key]"}


def test_no_item_is_a_secret() -> None:
    """Of the items that the view shows, those go to a summarizer that the redacted texts have too."""
    turn = make_turn(1, command="env", result=f"K={MODEL_KEY} first_name")
    asked = SummaryRequest(
        previous="second_name",
        task="",
        turns=(turn,),
        max_tokens=100,
        shown=frozenset({MODEL_KEY, "first_name", "second_name"}),
    )
    assert RequestRedactor(DEFAULT).redact(asked).shown == {"first_name", "second_name"}


def test_switched_off() -> None:
    """With no rule in force the request is as it was."""
    assert RequestRedactor(NO_REDACTION).redact(ASKED) == ASKED


def test_what_is_clean_is_not_read_again() -> None:
    """A request that the same rules have cleaned passes; other rules clean it all the same."""
    clean = RequestRedactor(DEFAULT).redact(ASKED)
    again = RequestRedactor(DEFAULT)
    assert again.redact(clean) is clean
    loose = RequestRedactor(NO_REDACTION).redact(ASKED)
    assert MODEL_KEY not in repr(RequestRedactor(DEFAULT).redact(loose).turns)


def test_a_turn_without_secrets_is_the_same_one() -> None:
    """What holds no secret is not copied."""
    plain = make_turn(1, "I look.", command="ls", result="a.py")
    asked = SummaryRequest(previous="", task="", turns=(plain, *ASKED.turns), max_tokens=100)
    clean = RequestRedactor(DEFAULT).redact(asked)
    assert clean.turns[0] is plain
    assert clean.turns[1] is not ASKED.turns[0]
