"""Histories that go on, turn back, fork, or come rewritten: recognised by content, and never mixed up."""

from __future__ import annotations

import copy
import json
from collections import Counter, OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessage

from elision import Advanced, Cache
from elision.errors import ConflictError
from elision.manager import ContextManager, ContextView
from elision.manager.advanced_options import gather_options
from elision.manager.history import History
from elision.stores.memory import MemoryStore
from elision.stores.store import NewSession
from elision.stores.store_urls import open_store
from elision.strategies.mask_candidates import MaskCandidates
from elision.strategies.policy import Policy
from elision.trajectory.events import Event, SessionOpened
from elision.trajectory.state import State
from tests.manager.agents import LONG, SHAPES, make_history

EAGER = "masking(window=2, schedule=every-turn)"
UNFOLDED = "masking(window=2, fold=false, schedule=every-turn)"
SUMMARIZING = "hybrid(window=2, summarize_at=6, tail=2, summary_max_tokens=100, schedule=every-turn)"


def manager(store: Any, session: str = "s", strategy: str = EAGER, **options: Any) -> ContextManager:
    # Breakpoints are no part of what a cache compares; tests/manager/test_outgoing_request.py is about them.
    return ContextManager(
        strategy,
        store=store,
        session=session,
        **gather_options({"advanced": Advanced(cache=Cache(control="client")), **options}),
    )


def walk(context: ContextManager, shape: str, first: int, last: int, words: str = "Mend the parser.") -> ContextView:
    """Every call after `first` ... `last` steps; the view of the last one."""
    for steps in range(first, last + 1):
        view = context.prepare(make_history(shape, steps, words))
    return view


def dumped(view: ContextView) -> str:
    return json.dumps(view.messages)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_history_that_goes_on(shape: str) -> None:
    """Each call continues the one before; old results are hidden, everything else is the very object that was given."""
    context = manager(MemoryStore(), strategy=UNFOLDED)
    for steps in range(8):
        messages = make_history(shape, steps)
        view = context.prepare(messages)
        assert view.diagnostics.history == "continue"
        assert view.diagnostics.turns == steps
        same = sum(any(one is other for other in messages) for one in view.messages)
        assert same == len(messages) - max(0, steps - 2)
    assert len(json.dumps(view.messages)) < len(json.dumps(messages)) / 2


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_is_written_into_a_client_s_messages(shape: str) -> None:
    """What was given is as it was, however much is hidden or summarized."""
    context = manager(MemoryStore(), strategy=SUMMARIZING)
    messages = make_history(shape, 12)
    before = copy.deepcopy(messages)
    walk(context, shape, 1, 11)
    view = context.prepare(messages)
    assert messages == before
    assert view.diagnostics.summaries


@pytest.mark.parametrize("shape", SHAPES)
def test_another_process_renders_the_same_bytes(shape: str, tmp_path: Path) -> None:
    """Opened again with the same store and session, the same history gives the same view."""
    url = f"sqlite:///{tmp_path}/a.db"
    with manager(url) as first:
        before = walk(first, shape, 0, 9)
    with manager(url) as second:
        again = second.prepare(make_history(shape, 9))
        assert dumped(again) == dumped(before)
        assert again.diagnostics.history == "continue"
        assert again.diagnostics.branch == "s"
        further = second.prepare(make_history(shape, 10))
    assert further.diagnostics.turns == 10


@pytest.mark.parametrize("shape", SHAPES)
def test_what_does_not_matter_does_not_break_a_history(shape: str) -> None:
    """Moved cache markers, dropped nulls, new ids and other key orders are the same history, sent as it came."""
    context = manager(MemoryStore())
    walk(context, shape, 0, 5)
    messages = [dict(reversed(message.items())) for message in make_history(shape, 5)]
    for message in messages:
        message["nothing"] = None
        message["cache_control"] = {"type": "ephemeral"}
    view = context.prepare(messages)
    assert view.diagnostics.history == "continue"
    assert view.messages[0] is messages[0]


