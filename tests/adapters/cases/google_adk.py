# mypy: ignore-errors
# What this imports is in an environment of its own.
"""What only Google's ADK has: responses as objects, users, runners that close plugins, models of other providers."""

from __future__ import annotations

import importlib
import logging
from types import SimpleNamespace
from unittest import mock

from google.adk.agents import LlmAgent
from google.adk.apps.app import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.context_filter_plugin import ContextFilterPlugin
from google.adk.runners import InMemoryRunner
from google.genai import types

from elision import Sessions
from elision.adapters import google_adk as adapter
from elision.adapters.frameworks import FrameworkError
from elision.adapters.google_adk import ElisionAdkPlugin
from tests.adapters.case_runner import catch, catch_async
from tests.adapters.scenarios import list_part

EAGER = "masking(window=3, schedule=every-turn)"
TOO_LONG = "The input token count (9000) exceeds the maximum number of tokens allowed (8000)."


class Script(BaseLlm):
    """A model that looks at `count` parts, and then ends. refusals: the requests that are too long."""

    count: int
    refusals: tuple = ()
    requests: list

    async def generate_content_async(self, llm_request, stream=False):
        self.requests.append(list(llm_request.contents))
        if len(self.requests) in self.refusals:
            raise ValueError(f"{TOO_LONG} Request {len(self.requests)}.")
        number = sum(content.role == "model" for content in llm_request.contents)
        part = types.Part(text="Done.")
        if number < self.count:
            part = types.Part(function_call=types.FunctionCall(name="look", args={"part": number}))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def look(part: int) -> dict:
    """Lists a part."""
    return {"listing": list_part(part)}


async def play(model, plugins, users=("me",), closing=False):
    app = App(name="files", root_agent=LlmAgent(name="reader", model=model, tools=[look]), plugins=plugins)
    runner = InMemoryRunner(app=app)
    events = []
    for user in users:
        await runner.session_service.create_session(app_name="files", user_id=user, session_id="1")
        asked = {"user_id": user, "session_id": "1", "new_message": types.UserContent("Go.")}
        events += [event async for event in runner.run_async(**asked)]
    if closing:
        await runner.close()
    return events


def count_hidden(contents):
    return sum("tokens hidden" in str(content) for content in contents)


async def check_users_with_one_session_id_share_nothing():
    model = Script(model="gemini-2.5-pro", count=8, requests=[])
    with Sessions(EAGER, store="memory:") as sessions:
        with ElisionAdkPlugin(sessions=sessions) as elision:
            await play(model, [elision], ("me", "you"))
        assert len(sessions) == 2
        assert sessions.open("files/you/1/reader").session.report().turns == 8


async def check_a_response_keeps_the_name_of_its_field():
    model = Script(model="gemini-2.5-pro", count=8, requests=[])
    with ElisionAdkPlugin(EAGER, store="memory:") as elision:
        events = await play(model, [elision])
    last = model.requests[-1]
    assert count_hidden(last) == 5
    assert list(last[2].parts[0].function_response.response) == ["listing"]
    assert count_hidden([event.content for event in events]) == 0


async def check_a_runner_that_closes_leaves_the_plugin_usable():
    with ElisionAdkPlugin(EAGER, store="memory:") as elision:
        for _ in range(2):
            model = Script(model="gemini-2.5-pro", count=8, requests=[])
            await play(model, [elision], closing=True)
            assert count_hidden(model.requests[-1]) == 5


async def check_a_second_overflow_is_the_first_error():
    model = Script(model="gemini-2.5-pro", count=10, refusals=(8, 9), requests=[])
    logging.getLogger("elision.adapters").setLevel(logging.CRITICAL)
    with ElisionAdkPlugin("masking(window=6)", store="memory:") as elision:
        assert "request 8." in await catch_async(ValueError, play(model, [elision]))
    assert count_hidden(model.requests[7]) == 0 < count_hidden(model.requests[8])


async def check_its_own_filter_may_stay():
    """It counts invocations, so one long task is whole when Elision sees it."""
    model = Script(model="gemini-2.5-pro", count=8, requests=[])
    with ElisionAdkPlugin(EAGER, store="memory:") as elision:
        await play(model, [ContextFilterPlugin(num_invocations_to_keep=1), elision])
    assert count_hidden(model.requests[-1]) == 5
    assert len(model.requests[-1]) == 17


async def check_two_plugins_in_one_app_are_refused():
    with ElisionAdkPlugin(store="memory:") as one, ElisionAdkPlugin(store="memory:") as two:
        work = play(Script(model="m", count=1, requests=[]), [one, two])
        assert "elision" in await catch_async(ValueError, work)


def check_usage_of_claude_has_what_was_written():
    counts = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=1000, cached_content_token_count=800, candidates_token_count=10, thoughts_token_count=5
    )
    object.__setattr__(counts, "cache_creation_input_tokens", 150)
    usage = adapter._read_usage(counts)
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output) == (50, 800, 150, 15)


def check_unknown_contents_pass_through():
    """A content without parts, and an object of another class."""
    odd = [types.Content(role="user", parts=[]), SimpleNamespace(role="user")]
    mirrored = adapter._MIRROR.translate([types.UserContent("Go."), *odd])
    assert len(mirrored.plain) == 1
    with Sessions(EAGER, store="memory:") as sessions:
        restored = mirrored.restore(sessions.open("s").prepare(mirrored.plain, model="gemini-2.5-pro"))
    assert restored[1:] == odd


def check_an_old_version_is_named():
    with mock.patch("elision.adapters.frameworks.metadata.version", return_value="1.7.0"):
        assert "2.0.0 or newer; 1.7.0 is installed" in catch(FrameworkError, lambda: importlib.reload(adapter))
