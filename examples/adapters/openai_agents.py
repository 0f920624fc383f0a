"""Run an agent of the OpenAI Agents SDK against its scripted model, and print what Elision hid and saved."""

from agents import Agent, Runner, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from elision.adapters.openai_agents import ElisionAgents

last_request = []


def read_part(number):
    """Return a step in which the model reads one more file."""

    def respond(request):
        last_request[:] = request.input
        return ModelStep(output=[function_call("read_file", {"path": f"part_{number}.py"}, call_id=f"call_{number}")])

    return ModelStep.respond(respond)


@function_tool
def read_file(path: str) -> str:
    """Read a file."""
    return "\n".join(f"{path}, line {line}: total += {line}" for line in range(120))


steps = [*map(read_part, range(24)), ModelStep(output=[assistant_message("All files are read.")])]
with ElisionAgents("masking(window=5)", model="gpt-5", store="memory:") as elision:
    # A model that is a name needs no wrap_model: Agent(model="gpt-5", ...).
    model = elision.wrap_model(ScriptedModel(steps), "gpt-5")
    agent = Agent(name="Reader", model=model, tools=[read_file, *elision.tools])
    result = Runner.run_sync(agent, "Read all files.", run_config=elision.run_config("thread-1"), max_turns=30)
    savings = elision.sessions.open("thread-1/Reader").session.report().savings

print("sent:", last_request[2]["output"])
print("kept:", result.to_input_list()[2]["output"][:35])
print(f"saved: {savings.tokens:,} of {savings.raw_tokens:,} prompt tokens")
