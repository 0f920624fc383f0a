"""Live equals replay: a recorded run, fed call by call with its clock, is sent as `elision view --all` shows it."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from elision import Advanced, Cache
from elision.errors import BudgetError, SummaryError
from elision.formats.registry import read_runs
from elision.lab.replay import model_free_summarizer
from elision.lab.run_as_recorded import add_recorded_head, calls
from elision.lab.views import ViewAt, list_views
from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.providers.provider_table import find_provider
from elision.providers.shared.base_renderer import JsonMessage
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Raw
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory
from tests.soak import SOAK, sample_cases

ROOT = Path(__file__).parents[2]
SAMPLES = sorted(path for path in (ROOT / "examples" / "runs").iterdir() if path.suffix != ".md")
CORPUS = ROOT.parent / "shared" / "corpus"
SIZER = Sizer(make_counter())
PRICES = find_price_set("anthropic")
STRATEGIES = [
    "raw",
    "masking(window=5)",
    "masking(window=3, schedule=every-turn, gist=0)",
    "hybrid(window=4, summarize_at=12, tail=4)",
    "summarization(every=8, tail=4)",
    "two-tier(keep_recent=4, soft=9000, hard=14000)",
    "masking(window=10, budget=30000)",
    "raw(fold=true)",
    "masking(window=4, fold=true)",
    "hybrid(window=4, summarize_at=12, tail=4, fold=true)",
]
FORMATS = (
    "claude-code",
    "mini-swe-agent-traj",
    "openhands-output-jsonl",
    "openhands-v1-events",
    "pi-session",
    "swe-agent-traj",
    "tau2-bench",
)
#: Turns of a run that are played unless all are.
MOST = 10_000 if SOAK else 24


def recordings() -> list[Path]:
    """The sample runs, and in a soak every recording of the corpus."""
    return SAMPLES + [path for name in FORMATS if SOAK for path in sorted((CORPUS / name).glob("*"))]


@cache
def recorded(path: Path) -> tuple[Trajectory, ...]:
    """The first run of a recording that has turns; in a soak all of them."""
    found = (found for found in read_runs(path) if isinstance(found, Trajectory) and found.turns)
    runs = tuple(found if SOAK else islice(found, 1))
    return tuple(shortened(add_recorded_head(run, SIZER)) for run in runs)


def shortened(run: Trajectory) -> Trajectory:
    """The run with fewer turns. Tools include the recall tool, as a replay's placeholders name handles."""
    recall = {"type": "function", "function": {"name": "elision_recall", "parameters": {"type": "object"}}}
    head = replace(run.head, tools=(*run.head.tools, recall)) if run.head.tools else run.head
    return Trajectory(id=run.id, head=head, turns=run.turns[:MOST], observations=run.observations)


def write(request: SummaryRequest) -> str:
    return model_free_summarizer(SIZER)(request)


def summarizer(request: SummaryRequest) -> str:
    """The digest of a replay; what it cannot write fails in both."""
    text = write(request)
    if not isinstance(text, str):
        raise SummaryError("no digest")
    return text


class Clock:
    """The recording's clock; where it has no time, time stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def list_cases() -> list[Any]:
    """(recording, strategy, dialect): every strategy with every recording, in a soak in both dialects, else in turn."""
    found = []
    for row, path in enumerate(recordings()):
        for column, strategy in enumerate(STRATEGIES):
            dialects = ["openai", "anthropic"]
            for dialect in dialects if SOAK else [dialects[(row + column) % 2]]:
                found.append(pytest.param(path, strategy, dialect, id=f"{dialect}-{strategy}-{path.name}"))
    return found


every_case = pytest.mark.parametrize(("path", "strategy", "dialect"), sample_cases(list_cases(), 3))


def context(strategy: str, clock: Clock, **options: Any) -> ContextManager:
    return ContextManager(
        strategy,
        prices=PRICES,
        summarizer=summarizer,
        recall="caller",
        **gather_options({"advanced": Advanced(clock=clock, cache=Cache(control="client")), **options}),
    )


@every_case
def test_turns_by_hand(path: Path, strategy: str, dialect: Any) -> None:
    """Turns added one by one give the bytes of the replay at every call, markers included."""
    for run in recorded(path):
        clock = Clock()
        with context(strategy, clock, dialect=dialect) as live:
            live.turns.begin(run.head)
            replayed = list_views(run, parse_strategy(strategy), PRICES, SIZER, find_provider(dialect).make_renderer())
            for turn, (now, model) in zip(run.turns, calls(run), strict=True):
                clock.now = now if now is not None else clock.now
                try:
                    expected = next(replayed)
                except BudgetError as error:
                    # The newest turn alone is longer than the budget: neither can send anything.
                    with pytest.raises(BudgetError, match=re.escape(str(error))):
                        live.turns.view(model=model)
                    break
                seen = live.turns.view(model=model)
                assert_same(seen.messages, expected.messages, expected)
                assert (seen.system or []) == expected.system
                live.turns.append(turn)


@every_case
def test_messages(path: Path, strategy: str, dialect: Any, tmp_path: Path) -> None:
    """A client's own messages with gaps in them are the messages that a replay of their log renders."""
    for recording in recorded(path):
        sent = whole(list(list_views(recording, Raw(), PRICES, SIZER, find_provider(dialect).make_renderer())))
        system, tools = sent[-1].system, list(recording.head.tools)
        run = reread({"messages": sent[-1].plain, "system": system, "tools": tools}, tmp_path / "run.json")
        with context(strategy, Clock(), dialect=dialect, observations=run.observations) as live:
            replayed = list_views(run, parse_strategy(strategy), PRICES, SIZER, find_provider(dialect).make_renderer())
            for given, expected in zip(sent, replayed, strict=False):
                seen = live.prepare(given.plain, system=system or None, tools=tools or None)
                # A digest that loses too many facts is rejected in both.
                assert {fault.kind for fault in seen.diagnostics.faults} <= {"summarizer"}
                assert_same(seen.messages, expected.plain, expected)


def whole(sent: list[ViewAt]) -> list[ViewAt]:
    """The calls that a list of messages tells of: behind an answer that was empty the same message goes on."""
    return [each for each in sent if sent[-1].plain[: len(each.plain)] == each.plain]


def reread(messages: dict[str, Any], file: Path) -> Trajectory:
    """The run as a reader of message lists reads it."""
    file.write_text(json.dumps({name: value for name, value in messages.items() if value}))
    (run,) = (found for found in read_runs(file) if isinstance(found, Trajectory))
    return run


def assert_same(seen: list[Any], expected: list[JsonMessage], at: ViewAt) -> None:
    """The same bytes; where they part, the first message that differs is shown."""
    for place, (one, other) in enumerate(zip(seen, expected, strict=False)):
        assert json.dumps(one) == json.dumps(other), (at.call, place)
    assert len(seen) == len(expected), at.call
