"""A whole agent on top of the context manager: `run_agent(llm, environment, task, context)`."""

from elision.agent.environment import ActionResult, Context, Environment, Shell, Tool
from elision.agent.loop import run_agent
from elision.agent.model import AnthropicModel, Model, ModelAnswer, ModelError, OpenAIModel, Prompt, RetryPolicy
from elision.agent.run_report import RunReport, RunResult, Step

__all__ = [
    "ActionResult",
    "AnthropicModel",
    "Context",
    "Environment",
    "Model",
    "ModelAnswer",
    "ModelError",
    "OpenAIModel",
    "Prompt",
    "RetryPolicy",
    "RunReport",
    "RunResult",
    "Shell",
    "Step",
    "Tool",
    "run_agent",
]
