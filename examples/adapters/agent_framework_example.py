"""Run an agent of Microsoft Agent Framework with a scripted client, offline; print what Elision hid and saved."""

import asyncio
import json

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    InMemoryHistoryProvider,
    Message,
    tool,
)

from elision.adapters.agent_framework import ElisionContextProvider

last_request = []


class ScriptedClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Reads 24 files, then the first one again, which is hidden by then, and ends."""

    async def _inner_get_response(self, *, messages, stream, options, **others):
        last_request[:] = messages
        number = sum(message.role == "assistant" for message in messages)
        name, arguments = "read_file", {"path": f"part_{number}.py"}
        if number == 24:
            name, arguments = "elision_recall", {"handle": "t1.1", "lines": "40-41"}
        said = Content.from_function_call(f"call_{number}", name, arguments=json.dumps(arguments))
        if number > 24:
            said = Content.from_text("All files are read.")
        return ChatResponse(messages=[Message("assistant", [said])])


@tool(approval_mode="never_require")
def read_file(path: str) -> str:
    """Read a file."""
    return "\n".join(f"{path}, line {line}: total += {line}" for line in range(120))


async def main():
    """Run the agent."""
    client = ScriptedClient(function_invocation_configuration={"max_iterations": 50})
    with ElisionContextProvider("masking(window=5)", model="gpt-5", store="memory:") as elision:
        providers = [InMemoryHistoryProvider(), elision]
        agent = Agent(client, "You read files.", name="reader", tools=[read_file], context_providers=providers)
        session = agent.create_session(session_id="thread-1")
        response = await agent.run("Read all files.", session=session)
        savings = elision.sessions.open("thread-1/reader").session.report().savings
    print("sent:", last_request[2].contents[0].result)
    print("kept:", response.messages[1].contents[0].result[:27])
    print("recalled:", response.messages[-2].contents[0].result.splitlines()[0])
    print(f"saved: {savings.tokens:,} of {savings.raw_tokens:,} prompt tokens")


asyncio.run(main())
