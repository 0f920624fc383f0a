"""Agents that keep the providers' own objects in their history, with real clients, against the playback server.

Each client appends what its package gave it: a pydantic message, a list of blocks, output items. The library door hands
the very same objects on, knows the history again at the next call, and reads the usage that came with the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from msgspec.structs import replace
from pydantic import BaseModel

from elision import Advanced, Cache
from elision.formats.registry import read_runs
from elision.manager import ContextManager, ContextView
from elision.manager.advanced_options import gather_options
from elision.providers.provider import Api
from elision.stores.memory import MemoryStore
from elision.testing.playback import Playback
from elision.testing.recorded_provider import Terms
from elision.testing.recorded_run import RecordedRun
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Turn
from tests.soak import pair_cases

RUNS = Path(__file__).parents[2] / "examples" / "runs"
CALLS = 14
EAGER = "masking(window=2, schedule=every-turn)"
FOLDING = "hybrid(window=2, summarize_at=6, tail=2, schedule=every-turn)"
MODELS: dict[Api, str] = {"openai": "gpt-5", "openai-responses": "gpt-5", "anthropic": "claude-haiku-4-5"}


@pytest.fixture(scope="module")
def run() -> Trajectory:
    found = next(each for each in read_runs(RUNS / "openhands-pylint.tar.gz") if isinstance(each, Trajectory))
    # A provider whose thinking is on takes no calls back without.
    turns = tuple(replace(turn, reasoning=f"What to do at step {turn.index}?") for turn in found.turns[:CALLS])
    return Trajectory(id="pylint", head=found.head, turns=turns, model=found.model)


@pytest.fixture
def server(run: Trajectory) -> Iterator[Playback]:
    with Playback([run], Terms(key="any")) as playing:
        yield playing


class Agent:
    """A loop's own bookkeeping, as a user writes it. messages: what it keeps, the package's objects among them."""

    def __init__(self, api: Api, run: Trajectory, **options: Any) -> None:
        self.api = api
        self.recorded = RecordedRun(run)
        self.messages: list[Any] = [{"role": "user", "content": self.recorded.task}]
        self.objects: list[BaseModel] = []
        self.prompts: list[int] = []
        self.store = MemoryStore()
        given = {"model": MODELS[api], "store": self.store, "session": "s", "cache_control": "client", **options}
        if api == "openai-responses":
            # One message of the user alone bears no sign of whose it is.
            given["dialect"] = api
        self.context = ContextManager(given.pop("strategy", EAGER), **gather_options(given))
        self.told: list[ContextView] = []

    @property
    def at(self) -> int:
        """Answers so far."""
        return len(self.prompts)

    def request(self, view: ContextView) -> dict[str, Any]:
        """What goes to the client's `create`; the view is looked at first."""
        self.look(view)
        limit = {"max_tokens": 2_000, "thinking": {"type": "enabled", "budget_tokens": 1_024}}
        return {"model": MODELS[self.api], **view.request, **(limit if self.api == "anthropic" else {})}

    def look(self, view: ContextView) -> None:
        """Untouched messages are the very objects; the history is known; nothing failed."""
        told = view.diagnostics
        assert not told.faults
        assert (told.history, told.turns, view.dialect) == ("continue", self.at, self.api)
        ours = [each for each in view.messages if not any(each is own for own in self.messages)]
        assert all(type(each) is dict for each in ours)
        if told.summaries == 0:
            assert len(view.messages) == len(self.messages)
            assert len(ours) == max(0, told.savings.masked)
            sent = [item for each in view.messages for item in objects(each)]
            assert all(one is other for one, other in zip(sent, self.objects, strict=True))
        self.told.append(view)

    def take(self, response: Any) -> None:
        """Append the answer as its package gave it, and the recorded results."""
        self.context.record(response.usage if self.at % 2 else response)
        self.prompts.append(prompt(response.usage))
        if self.api == "openai":
            said: list[Any] = [response.choices[0].message]
        elif self.api == "anthropic":
            said = [{"role": "assistant", "content": response.content}]
        else:
            said = response.output
        self.messages += said
        self.objects += [item for each in said for item in objects(each)]
        self.messages += self.results(self.recorded.replies[self.at - 1].turn)

    def results(self, turn: Turn | None) -> Iterator[dict[str, Any]]:
        assert turn is not None
        ids = [call.id for call in self.recorded.replies[self.at - 1].calls]
        texts = [seen.text or "(nothing)" for seen in turn.observations]
        pairs = list(zip(ids, texts, strict=True))
        if self.api == "anthropic":
            blocks = [{"type": "tool_result", "tool_use_id": id, "content": text} for id, text in pairs]
            yield {"role": "user", "content": blocks or [{"type": "text", "text": "Go on."}]}
            return
        for id, text in pairs:
            if self.api == "openai":
                yield {"role": "tool", "tool_call_id": id, "content": text}
            else:
                yield {"type": "function_call_output", "call_id": id, "output": text}
        if not pairs:
            yield {"role": "user", "content": "Go on."}

    def check(self, server: Playback) -> None:
        """At the end: usage of every turn is the provider's own, and no request broke a rule or a type."""
        self.context.close()
        assert server.violations == []
        assert len(self.objects) >= CALLS
        turns = self.store.turns("s")
        assert len(turns) == CALLS - 1
        assert [turn.usage.prompt if turn.usage else None for turn in turns] == self.prompts[:-1]
        assert self.told[-1].diagnostics.costs.billed is not None
        assert self.told[-1].diagnostics.savings.reduction_pct > 20


