"""The usage examples of the published managers with a context manager: the same loops, the same questions after."""

from __future__ import annotations

from elision.manager import ContextManager
from elision.telemetry.context_report import ContextReport
from elision.trajectory.plan import SummaryRequest

SYSTEM = "You are careful."
TASK = "Find the slow module."


class ScriptedLLM:
    """A model that takes one prompt string and returns reasoning and an action. prompts: those that it was given."""

    def __init__(self, done_at: int = 0) -> None:
        self.prompts: list[str] = []
        self._done_at = done_at

    def generate(self, context: str) -> tuple[str, str]:
        self.prompts.append(context)
        turn = len(self.prompts)
        if turn == self._done_at:
            return "DONE: it is the last part.", "submit"
        return f"Part {turn} is not slow, the next one may be.", f"look at part {turn}"


class Environment:
    """Returns a long observation for any action."""

    def execute(self, action: str) -> str:
        return "\n".join(f"{action}, line {line}: nothing takes long here" for line in range(10))


class SummarizerLLM:
    """Writes summaries. summaries: what it wrote."""

    def __init__(self) -> None:
        self.summaries: list[str] = []

    def __call__(self, request: SummaryRequest) -> str:
        first, last = request.turns[0].index, request.turns[-1].index
        self.summaries.append(f"Parts {first} to {last} were looked at; none is slow.")
        return self.summaries[-1]


def run_agent(manager: ContextManager, llm: ScriptedLLM, max_turns: int = 250) -> tuple[dict[str, bool], ContextReport]:
    """The published `run_agent`: context, model, environment, `add_turn`, complete or at the limit."""
    environment = Environment()
    manager.turns.begin(TASK, system=SYSTEM)
    for _ in range(max_turns):
        reasoning, action = llm.generate(manager.turns.view().text())
        manager.turns.add(reasoning, action, environment.execute(action))
        if reasoning.startswith("DONE"):
            return {"completed": True}, manager.session.report()
    return {"completed": False, "hit_limit": True}, manager.session.report()


def test_the_summarization_example() -> None:
    """Summaries at turns 31, 52 and 73; the figures of `get_stats`, counted and not assumed; a bounded prompt."""
    llm = ScriptedLLM()
    writer = SummarizerLLM()
    strategy = "summarization(every=21, tail=10, schedule=every-turn)"
    with ContextManager(strategy, store="memory:", prices="uncached", summarizer=writer) as manager:
        _, stats = run_agent(manager, llm, max_turns=75)
    assert (stats.turns, stats.summaries.count) == (75, 3)
    assert stats.summaries.frequency == 25
    assert stats.summaries.usd > 0
    assert writer.summaries[-1] == "Parts 43 to 63 were looked at; none is slow."
    lengths = [len(prompt) for prompt in llm.prompts]
    # The saw: each summary makes the next prompt shorter, and none is longer than those of the warm-up.
    falls = [number for number in range(1, 75) if lengths[number] < lengths[number - 1]]
    assert falls == [31, 52, 73]
    assert max(lengths[32:]) <= 1.02 * max(lengths[:31])
    assert llm.prompts[74].startswith(
        f"{SYSTEM}\n{TASK}\n\n[Summary through turn 63:\n{writer.summaries[-1]}\n]\n\nTurn 64:"
    )


def test_the_hybrid_example_completes() -> None:
    """Masking at once, summaries at turns 43, 76 and 109; the efficiency report under its published keys."""
    llm = ScriptedLLM(done_at=120)
    strategy = "hybrid(window=10, summarize_at=43, tail=10, schedule=every-turn)"
    with ContextManager(strategy, store="memory:", prices="uncached", summarizer=SummarizerLLM()) as manager:
        ended, report = run_agent(manager, llm)
    assert ended == {"completed": True}
    found = report.to_dict()
    assert found["phase"] == "summarizing"
    # Turn 12 is the first whose prompt had a placeholder, turn 44 the first behind a summary.
    assert found["phases"] == {"raw": 11, "masking": 32, "summarizing": 77}
    assert (found["summaries"]["count"], found["summaries"]["frequency"]) == (3, 40.0)
    assert found["savings"]["tokens"] > 0
    assert 0 < found["savings"]["estimated_cost"] == found["savings"]["raw_usd"] - found["savings"]["our_usd"]
    # Without a prompt cache: the share of the bill that was saved.
    assert 0.5 < found["efficiency_score"] < 1
    assert max(map(len, llm.prompts[43:])) <= 1.03 * max(map(len, llm.prompts[:43]))


def test_the_hybrid_example_hits_its_limit() -> None:
    """A run that is not complete after `max_turns` says so; below the first summary it is masking alone."""
    with ContextManager("hybrid(schedule=every-turn)", store="memory:", prices="uncached") as manager:
        ended, report = run_agent(manager, ScriptedLLM(), max_turns=40)
    assert ended == {"completed": False, "hit_limit": True}
    assert (report.phase, report.summaries.count, report.summaries.frequency) == ("masking", 0, None)
