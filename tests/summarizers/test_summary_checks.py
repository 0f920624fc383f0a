"""What may not replace a history, what may, and what a summarizer may answer at all."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from elision.errors import SummaryError
from elision.formats.registry import read_runs
from elision.summarizers.digest import write_digest
from elision.summarizers.summary_checks import (
    SummaryResult,
    check_summary,
    count_needed_facts,
    find_key_facts,
    find_missing_facts,
    find_problem,
    has_sound_usage,
    parse_answer,
)
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.tokens import make_counter
from tests.summarizers.turns import make_filler_turn, make_request, make_turn

COUNT = make_counter().count
RUNS = sorted((Path(__file__).parents[2] / "examples" / "runs").glob("*.gz"))
ASKED = make_request(
    make_filler_turn(1),
    make_turn(2, "I read it.", command="cat src/parser.py", result="def parse_line(text): ...\n" * 40),
    make_turn(
        3, "Again.", command="pytest tests/test_parser.py -k parse_line", result="ValueError: bad\n" * 30, error=True
    ),
    max_tokens=900,
)
GOOD = "COMPLETED: read src/parser.py; parse_line fails with ValueError in tests/test_parser.py."

REFUSALS = (
    "I'm sorry, but I can't help with that.",
    "I’m very sorry, I cannot summarize this.",
    "I cannot assist with this request.",
    "I can't continue.",
    "I am unable to provide a summary.",
    "**Sorry, but I** must decline.",
    "Unfortunately, I do not have access.",
    "As an AI language model, I",
    "Es tut mir leid, das kann ich nicht.",
    "Ich kann diesen Text leider nicht zusammenfassen.",
    "Je suis désolé, je ne peux pas.",
    "Lo siento, no puedo ayudar con eso.",
    "Desculpe, não posso ajudar.",
    "Mi dispiace, non posso farlo.",
    "Het spijt me.",
    "Przykro mi, nie mogę.",
    "Извините, я не могу помочь.",
    "К сожалению, это невозможно.",
    "抱歉，我无法完成这个请求。",
    "很抱歉，我不能帮助你。",
    "申し訳ありませんが、お手伝いできません。",
    "죄송하지만 도와드릴 수 없습니다.",
)
ERRORS = (
    "<!DOCTYPE html><html><body>502 Bad Gateway</body></html>",
    '{"error": {"message": "Rate limit reached"}}',
    "Traceback (most recent call last):\n  File x",
    "openai.RateLimitError: Error code: 429",
    "Error code: 500 - internal",
    "Error: connect ECONNREFUSED",
    "429 Too Many Requests",
    "HTTP/1.1 503 Service Unavailable",
    "Rate limit exceeded, try again in 20s",
    "Internal Server Error",
    "upstream connect error or disconnect/reset before headers",
    "Request timed out.",
    "prompt is too long: 1 tokens > 0 maximum",
    "An error occurred while processing your request.",
)
CALLS = (
    '<tool_call>\n{"name": "bash"}',
    "<function=bash>ls</function>",
    '{"name": "bash", "arguments": {}}',
    "```bash\ncat src/parser.py\n```",
    "THOUGHT: I look.\n```bash\nls\n```",
    "[TOOL_CALLS] bash",
)
GOES_ON = (
    "Let me look at src/parser.py.",
    "I'll fix parse_line now.",
    "Okay, I will run the tests.",
    "Lass mich nachsehen.",
)
ORDERS = (
    "Please fix parse_line in src/parser.py.",
    "You must run pytest next.",
    "Continue with step 3.",
    "New task: delete it.",
)
NOISE = ("ab" * 900, "!!??##" * 300, "\ufffd\x00\x01" * 300, "the same line again\n" * 300, "QUJD" * 600)


def cause(text: str, asked: SummaryRequest = ASKED) -> str | None:
    found = find_problem(text, asked, COUNT)
    return found.cause if found else None


def test_a_summary_passes() -> None:
    """A plain record of the turns is nobody's problem."""
    assert find_problem(GOOD, ASKED, COUNT) is None


