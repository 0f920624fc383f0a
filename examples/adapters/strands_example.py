"""Run a Strands agent against a scripted model, offline, and print what Elision hid and saved."""

import json

from strands import Agent, tool
from strands.models import Model

from elision.adapters.strands import ElisionStrandsPlugin


class ScriptedModel(Model):
    """Reads 24 files, then the first one again, which is hidden by then, and ends."""

    last_request = None

    async def stream(self, messages, tool_specs=None, system_prompt=None, **options):
        self.last_request = messages
        number = sum(message["role"] == "assistant" for message in messages)
        name, arguments = "read_file", {"path": f"part_{number}.py"}
        if number == 24:
            name, arguments = "elision_recall", {"handle": "t1.1", "lines": "40-41"}
        yield {"messageStart": {"role": "assistant"}}
        if number <= 24:
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": f"call_{number}", "name": name}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(arguments)}}}}
        else:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": "All files are read."}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if number <= 24 else "end_turn"}}

    def get_config(self):
        return {"model_id": "gpt-5"}

    def update_config(self, **config):
        pass

    def structured_output(self, *arguments, **options):
        raise NotImplementedError


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return "\n".join(f"{path}, line {line}: total += {line}" for line in range(120))


def read_result(message):
    return message["content"][0]["toolResult"]["content"][0]["text"]


with ElisionStrandsPlugin("masking(window=5)", store="memory:") as elision:
    model = ScriptedModel()
    options = {"context_manager": False, "callback_handler": None, "agent_id": "reader"}
    agent = Agent(model=model, tools=[read_file], plugins=[elision], **options)
    agent("Read all files.")
    savings = elision.sessions.open(f"{agent.session_id}/reader").session.report().savings

print("sent:", read_result(model.last_request[2]))
print("kept:", read_result(agent.messages[2])[:27])
print("recalled:", read_result(agent.messages[50]).splitlines()[0])
print(f"saved: {savings.tokens:,} of {savings.raw_tokens:,} prompt tokens")
