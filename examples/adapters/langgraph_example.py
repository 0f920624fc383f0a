"""Run a graph of LangGraph against a scripted model, and print what Elision hid and saved."""

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from elision.adapters.langgraph import ElisionGraph

last_request = []


class ScriptedModel(GenericFakeChatModel):
    """Says its messages one after the other."""

    def bind_tools(self, tools, **options):
        return self.bind(tools=tools)

    def _generate(self, messages, *arguments, **options):
        last_request[:] = messages
        return super()._generate(messages, *arguments, **options)


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return "\n".join(f"{path}, line {line}: total += {line}" for line in range(120))


calls = [{"id": f"call_{number}", "name": "read_file", "args": {"path": f"part_{number}.py"}} for number in range(24)]
script = [*(AIMessage("", tool_calls=[call]) for call in calls), AIMessage("All files are read.")]

with ElisionGraph("masking(window=5)", model="gpt-5", store="memory:") as elision:
    # With a real model, its name is known: ChatOpenAI(model="gpt-5").bind_tools(...).
    tools = [read_file, *elision.tools]
    model = elision.wrap(ScriptedModel(messages=iter(script)).bind_tools(tools))

    def call_model(state: MessagesState) -> dict:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("model", call_model).add_node("tools", ToolNode(tools))
    graph = graph.add_edge(START, "model").add_conditional_edges("model", tools_condition).add_edge("tools", "model")
    config = {"configurable": {"thread_id": "thread-1"}, "recursion_limit": 100}
    asked = {"messages": [{"role": "user", "content": "Read all files."}]}
    state = graph.compile(checkpointer=InMemorySaver()).invoke(asked, config)
    savings = elision.sessions.open("thread-1").session.report().savings

print("sent:", last_request[2].content)
print("kept:", state["messages"][2].content.splitlines()[0])
print(f"saved: {savings.tokens:,} of {savings.raw_tokens:,} prompt tokens")
