"""How a recorded run was sent: where its agent condensed the history, and what the provider's cache held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from elision.lab.calibrate import Calibration, calibrate_run, make_finding
from elision.lab.run_as_recorded import ContextCut, RecordedSizer, is_recorded_on
from elision.trajectory.cache import AS_FORESEEN, CacheFinding
from elision.trajectory.price_lookup import find_tokenizer, is_same_model
from elision.trajectory.prices import Bill, Prices
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Compaction, Trajectory
from elision.trajectory.usage import Usage
from elision.trajectory.usage_cost import bill_reported_usage

#: What happened to the cache because the agent changed its prompt: it happens at every provider.
_OF_THE_AGENT: Final = "changed-prefix"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRun:
    """What a replay needs to send a run as it was sent.

    cuts, findings: by call. others: the bills of the calls that another model made, where the run is priced as its own
    model. summaries: recorded usage of the calls that wrote the agent's own summaries. unclear: where the agent
    condensed its history, and nothing says to what. billed: what is recorded of the bill, by call; None without it.
    """

    cuts: Mapping[int, ContextCut] = field(default_factory=dict)
    findings: Mapping[int, CacheFinding] = field(default_factory=dict)
    others: Mapping[int, Bill] = field(default_factory=dict)
    summaries: tuple[Usage, ...] = ()
    unclear: tuple[Compaction, ...] = ()
    billed: Calibration | None = None

    def find_cache(self, call: int, *, is_cut: bool) -> CacheFinding:
        """Return what the cache held at `call`. is_cut: whether the run is replayed with its cuts.

        What it held at a cut says nothing about a request that was not cut.
        """
        if call in self.cuts and not is_cut:
            return AS_FORESEEN
        return self.findings.get(call, AS_FORESEEN)


#: Of a run of which nothing but its turns is known.
UNKNOWN_SENT: Final = SentRun()


def describe_sent_run(run: Trajectory, prices: Prices, sizer: Sizer) -> SentRun:
    """Return how `run` was sent, for a replay at `prices`. sizer: counts its messages in that replay."""
    own_tokenizer = find_tokenizer(run.model)
    known = sizer if isinstance(sizer, RecordedSizer) else RecordedSizer(sizer.count_as(own_tokenizer), run)
    billed = calibrate_run(run, Sizer(sizer.counter, reasoning=sizer.reasoning))
    is_own_model = is_recorded_on(run.model, prices)
    scale = prices.tokenizer.tokens_per_counted / own_tokenizer.tokens_per_counted
    findings: dict[int, CacheFinding] = {}
    others: dict[int, Bill] = {}
    calls = billed.calls if billed is not None else ()
    for call in calls:
        if is_own_model and not is_same_model(call.model, run.model) and call.billed.usd is not None:
            others[call.index] = bill_reported_usage(call.billed, prices)
        if not is_own_model and call.cause != _OF_THE_AGENT and not call.restart:
            continue
        finding = make_finding(call.cause, call.billed, is_restart=bool(call.restart))
        if finding != AS_FORESEEN:
            most = None if finding.most is None else round(finding.most * scale)
            findings[call.index] = replace(finding, most=most, warm=round(finding.warm * scale))
    return SentRun(
        cuts={cut.before: cut for cut in known.cuts.cuts},
        findings=findings,
        others=others,
        summaries=tuple(each.usage for each in run.compactions if each.usage is not None),
        unclear=known.cuts.unclear,
        billed=billed,
    )
