"""The published strategies against their sources, over recorded runs.

The processors below are written from what the sources do: SWE-agent's `last_n_observations` and
`summarize_every_n_turns`, and OpenHands' observation masking. They work on flat histories, as there; the strategies
work on turns. Both must send the same texts at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from elision.engine import Log, LogSetup, decide, make_plain_terms, run_pass
from elision.formats.registry import read_runs
from elision.lab.replay import model_free_summarizer
from elision.strategies.spec import parse_strategy
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory
from tests.corpus import CORPUS, reproduces

EXAMPLE = Path(__file__).parents[2] / "examples/runs/swe-agent-sympy-20801.traj.gz"
SIZER = Sizer(make_counter())


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a flat history. turn: 0 for what precedes the first one. kind: as SWE-agent's `message_type`."""

    turn: int
    role: str
    kind: str
    text: str


def flat_history(run: Trajectory, turns: int) -> list[Entry]:
    """The history before call `turns` + 1, as SWE-agent keeps it: its instance template is an observation too."""
    system = "".join(message.text for message in run.head.messages if message.role == "system")
    task = "\n".join(message.text for message in run.head.messages if message.role == "user")
    history = [
        Entry(turn=0, role="system", kind="system_prompt", text=system),
        Entry(turn=0, role="user", kind="observation", text=task),
    ]
    for turn in run.turns[:turns]:
        history.append(Entry(turn=turn.index, role="assistant", kind="action", text=f"action {turn.index}"))
        for observation in turn.observations:
            history.append(Entry(turn=turn.index, role="tool", kind="observation", text=observation.text))
    return history


def mask_last_n(history: list[Entry], n: int) -> list[Entry]:
    """SWE-agent's `last_n_observations`: the first observation and the last `n` stay."""
    places = [place for place, entry in enumerate(history) if entry.kind == "observation"]
    until = max(0, len(places) - n)
    return [
        replace(entry, text=f"Old environment output: ({len(entry.text.splitlines())} lines omitted)")
        if place in places[1:until]
        else entry
        for place, entry in enumerate(history)
    ]


class SummarizeEveryN:
    """SWE-agent's `summarize_every_n_turns` with static checkpoints: at N + M turns the oldest N are folded."""

    def __init__(self, n: int, m: int) -> None:
        self.n, self.m = n, m
        self.folded = 0

    def __call__(self, history: list[Entry]) -> list[Entry]:
        turns = max(entry.turn for entry in history)
        if turns - self.folded >= self.n + self.m:
            self.folded += self.n
        if not self.folded:
            return history
        summary = Entry(turn=0, role="assistant", kind="thought", text="a summary")
        return [*history[:2], summary, *(entry for entry in history if entry.turn > self.folded)]


def mask_outside_window(history: list[Entry], window: int) -> list[Entry]:
    """OpenHands' condenser: what is no observation stays, and of all entries the newest `window`."""
    return [
        replace(entry, text="<MASKED>") if entry.turn and entry.kind == "observation" and place < len(history) - window
        else entry
        for place, entry in enumerate(history)
    ]  # fmt: skip


def sent_by_source(run: Trajectory, process: Callable[[list[Entry]], list[Entry]]) -> Iterator[dict[int, str]]:
    """At each call, the results that are sent, by turn."""
    for turns in range(1, len(run.turns)):
        entries = process(flat_history(run, turns))
        yield {entry.turn: entry.text for entry in entries if entry.turn and entry.kind == "observation"}


def sent_by_us(run: Trajectory, preset: str) -> Iterator[dict[int, str]]:
    """The same of a preset. Each turn has one result."""
    session = Log.fold((), LogSetup(parse_strategy(preset), find_price_set("anthropic"), SIZER))
    session.set_head(run.head)
    for turn in run.turns:
        view = run_pass(decide(session, make_plain_terms()), model_free_summarizer(SIZER))
        heads = [segment.source for segment in view.segments if segment.kind == "head"]
        assert heads == list(run.head.messages)
        if turn.index > 1:
            yield {
                segment.turn: segment.text if segment.kind == "placeholder" else segment.source.text  # type: ignore[union-attr]
                for segment in view.segments
                if segment.kind in ("observation", "placeholder")
            }
        session.add_turn(turn)


