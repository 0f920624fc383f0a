"""Does the agent still succeed, and what does a solved task cost? `elision lab closed-loop`, as the docs promise it."""

from __future__ import annotations

import os

from elision.testing.loop.closed_loop import Variant
from elision.testing.loop.comparison import format_comparisons
from elision.testing.loop.loop_study import PRICES, VARIANTS, LoopSettings, run_loop_study
from elision.testing.loop.task_plan import Knobs

SMALL_SEEDS = 2


def main(*, small: bool = False) -> None:
    variants = [Variant.parse(text) for text in VARIANTS]
    if small:
        settings = LoopSettings(variants=variants, seeds=SMALL_SEEDS, prices=PRICES[:1], knobs=Knobs(calls=40))
    else:
        settings = LoopSettings(variants=variants)
    print(format_comparisons(run_loop_study(settings, processes=os.cpu_count() or 1).comparisons))
