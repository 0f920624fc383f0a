"""A whole agent on top of the context manager: `run_agent(llm, environment, task, context)`."""

from elision.agent.context import Context
from elision.agent.ending import Run
from elision.agent.endpoint import AnthropicModel, OpenAIModel
from elision.agent.environment import Environment, Outcome, Tool
from elision.agent.loop import run_agent
from elision.agent.model import Answer, Model, ModelError, Prompt
from elision.agent.patience import Patience
from elision.agent.report import Report, Step
from elision.agent.shell import Shell

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
