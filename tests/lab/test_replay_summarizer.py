"""A model that really writes the summaries of a replay, at a server on loopback; the second replay asks nothing."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from elision.cli.app import app
from elision.errors import SpecError
from elision.lab.replay_summarizer import ReplaySummarizer
from elision.lab.report import terminal, wording
from elision.lab.report.replay_report import build_replay_report
from elision.lab.results import Study
from elision.lab.run_loading import Loaded, StudySettings, find_named_prices, load_runs, parse_candidates
from elision.lab.study import run_study
from elision.summarizers.prompt import SummaryPrompt
from elision.testing.request_checks import find_problems
from elision.trajectory.price_lookup import find_price_set, find_prices
from tests.summarizers.scripted_server import (
    Handler,
    Reply,
    ScriptedServer,
    hang,
    reply_chat,
    reply_error,
    serve_script,
)

RUNS = Path(__file__).parents[2] / "examples" / "runs"
SWE_AGENT = RUNS / "swe-agent-sympy-20801.traj.gz"
MINI = RUNS / "mini-swe-agent-marshmallow-1343.traj.json.gz"
HYBRID = "hybrid(window=3, summarize_at=7, tail=2, summary_max_tokens=400, schedule=every-turn)"
SUMMARIZATION = "summarization(every=6, tail=2, summary_max_tokens=400, schedule=every-turn)"
TURNS = 15


def answer_by_request(handler: Handler) -> None:
    """Answer with the calls that the prompt quotes, as a model would: the same for the same request."""
    (message,) = handler.scripted.requests[-1][2]["messages"]
    content = message["content"]
    prompt = content if isinstance(content, str) else content[-1]["text"]
    parts = re.split(r"^\[turn \d+: (.*)\]\n", prompt, flags=re.MULTILINE)
    own = [text for label, text in zip(parts[1::2], parts[2::2], strict=True) if not label.startswith("result")]
    # Paths, names and numbers that the newest turns worked with: the checks look for those.
    facts = re.findall(r"[\w./-]*\w[_./]\w[\w./-]*|\d{3,}|[A-Z][a-z]+[A-Z]\w+", " ".join(own[-10:]))
    told = ", ".join(list(dict.fromkeys(facts))[-40:])[-900:]
    usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": len(told) // 4}
    reply_chat(f"COMPLETED: {told}.\nPENDING: the rest.", usage=usage)(handler)


def load(*paths: Path) -> Loaded:
    found = load_runs(paths)
    return replace(found, runs=tuple(replace(run, turns=run.turns[:TURNS]) for run in found.runs))


def study(
    server: ScriptedServer,
    cache: Path,
    *specs: str,
    jobs: int = 1,
    paths: tuple[Path, ...] = (SWE_AGENT,),
    hindsight: bool = False,
    **options: Any,
) -> Study:
    writer = ReplaySummarizer(spec="openai:writer-1", base_url=f"{server.url}/v1", cache=cache, **options)
    settings = StudySettings(
        prices=find_price_set("anthropic"),
        candidates=parse_candidates(specs or (HYBRID,), hindsight=hindsight, model_summaries=True),
        tokens="estimate",
        hindsight=hindsight,
        summarizer=writer,
    )
    return run_study(load(*paths), settings, jobs=jobs)


def find_use(found: Study) -> tuple[int, int, dict[str, int]]:
    assert found.summarizer is not None
    use = found.summarizer.use
    return use.asked, use.cached, dict(use.failed)


def without_use(found: Study) -> dict[str, Any]:
    value = found.json()
    del value["summarizer"]
    return value


def many(reply: Reply = answer_by_request, times: int = 200) -> list[Reply]:
    return [reply] * times


def test_the_second_run_asks_nothing_and_shows_the_same(tmp_path: Path) -> None:
    """Two runs in two processes, two strategies: each request is sound, sent once, and billed as reported, at the
    prices of its model. From the cache the bill is the same, in one process too: what is asked does not depend on how
    the runs are spread."""
    prices = find_prices("claude-haiku-4-5")
    with serve_script(*many()) as server:
        given: dict[str, Any] = {"jobs": 2, "paths": (SWE_AGENT, MINI), "prices": prices}
        first = study(server, tmp_path, HYBRID, SUMMARIZATION, "masking", **given)
        asked = len(server.requests)
        assert asked >= 4
        for body in server.bodies:
            assert find_problems("openai", body) == []
            assert body["model"] == "writer-1"
        assert find_use(first) == (asked, 0, {})
        assert sum(row.summaries for row in first.rows) == asked
        usage = sum(len(body["messages"][-1]["content"]) // 4 for body in server.bodies)
        assert sum(row.summarizer.prompt_tokens for row in first.rows) == usage
        rates = prices.find_rates(0)
        for row in first.rows:
            bill = row.summarizer
            expected = (bill.prompt_tokens * rates.input + bill.output * rates.output) / 1e6
            assert bill.usd == pytest.approx(expected)
        second = study(server, tmp_path, HYBRID, SUMMARIZATION, "masking", **given | {"jobs": 1})
        assert len(server.requests) == asked
        assert find_use(second) == (0, asked, {})
        assert without_use(second) == without_use(first)


def test_a_damaged_answer_is_asked_again(tmp_path: Path) -> None:
    with serve_script(*many()) as server:
        first = study(server, tmp_path)
        asked = find_use(first)[0]
        file = sorted(tmp_path.rglob("*.json"))[0]
        file.write_bytes(file.read_bytes()[:-9])
        second = study(server, tmp_path)
    assert find_use(second) == (1, asked - 1, {})
    assert without_use(second) == without_use(first)


def test_another_prompt_or_temperature_is_another_request(tmp_path: Path) -> None:
    with serve_script(*many()) as server:
        asked = find_use(study(server, tmp_path))[0]
        for options in ({"temperature": 0.7}, {"prompt": SummaryPrompt(template="OWN {previous}\n{turns}")}):
            assert find_use(study(server, tmp_path, **options))[:2] == (asked, 0)


@pytest.mark.parametrize(
    ("reply", "cause", "again"),
    [
        (reply_error(401, "no such key"), "rejected", True),
        (reply_chat("I'm sorry, but I can't help with that."), "refusal", False),
        (hang, "timeout", True),
    ],
)
def test_failures_are_as_live(tmp_path: Path, reply: Reply, cause: str, again: bool) -> None:
    """The history stays, the next attempt waits, and the report counts them by cause. A refusal was answered: it is
    paid for, and not asked again; a fault is."""
    with serve_script(*many(reply)) as server:
        found = study(server, tmp_path, seconds=0.05 if cause == "timeout" else 20.0)
        asked, _, failed = find_use(found)
        assert set(failed) == {cause}
        assert sum(row.summaries for row in found.rows) == 0
        assert (sum(row.summarizer.usd for row in found.rows) > 0) == (cause != "rejected")
        assert asked == len(server.requests)
        second = study(server, tmp_path, seconds=0.05 if cause == "timeout" else 20.0)
        assert (len(server.requests) > asked) == again
    assert find_use(second)[2] == failed
    assert f"not taken: {failed[cause]} × {cause}" in wording.describe_summarizer(found.summarizer)  # type: ignore[arg-type]


def test_interrupted_what_was_answered_stays(tmp_path: Path) -> None:
    """Ctrl-C in the middle of a run: its answers are on disk, and the next replay asks for the rest alone."""
    with serve_script(*many()) as server:
        writer = ReplaySummarizer(spec="openai:writer-1", base_url=f"{server.url}/v1", cache=tmp_path)
        settings = StudySettings(
            prices=find_price_set("anthropic"),
            candidates=parse_candidates((HYBRID,), model_summaries=True),
            tokens="estimate",
            summarizer=writer,
        )

        def watch(progress: Any) -> None:
            if len(server.requests) >= 2:
                raise KeyboardInterrupt

        broken = run_study(load(SWE_AGENT), settings, progress=watch)
        assert not broken.finished
        before = len(server.requests)
        assert before == 2
        whole = study(server, tmp_path)
        asked, known, _ = find_use(whole)
        assert known == before
        assert len(server.requests) == before + asked


def test_no_hindsight_where_a_model_writes(tmp_path: Path) -> None:
    """How long summaries get is not known before: such strategies have no cheapest schedule, and the report says why;
    masking has one."""
    with serve_script(*many()) as server:
        found = study(server, tmp_path, HYBRID, "masking", hindsight=True)
    by_name = {row.strategy: row for row in found.rows}
    assert by_name[HYBRID].hindsight_usd is None
    assert by_name["masking"].hindsight_usd is not None
    assert "it is not computed if a model writes summaries" in (wording.explain_missing_hindsight(found) or "")
    with pytest.raises(SpecError, match="does not go with --summarizer"):
        parse_candidates(["hybrid(schedule=hindsight)"], model_summaries=True)
    assert [each.label for each in parse_candidates(["masking(schedule=hindsight)"], model_summaries=True)]
    labels = [each.label for each in parse_candidates((), model_summaries=True)]
    assert "hybrid, hindsight" not in labels
    assert "hybrid" in labels


def test_reports_say_who_wrote(tmp_path: Path) -> None:
    """The notes of terminal and page, and the JSON, name model, address without password, prices, cache and counts."""
    with serve_script(*many()) as server:
        found = study(server, tmp_path)
        words = wording.describe_summarizer(found.summarizer)  # type: ignore[arg-type]
        assert words.startswith(f"Summaries are written by openai:writer-1 at {server.url}/v1, billed as reported, at ")
        assert "the prices of the runs" in words
        assert "0 from the cache" in words
        printed = io.StringIO()
        terminal.print_report(build_replay_report(found), Console(file=printed, width=400))
        assert printed.getvalue().count(words) == 1
        assert found.json()["summarizer"] == {
            "spec": "openai:writer-1",
            "base_url": f"{server.url}/v1",
            "prices": None,
            "cache": str(tmp_path),
            "asked": len(server.requests),
            "cached": 0,
            "unsaved": 0,
            "failed": {},
        }


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the settings' own prompt; the key is in the environment, and in no output."""
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("OWN {previous}\n{turns}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENT_CONTEXT_SUMMARY_PROMPT", str(prompt))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hunter22hunter22hunter22")
    with serve_script(*many()) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        options = ["-s", "hybrid(window=5, summarize_at=30, tail=5, schedule=every-turn)", "-j", "2"]
        options += ["--summarizer", "openai:writer-1", "--summarizer-cache", str(tmp_path / "cache")]
        options += ["--summarizer-prices", "claude-haiku-4-5", "--tokens", "estimate", "--no-hindsight"]
        first = CliRunner().invoke(app, ["replay", str(SWE_AGENT), str(MINI), *options, "--json"])
        assert first.exit_code == 0, first.output
        asked = len(server.requests)
        assert asked > 1
        assert server.requests[0][1]["authorization"] == "Bearer sk-hunter22hunter22hunter22"
        assert server.bodies[0]["messages"][-1]["content"].startswith("OWN ")
        second = CliRunner().invoke(app, ["replay", str(SWE_AGENT), str(MINI), *options])
        assert len(server.requests) == asked
        third = CliRunner().invoke(app, ["replay", str(SWE_AGENT), str(MINI), *options, "--json"])
    one, two = json.loads(first.stdout), json.loads(third.stdout)
    assert (one["summarizer"]["asked"], two["summarizer"]["asked"], two["summarizer"]["cached"]) == (asked, 0, asked)
    assert one["totals"] == two["totals"]
    flat = " ".join(second.output.split())
    assert f"0 requests asked, {asked} from the cache" in flat
    assert "hunter22" not in first.output + second.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--base-url", "http://127.0.0.1:9"], "--base-url: no model writes summaries; give --summarizer too"),
        (["--summarizer", "digest", "--summarizer-cache", "c"], "--summarizer-cache: no model writes summaries"),
        (["--summarizer", "bison:pro"], "no summarizer 'bison:pro'; there are: digest, anthropic:MODEL"),
        (["--summarizer", "anthropic:claude-haiku-4-5"], "no key for https://api.anthropic.com"),
        (["--summarizer", "openai:m", "--base-url", "localhost"], "not a base URL; give one like"),
        (["--summarizer", "openai:m", "--base-url", "http://127.0.0.1:9", "--summarizer-prices", "gold"], "gold"),
        (
            ["--summarizer", "openai:m", "--base-url", "http://127.0.0.1:9", "-s", "hybrid(schedule=hindsight)"],
            "does not go with --summarizer",
        ),
    ],
)
def test_bad_options_are_refused_before_anything_is_read(
    options: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    given = [*options] if "--summarizer-cache" in options else [*options, *_cache_option(options, tmp_path)]
    result = CliRunner().invoke(app, ["replay", str(tmp_path / "missing"), *given])
    said = str(result.exception) if result.exception else result.output
    assert words in said


def _cache_option(options: list[str], folder: Path) -> list[str]:
    return ["--summarizer-cache", str(folder)] if "--summarizer" in options else []


def test_prices_by_set_or_model() -> None:
    assert find_named_prices("qwen3-coder") == find_price_set("qwen3-coder")
    assert find_named_prices("claude-haiku-4-5") == find_prices("claude-haiku-4-5")
