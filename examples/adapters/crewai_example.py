"""CrewAI with Elision, offline: a script stands in for the model."""

import json
from types import SimpleNamespace

from crewai import Agent, BaseLLM, Crew, Task
from crewai.tools import tool
from pydantic import Field

from elision.adapters.crewai import ElisionCrew


class ScriptedLLM(BaseLLM):
    """Asks for 30 pages, reads one of them again, and ends."""

    sent: list = Field(default_factory=list)

    def supports_function_calling(self):
        return True

    def call(self, messages, *rest, **named):
        self.sent[:] = messages
        turn = sum(message["role"] == "assistant" for message in messages) + 1
        if turn > 31:
            return "All pages are read."
        name, arguments = "read_page", {"number": turn}
        if turn == 31:
            name, arguments = "elision_recall", {"handle": "t2.1", "head": 2}
        function = SimpleNamespace(name=name, arguments=json.dumps(arguments))
        return [SimpleNamespace(id=f"call_{turn}", type="function", function=function)]


@tool("read_page")
def read_page(number: int) -> str:
    """Reads a page."""
    return "\n".join(f"page {number}, line {line}: nothing but oranges" for line in range(100))


with ElisionCrew("masking(window=5)", store="memory:") as elision:
    llm = elision.wrap_llm(ScriptedLLM(model="gpt-5"))
    agent = Agent(
        role="Reader", goal="Read.", backstory="You read.", llm=llm, tools=[read_page, *elision.tools], max_iter=50
    )
    task = Task(description="Read all pages.", expected_output="A word.", agent=agent)
    print(Crew(agents=[agent], tasks=[task], tracing=False).kickoff())
    report = elision.sessions.open(f"crewai-{task.id}/{agent.id}").session.report()

kept = agent.agent_executor.messages
print("sent:", llm.sent[5]["content"][:60])
print("kept:", kept[5]["content"][:60].splitlines()[0])
print("recalled:", [message["content"] for message in kept if message.get("name") == "elision_recall"])
print(f"saved: {report.savings.tokens:,} tokens")