@pytest.mark.parametrize("shape", SHAPES)
def test_an_undo_is_the_view_of_that_time(shape: str) -> None:
    """A history cut short is what it was then; gone on with in another way, it is a branch of its own."""
    context = manager(MemoryStore())
    views = [dumped(context.prepare(make_history(shape, steps))) for steps in range(9)]
    back = context.prepare(make_history(shape, 5))
    assert (back.diagnostics.history, dumped(back)) == ("undo", views[5])
    other = [*make_history(shape, 5), *SHAPES[shape](77)]
    view = context.prepare(other)
    assert view.diagnostics.turns == 6
    assert view.diagnostics.branch != "s"
    assert "77" in dumped(view)


@pytest.mark.parametrize("shape", SHAPES)
def test_forks_do_not_bind_each_other(shape: str) -> None:
    """Two continuations of one history take turns; each keeps its own decisions, byte for byte."""
    context = manager(MemoryStore())
    walk(context, shape, 0, 6)
    left = [*make_history(shape, 6), *SHAPES[shape](10)]
    right = [*make_history(shape, 6), *SHAPES[shape](20)]
    seen = {"left": dumped(context.prepare(left)), "right": dumped(context.prepare(right))}
    for step in (11, 12):
        left += SHAPES[shape](step)
        right += SHAPES[shape](step + 10)
        for name, messages in (("left", left), ("right", right)):
            view = context.prepare(messages)
            assert view.diagnostics.turns == step - 3
            seen[name] = dumped(view)
    assert dumped(context.prepare(left)) == seen["left"]
    assert "f20.py" not in seen["left"]
    assert "f10.py" not in seen["right"]


@pytest.mark.parametrize("shape", SHAPES)
def test_an_edited_result_is_another_history(shape: str) -> None:
    """A result that the client changed is not taken for the one that was seen; what came behind it comes again."""
    context = manager(MemoryStore())
    walk(context, shape, 0, 5)
    messages = make_history(shape, 5)
    edited = [*messages[: len(messages) - 4], *SHAPES[shape](4, "other")[-2:], *SHAPES[shape](5)[-2:]]
    if shape == "openai-responses":
        edited = [*make_history(shape, 3), *SHAPES[shape](4, "other"), *SHAPES[shape](5)]
    view = context.prepare(edited)
    assert view.diagnostics.history == "replaced"
    assert view.diagnostics.branch != "s"
    assert "4\\nother" in dumped(view)


def test_in_place_edits_are_seen() -> None:
    """A client that changes its own message objects is told apart as well."""
    context = manager(MemoryStore())
    messages = make_history("openai", 4)
    context.prepare(messages)
    messages[-3]["content"] = "cut by the client"
    view = context.prepare(messages)
    assert view.diagnostics.history in ("fork", "replaced")
    assert "cut by the client" in dumped(view)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_client_that_compacts_itself_begins_anew(shape: str) -> None:
    """Its summary in place of old turns, and turns it kept: nothing of the old decisions is applied to them."""
    context = manager(MemoryStore(), strategy=UNFOLDED)
    walk(context, shape, 0, 8)
    kept = [message for step in (7, 8) for message in SHAPES[shape](step)]
    compacted = [*make_history(shape, 0), {"role": "user", "content": "Summary of what was done: much."}, *kept]
    view = context.prepare(compacted)
    assert view.diagnostics.history == "replaced"
    assert view.diagnostics.turns == 2
    assert view.messages == compacted
    assert context.session.recall("t3.1").startswith("3\n")


def test_the_newest_turn_may_end_another_way() -> None:
    """Words that the client adds behind the newest result and takes away again do not fork the session."""
    context = manager(MemoryStore())
    for steps in range(1, 6):
        reminder = {"role": "user", "content": f"{10 - steps} steps left"}
        view = context.prepare([*make_history("openai", steps), reminder])
        assert view.diagnostics.branch == "s"
        assert view.messages[-1] is reminder
    assert view.diagnostics.history == "amended"
    assert sum("steps left" in message.get("content", "") for message in view.messages) == 1


def test_a_beginning_of_the_answer_passes() -> None:
    """A trailing assistant message is the client's, and no turn yet."""
    context = manager(MemoryStore())
    walk(context, "anthropic", 0, 4)
    prefill = {"role": "assistant", "content": "{"}
    view = context.prepare([*make_history("anthropic", 4), prefill])
    assert view.messages[-1] is prefill
    assert view.diagnostics.turns == 4
    assert context.prepare(make_history("anthropic", 5)).diagnostics.history == "continue"


