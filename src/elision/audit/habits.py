"""What an agent's habits cost: reads that could have been one step, files written again whole, large results.

Each is an upper bound, and they overlap with the causes of the bill and with each other: a token has one cause, but an
agent that reads less also repeats less.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from elision.audit.cause_table import CauseTotal
from elision.audit.prompt_content import RESULT_KINDS
from elision.lab.recorded_requests import RecordedRequest
from elision.strategies.folding import find_file_read
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Action, Turn

Habit: TypeAlias = Literal["reads-apart", "whole-files", "large-results"]
HABITS: Final[Mapping[Habit, str]] = {
    "reads-apart": "a step that only reads, after another one, and needs nothing of what that one read",
    "whole-files": "lines of a file that the agent wrote before, and writes again unchanged",
    "large-results": "what results have beyond 4,000 tokens, at each call that sends it",
}
#: What tokens `start` to `stop` of a prompt cost, in USD.
PromptCost: TypeAlias = Callable[[int, int], float]
#: Tokens of a result up to which it is not large.
LARGE_TOKENS: Final = 4_000
#: Calls that show a cause or a habit.
EXAMPLES: Final = 3

#: Tools that change nothing, by the verb that their name begins with: `read_file`, `Grep`, `get_user_details`.
_READER: Final = re.compile(
    r"(?:read|view|cat|get|list|ls|grep|rg|glob|find|search|fetch|query|lookup|show|stat)(?![a-z])", re.IGNORECASE
)
_SHELL: Final = re.compile(r"bash|shell|command|terminal|execute|run", re.IGNORECASE)
#: Commands that only print, also after `cd` and in pipes.
_LOOK: Final = re.compile(
    r"(?:cat|ls|ll|tree|grep|rg|ag|head|tail|nl|wc|pwd|which|stat|file|du|sort|uniq|cut|echo|cd"
    r"|sed\s+-n|find(?!.*\s-(?:delete|exec|ok))|git\s+(?:status|log|diff|show|blame|ls-files|grep))\b"
)
#: A name, a path, a number; the folder of `cd … &&`.
_WORD: Final = re.compile(r"[\w./-]{2,}")
_FOLDER: Final = re.compile(r"\bcd\s+\S+\s*&&")
_JOINTS: Final = re.compile(r"&&|\|\||[;|\n]")
_WRITES_FILE: Final = re.compile(r"(?<![0-9&])>>?(?!\s*(?:/dev/null|&))|\btee\b")
#: `cat > path <<'EOF' … EOF`, as agents write files that have a shell alone.
_HEREDOC: Final = re.compile(
    r"cat\s*>\s*(?P<path>\S+)\s*<<-?\s*['\"]?(?P<end>\w+)['\"]?\n(?P<text>.*?)\n(?P=end)\b", re.DOTALL
)
_PATHS: Final = ("path", "file_path", "filename", "file", "target_file")
_CONTENTS: Final = ("content", "file_text", "contents", "text")


@dataclass(frozen=True, slots=True)
class CallExample:
    """One call that shows a cause or a habit. usd: what of its bill that is."""

    file: str
    trajectory: str
    call: int
    usd: float


def pick_examples(calls: Iterable[CallExample]) -> tuple[CallExample, ...]:
    """Return the calls that are shown, the most expensive first."""
    return tuple(sorted(calls, key=lambda call: (-call.usd, call.file, call.trajectory, call.call))[:EXAMPLES])


class HabitMeter:
    """Measures what the habits of one run cost at each of its calls."""

    def __init__(self, trajectory: Trajectory, sizer: Sizer) -> None:
        self._apart = find_reads_apart(trajectory.turns)
        self._rewritten = measure_rewritten_files(trajectory.turns, sizer)

    def measure_call(
        self, request: RecordedRequest, ends: Sequence[int], old: int, cost: PromptCost, output_price: float
    ) -> dict[Habit, CauseTotal]:
        """Return what of a call's bill each habit is.

        ends: where each segment of its prompt ends, in billed tokens. old: of these, the ones that the call before had.
        output_price: USD for a million tokens.
        """
        found: dict[Habit, CauseTotal] = {}
        if request.call in self._apart:
            usd = cost(0, old)
            found["reads-apart"] = CauseTotal(old, usd, usd, 1)
        if tokens := self._rewritten.get(request.call, 0):
            usd = min(tokens, request.usage.output) * output_price / 1e6
            found["whole-files"] = CauseTotal(tokens, usd, usd, 1)
        large, usd = 0, 0.0
        for place, segment in enumerate(request.counted.segments):
            if segment.kind in RESULT_KINDS and segment.tokens > LARGE_TOKENS:
                begin, end = ends[place - 1] if place else 0, ends[place]
                begin += round((end - begin) * LARGE_TOKENS / segment.tokens)
                large += end - begin
                usd += cost(begin, end)
        if large:
            found["large-results"] = CauseTotal(large, usd, usd, 1)
        return found


def find_reads_apart(turns: Sequence[Turn]) -> frozenset[int]:
    """Return the turns that only read, after a turn that only read, and need nothing that was seen there."""
    return frozenset(
        turn.index
        for before, turn in pairwise(turns)
        if _only_reads(before) and _only_reads(turn) and not _builds_on(turn, before)
    )


def _builds_on(turn: Turn, before: Turn) -> bool:
    """Return whether the calls of `turn` may follow from the results of `before`; True where unsure.

    They do where they name something new that those results show, and where they go on in the same file: a search
    tells the lines to read, although it does not show their numbers.
    """
    asked, wanted = ({*_list_words(turn)} for turn in (before, turn))
    new = wanted - asked
    if not new or any("." in word or "/" in word for word in wanted & asked):
        return True
    shown = {part for result in before.observations for part in _list_parts(result.text)}
    return not shown.isdisjoint(new)


def _list_words(turn: Turn) -> Iterator[str]:
    """Yield the words of a turn's calls, and the parts of paths, without the folder that a command begins in."""
    for action in turn.actions:
        yield from _list_parts(_FOLDER.sub("", action.arguments))


