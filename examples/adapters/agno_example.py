"""Run an agent of Agno against a scripted model, and print what Elision hid and saved."""

import json
from dataclasses import dataclass

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.base import Model
from agno.models.response import ModelResponse

from elision.adapters.agno import ElisionAgnoModels

last_request = []


@dataclass
class ScriptedModel(Model):
    """Reads one more file, up to 24."""

    id: str = "gpt-5"

    def invoke(self, messages, **request):
        last_request[:] = messages
        number = sum(message.role == "tool" for message in messages)
        if number == 24:
            return ModelResponse(role="assistant", content="All files are read.")
        function = {"name": "read_file", "arguments": json.dumps({"path": f"part_{number}.py"})}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        return ModelResponse(role="assistant", tool_calls=[call])

    ainvoke = invoke_stream = ainvoke_stream = _parse_provider_response = _parse_provider_response_delta = None


def read_file(path: str) -> str:
    """Read a file."""
    return "\n".join(f"{path}, line {line}: total += {line}" for line in range(120))


with ElisionAgnoModels("masking(window=5)", store="memory:") as elision:
    model = elision.wrap_model(ScriptedModel())
    agent = Agent(model=model, tools=[read_file, *elision.tools], db=InMemoryDb(), telemetry=False)
    result = agent.run("Read all files.", session_id="thread-1")
    savings = elision.sessions.open("thread-1").session.report().savings

print("sent:", next(message.content for message in last_request if message.role == "tool"))
print("kept:", next(message.content for message in result.messages if message.role == "tool").splitlines()[0])
print(f"saved: {savings.tokens:,} of {savings.raw_tokens:,} prompt tokens")
