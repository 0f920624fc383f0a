"""What the frameworks play: the steps of the model, the texts of its tools, how runs begin, and in which process.

Data only, and of the standard library: every environment imports it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

SYSTEM: Final = "You list the parts of a program. Be careful."
TURNS: Final = 30
MASKING: Final = "masking(window=5)"
#: Rewrites up to call 20, and none at calls 21 to 28, however long a framework's own prompt is: what is left before the
#: known end would not pay for it.
PAUSING: Final = "masking(window=5, schedule=cache-aware(max_turns=28))"
#: Hides each result as soon as it leaves the window, at whatever cost.
EAGER_MASKING: Final = "masking(window=5, schedule=every-turn)"
#: The models of the runs. Prices of both are known.
MODEL: Final = "gpt-5"
OTHER_MODEL: Final = "gpt-5-mini"
BOUND_MODEL: Final = "claude-opus-5-5"

#: A picture of one pixel.
PIXEL: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def list_part(part: int) -> str:
    """Return what the tool `look` returns: some 600 tokens, no two alike."""
    lines = [f"src/part_{part}_{row}.py: {row * 7 + part} lines, needle-{part}-{row}" for row in range(60)]
    return f"listing of part {part}\n" + "\n".join(lines)


def describe_failure(part: int) -> str:
    """Return what the tool `fail` raises: as long as a result, so that hiding it pays too."""
    lines = [f"  at src/part_{part}.py:{row * 3}, in frame_{part}_{row}" for row in range(40)]
    return f"part {part} cannot be read\n" + "\n".join(lines)


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call of a tool: `look`, `fail` (an error), `picture` (an image in the result), `delegate` (a sub-agent)."""

    tool: str
    part: int


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of the model: calls of tools.

    recalls:   once in a run it asks for the first result whose handle appears in the prompt instead, if there is one.
    overflows: the first attempt is refused, as the prompt is too long.
    """

    calls: tuple[PlannedCall, ...]
    recalls: bool = False
    overflows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of an agent: a prompt, what the model does, and how the framework is called.

    thread:   names the history. model: the name of the model.
    begin:    `new`; `continue` what the thread has; `fork`: with the first `turns` turns of `source`, under `thread`.
    door:     `sync` or `async`. stream: whether responses are streamed.
    children: steps of the sub-agents, in the order in which they are started.
    """

    steps: tuple[Step, ...]
    prompt: str = "List all parts."
    thread: str = "thread-1"
    model: str = MODEL
    begin: str = "new"
    source: str = ""
    turns: int = 0
    door: str = "sync"
    stream: bool = False
    children: tuple[tuple[Step, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """legs: each in a process of its own; of acts, one after another; of runs, all at once.

    strategy: of the adapter. fault: where an error is planted: `engine`, `prepare`, or "" for nowhere.
    service:  whether a provider on loopback checks that thinking is bound to its prefix.
    """

    name: str
    legs: tuple[tuple[tuple[Run, ...], ...], ...]
    strategy: str = MASKING
    fault: str = ""
    service: bool = False


def look_at(parts: Iterable[int]) -> tuple[Step, ...]:
    """Return a step with one call of `look` for each part."""
    return tuple(Step((PlannedCall("look", part),)) for part in parts)


def _replace_steps(steps: tuple[Step, ...], **changes: Step) -> tuple[Step, ...]:
    changed = {int(name.removeprefix("at_")): step for name, step in changes.items()}
    return tuple(changed.get(number, step) for number, step in enumerate(steps, 1))


def _run_once(run: Run) -> tuple[tuple[tuple[Run, ...], ...], ...]:
    return (((run,),),)


_THIRTY: Final = look_at(range(1, TURNS + 1))
#: 30 turns; from turn 20 on, once, what is hidden is read again.
_RECALLING: Final = tuple(replace(step, recalls=number >= 20) for number, step in enumerate(_THIRTY, 1))

_PARALLEL: Final = tuple(
    Step(tuple(PlannedCall("look", 3 * number + one) for one in range(3))) if number % 3 == 0 else step
    for number, step in enumerate(look_at(range(101, 101 + TURNS)), 1)
)
_FAILING: Final = tuple(
    Step((PlannedCall("fail", number),)) if number % 5 == 2 else step for number, step in enumerate(_THIRTY, 1)
)
_SHOWING: Final = _replace_steps(
    _THIRTY, at_3=Step((PlannedCall("picture", 3),)), at_7=Step((PlannedCall("picture", 7),))
)
_DELEGATING: Final = _replace_steps(
    look_at(range(1, 13)),
    at_4=Step((PlannedCall("delegate", 4),)),
    at_8=Step((PlannedCall("delegate", 8),)),
)

SCENARIOS: Final = (
    Scenario(name="plain", legs=_run_once(Run(steps=_RECALLING))),
    Scenario(name="async", legs=_run_once(Run(steps=_RECALLING, door="async"))),
    Scenario(name="streamed", legs=_run_once(Run(steps=_RECALLING, door="async", stream=True))),
    Scenario(name="parallel", legs=_run_once(Run(steps=_PARALLEL, door="async"))),
    Scenario(name="failing", legs=_run_once(Run(steps=_FAILING))),
    Scenario(name="pictures", legs=_run_once(Run(steps=_SHOWING))),
    # A run goes on at call 26, between two rewrites.
    Scenario(
        name="resumed",
        strategy=PAUSING,
        legs=(
            ((Run(steps=look_at(range(1, 25))),),),
            ((Run(steps=look_at(range(25, 35)), begin="continue", prompt="Go on."),),),
        ),
    ),
    Scenario(
        name="forked",
        strategy=PAUSING,
        legs=(
            (
                (Run(steps=look_at(range(1, 25))),),
                (
                    Run(
                        steps=look_at(range(41, 51)),
                        begin="fork",
                        source="thread-1",
                        turns=14,
                        thread="thread-2",
                        prompt="Another way from here.",
                    ),
                ),
                (Run(steps=look_at(range(25, 30)), begin="continue", prompt="Go on with the first."),),
            ),
        ),
    ),
    Scenario(
        name="two_at_once",
        legs=(
            (
                (
                    Run(steps=_THIRTY, thread="thread-1", door="async"),
                    Run(steps=look_at(range(201, 231)), thread="thread-2", door="async", prompt="List the others."),
                ),
            ),
        ),
    ),
    Scenario(
        name="sub_agents",
        legs=_run_once(Run(steps=_DELEGATING, children=(look_at(range(301, 313)), look_at(range(401, 413))))),
    ),
    Scenario(
        name="overflow",
        legs=_run_once(Run(steps=_replace_steps(_THIRTY, at_12=replace(_THIRTY[11], overflows=True)))),
    ),
    Scenario(
        name="summary",
        legs=_run_once(Run(steps=_RECALLING)),
        strategy="hybrid(window=5, summarize_at=12, tail=5, schedule=every-turn)",
    ),
    # The cost-aware schedule waits while another model's cache is warm, and so it is in a run of a second.
    Scenario(
        name="model_switch",
        strategy=EAGER_MASKING,
        legs=(
            (
                (Run(steps=look_at(range(1, 16))),),
                (Run(steps=look_at(range(16, 31)), begin="continue", model=OTHER_MODEL, prompt="Go on."),),
            ),
        ),
    ),
    Scenario(name="engine_fault", legs=_run_once(Run(steps=_THIRTY)), fault="engine"),
    Scenario(name="prepare_fault", legs=_run_once(Run(steps=_THIRTY, door="async")), fault="prepare"),
    # At Anthropic's write price 30 short turns do not pay for a rewrite.
    Scenario(
        name="bound_thinking",
        legs=_run_once(Run(steps=_THIRTY, model=BOUND_MODEL, door="async")),
        strategy=EAGER_MASKING,
        service=True,
    ),
)
BY_NAME: Final = {scenario.name: scenario for scenario in SCENARIOS}