def test_a_client_s_invalid_request_passes_as_it_came() -> None:
    """Results without a call, calls without results, roles out of order: nothing is added, moved or dropped."""
    odd = [
        {"role": "tool", "tool_call_id": "gone", "content": LONG},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": {}}]},
        {"role": "banana", "content": [{"type": "who knows", "x": 1}]},
        {"role": "assistant", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "tool", "tool_call_id": "a", "content": LONG},
        {"role": "user", "content": None},
    ]
    context = manager(MemoryStore())
    for count in range(1, len(odd) + 1):
        view = context.prepare(odd[:count])
        assert view.messages == odd[:count]
        assert not view.diagnostics.faults


def test_two_agents_with_the_same_words_are_two(tmp_path: Path) -> None:
    """Sessions of one store that begin alike share nothing but what is stored once."""
    store = open_store(f"sqlite:///{tmp_path}/a.db")
    one, other = manager(store, "one"), manager(store, "other")
    walk(one, "openai", 0, 6)
    view = other.prepare(make_history("openai", 6))
    assert view.diagnostics.branch == "other"
    assert view.diagnostics.call == 7
    store.close()


@pytest.mark.parametrize("url", ["memory:", "sqlite"])
def test_the_second_writer_is_told(url: str, tmp_path: Path) -> None:
    """Of two that write one session the later gets a conflict, loses nothing, and goes on from what is there."""
    store = open_store(f"sqlite:///{tmp_path}/a.db" if url == "sqlite" else url)
    first, second = manager(store), manager(store)
    walk(first, "openai", 0, 3)
    walk(second, "openai", 3, 3)
    second.prepare(make_history("openai", 4))
    with pytest.raises(ConflictError, match="open it again"):
        first.prepare(make_history("openai", 4))
    view = first.prepare(make_history("openai", 5))
    assert (view.diagnostics.turns, view.diagnostics.branch) == (5, "s")
    assert [turn.index for turn in store.turns("s")] == [1, 2, 3, 4, 5]
    store.close()


def test_sub_agents_have_sessions_of_their_own() -> None:
    """A sub-agent's decisions are its own; it may read what its parent saw."""
    store = MemoryStore()
    parent = manager(store, "main")
    walk(parent, "openai", 0, 4)
    child = manager(store, "helper", parent="main")
    walk(child, "openai", 0, 2, "Look it up.")
    assert store.info("helper").parent == "main"
    assert store.info("helper").relation == "sub-agent"
    assert child.session.recall("t2.1").startswith("2\n")
    assert child.session.recall("t4.1").startswith("4\n")
    assert child.session.recall("main:t1.1").startswith("1\n")


@pytest.mark.parametrize("shape", SHAPES)
def test_the_last_words_are_kept(shape: str) -> None:
    """A run's final answer is stored without a pass, and the session goes on behind it."""
    store = MemoryStore()
    context = manager(store)
    walk(context, shape, 0, 3)
    last = {"role": "assistant", "content": "All done."}
    calls = context.prepare(make_history(shape, 3)).diagnostics.call
    before = context.prepare(make_history(shape, 3)).diagnostics.costs
    after = context.keep([*make_history(shape, 3), last])
    assert after.ours > before.ours
    assert store.turns("s")[-1].text == "All done."
    further = [*make_history(shape, 3), last, {"role": "user", "content": "And now?"}]
    view = context.prepare(further)
    assert (view.diagnostics.branch, view.diagnostics.turns, view.diagnostics.call) == ("s", 4, calls + 1)
    assert view.messages[-1] is further[-1]
    again = manager(store).prepare(further)
    assert dumped(again) == dumped(view)


def test_a_system_prompt_among_the_messages_may_change() -> None:
    """It is no part of a history's name; what is sent and counted is the new one, in a new epoch."""
    context = manager(MemoryStore())
    rest = make_history("openai", 3)
    context.prepare([{"role": "system", "content": "short"}, *rest])
    long = {"role": "system", "content": "word " * 3_000}
    view = context.prepare([long, *rest])
    assert view.diagnostics.raw > 3_000
    assert view.diagnostics.epoch == 2
    assert view.messages[0] is long