def check_same(run: Trajectory, process: Callable[[list[Entry]], list[Entry]], preset: str) -> int:
    """Check that both send the same at each call. Return the results that stay because they are short."""
    raw = {turn.index: turn.observations[0].text for turn in run.turns if turn.observations}
    short: set[int] = set()
    for call, (theirs, ours) in enumerate(zip(sent_by_source(run, process), sent_by_us(run, preset), strict=True), 2):
        assert set(ours) == set(theirs), call
        for turn, text in theirs.items():
            if ours[turn] != text:
                # The one difference: what is not longer than its placeholder stays.
                assert ours[turn] == raw[turn], (call, turn)
                assert SIZER.count_text(raw[turn]) <= SIZER.count_text(text), (call, turn)
                short.add(turn)
    return len(short)


@cache
def read_single_results(folder: str) -> tuple[Trajectory, ...]:
    """Recorded runs of a format, up to the first turn that has not exactly one result."""
    return tuple(run for path in sorted((CORPUS / folder).iterdir()) for run in cut_runs(read_runs(path)))


def cut_runs(runs: Iterable[object]) -> Iterator[Trajectory]:
    for run in runs:
        if isinstance(run, Trajectory):
            length = next((n for n, turn in enumerate(run.turns) if len(turn.observations) != 1), len(run.turns))
            if length > 12:
                yield replace(run, turns=run.turns[:length])


PROCESSORS: dict[str, Callable[[], Callable[[list[Entry]], list[Entry]]]] = {
    "swe-agent-raw": lambda: lambda history: history,
    "swe-agent-masking": lambda: lambda history: mask_last_n(history, 10),
    "swe-agent-summarization": lambda: SummarizeEveryN(21, 10),
    "swe-agent-hybrid": lambda: fold_and_mask(SummarizeEveryN(43, 10)),
}


def fold_and_mask(fold: SummarizeEveryN) -> Callable[[list[Entry]], list[Entry]]:
    return lambda history: mask_last_n(fold(history), 10)


@pytest.mark.parametrize("preset", PROCESSORS)
def test_swe_agent(preset: str) -> None:
    """The same results are masked at each call, with the same texts, in the recorded run that the package brings."""
    (run,) = cut_runs(read_runs(EXAMPLE))
    assert len(run.turns) == 84
    assert check_same(run, PROCESSORS[preset](), preset) == 0


@reproduces("the published strategies over all runs of SWE-agent")
@pytest.mark.parametrize("preset", ["swe-agent-masking", "swe-agent-hybrid"])
def test_swe_agent_over_all_runs(preset: str) -> None:
    """Over every recorded run of SWE-agent too; no result there is as short as its placeholder."""
    runs = read_single_results("swe-agent-traj")
    assert len(runs) >= 10
    assert sum(check_same(run, PROCESSORS[preset](), preset) for run in runs) == 0


def test_the_first_observation_is_the_task() -> None:
    """The one observation that SWE-agent never masks is its instance template: here it is in the head."""
    (run,) = cut_runs(read_runs(EXAMPLE))
    history = flat_history(run, 30)
    masked = mask_last_n(history, 10)
    assert history[1].kind == "observation"
    assert masked[1] == history[1]
    assert "We're currently solving the following issue" in masked[1].text
    assert masked[3].text.startswith("Old environment output: (")
    assert masked[3].turn == 1


def test_openhands() -> None:
    """An attention window of 58 events is 29 turns of an action and its result."""
    (run,) = cut_runs(read_runs(EXAMPLE))
    assert check_same(run, lambda history: mask_outside_window(history, 58), "openhands-masking") == 0


@reproduces("OpenHands' masking over its own runs")
def test_openhands_over_its_own_runs() -> None:
    """Over OpenHands' own recordings too, as far as each action has one result."""
    runs = [run for folder in ("openhands-output", "openhands-v1-events") for run in read_single_results(folder)]
    assert max(len(run.turns) for run in runs) > 40
    for run in runs:
        check_same(run, lambda history: mask_outside_window(history, 58), "openhands-masking")
