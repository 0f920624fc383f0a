"""A result of numbers costs no more than one of ordinary lines: a megabyte of each through `prepare`.

`python -m benchmarks tables`
"""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from time import process_time
from typing import Any, Final

from elision import ContextManager

SOURCE: Final = Path(__file__).resolve().parents[1] / "src"
SIZE: Final = 1_000_000
REPEATS: Final = 3
#: The bar: processor time of each kind over that of source code.
BAR: Final = 2.0


def make_texts(seed: int) -> dict[str, str]:
    """Return a megabyte of each kind of result, other ones for each `seed`: nothing of them was read before."""
    chance = random.Random(seed)
    files = sorted(SOURCE.rglob("*.py"))
    chance.shuffle(files)
    first = (seed + 1) * 160_000
    rows = (f"{chance.random() * 1e4:.4f},{chance.randrange(10**6)},{chance.random()}" for _ in range(40_000))
    return {
        "source code": "".join(path.read_text(encoding="utf-8") for path in files)[:SIZE],
        "whole numbers": ",".join(map(str, range(first, first + SIZE // 7))),
        "CSV": "\n".join(rows)[:SIZE],
        "ids": ",".join(f"A{number}" for number in range(first, first + SIZE // 8)),
    }


def measure_session(text: str, options: str) -> float:
    """Return the processor seconds of three calls, each with one more result; the next call hides it."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look at this."}]
    strategy = f"masking(window=1, schedule=every-turn{options})"
    with ContextManager(strategy, store="memory:", token_budget=10**8) as context:
        begun = process_time()
        for number in range(3):
            call = {"name": "cat", "arguments": f'{{"path": "{number}"}}'}
            calls = [{"id": f"call_{number}", "type": "function", "function": call}]
            messages += [
                {"role": "assistant", "content": None, "tool_calls": calls},
                {"role": "tool", "tool_call_id": f"call_{number}", "content": f"{text}{number}"},
            ]
            context.prepare(messages)
        return process_time() - begun


def main() -> None:
    measure_session("warm up", "")
    for options in (", fold=false", ""):
        seconds: dict[str, list[float]] = defaultdict(list)
        for seed in range(REPEATS):
            for kind, text in make_texts(seed).items():
                seconds[kind].append(measure_session(text, options) / len(text) * 1e6)
        base = min(seconds["source code"])
        for kind, costs in seconds.items():
            cost = min(costs)
            within = f"bar {BAR:g}: {'met' if cost <= BAR * base else 'MISSED'}"
            print(
                f"masking{options:12} {kind:14} {cost:5.2f} s of CPU a MB, {cost / base:4.2f} x source code   {within}"
            )


if __name__ == "__main__":
    main()
