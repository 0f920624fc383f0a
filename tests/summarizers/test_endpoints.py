"""Summaries by way of LiteLLM, and answers on disk: named by what decides on them, whole or not there."""

from __future__ import annotations

import json
import os
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import SettingError, SummaryError
from elision.providers.llm.answers import EndpointAnswer, EndpointFault
from elision.summarizers.endpoints import (
    AnswerCache,
    CachedEndpoint,
    EndpointRequest,
    LiteLLMEndpoint,
    find_default_folder,
)
from elision.summarizers.model_summarizer import ModelSummarizer, SummaryRetryPolicy
from elision.trajectory.plan import LivePrefix
from elision.trajectory.usage import Usage
from tests.summarizers.scripted_server import reply_chat, reply_error, serve_script
from tests.summarizers.turns import make_filler_turn, make_request

GOOD = "COMPLETED: read notes1.md, notes2.md and notes3.md; nothing in them."
ASKED = make_request(make_filler_turn(1), make_filler_turn(2), make_filler_turn(3))


class Completion(dict[str, Any]):
    _hidden_params = {"response_cost": 0.25}  # noqa: RUF012

    def model_dump(self) -> dict[str, Any]:
        return self


class RateLimitError(Exception):
    status_code = 429
    response = SimpleNamespace(headers={"Retry-After": "2"})


class Stand:
    """litellm.completion, as its documentation describes it."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)
        self.calls: list[dict[str, Any]] = []

    def completion(self, **arguments: Any) -> Any:
        self.calls.append(arguments)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    message = {"role": "assistant", "content": GOOD}
    usage = {"prompt_tokens": 900, "completion_tokens": 60}
    done = Completion(choices=[{"finish_reason": "stop", "message": message}], usage=usage)
    found = Stand(RateLimitError("slow down"), done)
    module = ModuleType("litellm")
    module.completion = found.completion  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "litellm", module)
    return found


def test_what_is_asked_and_what_comes_back(stand: Stand) -> None:
    """Its errors are faults with a cause, its answers answers with LiteLLM's own cost."""
    pauses: list[float] = []
    found = ModelSummarizer(LiteLLMEndpoint("gemini/x", key="k"), sleep=pauses.append)(ASKED)
    assert (found.text, found.input, found.output, found.usd) == (GOOD, 900, 60, 0.25)
    assert pauses == [2.0]
    assert stand.calls[1]["model"] == "gemini/x"
    assert (stand.calls[1]["num_retries"], stand.calls[1]["temperature"]) == (0, 0)


def test_the_real_one() -> None:
    """LiteLLM itself, against a server on loopback: an answer, an overflow and a server error."""
    pytest.importorskip("litellm")
    overflow = reply_error(
        400, "This model's maximum context length is 128000 tokens. However, you sent 130204 tokens."
    )
    with serve_script(
        reply_chat(GOOD),
        overflow,
        reply_chat(GOOD),
        reply_error(500, "a"),
        reply_error(500, "b"),
        reply_error(500, "c"),
    ) as server:
        endpoint = LiteLLMEndpoint("openai/m", key="k", base_url=f"{server.url}/v1")
        writer = ModelSummarizer(endpoint, retry_policy=SummaryRetryPolicy(pause=0))
        assert writer(ASKED).text == GOOD
        assert len(writer(ASKED).text) == len(GOOD)
        with pytest.raises(SummaryError) as found:
            writer(ASKED)
    assert found.value.cause in ("server", "connection")
    assert len(server.requests) == 6


ANSWER = EndpointAnswer(text="COMPLETED: räd \ud800 it.", usage=Usage(input=90, cache_read=10, output=7, usd=0.01))
REQUEST = EndpointRequest(text="Summarize.", max_tokens=100, seconds=60)


class Model:
    """An endpoint that answers by a list."""

    model = "m-1"

    def __init__(self, *answers: EndpointAnswer | EndpointFault) -> None:
        self.answers = list(answers)
        self.requests: list[EndpointRequest] = []

    def can_extend(self, live: LivePrefix) -> bool:
        return False

    def ask(self, request: EndpointRequest) -> EndpointAnswer | EndpointFault:
        self.requests.append(request)
        return self.answers.pop(0)


def cached(folder: Path, *answers: EndpointAnswer | EndpointFault, **options: Any) -> CachedEndpoint:
    return CachedEndpoint(Model(*answers), AnswerCache(folder), **{"kind": "openai", **options})


def counts(endpoint: CachedEndpoint) -> tuple[int, int, int]:
    return endpoint.counts.asked, endpoint.counts.cached, endpoint.counts.unsaved


