# mypy: ignore-errors
# What this imports is in an environment of its own.
"""What smolagents' adapter does beside the contract."""

from __future__ import annotations

from typing import Any

from smolagents import ChatMessage, CodeAgent, MessageRole, Model, TokenUsage, ToolCallingAgent, tool
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction

from elision import Sessions
from elision.adapters.smolagents import ElisionMemory
from elision.errors import SettingError
from tests.adapters.case_runner import catch

STRATEGY = "masking(window=2, schedule=every-turn)"


class ScriptedModel(Model):
    """Each answer is a text, a call of a tool, or an error. It keeps what it was sent."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(model_id="gpt-5")
        self.answers = list(answers)
        self.requests: list[list[ChatMessage]] = []

    def generate(self, messages: Any, *rest: Any, **named: Any) -> ChatMessage:
        self.requests.append(list(messages))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        usage = TokenUsage(1000 * len(self.requests), 7)
        if isinstance(answer, str):
            return ChatMessage(role=MessageRole.ASSISTANT, content=answer, token_usage=usage)
        function = ChatMessageToolCallFunction(name=answer[0], arguments=answer[1])
        call = ChatMessageToolCall(id=f"call_{len(self.requests)}", type="function", function=function)
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call], token_usage=usage)


@tool
def look(part: int) -> str:
    """Lists a part.

    Args:
        part: Which.
    """
    return "\n".join(f"part {part}, line {line}" for line in range(200))


def read_texts(messages: list[ChatMessage]) -> list[str]:
    return ["".join(part.get("text", "") for part in message.content) for message in messages]


def count_hidden(messages: list[ChatMessage]) -> int:
    return sum(text.startswith("Observation:\n[t") for text in read_texts(messages))


def make_agent(model: Model, kind: Any = ToolCallingAgent, **options: Any) -> Any:
    return kind(tools=[look], model=model, max_steps=30, verbosity_level=0, **options)


def list_looks(count: int) -> list[tuple[str, dict[str, int]]]:
    return [("look", {"part": number}) for number in range(1, count + 1)]


END = ("final_answer", {"answer": "Listed."})


def check_attached_once() -> None:
    with ElisionMemory(store="memory:") as elision:
        agent = elision.attach(make_agent(ScriptedModel()))
        assert "attached already" in catch(SettingError, lambda: elision.attach(agent))


def check_code_agent() -> None:
    """A code agent writes its calls; a recall by place or by name gives the text."""
    blocks = [f"<code>\nprint(look(part={number}))\n</code>" for number in range(1, 7)]
    recalls = ['<code>\nprint(elision_recall("t1.1", head=1))\n</code>']
    model = ScriptedModel(*blocks, *recalls, '<code>\nfinal_answer("Listed.")\n</code>')
    with ElisionMemory(STRATEGY, store="memory:") as elision:
        agent = elision.attach(make_agent(model, CodeAgent))
        assert agent.run("List.") == "Listed."
    assert count_hidden(model.requests[-1]) >= 4
    assert "elision_recall" in read_texts(model.requests[0])[0]
    assert "part 1, line 0" not in read_texts(model.requests[-1])[3]
    recalled = read_texts(model.requests[-1])[-1]
    assert "1: " in recalled, recalled
    assert "part 3, line 199" in agent.memory.steps[3].observations


def check_second_run_is_a_session() -> None:
    """A run that begins anew has a session of its own; one that continues has not."""
    model = ScriptedModel(*list_looks(3), END, *list_looks(3), END, *list_looks(3), END)
    with ElisionMemory(STRATEGY, store="memory:") as elision:
        agent = elision.attach(make_agent(model))
        agent.run("List.")
        first = agent._elision.session
        agent.run("Go on.", reset=False)
        assert agent._elision.session == first
        agent.run("List others.")
        assert agent._elision.session != first
        assert len(elision.sessions) == 2


def check_managed_agents() -> None:
    """They are attached with their manager, and their sessions name its."""
    child_model = ScriptedModel(*list_looks(4), END)
    child = make_agent(child_model, name="helper", description="Lists.")
    model = ScriptedModel(("helper", {"task": "List."}), END)
    with ElisionMemory(STRATEGY, store="memory:") as elision:
        agent = elision.attach(make_agent(model, managed_agents=[child]))
        agent.run("List.")
        assert child._elision.session != agent._elision.session
        assert len(elision.sessions) == 2
        assert len(elision.sessions.open(child._elision.session).turns) == 4
    assert count_hidden(child_model.requests[-1]) == 2


def check_second_overflow_ends_the_run() -> None:
    error = ValueError("prompt is too long: 9000 tokens > 4000 maximum")
    model = ScriptedModel(*list_looks(5), error, error)
    with ElisionMemory("masking(window=2)", store="memory:") as elision:
        agent = elision.attach(make_agent(model))
        assert "too long" in catch(Exception, lambda: agent.run("List."))
    assert len(model.requests) == 7
    assert count_hidden(model.requests[6]) > count_hidden(model.requests[5])


def check_plans_are_made_from_the_whole() -> None:
    """smolagents' own shorter form of the memory is unchanged."""
    model = ScriptedModel("A plan.", *list_looks(5), "Another plan.", ("look", {"part": 6}), END)
    with ElisionMemory(STRATEGY, store="memory:") as elision:
        agent = elision.attach(make_agent(model, planning_interval=5))
        agent.run("List.")
    # Between the fifth step and the sixth.
    plan = "".join(read_texts(model.requests[6]))
    assert "part 1, line 199" in plan
    assert count_hidden(model.requests[7]) >= 3


def check_failed_step_without_calls() -> None:
    """An answer that cannot be parsed is a step without calls: it passes."""
    model = ScriptedModel(*list_looks(4), "no call at all", *list_looks(1), END)
    with ElisionMemory(STRATEGY, store="memory:") as elision:
        agent = elision.attach(make_agent(model))
        assert agent.run("List.") == "Listed."
    assert count_hidden(model.requests[-1]) >= 2
    assert any(text.startswith("Error:") for text in read_texts(model.requests[-1]))


def check_shared_sessions_stay_open() -> None:
    model = ScriptedModel(*list_looks(2), END)
    with Sessions(STRATEGY, store="memory:") as sessions:
        with ElisionMemory(sessions=sessions) as elision:
            elision.attach(make_agent(model)).run("List.")
        assert len(sessions) == 1
        sessions.open("another")