def test_savings_are_of_observations() -> None:
    """Behind a summary too, what is still visible is not counted as saved."""
    context = manager(MemoryStore(), strategy=SUMMARIZING)
    view = walk(context, "openai", 0, 16)
    savings = view.diagnostics.savings
    assert view.diagnostics.summaries
    assert savings.masked + savings.folded + savings.visible + savings.covered == 16
    shown = sum(LONG in str(message.get("content")) for message in view.messages)
    assert savings.visible == shown
    assert savings.reduction_pct == pytest.approx(100 * (1 - shown / 16), abs=4)


@pytest.mark.parametrize("shape", SHAPES)
def test_other_words_behind_an_undo_are_sent(shape: str) -> None:
    """A client that goes back some turns and says something else there is heard."""
    context = manager(MemoryStore())
    walk(context, shape, 0, 6)
    otherwise = {"role": "user", "content": "Do it another way."}
    view = context.prepare([*make_history(shape, 3), otherwise])
    assert view.messages[-1] is otherwise
    assert view.diagnostics.turns == 3


@pytest.mark.parametrize("shape", ["openai", "openai-responses", "anthropic"])
def test_new_ids_reach_what_is_hidden(shape: str) -> None:
    """A client that makes call ids anew for each request gets placeholders under the new ones."""
    context = manager(MemoryStore())
    walk(context, shape, 0, 6)
    renamed = json.loads(json.dumps(make_history(shape, 6)).replace('"c1"', '"other1"'))
    view = context.prepare(renamed)
    assert view.diagnostics.history == "continue"
    assert view.diagnostics.savings.masked == 4
    assert '"c1"' not in dumped(view)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_system_message_inside_is_something_said(shape: str) -> None:
    """One that comes or goes between turns is seen, here and by another process; one in front forks nothing."""
    store = MemoryStore()
    context = manager(store)
    walk(context, shape, 0, 5)
    note = {"role": "system", "content": "The user opened f2.py."}
    cut = len(make_history(shape, 3))
    noted = [*make_history(shape, 5)[:cut], note, *make_history(shape, 5)[cut:]]
    view = context.prepare(noted)
    assert note in view.messages
    context = manager(store)
    assert dumped(context.prepare(noted)) == dumped(view)
    plain = context.prepare(make_history(shape, 5))
    assert note not in plain.messages
    prompted = context.prepare([{"role": "system", "content": "Be careful."}, *make_history(shape, 5)])
    assert (prompted.diagnostics.history, prompted.diagnostics.branch) == ("continue", plain.diagnostics.branch)


def test_what_the_actions_of_the_opening_settle_holds_elsewhere() -> None:
    """A text protocol whose agent greets first is recognised as it comes, and read the same by another process."""
    store = MemoryStore()
    context = manager(store)
    greeting = [{"role": "assistant", "content": "Hello, I begin."}, {"role": "user", "content": "Good."}]
    messages = [*make_history("text", 0), *greeting]
    context.prepare(messages)
    for step in range(1, 7):
        messages += SHAPES["text"](step)
        view = context.prepare(messages)
    assert view.diagnostics.savings.masked == 4
    context = manager(store)
    assert dumped(context.prepare(messages)) == dumped(view)
    late = [*messages, *SHAPES["openai"](9)]
    view = context.prepare(late)
    assert dumped(manager(store).prepare(late)) == dumped(view)


def test_many_forks_of_one_history_try_few_names() -> None:
    """Each continuation of one beginning is a branch of its own, made with one try and not with one for each before."""

    class Counting(MemoryStore):
        tried = 0

        def create_with_events(
            self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b""
        ) -> int:
            self.tried += 1
            return super().create_with_events(session, events, at=at, batch=batch)

    store = Counting()
    context = manager(store)
    walk(context, "openai", 0, 3)
    for other in range(20):
        context.prepare([*make_history("openai", 3), *SHAPES["openai"](100 + other)])
    assert len(store.sessions()) == store.tried == 20


def test_objects_that_are_edited_in_place_are_seen() -> None:
    """Messages of a provider's package, and dicts of other kinds, are told apart from what they were."""
    context = manager(MemoryStore())
    said = ChatCompletionMessage.model_validate(SHAPES["openai"](1)[0])
    result = OrderedDict(SHAPES["openai"](1)[1])
    messages: list[Any] = [*make_history("openai", 0), said, result, *SHAPES["openai"](2)]
    context.prepare(messages)
    result["content"] = "cut by the client"
    assert context.prepare(messages).diagnostics.history == "replaced"
    said.content = "other words"
    assert context.prepare(messages).diagnostics.history in ("fork", "replaced")
    assert context.prepare(messages).messages[1] is said
    assert context._opened.preparer.branch is not None
    assert context._opened.preparer.branch.log.state.turns[0].text == "other words"


