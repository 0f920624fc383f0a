# mypy: ignore-errors
# What this imports is in an environment of its own.
"""deepagents: LangChain's middleware beside its own, and sub-agents by its `task` tool.

The hook is that of LangChain: `hook(settings)` returns a list of middleware.
"""

from __future__ import annotations

from typing import Any

from deepagents import create_deep_agent

from tests.adapters.hosts.langchain import Host as LangChainHost
from tests.adapters.hosts.langchain import ScriptedChatModel, make_tools
from tests.adapters.recording import Answer, SuccessivePlayers
from tests.adapters.scenarios import SYSTEM, Run


class TaskingChatModel(ScriptedChatModel):
    """A scripted model that asks for sub-agents as deepagents has them."""

    def _answer(self, messages: Any) -> Answer:
        answer = super()._answer(messages)
        for call in answer.calls:
            if call.tool == "delegate":
                asked = f"List all of part {call.arguments['part']}."
                call.tool, call.arguments = "task", {"description": asked, "subagent_type": "lister"}
        return answer


class Host(LangChainHost):
    PACKAGES = ("deepagents", *LangChainHost.PACKAGES)

    def make_agent(self, run: Run, saver: Any) -> Any:
        player = self.stage.make_player(run)
        tools = [tool for tool in make_tools(lambda part: "") if tool.name != "delegate"]
        children = SuccessivePlayers(lambda: self.stage.make_child_player(run))
        lister = {
            "name": "lister",
            "description": "Lists a part.",
            "system_prompt": SYSTEM,
            "model": TaskingChatModel(player=children, model_name=run.model),
            "tools": tools,
            "middleware": self.middleware,
        }
        model: Any = TaskingChatModel(player=player, model_name=run.model)
        if self.stage.service:
            model = self.make_model(player)
        return create_deep_agent(
            model,
            tools,
            system_prompt=SYSTEM,
            middleware=self.make_middleware(player.agent),
            subagents=[lister],
            checkpointer=saver,
        )
