# mypy: ignore-errors
# What this imports is in an environment of its own.
"""What the OpenHands SDK's adapter does beside the contract."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from openhands.sdk import Agent, LocalConversation
from openhands.sdk.context.condenser.base import CondenserBase
from openhands.sdk.event import ObservationEvent
from openhands.sdk.llm import Message, MessageToolCall, TextContent
from openhands.sdk.llm.exceptions import LLMContextWindowExceedError
from openhands.sdk.testing import TestLLM
from openhands.sdk.tool import Tool

from elision import Advanced, Cache, Sessions
from elision.adapters.openhands import RECALL_TOOLS, ElisionCondenser
from elision.errors import SettingError
from tests.adapters.case_runner import catch
from tests.adapters.hosts import openhands as host

STRATEGY = "masking(window=2, schedule=every-turn)"
OVERFLOW = LLMContextWindowExceedError("prompt is too long: 9000 tokens > 4000 maximum")


def look(part: int) -> Message:
    call = MessageToolCall(id=f"call_{part}", name="look", arguments=json.dumps({"part": part}), origin="completion")
    return Message(role="assistant", content=[TextContent(text=f"part {part}")], tool_calls=[call])


def say(text: str) -> Message:
    return Message(role="assistant", content=[TextContent(text=text)])


class KeepingLLM(TestLLM):
    """The SDK's test model; it keeps what it was sent."""

    def completion(self, messages: Any, *rest: Any, **options: Any) -> Any:
        requests.append(messages)
        return super().completion(messages, *rest, **options)


requests: list[Any] = []


def open_conversation(condenser: Any, *script: Any) -> Any:
    requests.clear()
    agent = Agent(
        llm=KeepingLLM.from_messages(list(script), model="gpt-5"),
        tools=[Tool(name=host.LookTool.__name__), *RECALL_TOOLS],
        include_default_tools=[],
        condenser=condenser,
    )
    folder = tempfile.mkdtemp()
    return LocalConversation(agent=agent, workspace=folder, visualizer=None, stuck_detection=False)


def play(conversation: Any, text: str = "List all.") -> None:
    conversation.send_message(text)
    conversation.run()


def count_hidden(messages: list[Any]) -> int:
    return sum(message.role == "tool" and message.content[0].text.startswith("[") for message in messages)


def check_options_are_json() -> None:
    assert "stored as json" in catch(
        SettingError, lambda: ElisionCondenser(store="memory:", advanced=Advanced(pin=lambda message: False))
    )


def check_stored_and_loaded() -> None:
    """A condenser comes back from what the SDK stores of it, with the same sessions."""
    advanced = Advanced(family="stored", cache=Cache(ttl="1h"))
    condenser = ElisionCondenser(STRATEGY, store="memory:", token_budget=90_000, advanced=advanced)
    assert condenser.sessions._options.advanced == advanced
    loaded = CondenserBase.model_validate(json.loads(condenser.model_dump_json()))
    assert isinstance(loaded, ElisionCondenser)
    assert (loaded.strategy, loaded.options) == (condenser.strategy, condenser.options)
    assert loaded.sessions is condenser.sessions
    condenser.close()


def check_second_overflow_ends_the_run() -> None:
    """Without it the SDK would ask for condensations for ever."""
    condenser = ElisionCondenser("masking(window=2)", store="memory:", advanced=Advanced(family="second"))
    conversation = open_conversation(condenser, *(look(part) for part in range(1, 6)), OVERFLOW, OVERFLOW)
    assert "too long" in catch(Exception, lambda: play(conversation))
    assert len(requests) == 7
    assert count_hidden(requests[6]) > count_hidden(requests[5])


def check_condensation_of_the_user() -> None:
    """What a user asks for hides what may be hidden, twice too."""
    condenser = ElisionCondenser("masking(window=2)", store="memory:", advanced=Advanced(family="user"))
    conversation = open_conversation(
        condenser, *(look(part) for part in range(1, 6)), say("Wait."), say("Listed."), say("Listed again.")
    )
    play(conversation)
    assert count_hidden(requests[-1]) == 0
    for text in ("Go on.", "Once more."):
        conversation.condense()
        play(conversation, text)
        assert count_hidden(requests[-1]) >= 3
    results = [event for event in conversation.state.events if isinstance(event, ObservationEvent)]
    assert all("needle-" in result.observation.text for result in results)


def check_shared_sessions_stay_open() -> None:
    with Sessions(STRATEGY, store="memory:") as sessions:
        condenser = ElisionCondenser(sessions=sessions)
        conversation = open_conversation(condenser, *(look(part) for part in range(1, 5)), say("Listed."))
        play(conversation)
        condenser.close()
        assert len(sessions.open(condenser.get_session(conversation)).turns) >= 4
    assert count_hidden(requests[-1]) == 2


def check_no_file_is_left_in_the_folder() -> None:
    """A store in memory writes nothing."""
    assert not list(Path().glob("*.db*"))
