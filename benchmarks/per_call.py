"""Work per call grows with what is new, not with the history: late calls of a long run against early ones."""

from __future__ import annotations

from statistics import mean
from time import perf_counter

from benchmarks.stitched import runs, stitched
from elision.engine import Log, LogSetup, decide, make_plain_terms, run_pass
from elision.lab.replay import model_free_summarizer
from elision.providers.openai_chat.messages import OpenAIChatRenderer
from elision.strategies.spec import parse_strategy
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory

EARLY, LATE = range(90, 111), range(990, 1011)
STRATEGIES = ("raw", "masking", "hybrid", "masking(schedule=every-turn)")
#: The bound that the issue sets, for the calls that rewrite nothing.
BOUND = 2.0


def timed(run: Trajectory, spec: str) -> dict[int, tuple[float, bool]]:
    """Seconds that deciding and rendering took at each call, and whether the call rewrote anything.

    Token counts are in the cache already: counting text is work on what is new, and would hide the rest.
    """
    session = Log.fold((), LogSetup(parse_strategy(spec), find_price_set("anthropic"), Sizer(make_counter())))
    session.set_head(run.head)
    renderer, summarizer, epoch = OpenAIChatRenderer(), model_free_summarizer(session.sizer), 1
    taken: dict[int, tuple[float, bool]] = {}
    for turn in run.turns:
        start = perf_counter()
        view = run_pass(decide(session, make_plain_terms(turn.at)), summarizer)
        renderer.render_messages(view)
        seconds = perf_counter() - start
        taken[turn.index] = (seconds, view.epoch != epoch)
        epoch = view.epoch
        session.add_turn(turn)
    return taken


def ratio(run: Trajectory, spec: str, repeats: int) -> tuple[float, int]:
    """Mean seconds of late calls / of early calls, best of `repeats`, and how many late calls rewrote nothing."""
    timed(run, spec)
    ratios, counted = [], 0
    for _ in range(repeats):
        taken = timed(run, spec)
        early = [taken[call][0] for call in EARLY if not taken[call][1]]
        late = [taken[call][0] for call in LATE if not taken[call][1]]
        counted = len(late)
        if early and late:
            ratios.append(mean(late) / mean(early))
    return min(ratios, default=float("nan")), counted


def main(*, small: bool = False) -> None:
    run = stitched([part for part in runs() if len(part.turns) > 60], 1_020)
    print(f"Deciding and rendering, calls {LATE[0]}-{LATE[-1]} / calls {EARLY[0]}-{EARLY[-1]}, without rewrites:")
    for spec in STRATEGIES:
        found, counted = ratio(run, spec, repeats=1 if small else 3)
        if counted == 0 or found != found:
            print(f"  {spec:32} rewrites at every call")
        else:
            print(f"  {spec:32} {found:5.2f} x   (bound {BOUND:.0f} x, {counted} late calls)")
