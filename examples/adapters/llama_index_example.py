"""Run an agent of LlamaIndex against its scripted LLM, and print what Elision hid and saved."""

import asyncio

from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import Memory

from elision.adapters.llama_index import ElisionFunctionAgents

last_request = []


def read_file(path: str) -> str:
    """Read a file."""
    return "\n".join(f"{path}, line {line}: total += {line}" for line in range(120))


def answer(messages, **options):
    """Read one more file, up to 24."""
    last_request[:] = messages
    number = sum(message.role == "tool" for message in messages)
    if number == 24:
        return ChatMessage(role="assistant", content="All files are read.")
    arguments = {"path": f"part_{number}.py"}
    call = ToolCallBlock(tool_call_id=f"call_{number}", tool_name="read_file", tool_kwargs=arguments)
    return ChatMessage(role="assistant", blocks=[call])


async def main():
    with ElisionFunctionAgents("masking(window=5)", model="gpt-5", store="memory:") as elision:
        # With a real LLM, its name is known: elision.make_agent(llm=OpenAI(model="gpt-5"), ...).
        agent = elision.make_agent(llm=MockFunctionCallingLLM(response_generator=answer), tools=[read_file])
        memory = Memory.from_defaults(session_id="thread-1", token_limit=1_000_000)
        await agent.run("Read all files.", memory=memory, max_iterations=50)
        savings = elision.sessions.open("thread-1/Agent").session.report().savings
    print("sent:", last_request[2].content)
    print("kept:", (await memory.aget_all())[2].content.splitlines()[0])
    print(f"saved: {savings.tokens:,} of {savings.raw_tokens:,} prompt tokens")


asyncio.run(main())
