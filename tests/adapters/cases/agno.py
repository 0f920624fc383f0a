# mypy: ignore-errors
# What this imports is in an environment of its own.
"""Agno: copies of models, teams, calls that are no agent's, streams, usage."""

from __future__ import annotations

import asyncio
import copy
import json
from dataclasses import dataclass
from typing import Any

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.exceptions import ContextWindowExceededError
from agno.metrics import MessageMetrics
from agno.models.anthropic import Claude
from agno.models.aws import Claude as BedrockClaude
from agno.models.base import Model
from agno.models.message import Message
from agno.models.openai import OpenAIChat
from agno.models.response import ModelResponse
from agno.team import Team

from elision import ContextManager
from elision.adapters.agno import ANTHROPIC_MIRROR, OPENAI_MIRROR, ElisionAgnoModels, describe_call, read_usage
from tests.adapters.scenarios import list_part

STRATEGY = "masking(window=2, schedule=every-turn)"


@dataclass
class Script(Model):
    """Looks at parts. seen: how many results each request hid; shared by all copies. overflow: raised once."""

    id: str = "gpt-5"
    turns: int = 6
    seen: Any = None
    overflow: Any = None
    chunks_first: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen = [] if self.seen is None else self.seen

    def __deepcopy__(self, memo: Any) -> Any:
        copied = super().__deepcopy__(memo)
        copied.seen = self.seen
        return copied

    def answer(self, messages: Any) -> ModelResponse:
        hidden = sum("tokens hidden" in str(message.content) for message in messages)
        results = sum(message.role == "tool" for message in messages)
        if self.overflow and results == 4:
            self.overflow, error = None, self.overflow
            raise error
        self.seen.append(hidden)
        usage = MessageMetrics(input_tokens=100, output_tokens=5)
        if results == self.turns:
            return ModelResponse(role="assistant", content="Done.", response_usage=usage)
        function = {"name": "look", "arguments": json.dumps({"part": results + 1})}
        call = {"id": f"c{results + 1}", "type": "function", "function": function}
        return ModelResponse(role="assistant", tool_calls=[call], response_usage=usage)

    def invoke(self, messages: Any, **request: Any) -> ModelResponse:
        return self.answer(messages)

    async def ainvoke(self, messages: Any, **request: Any) -> ModelResponse:
        return self.answer(messages)

    def invoke_stream(self, messages: Any, **request: Any) -> Any:
        yield self.answer(messages)

    async def ainvoke_stream(self, messages: Any, **request: Any) -> Any:
        yield self.answer(messages)

    def _parse_provider_response(self, response: Any, **_: Any) -> Any:
        return response

    def _parse_provider_response_delta(self, response: Any) -> Any:
        return response


def look(part: int) -> str:
    """Lists a part."""
    return list_part(part)


def make_agent(model: Any, elision: ElisionAgnoModels, **options: Any) -> Agent:
    return Agent(model=model, tools=[look, *elision.tools], telemetry=False, **options)


def check_the_given_model_is_not_changed() -> None:
    with ElisionAgnoModels(STRATEGY, store="memory:") as elision:
        given = Script()
        wrapped = elision.wrap_model(given)
        assert type(given) is Script
        assert isinstance(wrapped, Script)
        assert type(wrapped).__name__ == "Script"
        make_agent(given, elision).run("Go.", session_id="s")
        assert set(given.seen) == {0}


def check_a_deep_copy_sends_less_too() -> None:
    """Teams and workflows copy the models of their agents."""
    with ElisionAgnoModels(STRATEGY, store="memory:") as elision:
        model = copy.deepcopy(elision.wrap_model(Script()))
        assert model.elision_calls is elision.calls
        make_agent(model, elision).run("Go.", session_id="s")
        assert model.seen == [0, 0, 0, 1, 2, 3, 4]


def check_members_of_a_team_have_sessions_of_their_own() -> None:
    with ElisionAgnoModels(STRATEGY, store="memory:") as elision:
        member = Agent(name="lister", model=elision.wrap_model(Script()), tools=[look, *elision.tools], telemetry=False)

        @dataclass
        class Leader(Script):
            """Delegates once."""

            def answer(self, messages: Any) -> ModelResponse:
                if any(message.role == "tool" for message in messages):
                    return ModelResponse(role="assistant", content="Done.")
                arguments = json.dumps({"member_id": "lister", "task": "List."})
                function = {"name": "delegate_task_to_member", "arguments": arguments}
                return ModelResponse(
                    role="assistant", tool_calls=[{"id": "d", "type": "function", "function": function}]
                )

        team = Team(name="team", members=[member], model=elision.wrap_model(Leader()), telemetry=False)
        team.run("Go.", session_id="s")
        assert sorted(elision.sessions._held) == ["s/lister", "s/team"]
        assert max(member.model.seen) == 4


