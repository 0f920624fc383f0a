"""The OpenHands SDK's summarizing condenser on a view that is kept and appended to, as its conversation does."""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import Any

from openhands.sdk import LLM, Message, TextContent
from openhands.sdk.context.condenser import LLMSummarizingCondenser
from openhands.sdk.context.view import View
from openhands.sdk.event import ActionEvent, Condensation, LLMConvertibleEvent, MessageEvent, ObservationEvent
from openhands.sdk.llm import MessageToolCall
from openhands.sdk.testing import TestLLM
from openhands.sdk.tool import Observation
from playing import BUDGET, SUMMARY, play, session, tell

#: Its own default: events from which on it condenses.
EVENTS = 240


class Seen(Observation):
    """A result that is text."""


def events(turn: list[dict[str, Any]]) -> list[LLMConvertibleEvent]:
    said, result = turn
    call = said["tool_calls"][0]
    name, id = call["function"]["name"], call["id"]
    asked = MessageToolCall(id=id, name=name, arguments=call["function"]["arguments"], origin="completion")
    thought = [TextContent(text=said["content"] or "")]
    action = ActionEvent(thought=thought, tool_name=name, tool_call_id=id, tool_call=asked, llm_response_id=f"r-{id}")
    seen = Seen(content=[TextContent(text=result["content"])])
    return [action, ObservationEvent(observation=seen, action_id=action.id, tool_name=name, tool_call_id=id)]


def condensing(head: list[Any], turns: list[list[Any]], agent: LLM | None) -> list[float]:
    """agent: whose counter tells how many tokens a view has; None to look at the number of events alone."""
    answers = [Message(role="assistant", content=[TextContent(text=SUMMARY)]) for _ in turns]
    writer = TestLLM.from_messages(answers)
    condenser = LLMSummarizingCondenser(llm=writer, max_size=EVENTS, max_tokens=BUDGET if agent else None)
    view = View()
    for event in head:
        view.append_event(event)

    def call() -> object:
        found = condenser.condense(view, agent_llm=agent)
        if isinstance(found, Condensation):
            view.append_event(found)
        return LLMConvertibleEvent.events_to_messages(view.events)

    return play(turns, call, view.append_event)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    found = session()
    said = Message(role="user", content=[TextContent(text="\n\n".join(each["content"] for each in found["head"]))])
    head = [MessageEvent(source="user", llm_message=said)]
    turns = [events(turn) for turn in found["turns"]]
    tell(
        {
            "OpenHands SDK condenser": condensing(head, turns, None),
            "OpenHands SDK condenser, with token counts": condensing(head, turns, LLM(model="gpt-4o", api_key="none")),
        },
        f"openhands-sdk {version('openhands-sdk')}",
    )
