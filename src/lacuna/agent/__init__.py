"""A whole agent on top of the context manager: `run_agent(llm, environment, task, context)`."""

from lacuna.agent.context import Context
from lacuna.agent.ending import Run
from lacuna.agent.endpoint import AnthropicModel, OpenAIModel
from lacuna.agent.environment import Environment, Outcome, Tool
from lacuna.agent.loop import run_agent
from lacuna.agent.model import Answer, Model, ModelError, Prompt
from lacuna.agent.patience import Patience
from lacuna.agent.report import Report, Step
from lacuna.agent.shell import Shell

__all__ = [
    "Answer",
    "AnthropicModel",
    "Context",
    "Environment",
    "Model",
    "ModelError",
    "OpenAIModel",
    "Outcome",
    "Patience",
    "Prompt",
    "Report",
    "Run",
    "Shell",
    "Step",
    "Tool",
    "run_agent",
]
