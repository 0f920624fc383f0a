"""What hiding saved, and what the cache did, in words: one wording wherever the command line says "saved"."""

from __future__ import annotations

from elision.lab.report import figures
from elision.telemetry.diagnostics import Costs
from elision.telemetry.percent import MINUS


def choose_mood(saved_usd: float) -> str:
    """Return the mood of a saving: better, worse where it cost more, "" for nothing."""
    if saved_usd > 0:
        return "better"
    return "worse" if saved_usd < 0 else ""


def format_signed_usd(usd: float) -> str:
    """USD that may be negative."""
    return f"{MINUS}{figures.format_usd(-usd)}" if usd < 0 else figures.format_usd(usd)


def describe_hiding(costs: Costs) -> str:
    """`hiding saved $0.12 (−18 %)`: net, as a share of the bill of sending everything with the same cache."""
    change = figures.format_change(costs.hiding_ratio)
    if costs.hiding < 0:
        return f"hiding cost {figures.format_usd(-costs.hiding)} more ({change})"
    return f"hiding saved {figures.format_usd(costs.hiding)} ({change})"


def describe_caching(costs: Costs) -> str:
    """What cache breakpoints of ours saved where the client sets none; "" where they did not."""
    if costs.caching <= 0:
        return ""
    return f"cache breakpoints, which the client does not set, saved {figures.format_usd(costs.caching)}"
