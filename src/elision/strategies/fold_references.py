"""References: the line that stands for repeated lines of a result, and says where the view has them.

    [same as lines 40–51 of t12.1 (read_file src/app.py)]     the first one to that result
    [same as lines 60–71 of t12.1]                            another one to it, in the same result
    [same as lines numbered 95–114 of t7.1 (grep -n "def ")]  where that result shows line numbers
    [same as t41.1 (bash pytest, the latest before this)]     all of that result, where such a call was made twice

The call is the only one like it before the result that refers to it, or the reference counts back from there. So
nothing that is shown needs a handle, and no later call makes a reference ambiguous.

Lines are counted as that result is shown, from its top: a result that refers to others itself shows one line for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from elision.trajectory.plan import FoldedRun, Gutter, Key, make_handle


def name_turn(key: Key) -> str:
    """Name an observation where no handle may be named."""
    if key[1] == 1:
        return f"turn {key[0]}"
    return f"result {key[1]} of turn {key[0]}"


def describe_no_call(key: Key) -> str:
    """Say nothing of the call that gave observation `key`."""
    return ""


@dataclass(frozen=True, slots=True)
class SourceNames:
    """How references say which result they mean.

    name: by handle, or by turn. describe_call: the call that gave it, on one line; "" for nothing. It is told from
    every other call before the reference.
    """

    name: Callable[[Key], str] = make_handle
    describe_call: Callable[[Key], str] = describe_no_call


PLAIN_NAMES = SourceNames()


def write_references(runs: Iterable[FoldedRun], names: SourceNames = PLAIN_NAMES) -> Iterator[str]:
    """Yield the line for each of `runs`, all of one observation."""
    named: set[Key] = set()
    for run in runs:
        yield write_reference(run, names, is_first=run.source not in named)
        named.add(run.source)


def write_reference(run: FoldedRun, names: SourceNames = PLAIN_NAMES, *, is_first: bool = True) -> str:
    """Return the line that stands for `run`: which lines of the source it repeats, and their numbers if others.

    Where the source shows numbers, they name its lines: a reader sees them, and has not to count.
    is_first: whether no line before it in the same result names the source, so that it says the call too.
    """
    ours, theirs = run.gutter, run.source_gutter
    text = f"same as {'' if run.is_whole else f'{_name_lines(run)} of '}{names.name(run.source)}"
    call = names.describe_call(run.source) if is_first else ""
    if call:
        text += f" ({call})"
    if ours is not None and (theirs is None or _format_range(ours) != _format_range(theirs)):
        is_numbered = theirs is not None and not run.from_top
        text += f", here {'' if is_numbered else 'numbered '}{_format_range(ours)}"
    return f"[{text}]"


def count_back(description: str, newer: int) -> str:
    """Return the description of a call which others before a result have, too; newer: how many of them followed it."""
    if not newer:
        return f"{description}, the latest before this"
    return f"{description}, {newer} before the latest"


def _name_lines(run: FoldedRun) -> str:
    if run.source_gutter is not None and not run.from_top:
        return f"lines numbered {_format_range(run.source_gutter)}"
    first = run.source_start if run.shown_start is None else run.shown_start
    lines = f"lines {first + 1}–{first + run.lines}"
    return f"{lines} from the top" if run.from_top else lines


def _format_range(gutter: Gutter) -> str:
    prefix = "" if gutter.prefix.lower() == "line " else gutter.prefix
    return f"{prefix}{gutter.first}–{gutter.last}"
