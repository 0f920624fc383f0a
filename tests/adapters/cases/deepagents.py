# mypy: ignore-errors
# What this imports is in an environment of its own.
"""deepagents: what takes the place of its summarization, and who gets it."""

from __future__ import annotations

from typing import Any

from deepagents import create_deep_agent
from langchain_core.tools import tool

from elision.adapters.deepagents import ElisionSummarization
from tests.adapters.cases.langchain import STRATEGY
from tests.adapters.hosts.deepagents import TaskingChatModel
from tests.adapters.recording import Player, Recorder, SuccessivePlayers
from tests.adapters.scenarios import PlannedCall, Step, list_part, look_at


@tool
def look(part: int) -> str:
    """Lists a part."""
    return list_part(part)


def make_model(player: Any) -> Any:
    return TaskingChatModel(player=player, model_name="gpt-5")


def check_it_takes_the_place_of_the_summarization() -> None:
    with ElisionSummarization(STRATEGY, store="memory:") as elision:
        model = make_model(Player(Recorder(), "agent", "gpt-5", ()))
        agent = create_deep_agent(model, [look], middleware=[elision])
        assert elision.name == "SummarizationMiddleware"
        assert "compact_conversation" not in str(agent.nodes["tools"].bound.tools_by_name)
        assert "elision_recall" in agent.nodes["tools"].bound.tools_by_name


def check_the_general_sub_agent_gets_it() -> None:
    """It has a session of its own, and its caller is noted."""
    recorder = Recorder()

    class Model(TaskingChatModel):
        """Asks the general sub-agent, and plays it too."""

        def _answer(self, messages: Any) -> Any:
            answer = super()._answer(messages)
            for call in answer.calls:
                if call.tool == "task":
                    call.arguments["subagent_type"] = "general-purpose"
            return answer

    main = Player(recorder, "agent", "gpt-5", (Step((PlannedCall("delegate", 1),)), *look_at(range(50, 52))))
    child = Player(recorder, "child", "gpt-5", look_at(range(1, 11)))

    class Both:
        """The sub-agent's prompt names the part."""

        def answer(self, messages: Any, *arguments: Any, **named: Any) -> Any:
            asked = next(message for message in messages if message.role == "user")
            return (child if "List all of part" in asked.text else main).answer(messages, *arguments, **named)

    with ElisionSummarization(STRATEGY, store="memory:") as elision:
        agent = create_deep_agent(Model(player=Both(), model_name="gpt-5"), [look], middleware=[elision])
        agent.invoke({"messages": [{"role": "user", "content": "Do it."}]}, {"recursion_limit": 200})
        last = [request for request in recorder.requests if request.agent == "child"][-1]
        assert sum(bool(message.handle) for message in last.messages) == 8
        assert len(elision.sessions) == 2


def check_a_large_result_is_in_a_file() -> None:
    """deepagents moves it to its file system first; what is left is short, and stays."""
    recorder = Recorder()

    @tool("look")
    def look_at_much(part: int) -> str:
        """Lists a part."""
        return "\n".join(f"{part}-{line} " + "x" * 70 for line in range(2_000))

    model = make_model(SuccessivePlayers(lambda: Player(recorder, "agent", "gpt-5", look_at(range(1, 7)))))
    with ElisionSummarization(STRATEGY, store="memory:") as elision:
        agent = create_deep_agent(model, [look_at_much], middleware=[elision])
        agent.invoke({"messages": [{"role": "user", "content": "Do it."}]}, {"recursion_limit": 200})
    assert len(str(recorder.requests[-1].messages)) < 100_000
