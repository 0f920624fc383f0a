"""The OpenHands SDK with Elision, offline: a script stands in for the model."""

import json
import tempfile

from openhands.sdk import Agent, LocalConversation
from openhands.sdk.event import ObservationEvent
from openhands.sdk.llm import Message, MessageToolCall, TextContent
from openhands.sdk.testing import TestLLM
from openhands.sdk.tool import Action, Observation, Tool, ToolDefinition, ToolExecutor, register_tool

from elision.adapters.openhands import RECALL_TOOLS, ElisionCondenser


class PageAction(Action):
    number: int


class PageObservation(Observation):
    pass


class ReadPage(ToolExecutor):
    def __call__(self, action, conversation=None):
        lines = [f"page {action.number}, line {line}: nothing but oranges" for line in range(100)]
        return PageObservation.from_text("\n".join(lines))


class PageTool(ToolDefinition[PageAction, PageObservation]):
    name = "read_page"

    @classmethod
    def create(cls, conv_state=None, **params):
        types = {"action_type": PageAction, "observation_type": PageObservation}
        return [cls(description="Reads a page.", executor=ReadPage(), **types)]


def say(text, *calls):
    made = [
        MessageToolCall(id=f"call_{text}", name=name, arguments=json.dumps(arguments), origin="completion")
        for name, arguments in calls
    ]
    return Message(role="assistant", content=[TextContent(text=text)], tool_calls=made or None)


class ScriptedLLM(TestLLM):
    def completion(self, messages, *rest, **options):
        sent[:] = messages
        return super().completion(messages, *rest, **options)


sent = []
register_tool("PageTool", PageTool)
script = [say(f"page {number}", ("read_page", {"number": number})) for number in range(1, 31)]
script += [say("again", ("elision_recall", {"handle": "t2.1", "head": 2})), say("All pages are read.")]
condenser = ElisionCondenser("masking(window=5)", store="sqlite:///pages.db")
agent = Agent(
    llm=ScriptedLLM.from_messages(script, model="gpt-5"),
    tools=[Tool(name="PageTool"), *RECALL_TOOLS],
    include_default_tools=[],
    condenser=condenser,
)
conversation = LocalConversation(agent=agent, workspace=tempfile.mkdtemp(), visualizer=None, stuck_detection=False)
conversation.send_message("Read all pages.")
conversation.run()

results = [event for event in conversation.state.events if isinstance(event, ObservationEvent)]
print("sent:", sent[5].content[0].text[:60])
print("kept:", results[1].observation.text[:34])
print("recalled:", results[30].observation.text.splitlines())
report = condenser.sessions.open(condenser.get_session(conversation)).session.report()
print(f"saved: {report.savings.tokens:,} tokens")
condenser.close()