@pytest.mark.parametrize(
    ("word", "text"),
    [
        *(("empty", text) for text in ("", " \n\t")),
        *(("refusal", text) for text in REFUSALS),
        *(("error-text", text) for text in ERRORS),
        *(("tool-call", text) for text in CALLS),
        *(("task-continued", text) for text in (*GOES_ON, *ORDERS)),
        *(("garbage", text) for text in NOISE),
        ("too-long", GOOD + "".join(f" word{n * n}" for n in range(1_500))),
        ("too-long", f"{GOOD} " * 100_000),
        ("facts-lost", "The agent looked around and made good progress."),
        ("facts-lost", "The conversation so far is too long to be shown."),
    ],
)
def test_what_may_not_stand(word: str, text: str) -> None:
    """Each is told by its form, with a sentence why and one on what to do otherwise."""
    found = find_problem(text, ASKED, COUNT)
    assert found is not None
    assert (found.cause, bool(found.reason)) == (word, True)
    assert found.correction
    with pytest.raises(SummaryError) as raised:
        check_summary(text, ASKED, COUNT)
    assert raised.value.cause == word


@pytest.mark.parametrize(
    "told",
    [
        "The user said: I'm sorry, I cannot use Docker.",
        "The API answered 429 Too Many Requests twice; rate limit exceeded.",
        "TESTS: 500 Internal Server Error in test_view.",
        "PENDING: please the linter; continue with step 3.",
        "USER_CONTEXT: Let me know when done, the user asked.",
        "Traceback (most recent call last) was fixed.",
    ],
)
def test_a_summary_may_tell_of_them(told: str) -> None:
    """Errors, refusals and orders inside a summary are what it is about."""
    assert find_problem(f"{GOOD}\n{told}", ASKED, COUNT) is None


def test_longer_than_its_input() -> None:
    """A summary that saves nothing is none."""
    short = make_request(make_turn(1, "Hi.", command="ls", result="a.py"))
    assert (
        cause(
            "The agent listed the directory and saw one file in it, a.py; it did nothing else, and now it waits.", short
        )
        == "too-long"
    )


@pytest.mark.parametrize("limit", [50, 250, 1_000])
def test_a_summary_has_at_most_its_limit(limit: int) -> None:
    """In o200k tokens, whatever else counts: a text of the limit passes, and one token more is too long."""
    asked = make_request(*(make_turn(number, "word " * 900) for number in range(1, 4)), max_tokens=limit)
    some = ["alpha", "beta", "gamma", "result", "module", "passed", "because", "then"]
    words = " ".join(Random(1).choices(some, k=limit))
    assert COUNT(words) == limit
    assert find_problem(words, asked, lambda text: 2 * COUNT(text)) is None
    found = find_problem(f"{words} more", asked, COUNT)
    assert found is not None
    assert found.reason == f"it is {limit + 1:,} tokens long where {limit:,} are allowed"
    assert found.correction.startswith(f"Write at most {limit * 4 // 5} tokens")


def test_other_languages_pass() -> None:
    """A summary in any script is text."""
    assert cause("已完成：读取 src/parser.py；parse_line 在 tests/test_parser.py 中失败，错误为 ValueError。") is None
    assert cause("СДЕЛАНО: прочитан src/parser.py; parse_line падает с ValueError в tests/test_parser.py.") is None


def test_facts_are_what_the_newest_turns_worked_with() -> None:
    """Names and paths of calls and the errors they met, most used first; what only results showed is not asked for."""
    facts = find_key_facts(ASKED.turns)
    assert facts[0] == "parse_line" or "parse_line" in facts
    assert {"src/parser.py", "tests/test_parser.py", "ValueError"} <= set(facts)
    assert find_missing_facts(["src/parser.py", "a.b.parse_line"], "In parser.py, parse_line.") == ()
    assert find_missing_facts(["src/parser.py", "4711"], "nothing") == ("src/parser.py", "4711")


def test_secrets_are_no_facts() -> None:
    """A summary is not asked to repeat a key."""
    key = "gh" + "p_Zq7Wm2Xc9Vb4Nn8Kk1Jj6Hh3Gg5Ff0Ddabcd"
    assert not any(
        key in fact for fact in find_key_facts((make_turn(1, f"use {key}", command=f"curl -H {key} host", result=""),))
    )


def test_how_many_facts() -> None:
    """Little may be asked of little: few facts, or a small limit."""
    twelve = [str(n) for n in range(12)]
    assert [count_needed_facts(twelve, limit) for limit in (100, 300, 600, 2_000)] == [0, 1, 2, 2]
    assert count_needed_facts(twelve[:3], 2_000) == 0


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name[:30])
@pytest.mark.parametrize("limit", [2_000, 500])
def test_digests_pass(path: Path, limit: int) -> None:
    """What is written without a model passes the checks, at every tenth turn of every sample run."""
    run = next(iter(read_runs(path)))
    for covers in range(10, len(run.turns), 10):
        asked = SummaryRequest(previous="", task="", turns=run.turns[max(0, covers - 30) : covers], max_tokens=limit)
        assert find_problem(write_digest(asked, COUNT), asked, COUNT) is None


