"""Run an agent of Pydantic AI against its scripted model, and print what Elision hid and saved."""

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from elision.adapters.pydantic_ai import ElisionCapability

last_request = []


def play(messages, info):
    """Answer as a model that reads 24 files, one after another."""
    last_request[:] = messages
    number = sum(isinstance(message, ModelResponse) for message in messages)
    if number == 24:
        return ModelResponse(parts=[TextPart("All files are read.")])
    return ModelResponse(parts=[ToolCallPart("read_file", {"path": f"part_{number}.py"}, f"call_{number}")])


def read_file(path: str) -> str:
    """Read a file."""
    return "\n".join(f"{path}, line {line}: total += {line}" for line in range(120))


with ElisionCapability("masking(window=5)", store="memory:") as elision:
    agent = Agent(FunctionModel(play, model_name="gpt-5"), tools=[read_file], capabilities=[elision])
    result = agent.run_sync("Read all files.")
    savings = elision.sessions.open(result.conversation_id).session.report().savings

print("sent:", last_request[2].parts[0].content)
print("kept:", result.all_messages()[2].parts[0].content[:29])
print(f"saved: {savings.tokens:,} of {savings.raw_tokens:,} prompt tokens")
