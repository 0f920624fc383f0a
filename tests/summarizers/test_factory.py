"""Summarizers by name."""

from __future__ import annotations

import json

import pytest

from elision.errors import MissingExtra, SpecError, SummaryError
from elision.summarizers.factory import DigestSummarizer, make_summarizer
from elision.summarizers.model_summarizer import THINKING, ModelSummarizer
from elision.summarizers.prompt import SummaryPrompt
from elision.testing.request_checks import find_problems
from tests.summarizers.scripted_server import Reply, reply_chat, reply_claude, reply_error, serve_script
from tests.summarizers.turns import make_filler_turn, make_request, make_turn

GOOD = "COMPLETED: read notes1.md, notes2.md and notes3.md; nothing in them."
ASKED = make_request(make_filler_turn(1), make_filler_turn(2), make_filler_turn(3))
KEY = "gh" + "p_Zq7Wm2Xc9Vb4Nn8Kk1Jj6Hh3Gg5Ff0Ddabcd"


def test_the_digest_is_the_default() -> None:
    """Where nothing is configured no model is asked, nothing is paid, and secrets are taken out all the same."""
    default = make_summarizer()
    assert isinstance(default, DigestSummarizer)
    found = default(
        make_request(make_filler_turn(1), make_turn(2, f"The cause is {KEY}, found.", command="ls", result="x " * 900))
    )
    assert found.text.startswith("Digest of turns 1-2")
    assert (found.route, found.input, found.usd, found.attempts) == ("model-free", 0, None, 0)
    assert KEY not in found.text
    assert found.redacted == 1


def test_nothing_to_say_in_fewer_words() -> None:
    """A digest that would be no shorter is an error with a cause."""
    with pytest.raises(SummaryError) as found:
        make_summarizer()(make_request(make_turn(1, "Hi.")))
    assert found.value.cause == "empty"


@pytest.mark.parametrize("spec", ["", "gpt-5", "openai:", "bison:pro", "digest:x"])
def test_unknown_names(spec: str) -> None:
    """What no kind fits is refused with a list of what there is."""
    kinds = "digest, anthropic:MODEL, gemini:MODEL, openai:MODEL, openai-responses:MODEL, litellm:MODEL"
    with pytest.raises(SpecError, match=kinds):
        make_summarizer(spec)


def test_a_key_is_needed_at_home() -> None:
    """The provider itself is not asked without a key; the error says where one may stand."""
    with pytest.raises(SpecError, match="give api_key, or set ANTHROPIC_API_KEY"):
        make_summarizer("anthropic:claude-haiku-4-5")


def test_keys_come_from_the_environment_that_is_handed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read from the process's own environment."""
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-process")
    with pytest.raises(SpecError, match="OPENAI_API_KEY"):
        make_summarizer("openai:gpt-5-mini")
    found = make_summarizer("openai:gpt-5-mini", environment={"OPENAI_API_KEY": "handed-in"})
    assert isinstance(found, ModelSummarizer)
    assert "handed-in" not in repr(found)


def test_a_key_from_the_environment_stays_at_home() -> None:
    """It goes to the provider, or to the base URL that stands beside it; not to a base URL given in code."""
    with serve_script(reply_chat(GOOD), reply_chat(GOOD)) as server:
        environment = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{server.url}/v1"}
        make_summarizer("openai:m", environment=environment)(ASKED)
        make_summarizer("openai:m", base_url=server.url, environment={"OPENAI_API_KEY": "k"})(ASKED)
    first, second = (headers.get("authorization") for _, headers, _ in server.requests)
    assert (first, second) == ("Bearer k", None)


def test_window_price_and_room_follow_the_model() -> None:
    """The model's own price list says how much it takes and what it costs; those that think first get room."""
    haiku = make_summarizer("anthropic:claude-haiku-4-5", api_key="k")
    assert isinstance(haiku, ModelSummarizer)
    assert (haiku.window, haiku.thinking_tokens) == (200_000, 0)
    assert haiku.prices is not None
    thinks = make_summarizer("openai:gpt-5-mini", api_key="k")
    assert isinstance(thinks, ModelSummarizer)
    assert thinks.thinking_tokens == THINKING


def test_a_price_cliff_is_a_window() -> None:
    """Where a longer prompt costs a multiple, the input is cut to below that."""
    found = make_summarizer("anthropic:claude-haiku-5-5", api_key="k")
    assert isinstance(found, ModelSummarizer)
    assert found.window == 100_000


def test_every_kind_asks() -> None:
    """Each HTTP kind is wired to its own path."""
    with serve_script(reply_chat(GOOD), reply_claude(GOOD)) as server:
        for kind in ("openai", "anthropic"):
            found = make_summarizer(f"{kind}:m", api_key="k", base_url=server.url)
            assert found(ASKED).text == GOOD
    assert [path for path, _, _ in server.requests] == ["/chat/completions", "/v1/messages"]


def test_litellm_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra."""
    monkeypatch.setitem(__import__("sys").modules, "litellm", None)
    with pytest.raises(MissingExtra, match=r"needs an extra: .*\[litellm\]"):
        make_summarizer("litellm:gemini/gemini-2.5-flash")


@pytest.mark.parametrize(
    ("kind", "reply", "dialect"),
    [
        ("openai", reply_chat(GOOD), "openai"),
        ("anthropic", reply_claude(GOOD), "anthropic"),
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 0.3, None])
def test_prompt_and_temperature_reach_the_provider(
    kind: str, reply: Reply, dialect: str, temperature: float | None
) -> None:
    """Each request has the words and the temperature that were set, and is what the provider takes."""
    own = SummaryPrompt(template="OWN {previous}\n{turns}")
    with serve_script(reply) as server:
        writer = make_summarizer(f"{kind}:m-1", base_url=server.url, prompt=own, temperature=temperature)
        found = writer(ASKED)
        (body,) = server.bodies
    assert find_problems(dialect, body) == []
    assert json.dumps(body.get("temperature")) == json.dumps(0 if temperature == 0 else temperature)
    assert ("temperature" in body) == (temperature is not None)
    content = body["messages"][-1]["content"]
    assert (content if isinstance(content, str) else content[-1]["text"]).startswith("OWN ")
    assert found.writer == "m-1"


def test_a_temperature_that_is_refused_is_left_out() -> None:
    """As any temperature is, and from then on."""
    refusal = reply_error(400, "Unsupported value: 'temperature' does not support 0.3 with this model.")
    with serve_script(refusal, reply_chat(GOOD), reply_chat(GOOD)) as server:
        writer = make_summarizer("openai:m-1", base_url=server.url, temperature=0.3)
        writer(ASKED)
        writer(ASKED)
        assert [body.get("temperature") for body in server.bodies] == [0.3, None, None]
