"""`import elision.auto` before a framework's import: the program is unchanged, and nothing is lost at its end."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from elision.manager.session_history import CallReport, add_plateau_guard, load_session_log
from elision.stores.store_urls import open_existing
from elision.strategies.guards import Guards
from elision.testing.builders import call, trajectory, turn
from elision.testing.playback import Playback
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Turn, make_content
from tests.adapters.conftest import skip_if_missing
from tests.adapters.environments import PATIENCE, ROOT, find_python
from tests.wrap.wrapped import make_environment

TASK = "Count."
ANSWER = "I have counted."
LOOKS = 8

_BASH = '''
from itertools import count
looks = count(1)
def bash(command: str) -> str:
    """Run a command."""
    number = next(looks)
    return "\\n".join(f"look {number}, line {line}" for line in range(200))
'''
_LANGCHAIN = f"""
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
{_BASH}
agent = create_agent($MODEL, [bash])
done = agent.invoke({{"messages": [("user", "{TASK}")]}}, {{"recursion_limit": 100}})
print(done["messages"][-1].text)
"""
_PYDANTIC_AI = f"""
from pydantic_ai import Agent
{_BASH}
print(Agent($MODEL, tools=[bash]).run_sync("{TASK}").output)
"""
_OPENAI_AGENTS = f"""
from agents import Agent, Runner, function_tool, set_tracing_disabled
{_BASH}
set_tracing_disabled(True)
agent = Agent(name="counter", model=$MODEL, tools=[function_tool(bash)])
print(Runner.run_sync(agent, "{TASK}", max_turns=50).final_output)
"""
_AGNO = f"""
from agno.agent import Agent
from agno.models.openai import OpenAIChat
{_BASH}
print(Agent(model=$MODEL, tools=[bash], telemetry=False).run("{TASK}").content)
"""
_LITELLM = f"""
import litellm
{_BASH}
parameters = {{"type": "object", "properties": {{"command": {{"type": "string"}}}}}}
tools = [{{"type": "function", "function": {{"name": "bash", "parameters": parameters}}}}]
messages = [{{"role": "user", "content": "{TASK}"}}]
while True:
    answer = litellm.completion(model=$MODEL, messages=messages, tools=tools).choices[0].message
    messages.append(answer.model_dump(exclude_none=True))
    if not answer.tool_calls:
        break
    for asked in answer.tool_calls:
        messages.append({{"role": "tool", "tool_call_id": asked.id, "content": bash("")}})
print(answer.content)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkProgram:
    """host: its framework. model: what stands for $MODEL in `text`."""

    host: str
    text: str
    model: str


PROGRAMS = {
    "langchain": FrameworkProgram(host="langchain", text=_LANGCHAIN, model='ChatAnthropic(model="claude-sonnet-4-5")'),
    "pydantic-ai": FrameworkProgram(host="pydantic_ai", text=_PYDANTIC_AI, model='"openai-chat:gpt-5"'),
    "openai-agents": FrameworkProgram(host="openai_agents", text=_OPENAI_AGENTS, model='"gpt-5"'),
    "litellm": FrameworkProgram(host="litellm", text=_LITELLM, model='"anthropic/claude-sonnet-4-5"'),
    "agno": FrameworkProgram(host="agno", text=_AGNO, model='OpenAIChat(id="gpt-5")'),
}


def make_script() -> Trajectory:
    """A model that calls `bash` in each turn but the last."""
    turns = [
        Turn(
            index=index,
            content=make_content(f"Step {index}."),
            # Agno cuts and pads ids that no provider would make.
            actions=(call("bash", id=f"call_{index:024}", command=f"look {index}"),),
        )
        for index in range(1, LOOKS + 1)
    ]
    return trajectory(*turns, turn(LOOKS + 1, text=ANSWER), id="agent", task=TASK)


def run_program(program: FrameworkProgram, folder: Path, upstream: str) -> subprocess.CompletedProcess[str]:
    """Run a program in its framework's environment, behind the import."""
    environment = make_environment(
        folder / "home",
        upstream,
        OPENAI_API_KEY="sk-client",
        ANTHROPIC_API_KEY="sk-client",
        AGENT_CONTEXT_STORE="sqlite:///agent.db",
        LITELLM_LOCAL_MODEL_COST_MAP="True",
        PYTHONPATH=str(ROOT / "src"),
    )
    environment["PATH"] = os.environ["PATH"]
    text = program.text.replace("$MODEL", program.model)
    return subprocess.run(
        [find_python(program.host), "-c", f"import elision.auto\n{text}"],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def read_calls(folder: Path) -> list[CallReport]:
    """The calls of the only session of the program's store."""
    with closing(open_existing(f"sqlite:///{folder / 'agent.db'}")) as store:
        (info,) = store.sessions()
        sizer = Sizer(make_counter("estimate"))
        return list(load_session_log(store, info, sizer, add_plateau_guard(Guards())).build_report().calls)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_unchanged_program(name: str, tmp_path: Path) -> None:
    """It ends as before, old results are hidden on the way, and every call is recorded with its usage."""
    program = PROGRAMS[name]
    skip_if_missing(program.host)
    with Playback(make_script()) as provider:
        done = run_program(program, tmp_path, provider.url)
    assert done.returncode == 0, done.stderr[-4_000:]
    # Agno's content has the words of every step.
    assert done.stdout.strip().endswith(ANSWER), done.stderr[-4_000:]
    assert provider.violations == []
    asked = [each for each in provider.requests if each.turn is not None]
    assert len(asked) == LOOKS + 1
    assert b"tokens hidden" in asked[-1].raw
    calls = read_calls(tmp_path)
    assert len(calls) == LOOKS + 1
    assert all(each.usage is not None for each in calls)
