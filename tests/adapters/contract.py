"""The contract that every adapter keeps. A framework's test module derives a class from it:

    class TestLangChain(AdapterContract):
        HOST = "langchain"
        HOOK = "tests.adapters.hooks.langchain:attach"

All scenarios are played once, in the framework's own environment, before the first test of the class; so are the cases
of tests/adapters/cases/HOST.py, which hold what only this framework has.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from elision.adapters.frameworks import FrameworkError
from tests.adapters import checks
from tests.adapters.case_runner import ROOT, list_cases, run_cases
from tests.adapters.conftest import skip_if_missing
from tests.adapters.environments import Recordings, run_host
from tests.adapters.recording import LegRecord


class AdapterContract:
    """HOST: of the framework. HOOK: `MODULE:NAME` of the function that makes the adapter.

    LEAST_MASKED: results that the last request of 30 turns hides at least. MOST_COST: share of what everything costs.
    NEW_OBJECTS:  objects of a request that are new even where nothing is hidden, such as a system message.
    TOOLS_ENTER:  whether Elision adds the recall tools, as it first hides something, and not the agent.
    ALLOWED:      tests that this framework cannot pass, and why.
    EXTRA:        of the package, which brings the framework; "" where it is named as the host.
    """

    HOST: ClassVar[str]
    HOOK: ClassVar[str]
    LEAST_MASKED: ClassVar[int] = 10
    MOST_COST: ClassVar[float] = 1.0
    NEW_OBJECTS: ClassVar[int] = 0
    TOOLS_ENTER: ClassVar[bool] = False
    ALLOWED: ClassVar[Mapping[str, str]] = {}
    EXTRA: ClassVar[str] = ""

    @pytest.fixture(scope="class")
    @classmethod
    def recordings(cls, tmp_path_factory: pytest.TempPathFactory) -> Recordings:
        """What the framework played with the adapter."""
        skip_if_missing(cls.HOST)
        return run_host(cls.HOST, tmp_path_factory.mktemp(cls.HOST), cls.HOOK)

    @pytest.fixture(scope="class")
    @classmethod
    def outcomes(cls) -> dict[str, str]:
        """Why each case of the framework failed; "" if it passed."""
        skip_if_missing(cls.HOST)
        return run_cases(cls.HOST)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make a test of each case."""
        if "case" in metafunc.fixturenames:
            metafunc.parametrize("case", list_cases(self.HOST))

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
        checks.check_tools_stand(leg, may_enter=self.TOOLS_ENTER)
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
        """An error of ours never reaches the agent: that one request is sent unchanged, the others are ours again."""
        (leg,) = self.take(recordings, scenario)
        checks.check_masked(leg, self.LEAST_MASKED)

    def test_bound_thinking(self, recordings: Recordings) -> None:
        """Where thinking is bound to its prefix nothing before it changes in the text, and no call is refused."""
        (leg,) = self.take(recordings, "bound_thinking")
        checks.check_thinking_kept(leg)
        checks.check_nothing_masked(leg)
        checks.check_tools_stand(leg)
        assert leg.requests[-1].extra.get("context_management"), "the service was not asked to clear results"

    def test_case(self, case: str, outcomes: dict[str, str]) -> None:
        """What only this framework has, shown where the framework is."""
        assert not outcomes[case], outcomes[case]

    def test_an_old_framework_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """On import, before anything of the framework is imported, with the version that `pyproject.toml` asks for."""
        module, extra = f"elision.adapters.{self.HOST}", self.EXTRA or self.HOST.replace("_", "-")
        monkeypatch.setattr("importlib.metadata.version", lambda _: "0.0.1")
        monkeypatch.delitem(sys.modules, module, raising=False)
        with pytest.raises(FrameworkError) as caught:
            import_module(module)
        text = rf"{module} needs (\S+) (\S+) or newer; 0.0.1 is installed: pip install -U 'elision\[{extra}\]'"
        said = re.fullmatch(text, str(caught.value))
        assert said is not None, str(caught.value)
        requirement = _read_requirement(extra)
        assert said[1] == requirement.name
        assert [Version(each.version) for each in requirement.specifier] == [Version(said[2])]


def _read_requirement(extra: str) -> Requirement:
    """Return the first requirement of an extra that is no extra of ours."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = [Requirement(text) for text in project["optional-dependencies"][extra]]
    return next(each for each in requirements if each.name != project["name"])
