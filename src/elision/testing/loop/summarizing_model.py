"""A summarizer that stands for a model: it keeps a share of the facts, and what is done."""

from __future__ import annotations

import re

from elision.summarizers.summary_result import SummaryResult
from elision.testing.loop.knobs import draw_share
from elision.testing.loop.world import Skill
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import make_counter
from elision.trajectory.usage import Usage

#: Share of the facts of one summary that the next one keeps.
_KEPT_AGAIN = 0.97


class SummarizingModel:
    """Writes summaries of what it is given. share: of the facts in covered turns that it keeps."""

    def __init__(self, skill: Skill, seed: int, share: float, prices: Prices) -> None:
        self._skill = skill
        self._seed = seed
        self._share = share
        self._prices = prices

    def __call__(self, request: SummaryRequest) -> SummaryResult:
        results = "\n".join(result.text for turn in request.turns for result in turn.observations)
        shown = dict(self._skill.facts.findall(results))
        noted = dict(re.findall(r"(\S+) is `([^`]+)`", request.previous))
        kept = [
            f"{label} is `{shown.get(label, value)}`"
            for label, value in noted.items()
            if draw_share(self._seed, label, "again", len(request.previous)) < _KEPT_AGAIN
        ]
        kept += [
            f"{label} is `{value}`"
            for label, value in shown.items()
            if label not in noted and draw_share(self._seed, label, "summary") < self._share
        ]
        done = re.findall(r"step \d+ accepted", f"{request.previous}\n{results}")[-1:]
        pending = re.findall(r"step \d+: need [^\n\"]+", results)[-1:]
        text = (
            f"COMPLETED: {'; '.join(done) or 'nothing yet'}; all steps before it too.\n"
            f"PENDING: {'; '.join(pending) or 'the next step'}\nCURRENT_STATE: "
            f"{'; '.join(kept) or 'no values are known'}"
        )
        counter = make_counter()
        said = "\n".join(f"{turn.text}\n{''.join(each.arguments for each in turn.actions)}" for turn in request.turns)
        read = counter.count(f"{request.previous}\n{request.task}\n{said}\n") + counter.count(results)
        written = counter.count(text)
        usd = self._prices.cost_usage(Usage(input=read, output=written))
        return SummaryResult(text=text, input=read, output=written, usd=usd)
