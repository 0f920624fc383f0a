# mypy: ignore-errors
# What this imports is in an environment of its own.
"""What CrewAI's adapter does beside the contract."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

from crewai import Agent, BaseLLM, Crew, Task
from crewai.tools import tool
from crewai.utilities.exceptions.context_window_exceeding_exception import LLMContextLengthExceededError
from pydantic import Field

from elision import Sessions, Usage
from elision.adapters.crewai import ElisionCrew, _read_usage
from elision.errors import SettingError

STRATEGY = "masking(window=2, schedule=every-turn)"


class ScriptedLLM(BaseLLM):
    """Each answer is a number: of the part to look at, or a text, or an error. It keeps what it was sent."""

    answers: list[Any] = Field(default_factory=list)
    sent: list[Any] = Field(default_factory=list)
    window: int = 1_000_000
    thinking: Any = None

    def supports_function_calling(self) -> bool:
        return True

    def get_context_window_size(self) -> int:
        return self.window

    def call(self, messages: Any, *rest: Any, **named: Any) -> Any:
        self.sent.append(messages if isinstance(messages, str) else list(messages))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, int):
            return answer
        function = SimpleNamespace(name="look", arguments=json.dumps({"part": answer}))
        return [SimpleNamespace(id=f"call_{answer}", type="function", function=function)]


@tool("look")
def look(part: int) -> str:
    """Lists a part."""
    return "\n".join(f"part {part}, line {line}" for line in range(200))


def run_crew(llm: BaseLLM, **options: Any) -> tuple[str, Agent]:
    agent = Agent(role="Lister", goal="List.", backstory="You list.", llm=llm, tools=[look], cache=False, **options)
    task = Task(description="List all.", expected_output="All.", agent=agent)
    return str(Crew(agents=[agent], tasks=[task], tracing=False).kickoff()), agent


def count_hidden(messages: list[Any]) -> int:
    return sum(str(message["content"]).startswith("[") for message in messages)


def check_wrapped_once() -> None:
    with ElisionCrew(store="memory:") as elision:
        llm = elision.wrap_llm(ScriptedLLM(model="gpt-5"))
        try:
            elision.wrap_llm(llm)
        except SettingError as error:
            message = str(error)
    assert "wrapped already" in message


def check_no_summary_of_what_is_not_sent() -> None:
    """CrewAI would summarize its own messages for good here: they are longer than the model's window."""
    llm = ScriptedLLM(model="gpt-5", answers=[*range(1, 9), "Listed."], window=6_000)
    with ElisionCrew(STRATEGY, store="memory:") as elision:
        text, agent = run_crew(elision.wrap_llm(llm))
    assert text == "Listed."
    assert len(llm.sent) == 9
    assert count_hidden(llm.sent[-1]) == 6
    assert sum(len(str(message["content"])) for message in agent.agent_executor.messages) > 20_000


def check_second_overflow_is_crewais() -> None:
    """A prompt that is refused twice is summarized by CrewAI, as without Elision."""
    error = LLMContextLengthExceededError("prompt is too long: 9000 tokens > 4000 maximum")
    llm = ScriptedLLM(model="gpt-5", answers=[*range(1, 6), error, error, "Listed.", "Listed."])
    with ElisionCrew("masking(window=2)", store="memory:") as elision:
        text, _ = run_crew(elision.wrap_llm(llm), respect_context_window=True)
    assert text == "Listed."
    assert count_hidden(llm.sent[5]) < count_hidden(llm.sent[6])


def check_text_prompt_passes() -> None:
    llm = ScriptedLLM(model="gpt-5", answers=["Yes."])
    with ElisionCrew(store="memory:") as elision:
        assert elision.wrap_llm(llm).call("Is it so?") == "Yes."
        assert len(elision.sessions) == 0
    assert llm.sent == ["Is it so?"]


def check_bound_thinking_is_left_alone() -> None:
    """CrewAI keeps signed thinking apart from its messages: nothing may change before it."""
    logging.getLogger("elision.adapters").setLevel(logging.ERROR)
    llm = ScriptedLLM(model="claude-opus-5-5", answers=[*range(1, 7), "Listed."], thinking={"type": "adaptive"})
    with ElisionCrew(STRATEGY, store="memory:") as elision:
        run_crew(elision.wrap_llm(llm))
    assert count_hidden(llm.sent[-1]) == 0


def check_shared_sessions_stay_open() -> None:
    llm = ScriptedLLM(model="gpt-5", answers=[*range(1, 5), "Listed."])
    with Sessions(STRATEGY, store="memory:") as sessions:
        with ElisionCrew(sessions=sessions) as elision:
            run_crew(elision.wrap_llm(llm))
        assert len(sessions) == 1
        sessions.open("another")


def check_usage_of_each_provider() -> None:
    """OpenAI's, CrewAI's own of Anthropic, Anthropic's own by LiteLLM, Gemini's, Bedrock's."""
    expected = Usage(input=100, output=7, cache_read=900)
    openai = {"prompt_tokens": 1000, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 900}}
    assert _read_usage(openai) == expected
    assert _read_usage({"input_tokens": 1000, "output_tokens": 7, "cached_prompt_tokens": 900}) == expected
    assert _read_usage({"input_tokens": 100, "output_tokens": 7, "cache_read_input_tokens": 900}) == expected
    gemini = {"prompt_token_count": 1000, "candidates_token_count": 7, "cached_prompt_tokens": 900}
    assert _read_usage(gemini) == expected
    assert _read_usage({"inputTokens": 100, "outputTokens": 7, "cacheReadInputTokens": 900}) == expected


def check_usage_that_cannot_be_read() -> None:
    class CountingLLM(ScriptedLLM):
        def call(self, messages: Any, *rest: Any, **named: Any) -> Any:
            self._track_token_usage_internal({"inputTokens": "many"})
            return super().call(messages, *rest, **named)

    logging.getLogger("elision.adapters").setLevel(logging.CRITICAL)
    llm = CountingLLM(model="gpt-5", answers=[1, 2, "Listed."])
    with ElisionCrew(STRATEGY, store="memory:") as elision:
        assert run_crew(elision.wrap_llm(llm))[0] == "Listed."
