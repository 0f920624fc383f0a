"""Run a conversation of `llm` with a scripted model, and print what Elision hid and saved."""

import llm

from elision.adapters.llm import ElisionLLM

last_request = []


class Script(llm.Model):
    """A model that reads 24 files, one after another."""

    model_id = "gpt-5"
    supports_tools = True

    def execute(self, prompt, stream, response, conversation):
        last_request[:] = prompt.messages
        number = sum(message.role == "assistant" for message in prompt.messages)
        response.set_usage(input=len(str(prompt.messages)) // 4, output=20)
        if number < 24:
            path = {"path": f"part_{number}.py"}
            response.add_tool_call(llm.ToolCall(tool_call_id=f"call_{number}", name="read_file", arguments=path))
            yield ""
        else:
            yield "All files are read."


def read_file(path: str) -> str:
    """Read a file."""
    return "\n".join(f"{path}, line {line}: total += {line}" for line in range(120))


with ElisionLLM("masking(window=5)", store="memory:") as elision:
    conversation = elision.wrap_model(Script()).conversation()
    print(conversation.chain("Read all files.", tools=[read_file, *elision.tools], chain_limit=0).text())
    savings = elision.sessions.open(conversation.id).session.report().savings

print("sent:", last_request[2].parts[0].output)
print("kept:", conversation.responses[-1].prompt.messages[2].parts[0].output[:29])
print(f"saved: {savings.tokens:,} of {savings.raw_tokens:,} prompt tokens")
