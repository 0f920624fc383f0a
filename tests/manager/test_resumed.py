"""A session whose processes change sends what one that stays in its process sends, and records the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from elision import Advanced
from elision.errors import BudgetError, SummaryError
from elision.manager import ContextManager
from elision.stores.memory import MemoryStore
from elision.strategies.spec import parse_strategy
from elision.trajectory.events import Event
from elision.trajectory.plan import SummaryRequest
from tests import flat_options
from tests.manager.clients import Client, Step

_SUMMARY = "summary_max_tokens=100"
STRATEGIES = (
    "masking(window=1, schedule=every-turn)",
    "masking(window=2, gist=20)",
    "masking(window=2, fold=true)",
    'masking(window=2, fold=true, rules=[rule(tool="bash", args="*_1*", after=1)])',
    f"hybrid(window=1, summarize_at=5, tail=2, schedule=every-turn, fold=true, {_SUMMARY})",
    f"hybrid(window=2, summarize_at=6, tail=3, {_SUMMARY})",
    f"summarization(every=3, tail=2, {_SUMMARY})",
    f"two-tier(keep_recent=2, soft=500, hard=900, after_steps=3, summarize_min_turns=2, {_SUMMARY})",
    "raw(fold=true)",
)
#: What may happen before a call. Undone turns are left out: where a history is in several branches, a process that has
#: just begun may continue another one than the process that made them. So are older results that change.
ACTIONS = (
    *("step",) * 8,
    *("say", "again", "remind", "mark", "system", "tools", "model", "pause"),
    *("report", "report hours", "overflow", "force", "force summary", "fail"),
)
#: Steps from which on a session is found by its history: before, it has little that is its own.
LEAST_STEPS = 4


class World:
    """A client, its session, and the store that outlasts the session's processes. seen: what came of each call."""

    def __init__(self, options: dict[str, Any], shape: str) -> None:
        self.options = options
        self.store = MemoryStore()
        self.now = 0.0
        self.client = Client(shape=shape, system="Be careful.")
        self.tools: list[dict[str, Any]] = []
        self.model = "claude-sonnet-4-5"
        self.number = 0
        self.is_failing = False
        #: What was asked of the next call, and is the process's own until one is made.
        self.wanted: list[str] = []
        self.has_summaries = parse_strategy(options["strategy"]).make_trigger() is not None
        self.seen: list[object] = []
        self.tokens = 0
        self.context = self.open()

    def open(self) -> ContextManager:
        return flat_options.open_context(
            store=self.store,
            session="s",
            summarizer=self.write,
            **{"advanced": Advanced(clock=lambda: self.now, tokens="estimate", on_fault="raise"), **self.options},
        )

    def write(self, request: SummaryRequest) -> str:
        if self.is_failing:
            raise SummaryError("no answer")
        said = " ".join(f"step {turn.index}: {turn.text[:12]}" for turn in request.turns)
        return f"{request.previous[-30:]} {said}"[:300]

    def call(self) -> None:
        self.now += 1.0
        system = self.client.system if self.client.shape == "anthropic" else None
        try:
            view = self.context.prepare(
                self.client.messages(), tools=self.tools or None, system=system or None, model=self.model
            )
        except BudgetError as error:
            self.seen.append(str(error))
            return
        self.wanted.clear()
        self.tokens = view.diagnostics.after
        self.seen.append(
            (
                json.dumps([view.messages, view.system, view.tools, view.extra, view.betas], default=dict),
                (view.diagnostics.branch, view.diagnostics.after, view.diagnostics.faults),
            )
        )

    def act(self, action: str, number: int, *, restarts: bool = False) -> None:
        """Do one thing, and make the call that follows. restarts: in another process."""
        self._change(action, number)
        if restarts and len(self.client.steps) >= LEAST_STEPS:
            self.context.close()
            self.context = self.open()
        if action == "force" or (action == "force summary" and self.has_summaries):
            self.wanted.append(action)
        for wanted in self.wanted:
            self.context.compact(summary=wanted != "force")
        self.call()

    def _change(self, action: str, number: int) -> None:
        client = self.client
        match action:
            case "step" | "say":
                self._step(number, words=action == "say")
            case "remind":
                client.reminder = ("", "3 steps left", "2 steps left")[number % 3]
            case "mark":
                client.marked = None if number % 3 == 0 else number % 5
            case "system":
                client.system = ("Be careful.", "Be quick.")[number % 2]
            case "tools":
                self.tools = [{"name": "bash", "description": "Runs.", "input_schema": {"type": "object"}}][
                    number % 2 :
                ]
            case "model":
                self.model = ("claude-sonnet-4-5", "claude-opus-4-5")[number % 2]
            case "pause":
                self.now += (60.0, 400.0, 4_000.0)[number % 3]
            case "report" if self.tokens:
                self.context.record({"input_tokens": self.tokens * (80 + number % 50) // 100, "output_tokens": 10})
            case "report hours" if self.tokens:
                created = {"ephemeral_1h_input_tokens": self.tokens, "ephemeral_5m_input_tokens": 0}
                self.context.record(
                    {
                        "input_tokens": 1,
                        "cache_creation_input_tokens": self.tokens,
                        "cache_creation": created,
                        "output_tokens": 9,
                    }
                )
            case "overflow":
                self.context.overflowed("prompt is too long: 3000 tokens > 2500 maximum")
            case "fail":
                self.is_failing = not self.is_failing

    def _step(self, number: int, *, words: bool) -> None:
        self.number += 1
        texts = [self._result(number // (3 * place + 1)) for place in range(number % 3)]
        said = f"go on {self.number}" if words or not texts else ""
        order = tuple(range(len(texts)))
        self.client.steps.append(
            Step(number=self.number, results=tuple(texts), order=order, words=said, thinking=number % 5 == 0)
        )

    def _result(self, number: int) -> str:
        """Lines that partly come again in other results."""
        first = number % 4
        return "\n".join(
            f"src/part_{line}.py:{line}: value_{line} = {line * 31}" for line in range(first, first + number % 23)
        )

    def list_events(self) -> Iterator[tuple[str, Event]]:
        for info in sorted(self.store.sessions(), key=lambda info: info.key):
            for event in self.store.events(info.key):
                yield info.key, event


@settings(max_examples=max(12, settings().max_examples // 2))
@given(
    strategy=st.sampled_from(STRATEGIES),
    shape=st.sampled_from(["anthropic", "anthropic", "openai", "openai-responses"]),
    budget=st.sampled_from([None, 700, 1_500]),
    others=st.fixed_dictionaries(
        {},
        optional={
            "cache_ttl": st.sampled_from(["client", "1h"]),
            "cache_control": st.sampled_from(["client", "gaps"]),
            "over_budget": st.just("send"),
            "shadow": st.just(True),
            "thinking": st.sampled_from(["defer", "native", "ignore"]),
            "recall": st.sampled_from(["caller", "never"]),
        },
    ),
    actions=st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 10_000)), min_size=12, max_size=40),
    restarts=st.integers(0, 2**40 - 1),
)
def test_processes_that_change_send_what_one_sends(
    strategy: str,
    shape: str,
    budget: int | None,
    others: dict[str, Any],
    actions: list[tuple[str, int]],
    restarts: int,
) -> None:
    """Whatever the client does: bytes, breakpoints, branches and records are those of the session that stayed."""
    options = {"strategy": strategy, "dialect": shape, **others}
    if budget is not None:
        options |= {"token_budget": budget, "reserved_for_response": 100}
    staying, changing = World(options, shape), World(options, shape)
    for place, (action, number) in enumerate(actions):
        staying.act(action, number)
        changing.act(action, number, restarts=bool(restarts >> place & 1))
        assert changing.seen[-1] == staying.seen[-1], (place, action)
    staying.context.close()
    changing.context.close()
    assert list(changing.list_events()) == list(staying.list_events())


def test_words_that_come_in_another_process_make_no_other_branch() -> None:
    """What the client says after the newest turn amends it there as well, and the session is the same."""
    world = World({"strategy": STRATEGIES[0], "dialect": "openai"}, "openai")
    for number in range(4):
        world.act("step", 100 + number)
    world.act("remind", 1, restarts=True)
    view = world.context.prepare(world.client.messages())
    assert view.diagnostics.branch == "s"
    assert [info.key for info in world.store.sessions()] == ["s"]
