"""Google's own client works through the gateway: masking acts, and a recall is answered, whole and streamed."""

from __future__ import annotations

import json
import logging
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from google import genai
from google.genai import errors, types

from elision.gateway.request_record import LOGGER_NAME
from elision.gateway.server import GatewayThread
from elision.gateway.settings import gateway_settings
from tests.e2e.gemini_provider import KEY, GeminiProvider, run_gemini

Json = dict[str, Any]
MODEL = "gemini-3-pro-preview"
LONG = "\n".join(f"line {number} of a long output" for number in range(400))
BASH = types.Tool(function_declarations=[types.FunctionDeclaration(name="bash", description="Run a command.")])
CONFIG = types.GenerateContentConfig(
    system_instruction="You fix bugs.",
    tools=[BASH],
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
)


def call(name: str, **arguments: Any) -> Json:
    """A part that calls a function, signed as Gemini 3 signs it."""
    return {"functionCall": {"name": name, "args": arguments}, "thoughtSignature": "c2lnbmVk"}


def make_script(turns: int) -> list[list[Json]]:
    """Answers that call `bash` at each turn."""
    return [[call("bash", cmd=f"make {index}")] for index in range(turns)]


@contextmanager
def connect(provider: GeminiProvider, folder: Path, **given: Any) -> Iterator[genai.Client]:
    """A client behind a gateway in front of `provider`."""
    usual: Json = {
        "gateway_port": 0,
        "gateway_upstream_gemini": provider.url,
        "gateway_log": "none",
        "store": f"sqlite:///{folder / 'store.db'}",
        "strategy": "masking(window=2, schedule=every-turn)",
        "tokens": "estimate",
    }
    settings = gateway_settings({}, folder, **(usual | given))
    with GatewayThread(settings) as gateway:
        client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=gateway.url))
        try:
            yield client
        finally:
            client.close()


def ask(client: genai.Client, contents: list[types.Content], *, streamed: bool) -> types.Content:
    """Return the model's message."""
    given: Any = contents
    if not streamed:
        response = client.models.generate_content(model=MODEL, contents=given, config=CONFIG)
        assert response.candidates is not None
        assert response.candidates[0].content is not None
        return response.candidates[0].content
    parts: list[types.Part] = []
    for chunk in client.models.generate_content_stream(model=MODEL, contents=given, config=CONFIG):
        assert chunk.candidates is not None
        content = chunk.candidates[0].content
        parts += (content.parts if content is not None else None) or []
    return types.Content(role="model", parts=parts)


def work(client: genai.Client, turns: int, *, streamed: bool) -> list[types.Content]:
    """Work for some turns: each call of the model gets a long output."""
    contents = [types.Content(role="user", parts=[types.Part(text="Fix it.")])]
    for index in range(turns):
        said = ask(client, contents, streamed=streamed)
        assert said.parts is not None
        names = [part.function_call.name for part in said.parts if part.function_call]
        contents.append(said)
        answers = [
            types.Part.from_function_response(name=name or "", response={"output": f"{LONG} {index}"}) for name in names
        ]
        contents.append(types.Content(role="user", parts=answers))
    return contents


def list_outputs(request: Json) -> list[str]:
    """The outputs of functions in a request."""
    parts = [part for content in request["contents"] for part in content["parts"]]
    return [part["functionResponse"]["response"]["output"] for part in parts if "functionResponse" in part]


def list_calls(request: Json) -> list[Json]:
    """The parts of a request that call functions."""
    return [part for content in request["contents"] for part in content["parts"] if "functionCall" in part]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_old_outputs_are_masked(tmp_path: Path, streamed: bool) -> None:
    """The provider gets placeholders for old outputs, and every signature that it gave."""
    with run_gemini(make_script(6)) as provider, connect(provider, tmp_path) as client:
        work(client, 6, streamed=streamed)
    assert provider.problems == []
    outputs = list_outputs(provider.requests[-1])
    assert [output.startswith("[t") for output in outputs] == [True, True, True, False, False]
    calls = list_calls(provider.requests[-1])
    assert len(calls) == 5
    assert {part["thoughtSignature"] for part in calls} == {"c2lnbmVk"}
    assert all(MODEL in path for path in provider.paths)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_recall_is_answered(tmp_path: Path, streamed: bool) -> None:
    """The client never sees the call; the provider gets its result, and later requests have both."""
    script = make_script(5)
    script += [[{"text": "I look again."}, call("elision_recall", handle="t1.1", head=2)], [call("bash", cmd="make 5")]]
    script += make_script(1)
    with run_gemini(script) as provider, connect(provider, tmp_path) as client:
        contents = work(client, 7, streamed=streamed)
    assert provider.problems == []
    said = [part for content in contents for part in content.parts or ()]
    assert not [part for part in said if part.function_call and part.function_call.name == "elision_recall"]
    assert [part.text for part in said if part.text] == ["Fix it.", "I look again."]
    recall = provider.requests[6]
    assert list_outputs(recall)[-1].startswith("1: line 0 of a long output\n2: line 1 of a long output")
    assert "elision_recall" in str(recall["tools"])
    if not streamed:
        # A client that keeps each chunk as a message of its own sends another history: there the recall is left out.
        assert "elision_recall" in [part["functionCall"]["name"] for part in list_calls(provider.requests[-1])]


def test_tokens_are_counted_by_the_provider(tmp_path: Path) -> None:
    """The request passes as it came."""
    with run_gemini([]) as provider, connect(provider, tmp_path) as client:
        assert client.models.count_tokens(model=MODEL, contents="Hi.").total_tokens == 7
    assert provider.problems == []


def test_errors_have_google_s_shape(tmp_path: Path) -> None:
    """The client raises its own error, with the gateway's words."""
    with (
        run_gemini([]) as provider,
        connect(provider, tmp_path, gateway_upstream_gemini="none") as client,
        pytest.raises(errors.APIError) as raised,
    ):
        client.models.generate_content(model=MODEL, contents="Hi.")
    assert "--upstream-gemini" in str(raised.value)


def test_a_key_is_kept_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither that of the header nor that of the query is in the store or the log."""
    caplog.set_level(logging.INFO, LOGGER_NAME)
    with run_gemini(make_script(3)) as provider, connect(provider, tmp_path, gateway_log="json") as client:
        work(client, 2, streamed=False)
        body = json.dumps({"contents": [{"role": "user", "parts": [{"text": "Hi."}]}]}).encode()
        base = client._api_client._http_options.base_url
        url = f"{base}/v1beta/models/{MODEL}:generateContent?key={KEY}"
        headers = {"Content-Type": "application/json", "x-goog-api-key": KEY}
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            answer.read()
    assert f"key={KEY}" in provider.paths[-1]
    assert KEY.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert MODEL in caplog.text
    assert KEY not in caplog.text
