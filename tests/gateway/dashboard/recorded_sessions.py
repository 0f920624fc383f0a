"""Recorded runs, worked through by a client behind a context manager, against a provider that counts what it caches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from elision import Advanced
from elision.formats.registry import read_runs
from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.providers.provider import Api
from elision.stores.store import Store
from elision.strategies.guards import Guards
from elision.testing.follower import Follower
from elision.testing.recorded_provider import RecordedProvider, Terms
from elision.trajectory.trajectory import Trajectory

RUNS = Path(__file__).parents[3] / "examples" / "runs"
PI, OPENHANDS = "pi-session.jsonl.gz", "openhands-pylint.tar.gz"
SWE_AGENT, MINI = "swe-agent-sympy-20801.traj.gz", "mini-swe-agent-marshmallow-1343.traj.json.gz"
SONNET, GPT = "claude-sonnet-4-5", "gpt-5"
#: What a hostile agent says and reads: markup, an end of a script, a handler, a link, escapes, text from right to left.
HOSTILE = (
    "<script>window.harmed = 1</script></script><script>window.harmed = 2</script>"
    "<img src=x onerror='window.harmed = 3'><a href=\"javascript:window.harmed = 4\">free money</a>"
    "\x1b[31mred\x1b]0;owned\x07 \u202etxt.exe\u2066 ${window.harmed=5} {{7*7}} &lt;b&gt; \x00\ud800 "
    "<link rel=stylesheet href=//evil.example/x.css><svg onload=window.harmed=6><style>*{display:none}</style>"
)


@cache
def load_run(name: str) -> Trajectory:
    (found,) = (each for each in read_runs(RUNS / name) if isinstance(each, Trajectory))
    return found


class SteppingClock:
    """Seconds since the epoch: each look is a few later."""

    def __init__(self, now: float, step: float = 9.0) -> None:
        self.now, self.step = now, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


class RecordedClient:
    """One client at work on a run; `calls` makes some more calls of it.

    recalls: calls behind which the newest masked result is read again.
    """

    def __init__(
        self,
        store: Store,
        session: str,
        name: str,
        strategy: str = "hybrid(window=10, summarize_at=20)",
        *,
        api: Api = "anthropic",
        model: str = SONNET,
        now: float = 1_700_000_000.0,
        recalls: tuple[int, ...] = (),
        **options: Any,
    ) -> None:
        self._follower, self._provider = (
            Follower(load_run(name), api),
            RecordedProvider([load_run(name)], Terms(check=False)),
        )
        options = {"guards": Guards(plateau_window=5), **options}
        self.context = ContextManager(
            strategy,
            store=store,
            session=session,
            model=model,
            **gather_options({"advanced": Advanced(dialect=api, clock=SteppingClock(now)), **options}),
        )
        self._api, self._model, self._recalls, self._made = api, model, recalls, 0
        self._hidden: list[str] = []

    def make_calls(self, number: int) -> None:
        for _ in range(number):
            if self._follower.done:
                return
            self._make_call()

    def _make_call(self) -> None:
        self._made += 1
        request = self._follower.request
        view = self.context.prepare(request["messages"], system=request.get("system"))
        body = {"model": self._model, "max_tokens": 1_000, **request, "messages": view.messages}
        if view.system is not None:
            body["system"] = view.system
        body |= {"tools": list(self._iterate_tools())}
        _, answer = self._provider.answer_request(self._api, {}, json.dumps(body).encode())
        assert answer.status == 200, answer.body
        assert isinstance(answer.body, dict)
        self.context.record(answer.body["usage"])
        self._follower.take(answer.body)
        self._hidden += [each.handle for each in view.diagnostics.masked]
        if self._made in self._recalls:
            self.context.session.recall(self._hidden[-1], head=40, by="tool")

    def _iterate_tools(self) -> Iterator[dict[str, Any]]:
        names = sorted({action.name for turn in self._follower.recorded.run.turns for action in turn.actions})
        for name in names:
            if self._api == "anthropic":
                yield {"name": name, "input_schema": {"type": "object"}}
            else:
                yield {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}

    def close(self) -> None:
        """Let go of the session; the store stays the caller's."""
        self.context.close()


def record_session(store: Store, session: str, name: str, calls: int, *arguments: Any, **options: Any) -> None:
    """A session of `calls` calls."""
    working = RecordedClient(store, session, name, *arguments, **options)
    working.make_calls(calls)
    working.close()


def record_hostile_session(store: Store, session: str = HOSTILE) -> None:
    """A session whose every text is hostile, one of its results a single line of a megabyte."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": HOSTILE}]
    clock = SteppingClock(1_700_000_000.0)
    with ContextManager(
        "masking(window=1, schedule=every-turn)",
        store=store,
        session=session,
        model=HOSTILE,
        advanced=Advanced(clock=clock),
    ) as context:
        for number in range(1, 6):
            view = context.prepare(messages)
            context.record({"prompt_tokens": view.diagnostics.after, "completion_tokens": 5})
            call = {"id": f"c{number}", "type": "function", "function": {"name": HOSTILE, "arguments": '{"a": 1}'}}
            messages.append({"role": "assistant", "content": HOSTILE, "tool_calls": [call]})
            text = HOSTILE + "x" * 1_000_000 if number == 2 else f"{HOSTILE}\n{number}" * 20
            messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": text})
        context.prepare(messages)