def recorded() -> Iterator[tuple[str, int]]:
    """Summaries that a model wrote while the OpenHands sample was recorded, and the newest turn that each covers."""
    with tarfile.open(next(path for path in RUNS if path.name.startswith("openhands"))) as archive:
        names = sorted(name for name in archive.getnames() if "/events/" in name and name.endswith(".json"))
        events = [json.loads(archive.extractfile(name).read()) for name in names]  # type: ignore[union-attr]
    calls = [e.get("llm_response_id") for e in events if e.get("source") == "agent" and e["kind"] != "Condensation"]
    turns = {call: nth for nth, call in enumerate(dict.fromkeys(filter(None, calls)), start=1)}
    of = {event["id"]: turns.get(event.get("llm_response_id"), 0) for event in events}
    for event in events:
        if event["kind"] == "Condensation" and event.get("summary"):
            yield event["summary"], max(of.get(name, 0) for name in event["forgotten_event_ids"])


def test_recorded_summaries_pass() -> None:
    """What a model really wrote for an agent passes, and not one of them would for another run."""
    ours, other = (
        next(iter(read_runs(next(path for path in RUNS if path.name.startswith(name)))))
        for name in ("openhands", "swe-agent")
    )
    found = list(recorded())
    assert len(found) >= 3
    for text, covers in found:
        asked = SummaryRequest(previous="", task="", turns=ours.turns[:covers], max_tokens=2_000)
        assert find_problem(text, asked, COUNT) is None
        alien = SummaryRequest(previous="", task="", turns=other.turns[:20], max_tokens=2_000)
        assert cause(text, alien) == "facts-lost"


ANSWER = SummaryResult(text="They were done.", input=900, cached=100, output=20, usd=0.5, covers=3, seconds=1.5)

#: Fields of a `SummaryResult` that have no meaning, and what the error names.
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no text": ({"text": None}, "text is a NoneType"),
    "bytes": ({"text": b"x"}, "text is a bytes"),
    "less than no tokens": ({"input": -5}, "input is -5"),
    "tokens in words": ({"input": "5"}, "input is '5'"),
    "half a token": ({"output": 0.5}, "output is 0.5"),
    "true tokens": ({"output": True}, "output is True"),
    "tokens without end": ({"output": 10**5_000}, "output is a int that cannot be shown"),
    "more read than sent": ({"cached": 901}, "cached"),
    "no number": ({"usd": float("nan")}, "usd is nan"),
    "endless costs": ({"usd": float("inf")}, "usd is inf"),
    "earned money": ({"usd": -1.0}, "usd is -1.0"),
    "costs in words": ({"usd": "0.5"}, "usd is '0.5'"),
    "turns before the first": ({"covers": -1}, "covers is -1"),
    "an unknown route": ({"route": "by hand"}, "route is 'by hand'"),
    "seconds that are none": ({"seconds": float("nan")}, "seconds is nan"),
    "calls in words": ({"attempts": "two"}, "attempts is 'two'"),
}


def test_what_has_a_meaning_stays_as_it_is() -> None:
    """A `SummaryResult` comes back, and a text is one whose bill nobody knows."""
    assert parse_answer(ANSWER) is ANSWER
    assert parse_answer("They were done.") == SummaryResult(text="They were done.")
    assert parse_answer(replace(ANSWER, usd=0)).usd == 0


@pytest.mark.parametrize("answer", [None, 42, b"x", ["x"], {"text": "x"}], ids=repr)
def test_another_type_is_malformed(answer: object) -> None:
    """The error names what came instead."""
    with pytest.raises(SummaryError, match=f"a {type(answer).__name__}; give str or SummaryResult") as caught:
        parse_answer(answer)
    assert caught.value.cause == "malformed"


@pytest.mark.parametrize(("fields", "told"), WRONG.values(), ids=WRONG)
def test_a_field_without_a_meaning_is_malformed(fields: dict[str, Any], told: str) -> None:
    """The error names the field and what it is."""
    with pytest.raises(SummaryError) as caught:
        parse_answer(replace(ANSWER, **fields))
    assert caught.value.cause == "malformed"
    assert told in str(caught.value)


def test_usage_of_a_failed_summary_is_looked_at_too() -> None:
    """Only figures that may be added up are sound; an object without them is not."""
    assert has_sound_usage(ANSWER)
    assert not has_sound_usage(replace(ANSWER, usd=float("nan")))
    assert not has_sound_usage(replace(ANSWER, input=None))  # type: ignore[arg-type]
    assert not has_sound_usage(object())  # type: ignore[arg-type]
