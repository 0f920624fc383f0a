"""Every request of every recorded run, under every strategy, for every provider: its types, its rules, its marks.

By default the first run of each file is tried, cut, under one strategy in turn, at the first, middle and last call
and where an epoch begins; in a soak all runs are, whole, under all strategies, at every call. Without the
corpus the sample runs stand in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import MessageParam, TextBlockParam
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

from elision.engine import Log, LogSetup, decide, make_plain_terms, run_pass
from elision.errors import BudgetError, FormatError
from elision.formats.registry import read_runs
from elision.lab.replay import model_free_summarizer
from elision.lab.run_as_recorded import add_recorded_head, calls
from elision.providers.anthropic.breakpoints import add_breakpoints, choose_breakpoints
from elision.providers.provider_table import PROVIDERS
from elision.providers.shared.base_renderer import JsonMessage, ViewRenderer
from elision.strategies.spec import STRATEGIES, parse_strategy
from elision.testing.request_rules import list_violations
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.view import View
from tests.providers.render_checks import check_contents, validate_elements
from tests.soak import SOAK

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
FILES = sorted(path for path in CORPUS.glob("*/*") if path.is_file()) or sorted(
    path for path in (ROOT / "examples" / "runs").iterdir() if path.suffix == ".gz"
)
SPECS = (
    "masking(window=10, schedule=every-turn)",
    "hybrid(schedule=every-turn)",
    "two-tier(keep_recent=5, soft=8000, hard=30000, after_steps=10)",
    "raw",
    "masking(window=5)",
    "summarization(every=8, tail=4)",
    "masking(window=4, schedule=every-turn)",
    "hybrid(window=3, tail=3, summarize_at=9, budget=budget(tokens=16000))",
    "raw(fold=true)",
    "hybrid(window=4, tail=4, summarize_at=12, fold=true)",
)
#: Turns that are played, and of how many runs of a file, unless all are.
MOST, RUNS = (10_000, 10_000) if SOAK else (24, 1)
# An estimate is as good here, and fast.
SIZER = Sizer(make_counter("estimate"))
TYPES: Mapping[str, TypeAdapter[Any]] = {
    "openai": TypeAdapter(ChatCompletionMessageParam),
    "openai-responses": TypeAdapter(ResponseInputItemParam),
    "anthropic": TypeAdapter(MessageParam),
}
SYSTEM = TypeAdapter(list[TextBlockParam])


class Checked:
    """One dialect's requests of one session. A message that was looked at and is sent again is the same object."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.renderer: ViewRenderer = PROVIDERS[dialect].make_renderer()
        self.seen: dict[int, JsonMessage] = {}

    def follow(self, view: View, *, whole: bool) -> None:
        messages, system = self.renderer.render_messages(view), self.renderer.render_system(view)
        if not whole or not messages:
            return
        body = self._body(messages, system)
        assert list_violations(self.dialect, body) == []
        self._typed(messages, system)
        fresh = PROVIDERS[self.dialect].make_renderer()
        assert fresh.render_messages(view) == messages
        if self.dialect == "anthropic":
            self._marked(self._body(self.renderer.render_unmarked(view), system))

    def _body(self, messages: list[JsonMessage], system: list[JsonMessage]) -> dict[str, Any]:
        provider = PROVIDERS[self.dialect]
        return {provider.list_field: messages, provider.system_field or "system": system}

    def _typed(self, messages: list[JsonMessage], system: list[JsonMessage]) -> None:
        for message in messages:
            if self.seen.get(id(message)) is message:
                continue
            if self.dialect == "gemini":
                check_contents([message])
            else:
                validate_elements(TYPES[self.dialect].validate_python(message, strict=True))
            self.seen[id(message)] = message
        if self.dialect == "gemini":
            check_contents([{"parts": system}] if system else [])
        else:
            validate_elements(SYSTEM.validate_python(system, strict=True))

    def _marked(self, body: dict[str, Any]) -> None:
        """Breakpoints of ours in messages that came without: at the end, in the middle and at the beginning."""
        count = len(body["messages"])
        wanted = [(number, len(body["messages"][number]["content"]) - 1) for number in (count - 1, count // 2, 0)]
        after = add_breakpoints(body, choose_breakpoints(body, wanted))
        assert list_violations("anthropic", after) == []
        pairs = zip(after["messages"], body["messages"], strict=True)
        self._typed([ours for ours, plain in pairs if ours is not plain], [])


def runs(path: Path) -> Iterator[Trajectory]:
    try:
        found = (run for run in read_runs(path) if isinstance(run, Trajectory) and run.turns)
        for run in islice(found, RUNS):
            yield add_recorded_head(replace(run, turns=run.turns[:MOST]), SIZER)
    except FormatError:
        return


def test_every_strategy_is_tried() -> None:
    """And by default none is left out that there are files for."""
    assert {parse_strategy(spec).name for spec in SPECS} == set(STRATEGIES)
    assert {spec for place in range(len(FILES)) for spec in _specs(place)} == set(SPECS) or len(FILES) < 5


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_provider_accepts_what_is_sent(path: Path) -> None:
    """Types, pairs, order, contents and marks; the renderer that followed the run says what a fresh one says."""
    for run in runs(path):
        for spec in _specs(FILES.index(path)):
            _follow(run, spec)


def _specs(place: int) -> tuple[str, ...]:
    """Which strategies a file is tried under."""
    return SPECS if SOAK else (SPECS[place % len(SPECS)],)


def _follow(run: Trajectory, spec: str) -> None:
    samples = {1, len(run.turns) // 2 + 1, len(run.turns)}
    checked = [Checked(dialect) for dialect in PROVIDERS]
    session = Log.fold((), LogSetup(parse_strategy(spec), find_price_set("anthropic"), SIZER))
    session.set_head(run.head)
    epochs = 1
    for turn, (now, model) in zip(run.turns, calls(run), strict=True):
        try:
            view = run_pass(decide(session, make_plain_terms(now, model)), model_free_summarizer(SIZER))
        except BudgetError:
            return  # Said, with numbers (I7): there is no request.
        begins = view.epoch > epochs and view.epoch < 5
        epochs = view.epoch
        for each in checked:
            each.follow(view, whole=SOAK or begins or view.call in samples)
        session.add_turn(turn)
