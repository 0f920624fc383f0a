"""Summaries by way of LiteLLM: by the real one where it is installed, by a stand-in at the import everywhere."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from elision.errors import SummaryError
from elision.summarizers.endpoints import LiteLLMEndpoint
from elision.summarizers.model_summarizer import ModelSummarizer, SummaryRetryPolicy
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
