"""Whatever clients do with their histories, and whatever fails meanwhile: nothing is lost, mixed up or rewritten."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elision import Advanced, Cache
from elision.errors import BudgetError, SummaryError
from elision.manager import ContextManager, ContextView
from elision.manager.session_reader import _read_text
from elision.providers.live.client_messages import remove_tags
from elision.stores.memory import MemoryStore
from elision.stores.store import NewSession
from elision.testing.request_rules import list_new_violations
from elision.trajectory.events import Event
from elision.trajectory.plan import SummaryRequest
from tests import flat_options
from tests.manager.agents import make_history
from tests.manager.clients import Atom, Client, Message, Step, split_atoms
from tests.manager.stores import FailingStore

STRATEGIES = [
    "masking(window=1, schedule=every-turn)",
    "masking(window=2, schedule=every-turn)",
    "masking(window=2)",
    "hybrid(window=1, summarize_at=5, tail=2, summary_max_tokens=100, schedule=every-turn)",
    "summarization(every=3, tail=2, summary_max_tokens=100, schedule=every-turn)",
]
SUMMARY = "[Record of turns 1-"


class Faulty(FailingStore):
    """Keeps everything, and fails while it is told to."""

    def copied(self) -> Faulty:
        """Another store that holds the same."""
        other = Faulty()
        for info in reversed(self.sessions()):
            new = NewSession(
                key=info.key, family=info.family, at=info.begun, parent=info.parent, relation=info.relation
            )
            other.create(new)
            other.append(info.key, list(self.events(info.key)), after=0, at=info.changed)
        return other


class Clients(RuleBasedStateMachine):
    """One session, the clients that feed it, and what must hold after each call."""

    @initialize(
        shape=st.sampled_from(["openai", "openai-responses", "anthropic", "text"]),
        strategy=st.sampled_from(STRATEGIES),
        background=st.booleans(),
        budget=st.sampled_from([None, None, 1500]),
        system=st.sampled_from(["", "Be careful."]),
    )
    def begin(self, shape: str, strategy: str, background: bool, budget: int | None, system: str) -> None:
        self.store = Faulty()
        self.shape = shape
        self.options: dict[str, Any] = {
            "strategy": strategy,
            "background": background,
            "token_budget": budget,
            "reserved_for_response": None if budget is None else 100,
            "observations": "user" if shape == "text" else "auto",
            "dialect": "openai" if shape == "text" else shape,
        }
        self.writing = True
        self.now = 0.0
        self.number = 0
        self.compactions = 0
        self.client = Client(shape=shape, system=system)
        self.kept = [self.client.copy()]
        self.tools: list[Message] = []
        self.model = "m"
        self.logs: dict[str, list[Event]] = {}
        self.hidden: dict[str, dict[Any, str]] = {}
        self.context = self.opened(self.store)
        self.told: ContextView | None = None
        self.call()

    def opened(self, store: MemoryStore) -> ContextManager:
        return flat_options.open_context(
            store=store,
            session="s",
            summarizer=self.write,
            **{
                "advanced": Advanced(clock=lambda: self.now, tokens="estimate", cache=Cache(control="client")),
                **self.options,
            },
        )

    def write(self, request: SummaryRequest) -> str:
        if not self.writing:
            raise SummaryError("no answer")
        said = " ".join(f"step {turn.index}: {turn.text[:12]}" for turn in request.turns)
        return f"{request.previous[-30:]} {said}"[:300]

    # -- what clients do -------------------------------------------------------------------------------------------

    @rule(
        results=st.lists(st.integers(0, 40), max_size=3), turned=st.booleans(), words=st.booleans(), deep=st.booleans()
    )
    def go_on(self, results: list[int], turned: bool, words: bool, deep: bool) -> None:
        self.number += 1
        if self.shape == "text":
            results = results[:1]
        told = tuple(self.result(lines) for lines in results)
        order = tuple(range(len(told)))
        self.client.steps.append(
            Step(
                number=self.number,
                results=told,
                order=order[::-1] if turned else order,
                words=f"go on {self.number}" if words or not told else "",
                thinking=deep,
            )
        )
        self.call()

    def result(self, lines: int) -> str:
        return f"{self.number} " + " ".join(f"src/part_{self.number}_{line}.py" for line in range(lines * 4))

    @precondition(lambda self: self.shape not in ("text",))
    @rule(lines=st.integers(1, 40))
    def results_one_by_one(self, lines: int) -> None:
        """Two calls; a request goes out when the first is answered, and again with both."""
        self.number += 1
        both = (self.result(lines), self.result(3))
        step = Step(number=self.number, results=both, order=(0,))
        self.client.steps.append(step)
        self.call()
        self.client.steps[-1] = replace(step, order=(0, 1))
        self.call()

    @rule()
    def again(self) -> None:
        self.call()

    @precondition(lambda self: self.client.steps)
    @rule(turns=st.integers(1, 4))
    def undo(self, turns: int) -> None:
        del self.client.steps[-turns:]
        self.call()

    @rule()
    def keep(self) -> None:
        self.kept.append(self.client.copy())

    @rule(which=st.integers(0, 9))
    def switch(self, which: int) -> None:
        self.client = self.kept[which % len(self.kept)].copy()
        self.call()

    @precondition(lambda self: self.client.steps)
    @rule(back=st.integers(0, 5), words=st.sampled_from(["cut by the client", "", "again " * 30]))
    def edit(self, back: int, words: str) -> None:
        place = len(self.client.steps) - 1 - back % len(self.client.steps)
        step = self.client.steps[place]
        if step.results:
            self.client.steps[place] = replace(step, results=(words, *step.results[1:]))
        self.call()

    @precondition(lambda self: len(self.client.steps) > 3)
    @rule(tail=st.integers(0, 3))
    def compact(self, tail: int) -> None:
        # With the words of an earlier one this would be a window that slides: tests/manager/test_trimmed_histories.py.
        self.compactions += 1
        self.client.head = [*self.client.head[:1], f"Summary {self.compactions} of {len(self.client.steps)} turns."]
        self.client.steps = self.client.steps[len(self.client.steps) - tail :]
        self.call()

    @rule(words=st.sampled_from(["", "3 steps left", "2 steps left"]))
    def remind(self, words: str) -> None:
        self.client.reminder = words
        self.call()

    @rule(prefill=st.booleans(), nulls=st.booleans(), thoughts=st.booleans(), marked=st.none() | st.integers(0, 6))
    def say_it_otherwise(self, prefill: bool, nulls: bool, thoughts: bool, marked: int | None) -> None:
        self.client.prefill, self.client.nulls, self.client.thoughts = prefill, nulls, thoughts
        self.client.marked = marked
        self.call()

    @rule(place=st.none() | st.integers(0, 12), tag=st.sampled_from(["mine", "keep_output", "remove_output"]))
    def tag(self, place: int | None, tag: str) -> None:
        self.client.tagged, self.client.tag = place, tag
        self.call()

    @rule(salt=st.sampled_from(["", "a", "b"]))
    def new_ids(self, salt: str) -> None:
        self.client.salt = salt
        self.call()

    @rule(system=st.sampled_from(["", "Be careful.", "Be quick."]), tools=st.booleans(), model=st.sampled_from("mn"))
    def new_head(self, system: str, tools: bool, model: str) -> None:
        self.client.system, self.model = system, model
        self.tools = [{"name": "bash", "description": "Runs.", "input_schema": {"type": "object"}}] if tools else []
        self.call()

    # -- what happens meanwhile ------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1.0, 1000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(share=st.floats(0.5, 1.5))
    def record(self, share: float) -> None:
        if self.told is None:
            return
        self.context.record({"input_tokens": int(self.told.diagnostics.after * share), "output_tokens": 10})

    @rule(writing=st.booleans())
    def summarizer_fails(self, writing: bool) -> None:
        self.writing = writing

    @rule(down=st.booleans())
    def store_fails(self, down: bool) -> None:
        self.store.is_down = down

    @rule(close=st.booleans())
    def restart(self, close: bool) -> None:
        if close:
            self.context.close()
        self.context = self.opened(self.store)
        self.hidden.clear()
        self.call()

    @precondition(lambda self: not self.store.is_down and not self.options["background"] and self.told is not None)
    @rule()
    def another_process(self) -> None:
        """The same store and the same messages give the same bytes elsewhere."""
        self.call()
        if self.store.is_down or self.told is None:
            return
        other = self.opened(self.store.copied())
        again = self.asked(other, self.sent)
        here = self.asked(self.context, self.sent)
        assert json.dumps(again.messages) == json.dumps(here.messages)
        if here.diagnostics.turns:
            assert again.diagnostics.branch == here.diagnostics.branch

    # -- what must hold --------------------------------------------------------------------------------------------

    def asked(self, context: ContextManager, messages: list[Message]) -> ContextView:
        system = self.client.system if self.shape == "anthropic" else None
        return context.prepare(messages, tools=self.tools or None, system=system or None, model=self.model)

    def call(self) -> None:
        messages = self.client.messages()
        before = copy.deepcopy(messages)
        self.sent = messages
        self.now += 1.0
        try:
            self.told = self.asked(self.context, messages)
        except BudgetError:
            assert self.options["token_budget"] is not None
            self.told = None
            return
        assert messages == before, "the client's messages were changed"
        self.check(self.told, messages)

    def check(self, view: ContextView, messages: list[Message]) -> None:
        kinds = {fault.kind for fault in view.diagnostics.faults}
        assert kinds <= {"store", "summarizer"}, view.diagnostics.faults
        assert ("store" in kinds) <= self.store.is_down
        self.covers(view, messages)
        before, after = {"messages": messages, "input": messages}, {"messages": view.messages, "input": view.messages}
        assert not list_new_violations(view.dialect, before, after)
        assert '"tags"' not in json.dumps(view.messages)
        self.sticks(view)
        if not self.store.is_down:
            self.stored(view, messages)

    def covers(self, view: ContextView, messages: list[Message]) -> None:
        """Each atom stands in the view once and in order: as it came, hidden, folded, or covered by the summary."""
        runs = self.shape == "openai-responses"
        given, sent = split_atoms(remove_tags(messages), runs=runs), split_atoms(view.messages, runs=runs)
        state = self.context._opened.preparer.branch.log.state  # type: ignore[union-attr]
        texts = {edit.text for edit in state.edits.values()}
        place = 0
        for atom in sent:
            if atom.said.startswith(SUMMARY):
                assert atom.said == state.summary.block  # type: ignore[union-attr]
                head = next((at for at, each in enumerate(given) if each.turn), len(given))
                assert place == head
                continue
            while given[place].turn and given[place].turn <= state.covered_turns and not same(given[place], atom):
                place += 1
            expected = given[place]
            if not same(expected, atom):
                assert (atom.kind, atom.id) == (expected.kind, expected.id), (expected, atom)
                assert atom.said in texts, (expected, atom)
            elif atom.whole == expected.whole and self.client.tagged is None:
                assert atom.whole is expected.whole, "an untouched message was copied"
            place += 1
        while place < len(given) and given[place].turn <= state.covered_turns:
            place += 1
        assert place == len(given), given[place:]
        self.recalls(given)

    def recalls(self, given: list[Atom]) -> None:
        """What is hidden or folded can be read again, word for word as the client sent it."""
        branch = self.context._opened.preparer.branch
        state = branch.log.state  # type: ignore[union-attr]
        for key in state.edits:
            kind = "words" if self.shape == "text" else "result"
            results = [atom for atom in given if atom.kind == kind and atom.turn == key[0]]
            raw = _read_text(self.context._opened, "", key)
            assert raw == results[key[1] - 1].said

    def sticks(self, view: ContextView) -> None:
        state = self.context._opened.preparer.branch.log.state  # type: ignore[union-attr]
        before = self.hidden.get(view.diagnostics.branch, {})
        for key, text in before.items():
            if key[0] < len(state.turns) and key[0] > state.covered_turns:
                assert state.hidden.get(key) == text
        self.hidden[view.diagnostics.branch] = {
            key: text for key, text in state.hidden.items() if state.find_segment(key).kind == "placeholder"
        }

    def stored(self, view: ContextView, messages: list[Message]) -> None:
        kind = "words" if self.shape == "text" else "result"
        told = [atom for atom in split_atoms(messages, runs=self.shape == "openai-responses") if atom.turn]
        raw = self.store.turns(view.diagnostics.branch)
        for turn in raw:
            results = [atom.said for atom in told if atom.turn == turn.index and atom.kind == kind]
            mine = [each.text for each in turn.observations]
            assert mine == results[: len(mine)]
            if self.shape != "text":
                assert mine == results

    @invariant()
    def log_is_append_only(self) -> None:
        if not hasattr(self, "store"):
            return
        for info in self.store.sessions():
            log, before = list(self.store.events(info.key)), self.logs.get(info.key, [])
            assert all(one is other for one, other in zip(before, log, strict=False))
            assert len(log) >= len(before)
            self.logs[info.key] = log

    def teardown(self) -> None:
        if hasattr(self, "context"):
            self.context.close()


def same(one: Atom, other: Atom) -> bool:
    return (one.kind, one.id, one.said) == (other.kind, other.id, other.said)


TestClients = Clients.TestCase
TestClients.settings = settings(stateful_step_count=25)


def test_parallel_calls_with_the_same_result() -> None:
    """What a soak found: the second is folded in the call that first shows both."""
    clients = Clients()
    clients.begin(shape="openai", strategy=STRATEGIES[0], background=False, budget=None, system="")
    clients.go_on(results=[4, 4], turned=False, words=False, deep=False)
    assert clients.told is not None
    assert clients.told.diagnostics.folded
    clients.teardown()


def test_tools_that_no_caller_reads_enter_in_no_process() -> None:
    """What a soak found: over a budget that the tools alone break, another process clipped a result."""
    clients = Clients()
    clients.begin(shape="anthropic", strategy=STRATEGIES[0], background=False, budget=1500, system="")
    clients.new_head(system="", tools=True, model="m")
    clients.go_on(results=[10, 40], turned=False, words=False, deep=False)
    clients.another_process()
    clients.teardown()


def test_another_providers_model_continues_the_history() -> None:
    """A framework gives the whole history in the new provider's shape. What was hidden stays hidden, in one session."""
    chat_tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
    anthropic_tools = [{"name": "bash", "description": "", "input_schema": {"type": "object"}}]
    with ContextManager("masking(window=2, schedule=every-turn)", model="gpt-5", store="memory:") as context:
        first = context.prepare(make_history("openai", 5), tools=chat_tools)
        second = context.prepare(make_history("anthropic", 6), tools=anthropic_tools, model="claude-sonnet-4-5")
        third = context.prepare(make_history("openai", 7), tools=chat_tools)
    assert [view.dialect for view in (first, second, third)] == ["openai", "anthropic", "openai"]
    assert {view.diagnostics.branch for view in (first, second, third)} == {first.diagnostics.branch}
    assert [str(view.messages).count("tokens hidden") for view in (first, second, third)] == [3, 4, 5]