def test_an_answer_is_asked_for_once(tmp_path: Path) -> None:
    """In this process and in the next, with its usage and cost; the time limit does not matter."""
    first = cached(tmp_path / "a" / "b", ANSWER)
    assert first.ask(REQUEST) == ANSWER
    assert first.ask(replace(REQUEST, seconds=1)) == ANSWER
    assert counts(first) == (1, 1, 0)
    second = cached(tmp_path / "a" / "b")
    assert second.ask(REQUEST) == ANSWER
    assert counts(second) == (0, 1, 0)


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "anthropic"},
        {"base_url": "http://other:1/v1"},
        {"base_url": "http://host:1/v1?api-version=2"},
        {"extra": {"reasoning_effort": "low"}},
        {"model": "m-2"},
        {"request": replace(REQUEST, text="Summarize!")},
        {"request": replace(REQUEST, max_tokens=101)},
        {"request": replace(REQUEST, temperature=0.5)},
        {"request": replace(REQUEST, live=LivePrefix(dialect="openai", messages=({"role": "user"},)))},
    ],
)
def test_whatever_decides_on_an_answer_is_part_of_its_name(tmp_path: Path, changed: dict[str, Any]) -> None:
    request = changed.pop("request", REQUEST)
    other = replace(ANSWER, text="Another one.")
    cached(tmp_path, ANSWER).ask(REQUEST)
    model = changed.pop("model", "m-1")
    endpoint = cached(tmp_path, other, **changed)
    endpoint.endpoint.model = model  # type: ignore[misc]
    assert endpoint.ask(request) == other


def test_passwords_are_neither_in_names_nor_in_files(tmp_path: Path) -> None:
    """The address counts without user and password, and no file has the request."""
    cached(tmp_path, ANSWER, base_url="http://agent:hunter2@host:1/v1").ask(REQUEST)
    again = cached(tmp_path, base_url="http://other:secret@host:1/v1/")
    assert again.ask(REQUEST) == ANSWER
    for file in tmp_path.rglob("*.json"):
        text = file.read_text()
        assert "hunter2" not in text
        assert "Summarize" not in text


@pytest.mark.parametrize("kept", [EndpointFault(cause="overflow", reason="too long", window_tokens=9_000)])
def test_a_refusal_that_steers_is_kept(tmp_path: Path, kept: EndpointFault) -> None:
    """The next request is a shorter one because of it: another run goes the same way without asking."""
    cached(tmp_path, kept).ask(REQUEST)
    assert cached(tmp_path).ask(REQUEST) == kept


@pytest.mark.parametrize("cause", ["timeout", "connection", "rate-limited", "server", "rejected", "malformed"])
def test_other_faults_are_asked_again(tmp_path: Path, cause: Any) -> None:
    fault = EndpointFault(cause=cause, reason="no")
    endpoint = cached(tmp_path, fault, ANSWER)
    assert endpoint.ask(REQUEST) == fault
    assert endpoint.ask(REQUEST) == ANSWER
    assert counts(endpoint) == (2, 0, 0)


@given(st.data())
def test_a_damaged_file_is_asked_again(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Property: cut anywhere, or with any byte changed, a file gives the answer that was kept or none."""
    folder = tmp_path_factory.mktemp("cache")
    cached(folder, ANSWER).ask(REQUEST)
    (file,) = folder.rglob("*.json")
    whole = bytearray(file.read_bytes())
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    else:
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(whole)
    endpoint = cached(folder, ANSWER)
    assert endpoint.ask(REQUEST) == ANSWER
    assert sum(counts(endpoint)) == 1
    assert AnswerCache(folder).load_answer(endpoint.compute_key(REQUEST)) == ANSWER


@pytest.mark.parametrize("content", ["", "null", "[1]", "{}", "[" * 5_000, '{"format": "elision.summary-answer/1"}'])
def test_a_file_of_another_shape_is_none(tmp_path: Path, content: str) -> None:
    endpoint = cached(tmp_path, ANSWER)
    path = tmp_path / endpoint.compute_key(REQUEST)[:2]
    path.mkdir()
    (path / f"{endpoint.compute_key(REQUEST)}.json").write_text(content)
    assert endpoint.ask(REQUEST) == ANSWER
    assert endpoint.counts.asked == 1


def test_many_writers_leave_one_whole_answer(tmp_path: Path) -> None:
    """Threads, like processes, may ask the same at once: each gets an answer, and no part of a file stays."""
    endpoints = [cached(tmp_path, ANSWER) for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda each: each.ask(REQUEST), endpoints)) == [ANSWER] * 16
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert json.loads(file.read_text())["format"] == "elision.summary-answer/1"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="file: answers cannot be kept there: File exists; name another folder"):
        AnswerCache(tmp_path / "file")


def test_an_answer_that_cannot_be_kept_is_used(tmp_path: Path) -> None:
    """The disk fills up in the middle: the run goes on, and says so at its end."""
    endpoint = cached(tmp_path, ANSWER)
    (tmp_path / endpoint.compute_key(REQUEST)[:2]).write_text("in the way")
    assert endpoint.ask(REQUEST) == ANSWER
    assert counts(endpoint) == (1, 0, 1)


def test_the_default_folder() -> None:
    """That of the user's caches; a relative one is ignored, as its specification has it."""
    assert find_default_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/elision/summaries")
    home = Path.home() / ".cache" / "elision" / "summaries"
    assert find_default_folder({}) == home
    assert find_default_folder({"XDG_CACHE_HOME": "c"}) == home
    assert os.path.isabs(home)