def objects(message: Any) -> list[BaseModel]:
    """The objects of a provider's package that a message is or holds."""
    if isinstance(message, BaseModel):
        return [message]
    content = message.get("content") if isinstance(message, dict) else None
    return [each for each in content if isinstance(each, BaseModel)] if isinstance(content, list) else []


def prompt(usage: Any) -> int:
    """All prompt tokens of a usage; Anthropic tells cached ones apart."""
    if isinstance(usage, anthropic.types.Usage):
        return usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    return usage.prompt_tokens if hasattr(usage, "prompt_tokens") else usage.input_tokens


@contextmanager
def open_client(api: Api, server: Playback) -> Iterator[Callable[..., Any]]:
    """What asks the provider, in the words of its own client."""
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as ours,
        anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0) as claude,
    ):
        chat, responses = ours.chat.completions.create, ours.responses.create
        yield {"openai": chat, "openai-responses": responses, "anthropic": claude.messages.create}[api]


APIS = pytest.mark.parametrize("api", MODELS)


@pytest.mark.parametrize(("api", "strategy"), pair_cases(MODELS, [EAGER, FOLDING]))
def test_sync_clients(api: Api, strategy: str, run: Trajectory, server: Playback) -> None:
    """A whole run over the client's sync door, its objects appended as they came."""
    agent = Agent(api, run, strategy=strategy)
    with open_client(api, server) as create:
        while agent.at < CALLS:
            agent.take(create(**agent.request(agent.context.prepare(agent.messages))))
    agent.check(server)
    assert (strategy == FOLDING) == bool(agent.told[-1].diagnostics.summaries)


@APIS
async def test_async_clients(api: Api, run: Trajectory, server: Playback) -> None:
    """The same over the async doors, of the client's and of ours."""
    agent = Agent(api, run)

    async with (
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as ours,
        anthropic.AsyncAnthropic(base_url=server.url, api_key="any", max_retries=0) as claude,
    ):
        create: dict[str, Any] = {
            "openai": ours.chat.completions.create,
            "openai-responses": ours.responses.create,
            "anthropic": claude.messages.create,
        }
        while agent.at < CALLS:
            view = await agent.context.prepare_async(agent.messages)
            agent.take(await create[api](**agent.request(view)))
    agent.check(server)


@APIS
def test_objects_and_json_are_one_history(api: Api, run: Trajectory, server: Playback) -> None:
    """A client that keeps its history as JSON, or reads it back from a file, goes on with the same session."""
    agent = Agent(api, run)
    with open_client(api, server) as create:
        while agent.at < 6:
            agent.take(create(**agent.request(agent.context.prepare(agent.messages))))
    before = agent.context.prepare(agent.messages)
    dumped = [json_of(message) for message in agent.messages]
    after = agent.context.prepare(dumped)
    assert (after.diagnostics.history, after.diagnostics.branch) == ("continue", "s")
    assert [json_of(each) for each in after.messages] == [json_of(each) for each in before.messages]
    again = ContextManager(
        EAGER,
        advanced=Advanced(dialect=api, cache=Cache(control="client")),
        store=agent.store,
        session="s",
    )
    assert again.prepare(dumped).messages == after.messages


def json_of(value: Any) -> Any:
    """A message as it stands in a file."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, dict):
        return {key: json_of(inner) for key, inner in value.items()}
    return [json_of(inner) for inner in value] if isinstance(value, list) else value


def test_an_error_of_the_client_teaches_the_window(run: Trajectory) -> None:
    """`overflowed` reads the exception that a client raises, and the same messages fit at the next try."""
    with Playback([run], Terms(key="any", window=9_000)) as server:
        for api in ("openai", "anthropic"):
            agent = Agent(api, run, strategy="masking(window=9)")
            with open_client(api, server) as create:
                refused = 0
                while agent.at < CALLS:
                    view = agent.context.prepare(agent.messages)
                    limit = {"max_tokens": 500} if api == "anthropic" else {}
                    try:
                        agent.take(create(model=MODELS[api], **view.request, **limit))
                    except (openai.BadRequestError, anthropic.BadRequestError) as error:
                        refused += agent.context.overflowed(error)
                        assert refused, "not understood as too long"
            assert 0 < refused <= 2, api
