"""Folding where thinking is bound to the messages before it: results are sent as they were first sent, for good.

The provider here checks each signature against what precedes it, as Anthropic's newest models do.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elision import Advanced
from elision.manager import ContextManager, ContextView
from elision.manager.advanced_options import gather_options
from elision.providers.anthropic.server_clearing import CLEARING_BETA
from elision.strategies.decision_context import Budget
from elision.strategies.schedules import EveryTurnSchedule, FixedSchedule
from elision.strategies.strategy import Masking, Strategy
from elision.testing.builders import call, result, trajectory, turn
from elision.testing.recorded_provider import RecordedProvider, Terms
from elision.trajectory.trajectory import Trajectory
from tests.properties.builders import lines
from tests.soak import SOAK, pair_cases

BOUND, FREE = "claude-opus-5-5", "claude-opus-4-8"
CLEARING = "masking(window=2, schedule=every-turn, fold=true)"
SUMMARIZING = "hybrid(window=2, summarize_at=6, tail=2, summary_max_tokens=120, schedule=every-turn, fold=true)"
THINKS: dict[str, Any] = {"type": "adaptive"}
#: Sources are named by handle only where the request lets the model recall.
_REFERENCE = re.compile(r"\[same as (?:lines (\d+)–(\d+) of )?(?:turn |t)(\d+)(?:\.1)?(?: \([^)\n]*\))?\]")

Json = dict[str, Any]


def make_run(*texts: str) -> Trajectory:
    """A run that thinks at every turn, and whose calls have `texts` as results."""
    turns = (
        turn(
            index,
            (call("bash", id=f"c{index}", step=index), result(text, "bash", id=f"c{index}")),
            reasoning=f"I think about step {index}.",
        )
        for index, text in enumerate(texts, start=1)
    )
    return trajectory(*turns, id="thinker")


#: Repeats at once, after a while, of the newest, and none.
TEXTS = [
    lines(1, 40), lines(1, 40), lines(100, 140), lines(20, 60), "Written.", lines(110, 130), lines(200, 240),
    lines(200, 240), lines(300, 340), lines(400, 440), lines(500, 540), lines(400, 420), lines(600, 640), "Done.",
]  # fmt: skip


class Client:
    """A client that sends its whole history through `context`, and the provider that it gets its answers from."""

    def __init__(self, context: ContextManager, run: Trajectory) -> None:
        self.context = context
        self.provider = RecordedProvider([run], Terms(bound_thinking=True))
        self.results = [observation.text for each in run.turns for observation in each.observations]
        self.messages: list[Json] = [{"role": "user", "content": "Mend the parser."}]
        self.bodies: list[Json] = []

    def step(self, **request: Any) -> ContextView:
        """Make one call, and run the tool that its answer calls."""
        body: Json = {"model": BOUND, "max_tokens": 2_000, "thinking": THINKS, **request}
        view = self.context.prepare(self.messages, model=BOUND, request=request)
        body |= {"messages": list(view.messages), **view.extra}
        checked = {name: value for name, value in body.items() if name != "context_management"}
        received, answer = self.provider.answer_request("anthropic", {}, json.dumps(checked).encode())
        assert received.status == 200, answer.body
        self.bodies.append(json.loads(json.dumps(body)))
        answered = answer.body
        assert isinstance(answered, dict)
        block = {"type": "tool_result", "tool_use_id": answered["content"][-1]["id"]}
        text = self.results[len(self.messages) // 2]
        self.messages = [
            *self.messages,
            {"role": "assistant", "content": answered["content"]},
            {"role": "user", "content": [{**block, "content": text}]},
        ]
        return view


def run_through(strategy: str | Strategy, texts: list[str], **options: Any) -> tuple[list[Json], list[ContextView]]:
    """Work through a run with `texts` as results. Return the requests and the views."""
    with ContextManager(strategy, model=BOUND, **gather_options(options)) as context:
        client = Client(context, make_run(*texts, "end"))
        views = [client.step() for _ in range(len(texts) + 1)]
        return client.bodies, views


def list_results(body: Json) -> list[str]:
    found = []
    for message in body["messages"][2::2]:
        (block,) = message["content"]
        content = block["content"]
        found.append(content if isinstance(content, str) else "".join(part["text"] for part in content))
    return found


def count_cleared(body: Json) -> int:
    """Return how many of the oldest results the provider clears, as it counts them."""
    edits = body.get("context_management", {}).get("edits", [])
    return len(list_results(body)) - edits[-1]["keep"]["value"] if edits else 0


def check_requests(bodies: list[Json], texts: list[str]) -> None:
    """Check that no result is ever sent in another way, and that each reference names lines that the request shows."""
    cleared = 0
    for before, body in zip([bodies[0], *bodies], bodies, strict=False):
        results = list_results(body)
        assert results[: len(list_results(before))] == list_results(before)
        assert count_cleared(body) >= cleared
        cleared = count_cleared(body)
        for place, text in enumerate(results):
            if place >= cleared and "cut here to fit" not in text:
                assert restore_text(text, results, cleared) == texts[place]


def restore_text(text: str, results: list[str], cleared: int) -> str:
    """Return `text` with the lines in place of its references. Their sources are not cleared, and have those lines;
    lines are counted as the source is sent."""

    def find_lines(reference: re.Match[str]) -> str:
        source = int(reference[3])
        assert source > cleared
        named = results[source - 1].split("\n")
        if reference[1]:
            first, last = int(reference[1]), int(reference[2])
            named = named[first - 1 : last]
            assert len(named) == last - first + 1
        assert not any(map(_REFERENCE.fullmatch, named))
        return "\n".join(named)

    return _REFERENCE.sub(find_lines, text)


@pytest.mark.parametrize(("recall", "source"), [("auto", "turn 1"), ("caller", "t1.1")])
def test_where_nothing_is_hidden_results_are_folded_and_nothing_is_cleared(recall: str, source: str) -> None:
    """The provider takes every request, is asked for nothing, and gets the same bytes again."""
    bodies, views = run_through("raw(fold=true)", TEXTS, recall=recall)
    check_requests(bodies, TEXTS)
    assert list_results(bodies[-1])[1].startswith(f"[same as {source} (bash")
    assert sum(text != sent for text, sent in zip(TEXTS, list_results(bodies[-1]), strict=True)) == 5
    assert all(view.extra == {} and view.betas == () for view in views)
    assert [each.handle for view in views for each in view.diagnostics.folded] == [
        "t2.1",
        "t4.1",
        "t6.1",
        "t8.1",
        "t12.1",
    ]
    assert views[-1].diagnostics.epoch == 1


@pytest.mark.parametrize("strategy", [CLEARING, SUMMARIZING])
def test_what_is_cleared_is_nothing_that_is_referred_to(strategy: str) -> None:
    """The provider clears up to a place that separates no reference from its source, and waits where there is none."""
    bodies, views = run_through(strategy, TEXTS)
    check_requests(bodies, TEXTS)
    cleared = [count_cleared(body) for body in bodies]
    assert cleared == [0, 0, 0, 0, 0, 0, 4, 4, 6, 6, 6, 9, 10, 11, 12]
    assert views[5].diagnostics.reason == "waits: later results refer to what would be cleared"
    assert [view.betas for view in views] == [(CLEARING_BETA,) if count else () for count in cleared]
    assert [each.handle for view in views for each in view.diagnostics.folded] == ["t2.1", "t4.1", "t8.1"]


def test_a_summary_that_cannot_be_sent_clears_nothing_sooner() -> None:
    """Where the provider clears results, `hybrid` clears as `masking` does, and asks for no summary."""
    asked: list[Any] = []
    options = "window=2, schedule=every-turn"
    plain, _ = run_through(f"masking({options})", TEXTS)
    bodies, _ = run_through(
        f"hybrid({options}, summarize_at=5, tail=2)", TEXTS, summarizer=asked.append, background=True
    )
    assert list(map(count_cleared, bodies)) == list(map(count_cleared, plain))
    assert asked == []


@pytest.mark.parametrize("seed", range(12 if SOAK else 4))
def test_random_runs(seed: int) -> None:
    """Whatever repeats, and whatever the strategy and its budget hide."""
    rng = random.Random(seed)
    texts = []
    for _ in range(24):
        first = rng.randrange(0, 200, 10)
        texts.append(lines(first, first + rng.choice([3, 12, 30, 60])))
    texts[6] = texts[5] = lines(0, 60)
    window = rng.choice([1, 2, 4])
    schedule = rng.choice([EveryTurnSchedule(), FixedSchedule(mask_calls=frozenset(range(6, 30, 4)))])
    budget = rng.choice([None, Budget(tokens=8_000)])
    options: Any = {"over_budget": "send"}
    strategy = Masking(window=window, schedule=schedule, fold=True, budget=budget)
    bodies, views = run_through(strategy, texts, **options)
    check_requests(bodies, texts)
    assert any(view.diagnostics.folded for view in views)
    assert all(fault.kind == "budget" for view in views for fault in view.diagnostics.faults)


def test_above_the_budget_references_leave_with_their_sources() -> None:
    """A cut after the references is taken where the one before them does not make room."""
    texts = [lines(1, 60), lines(1, 40), lines(100, 160), lines(200, 260), lines(300, 360)]
    strategy = "masking(window=1, schedule=every-turn, fold=true, budget=budget(tokens=6000))"
    bodies, _ = run_through(strategy, texts)
    check_requests(bodies, texts)
    assert count_cleared(bodies[-1]) >= 2


@pytest.mark.parametrize(("calls", "strategy"), pair_cases([3, 8, 12], ["raw(fold=true)", CLEARING]))
def test_another_process_sends_the_same_bytes(strategy: str, calls: int, tmp_path: Path) -> None:
    """Killed after any call, the session goes on as it was."""
    expected, _ = run_through(strategy, TEXTS, store="memory:", session="a")
    options: Any = {"model": BOUND, "store": f"sqlite:///{tmp_path}/one.db", "session": "a"}
    with ContextManager(strategy, **gather_options(options)) as context:
        client = Client(context, make_run(*TEXTS, "end"))
        for _ in range(calls):
            client.step()
    with ContextManager(strategy, **gather_options(options)) as context:
        client.context = context
        for _ in range(len(TEXTS) + 1 - calls):
            client.step()
    assert client.bodies == expected


@pytest.mark.parametrize("strategy", ["raw(fold=true)", CLEARING, SUMMARIZING])
def test_a_model_that_binds_nothing_in_between(strategy: str) -> None:
    """It gets the view as ever. Afterwards all that the other model saw is sent as it saw it."""
    with ContextManager(strategy, model=BOUND) as context:
        client = Client(context, make_run(*TEXTS, *TEXTS, "end"))
        sent: list[str] = []
        for number in range(2 * len(TEXTS)):
            if number % 9 in (5, 6, 7):
                context.prepare(client.messages, model=FREE)
                # Its answer is that of the recorded run as well.
                answer = make_answer(client, number)
                client.messages = [*client.messages, *answer]
                continue
            view = context.prepare(client.messages, model=BOUND)
            body = json.loads(json.dumps({"messages": list(view.messages), **view.extra}))
            results = list_results(body)
            assert results[: len(sent)] == sent
            sent = results
            for place in range(count_cleared(body), len(results)):
                restore_text(results[place], results, count_cleared(body))
            client.messages = [*client.messages, *make_answer(client, number)]
        assert any(_REFERENCE.search(text) for text in sent)


def make_answer(client: Client, number: int) -> list[Json]:
    thought = {"type": "thinking", "thinking": f"I think about step {number}.", "signature": "c2VhbA=="}
    use = {"type": "tool_use", "id": f"c{number}", "name": "bash", "input": {"step": number}}
    text = client.results[number]
    return [
        {"role": "assistant", "content": [thought, use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{number}", "content": text}]},
    ]


def test_a_strategy_that_folds_no_more_changes_nothing(tmp_path: Path) -> None:
    """A later process goes on with another strategy: what was sent stays, and sources stay while they are named."""
    options: Any = {"model": BOUND, "store": f"sqlite:///{tmp_path}/one.db", "session": "a"}
    with ContextManager("raw(fold=true)", **gather_options(options)) as context:
        client = Client(context, make_run(*TEXTS, "end"))
        for _ in range(6):
            client.step()
    with ContextManager("masking(window=2, schedule=every-turn)", **gather_options(options)) as context:
        client.context = context
        for _ in range(len(TEXTS) - 5):
            client.step()
    check_requests(client.bodies, TEXTS)
    assert count_cleared(client.bodies[-1]) >= 6


def adopted_history(context: ContextManager) -> Iterator[str]:
    """A history that began elsewhere, and its results as they are sent at the first call here."""
    client = Client(context, make_run(*TEXTS, "end"))
    for number in range(4):
        client.messages = [*client.messages, *make_answer(client, number)]
    view = context.prepare(client.messages)
    yield from list_results(json.loads(json.dumps({"messages": list(view.messages)})))


@pytest.mark.parametrize("thinking", ["auto", "defer", "drop_block"])
def test_a_history_that_began_elsewhere_is_left_alone(thinking: Any) -> None:
    """Only results after its newest thinking may be folded: the rest was sent whole."""
    with ContextManager("raw(fold=true)", model=BOUND, advanced=Advanced(thinking=thinking)) as context:
        *whole, newest = adopted_history(context)
        assert whole == TEXTS[:3]
        assert newest.startswith("[same as lines 20–39 of turn 2 (")
        assert restore_text(newest, [*whole, newest], cleared=0) == TEXTS[3]


@pytest.mark.parametrize("model", [BOUND, FREE])
@pytest.mark.parametrize("edit", ["clear_tool_uses_20250919", "compact_20260112"])
def test_where_the_client_has_results_cleared_nothing_is_folded(model: str, edit: str) -> None:
    """The source might be gone."""
    with ContextManager("raw(fold=true)", model=model) as context:
        client = Client(context, make_run(*TEXTS, "end"))
        own = {"context_management": {"edits": [{"type": edit}]}}
        for number in range(4):
            view = context.prepare(client.messages, request=own)
            assert view.diagnostics.folded == ()
            client.messages = [*client.messages, *make_answer(client, number)]
        view = context.prepare(client.messages)
        assert [each.handle for each in view.diagnostics.folded] == ["t4.1"]


def test_a_newest_result_that_breaks_the_budget_is_cut_and_stays_cut() -> None:
    """It is sent with its head and its tail, as everywhere; the provider clears it once it is old."""
    texts = ["a" * 200, lines(1, 20), lines(100, 600), *(lines(first, first + 60) for first in range(700, 1000, 60))]
    bodies, _ = run_through("masking(window=2, schedule=every-turn, budget=budget(tokens=6000))", texts)
    results = [list_results(body) for body in bodies]
    assert "chars cut here to fit" in results[3][2]
    assert len({each[2] for each in results[3:]}) == 1
    assert [count_cleared(body) for body in bodies][:6] == [0, 0, 0, 2, 3, 3]


def test_a_call_that_is_made_again_may_show_its_newest_result_otherwise() -> None:
    """Below a smaller window the source goes: no thinking follows what refers to it yet, so that is shown whole."""
    texts = [lines(1, 200), lines(1, 60)]
    with ContextManager("masking(window=3, schedule=every-turn, fold=true)", model=BOUND) as context:
        client = Client(context, make_run(*texts, *TEXTS, "end"))
        client.step()
        client.step()
        with context.call(client.messages) as call:
            assert "[same as lines 1–59 of turn 1 (" in list_results({"messages": list(call.view.messages)})[1]
            assert call.retry(RuntimeError("prompt is too long: 5200 tokens > 5000 maximum"))
            body = {"messages": list(call.view.messages), **call.view.extra}
            assert list_results(body) == texts
            assert count_cleared(body) == 1
        for _ in range(4):
            client.step()
        check_requests([body, *client.bodies[2:]], [*texts, *TEXTS])


def test_all_that_may_be_cleared_is_cleared_where_the_caller_asks() -> None:
    """Without waiting for what it is worth, and never between a reference and its source."""
    with ContextManager("masking(window=2, fold=true)", model=BOUND) as context:
        client = Client(context, make_run(*TEXTS, "end"))
        for _ in range(9):
            client.step()
        context.compact()
        client.step()
        assert list(map(count_cleared, client.bodies)) == [0] * 9 + [6]
        for _ in range(5):
            client.step()
        check_requests(client.bodies, TEXTS)


def test_a_history_that_the_client_changes() -> None:
    """After an undo what stays is sent as before; after the client's own compaction nothing old is referred to."""
    with ContextManager("raw(fold=true)", model=BOUND) as context:
        client = Client(context, make_run(*TEXTS, "end"))
        for _ in range(6):
            client.step()
        sent = list_results(client.bodies[-1])
        client.messages = client.messages[:7]
        client.step()
        assert list_results(client.bodies[-1]) == sent[:3]
        summary = {"role": "user", "content": "So far: nothing found."}
        compacted = [summary, *make_answer(client, 6), *make_answer(client, 7)]
        view = context.prepare(compacted)
        whole, folded = list_results({"messages": list(view.messages)})
        assert whole == TEXTS[6]
        assert folded.startswith("[same as turn 1 (")
