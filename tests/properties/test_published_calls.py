"""The published presets summarize at the published calls, whatever the turns say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elision.engine import Log, LogSetup, decide, make_plain_terms, run_pass
from elision.formats.registry import read_runs
from elision.lab.run_as_recorded import calls
from elision.manager import ContextManager
from elision.strategies.spec import parse_strategy
from elision.summarizers.digest import write_digest
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.trajectory import Trajectory
from tests.corpus import CORPUS, needs_corpus
from tests.properties.cases import SIZER
from tests.soak import SOAK, pair_cases

#: The calls at which each preset summarizes, in runs of 115 turns.
PUBLISHED_CALLS = {
    "paper-summarization": (32, 53, 74, 95, 116),
    "paper-hybrid": (44, 77, 110),
    "swe-agent-summarization": (32, 53, 74, 95, 116),
    "swe-agent-hybrid": (54, 97),
    "openhands-summarization": (32, 53, 74, 95, 116),
}
CALLS = 116
EXAMPLES = max(4, settings.default.max_examples // 10) if settings.default else 4

#: What an agent may do in a turn: (reasoning, action, observation), from nothing at all to a huge result.
TURNS: dict[str, tuple[str, Any, Any]] = {
    "nothing": ("", None, None),
    "one letter": ("", "a", ""),
    "terse": ("", "ls d{}", "ok"),
    "terse with a long result": ("", "ls d{}", "line of log\n" * 200),
    "no result": ("I wait.", None, None),
    "thought": (
        "I look at the next part, since the error points there and nothing else has changed. " * 5,
        "cat {}",
        "x",
    ),
    "huge": ("Next.", {"name": "bash", "arguments": {"command": "cat part_{}.py"}}, "def f(x): return x + 1\n" * 1_000),
    "several calls": ("Both.", ["ls a{}", "ls b{}"], ["a{} b{} c{}", "error: no such file b{}"]),
}


def number_texts(value: Any, number: int) -> Any:
    """Return `value` with `number` in each of its texts that has a place for it."""
    if isinstance(value, str):
        return value.replace("{}", str(number))
    if isinstance(value, list):
        return [number_texts(each, number) for each in value]
    if isinstance(value, dict):
        return {key: number_texts(each, number) for key, each in value.items()}
    return value


def list_summary_calls(preset: str, kinds: list[str]) -> tuple[int, ...]:
    """Return the calls at which a run of turns of `kinds`, again and again, is summarized."""
    with ContextManager(preset, store="memory:", prices="uncached", summarizer="digest") as context:
        context.turns.begin("Find the slow module.")
        for number in range(1, CALLS + 1):
            context.turns.view()
            turn = TURNS[kinds[number % len(kinds)]]
            context.turns.add(*(number_texts(part, number) for part in turn))
        return tuple(summary.call for summary in context.session.summaries())


@pytest.mark.parametrize(("kind", "preset"), pair_cases(TURNS, ["paper-summarization", "paper-hybrid"]))
def test_each_kind_of_turn_is_summarized_at_the_published_calls(kind: str, preset: str) -> None:
    """Of turns without a word, of terse ones and of huge ones: no summary comes a call late."""
    assert list_summary_calls(preset, [kind]) == PUBLISHED_CALLS[preset]


@settings(max_examples=EXAMPLES)
@given(
    preset=st.sampled_from(list(PUBLISHED_CALLS)), kinds=st.lists(st.sampled_from(list(TURNS)), min_size=2, max_size=40)
)
def test_any_turns_are_summarized_at_the_published_calls(preset: str, kinds: list[str]) -> None:
    """Runs that mix turns of every kind."""
    assert list_summary_calls(preset, kinds) == PUBLISHED_CALLS[preset]


#: Recordings with runs that are long enough, for every test run.
SAMPLE = (
    "pi-session/pi-session.jsonl.gz",
    "swe-agent-traj/sa-ctf-web-i-got-id-demo.traj.gz",
)


def list_recordings() -> list[str]:
    """Return the recordings to play: all of them, in a soak."""
    if not SOAK:
        return list(SAMPLE)
    return sorted(str(file.relative_to(CORPUS)) for file in CORPUS.glob("*/*") if ".md" not in file.name)


def list_recorded_calls(preset: str, run: Trajectory) -> list[int]:
    """Return the calls at which a recorded run is summarized."""
    session = Log.fold((), LogSetup(parse_strategy(preset), find_price_set("uncached"), SIZER))
    session.set_head(run.head)
    made = []
    for turn, (now, model) in zip(run.turns, calls(run), strict=True):
        run_pass(decide(session, make_plain_terms(now, model)), lambda request: write_digest(request, SIZER.count))
        assert session.newest_call is not None
        if session.newest_call.decided.summary is not None:
            made.append(session.newest_call.decided.call)
        session.add_turn(turn)
    return made


@needs_corpus("that published presets summarize recorded runs at the published calls")
@pytest.mark.parametrize("recording", list_recordings())
def test_recorded_runs_are_summarized_at_the_published_calls(recording: str) -> None:
    """Every run of every recording under every preset with summaries."""
    for run in read_runs(CORPUS / recording):
        if not isinstance(run, Trajectory):
            continue
        for preset, (first, second, *_) in PUBLISHED_CALLS.items():
            expected = list(range(first, len(run.turns) + 1, second - first))
            assert list_recorded_calls(preset, run) == expected, (run.id, preset)
