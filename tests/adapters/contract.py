"""The contract that every adapter keeps. A framework's test module derives a class from it:

    class TestLangChain(AdapterContract):
        HOST = "langchain"
        HOOK = "tests.adapters.hooks.langchain:attach"

All scenarios are played once, in the framework's own environment, before the first test of the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest

from tests.adapters import checks
from tests.adapters.conftest import skip_if_missing
from tests.adapters.environments import Recordings, run_host
from tests.adapters.recording import LegRecord


class AdapterContract:
    """HOST: of the framework. HOOK: `MODULE:NAME` of the function that makes the adapter.

    LEAST_MASKED: results that the last request of 30 turns hides at least. MOST_COST: share of what everything costs.
    NEW_OBJECTS:  objects of a request that are new even where nothing is hidden, such as a system message.
    ALLOWED:      tests that this framework cannot pass, and why.
    """

    HOST: ClassVar[str]
    HOOK: ClassVar[str]
    LEAST_MASKED: ClassVar[int] = 10
    MOST_COST: ClassVar[float] = 1.0
    NEW_OBJECTS: ClassVar[int] = 0
    ALLOWED: ClassVar[Mapping[str, str]] = {}

    @pytest.fixture(scope="class")
    @classmethod
    def recordings(cls, tmp_path_factory: pytest.TempPathFactory) -> Recordings:
        """What the framework played with the adapter."""
        skip_if_missing(cls.HOST)
        return run_host(cls.HOST, tmp_path_factory.mktemp(cls.HOST), cls.HOOK)

    @pytest.fixture(autouse=True)
    def _skip_allowed(self, request: pytest.FixtureRequest) -> None:
        name = request.node.originalname
        if name in self.ALLOWED:
            pytest.skip(f"{self.HOST}: {self.ALLOWED[name]}")

    def take(self, recordings: Recordings, scenario: str) -> list[LegRecord]:
        """Return the legs of a scenario, after what holds of every scenario was checked."""
        legs = recordings.legs[scenario]
        if legs[0].missing:
            pytest.skip(f"{self.HOST} has no {scenario}: {legs[0].missing}")
        for leg in legs:
            checks.check_ended(leg)
            checks.check_pairs(leg)
            checks.check_stored_raw(leg)
            checks.check_results_kept(leg)
        return legs

    @pytest.mark.parametrize("scenario", ["plain", "async", "streamed"])
    def test_thirty_turns(self, recordings: Recordings, scenario: str) -> None:
        """Old results are hidden, it costs less, what is hidden can be read again, and usage comes back once a call."""
        (leg,) = self.take(recordings, scenario)
        checks.check_masked(leg, self.LEAST_MASKED)
        checks.check_objects(leg, self.NEW_OBJECTS)
        checks.check_recall(leg)
        checks.check_usage(leg, recordings.find_store(scenario), recordings.usage)
        checks.check_tools_stand(leg)
        assert checks.count_rewrites(leg.requests) <= 3
        everything = sum(message.tokens for message in leg.stored["thread-1"])
        assert max(sum(message.tokens for message in request.messages) for request in leg.requests) < everything

    def test_parallel_calls(self, recordings: Recordings) -> None:
        """Several calls in one answer keep their results."""
        (leg,) = self.take(recordings, "parallel")
        checks.check_masked(leg, self.LEAST_MASKED)
        checks.check_objects(leg, self.NEW_OBJECTS)

    def test_failed_results(self, recordings: Recordings) -> None:
        """A result that is an error stays one when it is hidden."""
        (leg,) = self.take(recordings, "failing")
        checks.check_masked(leg, self.LEAST_MASKED)
        checks.check_objects(leg, self.NEW_OBJECTS)

    def test_pictures(self, recordings: Recordings) -> None:
        """An image in a result goes out unchanged until its result is hidden."""
        (leg,) = self.take(recordings, "pictures")
        checks.check_masked(leg, self.LEAST_MASKED)
        assert any(message.images for request in leg.requests for message in request.messages)

    def test_resumed_in_another_process(self, recordings: Recordings) -> None:
        """Another process continues with the same bytes."""
        first, second = self.take(recordings, "resumed")
        checks.check_prefix_kept(first.requests[-1], second.requests[0])
        checks.check_masked(second, self.LEAST_MASKED)

    def test_forked(self, recordings: Recordings) -> None:
        """Another way from an earlier turn keeps what was sent up to there; the first way continues as it was."""
        (leg,) = self.take(recordings, "forked")
        one = [request for request in leg.requests if request.agent == "thread-1"]
        checks.check_prefix_kept(one[24], one[25])
        checks.check_masked(leg, self.LEAST_MASKED)

    def test_two_at_once(self, recordings: Recordings) -> None:
        """Two agents at the same time have a session each, and nothing of the other's."""
        (leg,) = self.take(recordings, "two_at_once")
        checks.check_sessions(recordings.find_store("two_at_once"), 2)
        for agent, requests in checks.split_by_agent(leg.requests).items():
            assert checks.count_rewrites(requests) <= 3, agent
            assert sum(bool(message.handle) for message in requests[-1].messages) >= self.LEAST_MASKED, agent

    def test_sub_agents(self, recordings: Recordings) -> None:
        """A sub-agent has a session of its own, and its caller goes on as if there were none."""
        (leg,) = self.take(recordings, "sub_agents")
        checks.check_sessions(recordings.find_store("sub_agents"), 3)
        for agent, requests in checks.split_by_agent(leg.requests).items():
            assert checks.count_rewrites(requests) <= 3, agent

    def test_overflow(self, recordings: Recordings) -> None:
        """A prompt that the provider finds too long is made shorter, once, and the run goes on."""
        (leg,) = self.take(recordings, "overflow")
        refused = [at for at, request in enumerate(leg.requests) if request.refused]
        assert len(refused) == 1
        before, after = leg.requests[refused[0]], leg.requests[refused[0] + 1]
        assert after.usage.prompt < before.usage.prompt * 0.8
        assert len(leg.requests) == 32

    def test_summary(self, recordings: Recordings) -> None:
        """A summary takes the place of old turns, in the view alone."""
        (leg,) = self.take(recordings, "summary")
        shortest = min(len(request.messages) for request in leg.requests[15:])
        assert shortest < 30
        checks.check_objects(leg, self.NEW_OBJECTS + 2)

    def test_model_switch(self, recordings: Recordings) -> None:
        """Another model in the middle of a history continues it."""
        (leg,) = self.take(recordings, "model_switch")
        checks.check_masked(leg, self.LEAST_MASKED)

    @pytest.mark.parametrize("scenario", ["engine_fault", "prepare_fault"])
    def test_our_fault(self, recordings: Recordings, scenario: str) -> None:
        """An error of ours never reaches the agent: that one request goes out as it came, the others are ours again."""
        (leg,) = self.take(recordings, scenario)
        checks.check_masked(leg, self.LEAST_MASKED)

    def test_bound_thinking(self, recordings: Recordings) -> None:
        """Where thinking is bound to its prefix nothing before it changes in the text, and no call is refused."""
        (leg,) = self.take(recordings, "bound_thinking")
        checks.check_thinking_kept(leg)
        checks.check_nothing_masked(leg)
        checks.check_tools_stand(leg)
        assert leg.requests[-1].extra.get("context_management"), "the service was not asked to clear results"