def check_a_call_without_a_run_is_no_agents() -> None:
    """The model that writes memories and summaries is asked with messages of its own."""
    with ElisionAgnoModels(STRATEGY, store="memory:") as elision:
        model = elision.wrap_model(Script())
        model.response(messages=[Message(role="user", content="Remember.")])
        asyncio.run(model.aresponse(messages=[Message(role="user", content="Remember.")]))
        assert len(elision.sessions) == 0


def check_streams() -> None:
    with ElisionAgnoModels(STRATEGY, store="memory:") as elision:
        model = elision.wrap_model(Script())
        for _ in make_agent(model, elision).run("Go.", session_id="s", stream=True):
            pass
        assert model.seen == [0, 0, 0, 1, 2, 3, 4]
        assert not elision.sessions.open("s").session.awaits_response


def check_an_overflow_by_its_type() -> None:
    """Agno's error says what it is by its type, whatever the provider wrote."""
    for stream in (False, True):
        with ElisionAgnoModels("masking(window=2)", store="memory:") as elision:
            model = elision.wrap_model(Script(overflow=ContextWindowExceededError("Zu lang.")))
            result = make_agent(model, elision).run("Go.", session_id="s", stream=stream)
            if stream:
                assert list(result)
            assert max(model.seen) > 0


def check_an_error_of_the_model_is_raised_as_it_is() -> None:
    with ElisionAgnoModels(STRATEGY, store="memory:") as elision:
        model = elision.wrap_model(Script(overflow=ConnectionError("gone")))
        result = make_agent(model, elision).run("Go.", session_id="s")
        assert "gone" in str(result.content)


def check_closed_sessions_do_not_end_the_run() -> None:
    elision = ElisionAgnoModels(STRATEGY, store="memory:")
    model = elision.wrap_model(Script())
    elision.close()
    result = make_agent(model, elision).run("Go.", session_id="s")
    assert result.content == "Done."
    assert set(model.seen) == {0}


def check_the_stored_session_keeps_what_the_tools_returned() -> None:
    with ElisionAgnoModels(STRATEGY, store="memory:") as elision:
        agent = make_agent(elision.wrap_model(Script()), elision, db=InMemoryDb())
        agent.run("Go.", session_id="s")
        stored = [message.content for message in agent.get_session_messages("s") if message.role == "tool"]
        assert stored == [list_part(number) for number in range(1, 7)]


def check_usage_is_counted_as_the_provider_does() -> None:
    """Claude's prompt has no cached tokens, on whichever service; all others' has."""
    counts = MessageMetrics(input_tokens=100, cache_read_tokens=900, output_tokens=5)
    response = ModelResponse(response_usage=counts)
    assert read_usage(Claude(), response).prompt == 1000
    assert read_usage(BedrockClaude(), response).prompt == 1000
    counts.input_tokens = 1000
    assert read_usage(OpenAIChat(), response).prompt == 1000
    assert read_usage(OpenAIChat(), None) is None


def check_only_anthropics_own_service_is_asked_to_clear() -> None:
    class Run:
        session_id = "s"

    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    request = {"run_response": Run(), "messages": [], "tools": [tool]}
    assert describe_call(Claude(), request).mirror is ANTHROPIC_MIRROR
    assert "input_schema" in describe_call(Claude(), request).parts["tools"][0]
    assert describe_call(BedrockClaude(), request).mirror is OPENAI_MIRROR
    assert describe_call(OpenAIChat(), request).parts["tools"] == [tool]


def check_a_hidden_result_keeps_its_other_fields() -> None:
    """Its id, its error state; an unknown message goes out as it is."""
    messages: list[Any] = [Message(role="user", content="Go."), "no message"]
    for number in range(1, 6):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        messages.append(Message(role="assistant", tool_calls=[call]))
        result = Message(role="tool", content=list_part(number), tool_call_id=f"c{number}", tool_name="look")
        result.tool_call_error = number == 1
        messages.append(result)
    for mirror, tools in (
        (OPENAI_MIRROR, None),
        (ANTHROPIC_MIRROR, [{"name": "look", "input_schema": {"type": "object"}}]),
    ):
        with ContextManager(STRATEGY, model="claude-sonnet-4-5", store="memory:") as context:
            mirrored = mirror.translate(messages)
            sent = mirrored.restore(context.prepare(mirrored.plain, tools=tools))
        assert sent[1] == "no message"
        assert "tokens hidden" in sent[3].content
        assert (sent[3].id, sent[3].tool_call_id, sent[3].tool_call_error) == (messages[3].id, "c1", True)
        assert sum(one is two for one, two in zip(sent, messages, strict=True)) == len(messages) - 3
