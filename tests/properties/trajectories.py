"""Generated runs: everything that recordings hold, in small.

A turn is drawn as a kind and a number, and written out from those alone; so examples are cheap, and shrink to few turns
of simple kinds.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from hypothesis import strategies as st
from msgspec.structs import replace

from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Action, Content, Head, Message, Observation, Opaque, Text, Turn, make_content
from elision.trajectory.usage import Usage

#: What the rules of the tested strategies protect (tests/properties/cases.py).
PROTECTED_TOOL = "notes"

_ODD = (
    "",
    " ",
    "\n\n",
    "lone \ud800 surrogate and \udfff another " * 9,
    "观察结果很长,但是没有空格" * 12,
    "<|endoftext|><|fim_prefix|> is text " * 9,
    "\x00\x1b[31mred\x1b[0m\r\nand 🦔 e\u0301 \u202eright to left " * 6,
    "[t1.1 bash -> done; 9 chars hidden] " * 4,
    "x" * 700,
    "{{template}} %s %(name)s {0} \\1 $HOME `id` <script>alert(1)</script> " * 5,
)


def _make_lines(number: int, count: int) -> str:
    return "\n".join(
        f"src/part_{number % 7}/file_{line}.py:{number * 31 + line * 101}: error E{line + 100} handle_{number}_{line}"
        for line in range(count)
    )


def _make_text(number: int) -> str:
    """Nothing, something odd, or 1 to 25 lines."""
    return _ODD[number % len(_ODD)] if number % 3 == 0 else _make_lines(number, 1 + number % 25)


def _make_pair(number: int, name: str, arguments: dict[str, object], **options: object) -> tuple[Action, Observation]:
    id = f"call_{number}_{name}"
    parts: Content = options.pop("parts", make_content(_make_text(number)))  # type: ignore[assignment]
    action = Action(id=id, name=name, arguments=json.dumps(arguments))
    return action, Observation(action_id=id, tool=name, content=parts, **options)  # type: ignore[arg-type]


def _make_shell_pair(number: int) -> tuple[Action, Observation]:
    return _make_pair(
        number, "bash", {"command": ("make test", "cat a.py", "ls", f"grep -rn f_{number} .")[number % 4]}
    )


def _make_read_pair(number: int) -> tuple[Action, Observation]:
    path = f"src/file_{number % 3}.py"
    span = {"offset": number % 2} if number % 2 else {}
    return _make_pair(number, "read_file", {"path": path, **span}, error=None if number % 5 else True)


def _make_edit_pair(number: int) -> tuple[Action, Observation]:
    return _make_pair(number, "edit_file", {"path": f"src/file_{number % 3}.py", "new": f"value_{number}"})


def _make_notes_pair(number: int) -> tuple[Action, Observation]:
    return _make_pair(number, PROTECTED_TOOL, {"what": f"rule {number}"})


def _make_image_pair(number: int) -> tuple[Action, Observation]:
    picture = Opaque("image", tokens=number % 1_500, data={"url": f"data:{number}"})
    parts: Content = (Text(_make_text(number)), picture) if number % 2 else (picture,)
    return _make_pair(number, "screenshot", {"page": number % 4}, parts=parts)


def _make_unknown_pair(number: int) -> tuple[Action, Observation]:
    parts: Content = (Opaque("video_of_the_future", tokens=number % 90), Text(_make_text(number)), Text("end"))
    return _make_pair(number, "mystery", {"deep": {"er": [number, None, True]}}, parts=parts)


def _make_search_pair(number: int) -> tuple[Action, Observation]:
    tags = frozenset((("keep_output",), ("remove_output",), ("tool_output",), ())[number % 4])
    return _make_pair(number, "search", {"query": f"needle_{number % 4}"}, tags=tags, pinned=number % 11 == 0)


_PAIRS = (
    _make_shell_pair,
    _make_read_pair,
    _make_edit_pair,
    _make_notes_pair,
    _make_image_pair,
    _make_unknown_pair,
    _make_search_pair,
)


def _make_call_turn(index: int, number: int) -> Turn:
    return _make_turn(index, number, (_PAIRS[number % len(_PAIRS)](number),))


def _make_parallel_turn(index: int, number: int) -> Turn:
    """Two to four calls at once, each id its own."""
    count = 2 + number % 3
    return _make_turn(index, number, tuple(_PAIRS[(number + k) % len(_PAIRS)](number * 10 + k) for k in range(count)))


def _make_unfinished_turn(index: int, number: int) -> Turn:
    """Calls of which some, or none, were answered."""
    whole = _make_parallel_turn(index, number)
    return replace(whole, observations=whole.observations[: number % 2])


def _make_talk_turn(index: int, number: int) -> Turn:
    return _make_turn(index, number, ())


def _make_interjected_turn(index: int, number: int) -> Turn:
    """The user speaks up behind a turn, once or more."""
    said = tuple(
        Message(role="user", content=make_content(_make_text(number + k) or "go on"), pinned=(number + k) % 6 == 0)
        for k in range(1 + number % 2)
    )
    return replace(_make_call_turn(index, number), interjections=said)


def _make_empty_turn(index: int, number: int) -> Turn:
    """An observation without any content."""
    action, observation = _make_shell_pair(number)
    return _make_turn(index, number, ((action, replace(observation, content=())),))


def _make_spoken_turn(index: int, number: int) -> Turn:
    """Text protocol: the action stands in the text, its observation is a user message."""
    action = Action(id="", name="bash", arguments=f"cat src/file_{number % 3}.py", implicit=True)
    seen = Observation(action_id="", tool="bash", content=make_content(_make_text(number)), role="user")
    return _make_turn(index, number, ((action, seen),))


def _make_repeating_turn(index: int, number: int) -> Turn:
    """One or two results that hold a part of one of three files, with line numbers in front or without."""
    pairs = []
    for k in range(1 + number % 2):
        lines = _make_lines(number % 3, 25).split("\n")[number // 3 % 5 : 12 + (number + k) // 7 % 14]
        if (number + k) % 4 == 0:
            lines = [f"{place:6}\t{line}" for place, line in enumerate(lines, start=number % 90)]
        lines.insert(number % 11, f"between {number + k}")
        action, _ = _make_read_pair(number * 10 + k)
        tool = Observation(action_id=action.id, tool=action.name, content=make_content("\n".join(lines)))
        pairs.append((action, tool))
    return _make_turn(index, number, tuple(pairs))


def _make_pinned_turn(index: int, number: int) -> Turn:
    return replace(_make_call_turn(index, number), pinned=True)


def _make_turn(index: int, number: int, pairs: tuple[tuple[Action, Observation], ...]) -> Turn:
    return Turn(
        index=index,
        content=make_content(f"Step {index}: now handle_{number}_1." if number % 4 else ""),
        reasoning=_make_lines(number, 2) if number % 5 == 0 else "",
        actions=tuple(action for action, _ in pairs),
        observations=tuple(observation for _, observation in pairs),
        usage=Usage(input=100, output=1 + number % 60) if number % 2 else None,
    )


KINDS: tuple[Callable[[int, int], Turn], ...] = (
    _make_call_turn,
    _make_parallel_turn,
    _make_interjected_turn,
    _make_talk_turn,
    _make_empty_turn,
    _make_unfinished_turn,
    _make_spoken_turn,
    _make_pinned_turn,
    _make_repeating_turn,
    _make_repeating_turn,
)

#: Seconds between calls: most follow at once, some outlive a cache of five minutes or of half an hour.
_GAPS = (4, 4, 4, 4, 4, 30, 299, 301, 2_000)


_heads = st.builds(
    Head,
    messages=st.sampled_from(
        (
            (),
            (Message(role="user", content=make_content("Mend the parser.")),),
            (
                Message(role="system", content=make_content("You are an agent. " * 20)),
                Message(role="user", content=(Text("Look at src/file_1.py"), Opaque("image", tokens=85)), pinned=True),
            ),
        )
    ),
    tools=st.sampled_from(((), ({"name": "bash", "input_schema": {"type": "object"}},))),
    hidden_tokens=st.sampled_from((0, 0, 1_500)),
    warm_tokens=st.sampled_from((0, 0, 1_200)),
)


def _add_times(turns: list[Turn], gaps: list[int], models: list[int], timed: bool) -> tuple[Turn, ...]:
    now, found = 1_000.0, []
    for turn, gap, model in zip(turns, gaps, models, strict=True):
        now += _GAPS[gap]
        found.append(replace(turn, at=now if timed else None, model=("m", "m", "m", "m", "other")[model]))
    return tuple(found)


@st.composite
def trajectories(
    draw: st.DrawFn, *, least: int = 1, most: int = 24, one_model: bool = False, quiet: bool = False
) -> Trajectory:
    """Any run of `least` to `most` turns. quiet: no interjections, and nothing that is pinned as a whole."""
    # The length first: lists of no given length are mostly short, and short runs trigger nothing.
    count = draw(st.integers(least, most))
    drawn = draw(st.lists(st.integers(0, len(KINDS) * 1_000 - 1), min_size=count, max_size=count))
    kinds = [kind for kind in KINDS if not (quiet and kind in (_make_interjected_turn, _make_pinned_turn))]
    turns = [kinds[number % len(kinds)](index, number // len(kinds)) for index, number in enumerate(drawn, start=1)]
    timed = draw(st.booleans())
    numbers = [number * 7919 for number in drawn]
    gaps = [number % 97 % len(_GAPS) if timed else 0 for number in numbers]
    changing = not one_model and draw(st.booleans())
    models = [number % 89 % 5 if changing else 0 for number in numbers]
    return Trajectory(id="generated", head=draw(_heads), turns=_add_times(turns, gaps, models, timed))
