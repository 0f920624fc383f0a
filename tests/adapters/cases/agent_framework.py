# mypy: ignore-errors
# What this imports is in an environment of its own.
"""What only Microsoft Agent Framework has: contents of many kinds, streams, threads of the service, its compaction."""

from __future__ import annotations

import importlib
import json
from unittest import mock

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    InMemoryHistoryProvider,
    Message,
    ResponseStream,
    tool,
)

from elision import Sessions
from elision.adapters import agent_framework as adapter
from elision.adapters.agent_framework import ElisionContextProvider
from elision.adapters.frameworks import FrameworkError
from tests.adapters.case_runner import catch, catch_async
from tests.adapters.scenarios import list_part

EAGER = "masking(window=3, schedule=every-turn)"
TOO_LONG = "prompt is too long: 9000 tokens > 8000 maximum"


class Script(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """A client that looks at `count` parts, and then ends. refusals: at which requests, and after how many updates."""

    @classmethod
    def make(cls, count, refusals=()):
        made = cls(function_invocation_configuration={"max_iterations": 50})
        made.count, made.refusals, made.requests = count, dict(refusals), []
        return made

    def _inner_get_response(self, *, messages, stream, options, **others):
        self.requests.append(list(messages))
        number = sum(message.role == "assistant" for message in messages)
        arguments = json.dumps({"part": number})
        said = Content.from_text("Done.")
        if number < self.count:
            said = Content.from_function_call(f"c{number}", "look", arguments=arguments)
        after = self.refusals.get(len(self.requests))
        if stream:
            return ResponseStream(self._stream(said, after), finalizer=ChatResponse.from_updates)
        return self._respond(said, after)

    async def _respond(self, said, after):
        if after is not None:
            raise ValueError(TOO_LONG)
        return ChatResponse(messages=[Message("assistant", [said])])

    async def _stream(self, said, after):
        if after == 0:
            raise ValueError(TOO_LONG)
        yield ChatResponseUpdate(role="assistant", contents=[said])
        if after:
            raise ValueError(TOO_LONG)


@tool(approval_mode="never_require")
def look(part: int) -> str:
    """Lists a part."""
    return list_part(part)


def make_agent(client, elision, name="reader"):
    return Agent(client, "Be careful.", name=name, tools=[look], context_providers=[InMemoryHistoryProvider(), elision])


def count_hidden(messages):
    return sum("tokens hidden" in str(content.result) for message in messages for content in message.contents)


async def check_an_overflow_is_repeated_once_streamed_or_not():
    for stream in (False, True):
        client = Script.make(10, {8: 0})
        with ElisionContextProvider("masking(window=6)", model="gpt-5", store="memory:") as elision:
            agent = make_agent(client, elision)
            session = agent.create_session(session_id="s")
            if stream:
                response = await agent.run("Go.", session=session, stream=True).get_final_response()
            else:
                response = await agent.run("Go.", session=session)
        assert response.text == "Done.", stream
        assert count_hidden(client.requests[7]) == 0 < count_hidden(client.requests[8])
        assert count_hidden(response.messages) == 0


async def check_a_stream_that_has_begun_is_not_repeated():
    client = Script.make(10, {8: 1})
    with ElisionContextProvider("masking(window=6)", model="gpt-5", store="memory:") as elision:
        agent = make_agent(client, elision)
        stream = agent.run("Go.", session=agent.create_session(session_id="s"), stream=True)
        assert TOO_LONG in await catch_async(ValueError, stream.get_final_response())
    assert len(client.requests) == 8


async def check_threads_of_the_service_are_left_alone():
    middleware = adapter._RequestMiddleware(mock.Mock(), "s")
    given = [Message("user", ["Go."])]
    context = mock.Mock(options={"conversation_id": "resp_1"}, messages=given)
    passed = mock.AsyncMock()
    await middleware.process(context, passed)
    passed.assert_awaited_once()
    assert context.messages is given


async def check_agents_of_one_session_have_their_own():
    with Sessions(EAGER, store="memory:") as sessions, ElisionContextProvider(sessions=sessions) as elision:
        for name in ("reader", "writer"):
            agent = make_agent(Script.make(8), elision, name)
            await agent.run("Go.", session=agent.create_session(session_id="s"))
            assert sessions.open(f"s/{name}").session.report().turns == 8
        assert len(sessions) == 2


def check_contents_of_other_kinds_pass_through():
    odd = Message(
        "user", [Content.from_text("See."), Content.from_uri("https://a.example/b.pdf", media_type="application/pdf")]
    )
    image = Message("user", [Content.from_data(b"1234", "image/png")])
    assert adapter._convert_message(odd)[0]["content"][0] == {"type": "text", "text": "See."}
    assert adapter._convert_message(image)[0]["content"][0]["type"] == "image_url"
    assert adapter._convert_message(Message("user", [])) == []
    assert adapter._convert_message({"role": "user"}) == []


def check_a_failed_result_stays_failed():
    result = Content.from_function_result("c1", result="Error: no", exception="no")
    message = Message("tool", [result, Content.from_function_result("c2", result="two")], message_id="m")
    sent = {0: {"role": "tool", "tool_call_id": "c1", "content": "hidden"}, 1: adapter._convert_message(message)[1]}
    rebuilt = adapter._rebuild_message(message, sent)
    assert (rebuilt.contents[0].result, rebuilt.contents[0].exception) == ("hidden", "no")
    assert rebuilt.contents[1] is message.contents[1]
    assert rebuilt.message_id == "m"
    assert result.result == "Error: no"


def check_usage_of_anthropic_leaves_out_what_was_cached():
    counts = {"input_token_count": 100, "output_token_count": 10, "cache_read_input_token_count": 800}
    for extra, prompt in (({"anthropic.cache_read_input_tokens": 800}, 900), ({}, 800)):
        call = mock.Mock()
        given = {**counts, "input_token_count": 100 if extra else 800, **extra}
        adapter._record_usage(call, mock.Mock(usage_details=given))
        assert call.record.call_args.args[0].prompt == prompt


def check_an_old_version_is_named():
    with mock.patch("elision.adapters.frameworks.metadata.version", return_value="0.9.1"):
        assert "1.0.0 or newer; 0.9.1 is installed" in catch(FrameworkError, lambda: importlib.reload(adapter))
