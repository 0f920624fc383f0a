"""The compaction conformance kit: constraints planted in a session survive five summaries by a writer that drops them.

The kit (`compaction-conformance-kit` on PyPI) plants rules, facts and preferences in user messages, has a session
compacted five times, and looks for them in what is left. Here the words of the user do not stay as they are
(`keep_user_tokens=0`), and the summarizer keeps none of them. So what is left is left by structure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pytest

from elision import Advanced, ContextManager
from elision.trajectory.plan import SummaryRequest

pytest.importorskip("compaction_kit", reason="compaction-conformance-kit is not installed: the kit does not run")

from compaction_kit.canaries import Canary, seeded_canaries
from compaction_kit.compacted import CompactedContext
from compaction_kit.corpus import build_random_session
from compaction_kit.generated import build_generated_session
from compaction_kit.report import ConformanceReport
from compaction_kit.session import SeededSession, Turn, build_seeded_session
from compaction_kit.testing import assert_type_survival, check_compactor

ROUNDS = 5
#: What the kit calls the types that bind an agent.
BINDING = ("safety_rule", "hard_constraint")
STRATEGY = "summarization(every=4, tail=2, keep_user_tokens=0)"


def forget_everything(request: SummaryRequest) -> str:
    """A summarizer without goodwill: of the user's words it says nothing."""
    return f"The agent acknowledged what it was told, up to turn {request.turns[-1].index}."


class ElisionCompactor:
    """One session of Elision as the kit's compactor: the context of its next call, after a summary of all but its tail.

    Each round after the first goes on with the session: some turns later it is compacted again.
    """

    name = "elision"

    def __init__(self, strategy: str = STRATEGY, summarizer: Any = forget_everything) -> None:
        self.context = ContextManager(
            strategy, store="memory://", summarizer=summarizer, advanced=Advanced(dialect="openai")
        )
        self.messages: list[dict[str, Any]] = []
        self.shown = ""

    def compact(self, turns: Sequence[Turn], round_num: int = 1) -> CompactedContext:
        if round_num == 1:
            self.messages = [{"role": turn.role, "content": turn.text} for turn in turns]
        else:
            assert [turn.text for turn in turns] == [self.shown], "a round begins with what the one before left"
            self.messages += list(make_small_talk(round_num))
        before = self.covered
        self.context.compact(summary=True)
        view = self.context.prepare(self.messages)
        self.shown = "\n".join(f"[{message['role']}] {read_text(message)}" for message in view.messages)
        assert self.covered > before, "each round makes a new summary"
        return CompactedContext(text=self.shown, compactor_name=self.name, round_num=round_num)

    @property
    def covered(self) -> int:
        return max((summary.covers_turns[1] for summary in self.context.session.summaries()), default=0)

    def close(self) -> None:
        self.context.close()


def make_small_talk(round_num: int) -> Iterator[dict[str, str]]:
    for number in range(8):
        yield {"role": "user", "content": f"Remark {number} of round {round_num}: the deploy went through."}
        yield {"role": "assistant", "content": "Acknowledged. Continuing with the plan."}


def read_text(message: Mapping[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content)


def check_session(session: SeededSession, canaries: list[Canary], compactor: ElisionCompactor) -> ConformanceReport:
    with closing(compactor):
        return check_compactor(compactor, session=session, canaries=canaries, rounds=ROUNDS)


def build_session(kind: str, seed: int) -> tuple[SeededSession, list[Canary]]:
    if kind == "generated":
        session, canaries = build_generated_session(seed)
    elif kind == "random":
        session, canaries = build_random_session(seed)
    else:
        session, canaries = build_seeded_session(), seeded_canaries()
    return session, canaries


@pytest.mark.parametrize(
    ("kind", "seed"),
    [("seeded", 0), *(("random", seed) for seed in range(1, 7)), *(("generated", seed) for seed in range(1, 13))],
)
def test_every_planted_constraint_survives_five_rounds(kind: str, seed: int) -> None:
    """100 % after each of five summaries, though their writer keeps none and old words are not kept."""
    report = check_session(*build_session(kind, seed), ElisionCompactor())
    for canary_type in BINDING:
        assert_type_survival(report, canary_type, min_round1=1.0, min_final=1.0)


@pytest.mark.parametrize(("kind", "seed"), [("seeded", 0), ("random", 7), ("generated", 13)])
def test_everything_that_the_user_said_survives_by_default(kind: str, seed: int) -> None:
    """The words of the user stay as they are, up to `keep_user_tokens`: facts and preferences too."""
    report = check_session(*build_session(kind, seed), ElisionCompactor("summarization(every=4, tail=2)", "digest"))
    for finding in report.findings:
        assert_type_survival(report, finding.canary_type, min_round1=1.0, min_final=1.0)


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_cap_that_was_raised_is_carried_once(seed: int) -> None:
    """The newest value of a constraint stays, and the one that it replaced does not."""
    session, canaries = build_random_session(seed)
    report = check_session(session, canaries, ElisionCompactor())
    (cap,) = [each for each in report.diagnoses if each.canary_id == "r-constraint-1"]
    assert not cap.lost
    assert not cap.stale_tokens