def _list_parts(text: str) -> Iterator[str]:
    for word in _WORD.findall(text):
        yield word
        if "/" in word:
            yield from filter(None, word.split("/"))


def _only_reads(turn: Turn) -> bool:
    return bool(turn.actions) and all(map(only_reads, turn.actions))


def only_reads(action: Action) -> bool:
    """Return whether `action` changes nothing, by its tool's name or its shell command; False where unsure."""
    if find_file_read(action) is not None:
        return True
    arguments = action.decoded_arguments
    if not _SHELL.search(action.name):
        return _READER.match(action.name) is not None
    command = arguments.get("command", arguments.get("cmd", "" if arguments else action.arguments))
    if isinstance(command, list):
        command = command[-1] if command else ""
    if not isinstance(command, str) or _WRITES_FILE.search(command) or "$(" in command or "`" in command:
        return False
    steps = [step.strip() for step in _JOINTS.split(command) if step.strip()]
    return bool(steps) and all(_LOOK.match(step) for step in steps)


def measure_rewritten_files(turns: Sequence[Turn], sizer: Sizer) -> dict[int, int]:
    """Return, by turn, the tokens of lines that it writes into a file which an earlier turn wrote with them."""
    written: dict[str, Counter[str]] = {}
    found: Counter[int] = Counter()
    for turn in turns:
        for action in turn.actions:
            for path, text in _list_writes(action):
                lines = text.splitlines(keepends=True)
                known = written.get(path, Counter()).copy()
                same = []
                for line in lines:
                    if known[line] > 0:
                        known[line] -= 1
                        same.append(line)
                if tokens := sizer.count("".join(same)):
                    found[turn.index] += tokens
                written[path] = Counter(lines)
    return dict(found)


def _list_writes(action: Action) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of each file that `action` writes whole."""
    arguments = action.decoded_arguments
    path = next((arguments[key] for key in _PATHS if isinstance(arguments.get(key), str)), "")
    text = next((arguments[key] for key in _CONTENTS if isinstance(arguments.get(key), str)), "")
    if path and text:
        yield path, text
        return
    command = arguments.get("command", arguments.get("cmd", "" if arguments else action.arguments))
    if isinstance(command, str):
        yield from ((each["path"], each["text"]) for each in _HEREDOC.finditer(command))
