"""A recorded run played through the library door against a provider that meters a cache, without sockets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from elision.formats.registry import read_runs
from elision.manager import ContextView
from elision.providers.provider import Api
from elision.testing.follower import Follower
from elision.testing.recorded_provider import RecordedProvider, Terms
from elision.trajectory.prices import Prices
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.usage import Usage
from tests.flat_options import open_context

RUNS = Path(__file__).parents[2] / "examples" / "runs"


@cache
def recorded(turns: int, name: str = "swe-agent-sympy-20801.traj.gz") -> Trajectory:
    """The first turns of a recorded run."""
    found = next(each for each in read_runs(RUNS / name) if isinstance(each, Trajectory))
    return Trajectory(id=found.id, head=found.head, turns=found.turns[:turns], observations=found.observations)


@dataclass(slots=True)
class Played:
    """What came of a run. bodies: the requests as they were sent. usage: as the provider reported it."""

    views: list[ContextView] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)

    def billed(self, prices: Prices) -> float:
        """USD of all calls, from the provider's own usage alone."""
        return sum(cost(each, prices) for each in self.usage)


def cost(usage: Usage, prices: Prices) -> float:
    """USD of one call as a bill would say it."""
    rates = prices.find_rates(usage.prompt)
    prompt = usage.input * rates.input + usage.cache_write * rates.write_price + usage.cache_read * rates.read_price
    return (prompt + usage.output * rates.output) / 1e6


def play(run: Trajectory, strategy: str, api: Api = "anthropic", terms: Terms | None = None, **options: Any) -> Played:
    """Work through `run` to its end. Raises AssertionError where the provider refuses a request.

    thinks: fields of the request that turn thinking on.
    """
    thinks: Mapping[str, Any] = options.pop("thinks", {})
    provider, follower, played = (
        RecordedProvider([run], terms or Terms(clock=lambda: 0.0)),
        Follower(run, api),
        Played(),
    )
    given = {"model": "claude-haiku-4-5", "store": "memory:", "session": "s", "clock": lambda: 0.0, **options}
    name = "input" if api == "openai-responses" else "messages"
    with open_context(strategy, dialect=api, **given) as context:
        while not follower.done:
            asked = follower.request
            system = asked.get("system") or asked.get("instructions")
            view = context.prepare(asked[name], system=system, request=thinks)
            body = {"model": given["model"], **({"max_tokens": 2_000} if api == "anthropic" else {})}
            body |= {**thinks, **view.request}
            received, answer = provider.answer_request(api, {}, json.dumps(body).encode())
            assert answer.status == 200, received.problems
            assert received.usage is not None
            context.record(answer.body["usage"])
            follower.take(answer.body)
            played.views.append(view)
            played.bodies.append(body)
            played.usage.append(received.usage)
    return played
