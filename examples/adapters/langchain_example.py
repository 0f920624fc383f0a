"""Run an agent of LangChain against a scripted model, and print what Elision hid and saved."""

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

from elision.adapters.langchain import ElisionMiddleware

last_request = []


class ScriptedModel(GenericFakeChatModel):
    """Says its messages one after the other."""

    def bind_tools(self, tools, **options):
        return self

    def _generate(self, messages, *arguments, **options):
        last_request[:] = messages
        return super()._generate(messages, *arguments, **options)


def read_file(path: str) -> str:
    """Read a file."""
    return "\n".join(f"{path}, line {line}: total += {line}" for line in range(120))


calls = [{"id": f"call_{number}", "name": "read_file", "args": {"path": f"part_{number}.py"}} for number in range(24)]
script = [*(AIMessage("", tool_calls=[call]) for call in calls), AIMessage("All files are read.")]

with ElisionMiddleware("masking(window=5)", model="gpt-5", store="memory:") as elision:
    # With a real model, its name is known: create_agent("openai:gpt-5", ...).
    model = ScriptedModel(messages=iter(script))
    agent = create_agent(model, [read_file], middleware=[elision], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "thread-1"}, "recursion_limit": 100}
    state = agent.invoke({"messages": [{"role": "user", "content": "Read all files."}]}, config)
    savings = elision.sessions.open("thread-1").session.report().savings

print("sent:", last_request[2].content)
print("kept:", state["messages"][2].content.splitlines()[0])
print(f"saved: {savings.tokens:,} of {savings.raw_tokens:,} prompt tokens")