def test_a_session_that_was_only_begun() -> None:
    """A session that was begun and never written to is opened like any other."""
    store = MemoryStore()
    store.create(NewSession(key="s", family="s", at=0.0))
    context = manager(store)
    walk(context, "openai", 0, 4)
    assert isinstance(next(iter(store.events("s"))), SessionOpened)


@pytest.mark.parametrize("shape", ["openai", "openai-responses", "anthropic"])
def test_a_dialect_that_shows_late_is_recognised(shape: str) -> None:
    """A conversation that began in plain words is read as what it turns out to be, and stays the same session."""
    store = MemoryStore()
    context = manager(store)
    messages = make_history(shape, 0)
    for words in range(15):
        context.prepare(messages)
        messages += [{"role": "assistant", "content": f"Yes {words}."}, {"role": "user", "content": f"And {words}?"}]
    for step in range(1, 7):
        messages += SHAPES[shape](step)
        view = context.prepare(messages)
    assert view.dialect == shape
    assert (view.diagnostics.branch, view.diagnostics.turns, view.diagnostics.savings.masked) == ("s", 21, 4)
    assert dumped(manager(store).prepare(messages)) == dumped(view)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reminded", [False, True])
def test_a_call_costs_what_is_new(shape: str, reminded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the session, a call folds as many events and reads as many messages as the one before."""
    done: Counter[str] = Counter()

    def counted(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            done[name] += 1
            return real(self, *args, **kwargs)

        monkeypatch.setattr(owner, name, wrapper)

    counted(State, "fold_event")
    counted(Policy, "add_turn")
    counted(MaskCandidates, "add_candidate")
    counted(History, "append_message")
    counted(History, "_is_same_message")
    context = manager(MemoryStore(), strategy="masking(window=2)", prices="uncached")
    work: list[Counter[str]] = []
    for steps in range(1, 41):
        words = [{"role": "user", "content": f"{steps} done"}] if reminded else []
        context.prepare([*make_history(shape, steps), *words])
        work.append(done.copy())
        done.clear()
    assert work[-1] == work[10]


def test_words_taken_back_cost_no_cache() -> None:
    """A breakpoint stands in front of what the client takes back, so that the next request reads up to there."""
    context = manager(MemoryStore(), strategy="raw", model="claude-sonnet-4-5", dialect="openai")
    written = []
    for steps in range(1, 12):
        view = context.prepare([*make_history("openai", steps), {"role": "user", "content": f"{steps} done"}])
        assert view.diagnostics.branch == "s"
        branch = context._opened.preparer.branch
        assert branch is not None
        assert branch.log.newest_call is not None
        written.append(branch.log.money.newest_prompt.cache_write)
    assert len(set(written[4:])) == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_a_view_that_is_taken_for_the_history(shape: str) -> None:
    """A client that goes on with our messages instead of its own keeps its branch, and can recall what was hidden."""
    context = manager(MemoryStore())
    messages = make_history(shape, 0)
    for step in range(1, 10):
        messages = [*messages, *SHAPES[shape](step)]
        view = context.prepare(messages)
        messages = view.messages
    assert view.diagnostics.branch == "s"
    assert view.diagnostics.savings.masked == 7
    assert context.session.recall("t3.1").startswith("3\n")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_pass_may_be_asked_for(shape: str, tmp_path: Path) -> None:
    """`compact` hides at once what the schedule would still hold back, in one pass, and in another process as well."""
    store = open_store(f"sqlite:///{tmp_path}/a.db")
    context = manager(store, strategy="masking(window=2)")
    held = walk(context, shape, 0, 3).diagnostics
    context.compact()
    view = context.prepare(make_history(shape, 3))
    assert (held.savings.masked, held.reason) != (1, "forced")
    assert (view.diagnostics.savings.masked, view.diagnostics.reason) == (1, "forced")
    assert context.prepare(make_history(shape, 4)).diagnostics.reason != "forced"
    again = manager(store, strategy="masking(window=2)").prepare(make_history(shape, 4))
    assert again.diagnostics.savings.masked == 1
    store.close()
