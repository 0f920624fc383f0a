"""Every request that the live door makes of every recorded run: nothing is introduced that a provider rejects.

Each client sends a recorded run's own messages, in one of three shapes, with its tools and ours for recall; what comes
out of `prepare` is held against the rules of the provider and, where the client's own request passes them, the types of
its package. By default each file is tried in one shape or, where there are few files, in two, each under one strategy
and model, in turn, for its first turns; at some calls and wherever something was hidden. In a soak all runs under all
strategies, whole, at every call.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from elision import Advanced
from elision.errors import BudgetError, FormatError
from elision.formats.registry import read_runs
from elision.lab.views import list_views
from elision.manager import ContextManager, ContextView
from elision.manager.recall_tools import define_recall_tools
from elision.providers.provider import Api
from elision.providers.provider_table import find_provider
from elision.providers.shared.json_reading import mapping_in
from elision.strategies.spec import STRATEGIES, parse_strategy
from elision.strategies.strategy import Raw
from elision.testing.request_checks import find_problems
from elision.testing.request_rules import list_new_violations
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory
from tests.soak import SOAK

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
FILES = sorted(path for path in CORPUS.glob("*/*") if path.is_file()) or sorted(
    path for path in (ROOT / "examples" / "runs").iterdir() if path.suffix == ".gz"
)
SPECS = (
    "masking(window=5, schedule=every-turn)",
    "hybrid(window=4, summarize_at=12, tail=4, schedule=every-turn)",
    "two-tier(keep_recent=4, soft=6000, hard=14000, after_steps=10)",
    "raw",
    "masking(window=3)",
    "summarization(every=6, tail=3, schedule=every-turn)",
    "hybrid(window=3, tail=3, summarize_at=9, budget=budget(tokens=16000))",
    "raw(fold=true)",
    "hybrid(window=4, summarize_at=12, tail=4, fold=true, schedule=every-turn)",
)
#: Two at Anthropic: one whose thinking is bound, so that the server is asked to clear, and one that is edited.
MODELS: dict[Api, tuple[str, ...]] = {
    "openai": ("gpt-5",),
    "openai-responses": ("gpt-5",),
    "anthropic": ("claude-sonnet-4-5", "claude-opus-5-5"),
    "gemini": ("gemini-3-pro-preview",),
}
APIS = tuple(MODELS)
#: Turns that are played, and of how many runs of a file, unless all are.
MOST, RUNS = (10_000, 10_000) if SOAK else (20, 1)
#: Requests with edits of ours that are looked at in one session, unless all are.
EDITED = 10_000 if SOAK else 4
#: An estimate is as good here, and fast.
SIZER = Sizer(make_counter("estimate"))


def runs(path: Path) -> list[Trajectory]:
    """The runs of a recording that have turns, cut to those that are played."""
    try:
        found = [each for each in read_runs(path) if isinstance(each, Trajectory) and each.turns]
    except FormatError:
        return []
    return [
        Trajectory(id=run.id, head=run.head, turns=run.turns[:MOST], observations=run.observations)
        for run in islice(found, RUNS)
    ]


class Client:
    """Works through `run`. requests: its own in the shape of `api`, at every call, with the recall tools."""

    def __init__(self, run: Trajectory, api: Api) -> None:
        self.run, self.api = run, api
        field = find_provider(api).list_field
        tools = [*(defined(api, tool) for tool in run.head.tools), *define_recall_tools(api)]
        self.requests: list[Json] = []
        for sent in list_views(run, Raw(), find_price_set("anthropic"), SIZER, find_provider(api).make_renderer()):
            apart = {}
            if sent.system:
                apart["systemInstruction" if api == "gemini" else "system"] = (
                    {"parts": sent.system} if api == "gemini" else sent.system
                )
            self.requests.append({field: sent.plain, **apart, "tools": tools})
        self._sound: dict[int, bool] = {}

    def sound(self, call: int) -> bool:
        """Whether its own request passes the types and rules of its provider."""
        if call not in self._sound:
            self._sound[call] = not find_problems(self.api, body(self.api, "m", self.requests[call]))
        return self._sound[call]


def defined(api: Api, tool: Json) -> Json:
    """A recorded tool definition, whatever its shape, in that of `api`."""
    inner = mapping_in(tool.get("function")) or tool
    name, said = inner.get("name") or "tool", inner.get("description") or ""
    schema = mapping_in(inner.get("parameters") or inner.get("input_schema")) or {"type": "object", "properties": {}}
    if api == "gemini":
        function = {"name": name, "description": said, "parametersJsonSchema": dict(schema)}
        return {"functionDeclarations": [function]}
    if api == "anthropic":
        return {"name": name, "description": said, "input_schema": {"type": "object", **schema}}
    function = {"name": name, "description": said, "parameters": dict(schema)}
    if api == "openai":
        return {"type": "function", "function": function}
    return {"type": "function", **function, "strict": False}


def body(api: Api, model: str, parts: Json) -> Json:
    limit = {"max_tokens": 1_000} if api == "anthropic" else {}
    return {"model": model, **limit, **{name: value for name, value in parts.items() if value}}


def tried(place: int) -> Iterator[tuple[Api, str, str]]:
    """(API, model, strategy) that the file at `place` is tried with."""
    every = 2 if len(FILES) < 2 * len(SPECS) else len(APIS)
    for shift, api in enumerate(APIS):
        models = MODELS[api]
        if SOAK:
            yield from ((api, model, spec) for model in models for spec in SPECS)
        elif (place + shift) % every == 1:
            yield api, models[place // every % len(models)], SPECS[(place + shift) // every * 4 % len(SPECS)]


def test_every_strategy_is_tried() -> None:
    """In each shape, though not with each file."""
    assert {parse_strategy(spec).name for spec in SPECS} == set(STRATEGIES)
    if len(FILES) >= 2 * len(SPECS):
        everything = {(api, spec) for place in range(len(FILES)) for api, _, spec in tried(place)}
        assert {spec for _, spec in everything} == set(SPECS)
        assert {api for api, _ in everything} == set(APIS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_is_introduced(path: Path) -> None:
    """No rule is broken, and no type, that the client's own request did not break; nothing fails on the way."""
    for run in runs(path):
        client = cache(lambda api, run=run: Client(run, api))
        for api, model, spec in tried(FILES.index(path)):
            follow(client(api), model, spec)


def follow(client: Client, model: str, spec: str) -> None:
    """Play a session, and look at its requests."""
    api, last = client.api, len(client.requests) - 1
    samples, looked = {0, last // 2, last}, 0
    with ContextManager(
        spec,
        model=model,
        store="memory:",
        session="s",
        advanced=Advanced(dialect=api, tokens="estimate"),
    ) as context:
        for call, request in enumerate(client.requests):
            view = prepared(context, request)
            if view is None:
                return
            assert [fault for fault in view.diagnostics.faults if fault.kind != "summarizer"] == []
            edits = view.diagnostics.acted and looked < EDITED
            looked += edits
            if SOAK or edits or call in samples:
                after, at = body(api, model, view.request), (client.run.id, api, model, spec, call + 1)
                assert list_new_violations(api, body(api, model, request), after) == [], at
                assert not client.sound(call) or find_problems(api, after) == [], at


def prepared(context: ContextManager, request: Json) -> ContextView | None:
    messages = request.get("input") or request.get("messages") or request.get("contents") or []
    system = request.get("system") or request.get("systemInstruction")
    try:
        return context.prepare(messages, system=system, tools=request["tools"])
    except BudgetError:
        return None  # Said, with numbers (I7): there is no request.
