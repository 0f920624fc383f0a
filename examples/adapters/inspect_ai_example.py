"""Run Inspect's `react` agent against its mock model, offline, and print what Elision hid and saved."""

from inspect_ai import Task, eval
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.tool import tool

from elision.adapters.inspect_ai import ElisionInspect

last_request = []


def play(messages, tools, tool_choice, config):
    """Read 24 files, then the first one again, which is hidden by then, and end."""
    last_request[:] = messages
    number = sum(message.role == "assistant" for message in messages)
    output = ModelOutput.from_content("mockllm/model", "All files are read.")
    if number < 24:
        output = ModelOutput.for_tool_call("mockllm/model", "read_file", {"path": f"part_{number}.py"})
    elif number == 24:
        output = ModelOutput.for_tool_call("mockllm/model", "elision_recall", {"handle": "t1.1", "lines": "40-41"})
    tokens = sum(len(message.text) for message in messages) // 4
    output.usage = ModelUsage(input_tokens=tokens, output_tokens=20, total_tokens=tokens + 20)
    return output


@tool
def read_file():
    async def execute(path: str) -> str:
        """Read a file.

        Args:
            path: Its path.
        """
        return "\n".join(f"{path}, line {line}: total += {line}" for line in range(120))

    return execute


with ElisionInspect("masking(window=5)", model="gpt-5", store="memory:") as elision:
    agent = react(prompt=None, model=elision.make_model(), tools=[read_file(), *elision.tools], submit=False)
    task = Task(name="files", dataset=[Sample("Read all files.", id="s1")], solver=agent)
    (log,) = eval(task, model=get_model("mockllm/model", custom_outputs=play), display="none", log_dir="logs")
    messages = log.samples[0].messages
    savings = elision.sessions.open(f"files/s1/1/{messages[0].id}").session.report().savings

print("sent:", last_request[2].text)
print("kept:", messages[2].text[:27])
print("recalled:", messages[50].text.splitlines()[0])
print(f"saved: {savings.tokens:,} of {savings.raw_tokens:,} prompt tokens")
