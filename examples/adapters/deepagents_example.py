"""Run a deep agent against a scripted model, and print what Elision hid and saved."""

from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

from elision.adapters.deepagents import ElisionSummarization

last_request = []


class ScriptedModel(GenericFakeChatModel):
    """Says its messages one after the other."""

    def bind_tools(self, tools, **options):
        return self

    def _generate(self, messages, *arguments, **options):
        last_request[:] = messages
        return super()._generate(messages, *arguments, **options)


def search_logs(day: int) -> str:
    """Return the log of a day."""
    return "\n".join(f"day {day}, minute {minute}: nothing happened" for minute in range(120))


calls = [{"id": f"call_{day}", "name": "search_logs", "args": {"day": day}} for day in range(40)]
script = [*(AIMessage("", tool_calls=[call]) for call in calls), AIMessage("Nothing happened.")]

with ElisionSummarization("masking(window=5)", model="gpt-5", store="memory:") as elision:
    # With a real model, its name is known: create_deep_agent("openai:gpt-5", ...).
    model = ScriptedModel(messages=iter(script))
    agent = create_deep_agent(model, [search_logs], middleware=[elision], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "thread-1"}, "recursion_limit": 200}
    state = agent.invoke({"messages": [{"role": "user", "content": "Find what happened."}]}, config)
    savings = elision.sessions.open("thread-1").session.report().savings

print("sent:", next(message.content for message in last_request if message.type == "tool"))
print("kept:", next(message.content for message in state["messages"] if message.type == "tool").splitlines()[0])
print(f"saved: {savings.tokens:,} of {savings.raw_tokens:,} prompt tokens")
