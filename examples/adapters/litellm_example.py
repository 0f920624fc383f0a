"""Run a loop on LiteLLM against a scripted provider, and print what Elision hid and saved."""

import asyncio
import json

import litellm
from litellm import CustomLLM, ModelResponse

from elision.adapters.litellm import ElisionCallback

last_request = []


class Script(CustomLLM):
    """A provider whose model reads 24 files, one after another."""

    async def acompletion(self, model, messages, **others):
        last_request[:] = messages
        number = sum(message["role"] == "assistant" for message in messages)
        message = {"role": "assistant", "content": "All files are read."}
        if number < 24:
            function = {"name": "read_file", "arguments": json.dumps({"path": f"part_{number}.py"})}
            message = {"tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]}
        length = len(str(messages)) // 4
        usage = {"prompt_tokens": length, "completion_tokens": 20, "total_tokens": length + 20}
        return ModelResponse(usage=usage, choices=[{"finish_reason": "stop", "message": message}])


async def run_agent(messages):
    """Ask the model and run its tools until it is done."""
    while True:
        response = await litellm.acompletion(model="script/gpt-5", messages=messages, litellm_session_id="thread-7")
        said = response.choices[0].message.model_dump(exclude_none=True)
        messages.append(said)
        if not said.get("tool_calls"):
            return said["content"]
        for call in said["tool_calls"]:
            path = json.loads(call["function"]["arguments"])["path"]
            text = "\n".join(f"{path}, line {line}: total += {line}" for line in range(120))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})


litellm.custom_provider_map = [{"provider": "script", "custom_handler": Script()}]
history = [{"role": "user", "content": "Read all files."}]
with ElisionCallback("masking(window=5)", store="memory:") as elision:
    litellm.callbacks = [elision]
    print(asyncio.run(run_agent(history)))
    savings = elision.sessions.open("thread-7").session.report().savings

print("sent:", last_request[2]["content"])
print("kept:", history[2]["content"][:29])
print(f"saved: {savings.tokens:,} of {savings.raw_tokens:,} prompt tokens")
