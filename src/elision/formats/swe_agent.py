"""SWE-agent `.traj`: what the agent did (`trajectory`) and the messages it kept (`history`).

The steps are the run: they hold every observation raw, also where the history masked it or dropped a failed step. The
history adds the head, the message as sent (the observation with its prompt line) and, in the function-calling versions,
the calls. Demonstrations (`is_demo`) are left out. Usage is recorded for the run as a whole only, so turns have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from elision.errors import FormatError
from elision.formats.assembler import Assembler, yield_run
from elision.formats.document import Document, RunOrProblem, peek_value, read_json_value
from elision.formats.mini_swe_agent import read_instance_cost
from elision.formats.source import derive_run_name
from elision.providers.openai_chat.messages import parse_assistant
from elision.providers.shared.json_reading import (
    AssistantMessage,
    Json,
    MessageTags,
    count_in,
    find_tags,
    join_lines,
    list_in,
    mapping_in,
    mappings_in,
    parse_content,
    text_in,
)
from elision.trajectory.foreign_text import parse_object
from elision.trajectory.turn import Action, Content, Text, join_text

#: SWE-agent's own placeholder for an observation that its history processor elided.
_ELIDED = re.compile(r"Old environment output: \(\d+ lines omitted\)")


@dataclass(frozen=True, slots=True)
class _AlignedTurn:
    """One assistant message: the step that recorded it, what the history says of it, and what follows there."""

    step: Json
    message: Json
    answers: tuple[Json, ...]
    line: int | None


class SweAgentReader:
    """Reads `.traj` files of SWE-agent 0.x (text protocol) and 1.x (text or tool calls)."""

    name = "swe-agent"

    def sniff(self, document: Document) -> bool:
        return any(
            _list_steps(run) for run in _list_runs(peek_value(document, "trajectory", "observation", "action")).values()
        )

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        runs = _list_runs(read_json_value(document))
        if not runs:
            raise FormatError(f"{document.path}: no SWE-agent trajectory: neither `trajectory` nor `attempts` in it")
        for suffix, run in runs.items():
            yield from _read_run(document, run, derive_run_name(document.path) + suffix)


def _list_runs(value: Any) -> dict[str, Json]:
    """Return the runs of a file by the suffix of their id. A retrying agent repeats its best attempt at the top:
    skipped."""
    top = mapping_in(value)
    attempts = mappings_in(top.get("attempts"))
    if attempts:
        return {f" attempt {number}": attempt for number, attempt in enumerate(attempts, start=1)}
    return {"": top} if isinstance(top.get("trajectory"), list) else {}


def _list_steps(run: Json) -> list[Json]:
    return [step for step in mappings_in(run.get("trajectory")) if "observation" in step and "action" in step]


def _read_run(document: Document, run: Json, id: str) -> Iterator[RunOrProblem]:
    head, turns = _align_history(
        _list_steps(run), [item for item in mappings_in(run.get("history")) if not item.get("is_demo")]
    )
    by_tools = any(turn.message.get("tool_calls") for turn in turns)
    assembler = Assembler(document.path, observations="tools" if by_tools else "user")
    if dropped := len(list_in(run.get("trajectory"))) - len(_list_steps(run)):
        assembler.report_problem(f"{dropped} steps without action or observation left out")
    for message in head:
        _feed_message(assembler, message)
    for turn in turns:
        _feed_turn(assembler, turn)
    # Versions from 1.0 on record their configuration as a text.
    config = parse_object(text_in(run.get("replay_config"))) or {}
    trajectory = assembler.finish(
        id,
        format=SweAgentReader.name,
        model=text_in(mapping_in(mapping_in(config.get("agent")).get("model")).get("name")),
        recorded_window=_find_window(run, config),
        usd=read_instance_cost(run),
    )
    yield from yield_run(assembler, trajectory)


def _feed_message(assembler: Assembler, message: Json) -> None:
    content = parse_content(message.get("content"))
    if message.get("role") == "system":
        assembler.add_system(content)
    else:
        assembler.add_user(content, tags=find_tags(message))


def _feed_turn(assembler: Assembler, turn: _AlignedTurn) -> None:
    unkept = AssistantMessage(content=parse_content(turn.step.get("response")))
    spoken = parse_assistant(turn.message) if turn.message else unkept
    command = text_in(turn.step.get("action")) or text_in(turn.message.get("action"))
    actions = spoken.actions
    if not actions and command:
        actions = (Action(id="", name="bash", arguments=command, implicit=True),)
    thoughts = (text_in(block.get("thinking")) for block in mappings_in(turn.message.get("thinking_blocks")))
    reasoning = spoken.reasoning or join_lines(thoughts)
    assembler.add_assistant(spoken.content, reasoning=reasoning, actions=actions, line=turn.line)
    assembler.tag_assistant(MessageTags(whole=find_tags(turn.message)))
    shown, *rest = turn.answers or ({},)
    if spoken.actions:
        _feed_result(assembler, turn, shown, [action.id for action in spoken.actions])
    elif observation := _choose_observation(turn, shown):
        assembler.add_user(observation, tags=find_tags(shown))
    for message in rest:
        _feed_message(assembler, message)


def _feed_result(assembler: Assembler, turn: _AlignedTurn, shown: Json, calls: list[str]) -> None:
    """Feed a result. SWE-agent runs one call a step, and answers it with one message that names the ids it answers."""
    if shown and shown.get("role") != "tool":
        _feed_message(assembler, shown)
        return
    answered = list(filter(None, map(text_in, list_in(shown.get("tool_call_ids")))))
    if observation := _choose_observation(turn, shown):
        assembler.add_result((answered or calls)[0], observation, tags=find_tags(shown), line=turn.line)


def _choose_observation(turn: _AlignedTurn, shown: Json) -> Content:
    """Return the observation as it was sent; the raw one if the history elided it or ended before it.

    Empty output of a step that ran is an observation too, so it is kept as an empty text.
    """
    sent = parse_content(shown.get("content"))
    if sent and not _ELIDED.search(join_text(sent)[:200]):
        return sent
    if "observation" in turn.step:
        return (Text(text_in(turn.step["observation"])),)
    return sent


def _align_history(steps: list[Json], history: list[Json]) -> tuple[list[Json], list[_AlignedTurn]]:
    """Return the head of the history, and one turn for each step with its part of the history.

    A step is found in the history by what the assistant said. Old versions dropped failed steps from the history, so
    steps may be missing there. A history without any steps is taken by itself.
    """
    starts = [position for position, item in enumerate(history) if item.get("role") == "assistant"]
    head = history[: starts[0]] if starts else history
    ends = [*starts[1:], len(history)]
    kept = [
        _AlignedTurn({}, history[start], tuple(history[start + 1 : end]), None)
        for start, end in zip(starts, ends, strict=False)
    ]
    if not steps:
        return head, kept
    pairs = _match_steps(
        [_read_text(step.get("response")) for step in steps], [_read_text(turn.message.get("content")) for turn in kept]
    )
    return head, [
        _AlignedTurn(step, kept[pairs[number]].message, kept[pairs[number]].answers, number + 1)
        if number in pairs
        else _AlignedTurn(step, {}, (), number + 1)
        for number, step in enumerate(steps)
    ]


def _match_steps(steps: Sequence[str], kept: Sequence[str]) -> dict[int, int]:
    """step -> history message. Equal texts match; so do runs of equal length between matches (a rewritten text)."""
    pairs: dict[int, int] = {}
    for tag, low, high, start, end in SequenceMatcher(None, steps, kept, autojunk=False).get_opcodes():
        if tag == "equal" or (tag == "replace" and high - low == end - start):
            pairs.update(zip(range(low, high), range(start, end), strict=True))
    return pairs


def _read_text(value: Any) -> str:
    return join_text(parse_content(value)).strip()


def _find_window(run: Json, config: Json) -> int | None:
    """Return how many observations the agent kept: as configured, or counted if the file shows elided ones.

    Version 1.x records with each step the messages it sent, elided already; other files may show it in the history.
    """
    for processor in mappings_in(mapping_in(config.get("agent")).get("history_processors")):
        if processor.get("type") == "last_n_observations" and count_in(processor.get("n")):
            return count_in(processor["n"])
    steps = _list_steps(run)
    sent = mappings_in(steps[-1].get("query")) if steps else []
    answers = [item for item in sent or mappings_in(run.get("history")) if item.get("role") in ("user", "tool")]
    elided = [bool(_ELIDED.search(_read_text(item.get("content"))[:200])) for item in reversed(answers)]
    if any(elided):
        return elided.index(True) or None
    return None
