"""ATIF, the Agent Trajectory Interchange Format of Harbor, versions 1.0 to 1.8 (`trajectory.json`).

Source: Harbor's RFC 0001 and its models (0.25.0). `prompt_tokens` include what was cached; a write to the cache has no
field of its own and is in `metrics.extra`.

Steps marked `is_copied_context` were made in an earlier segment and are recorded there: they are no turns of this run,
and their calls are not billed again. They are its head, an agent's steps among them as text. A step of the agent that
took no model call (`llm_call_count` 0) belongs to the turn before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from elision.errors import FormatError
from elision.formats.assembler import Assembler, yield_run
from elision.formats.document import Document, RunOrProblem, peek_value, read_json_value
from elision.formats.recorded_fields import find_first_count, parse_timestamp, read_call
from elision.providers.shared.json_reading import (
    Json,
    bool_in,
    cost_in,
    count_in,
    join_contents,
    list_in,
    mapping_in,
    mappings_in,
    parse_content,
    text_in,
)
from elision.trajectory.turn import Action, Content, find_action, join_text, make_content
from elision.trajectory.usage import Usage

_MARK = "ATIF-v"
_WRITES = ("cache_write_input_tokens", "cache_creation_input_tokens")


class AtifReader:
    """One trajectory, and the sub-agents' that it embeds."""

    name: ClassVar[str] = "atif"

    def sniff(self, document: Document) -> bool:
        return _is_atif(mapping_in(peek_value(document, "schema_version", _MARK)))

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        value = read_json_value(document)
        if not _is_atif(mapping_in(value)):
            raise FormatError(f"{document.path}: no ATIF trajectory: it needs a schema_version and a list of steps")
        taken: set[str] = set()
        waiting: list[tuple[Json, str, str | None]] = [(value, "main", None)]
        while waiting:
            root, fallback, parent = waiting.pop(0)
            # Sub-agents of older versions share the session id of their parent.
            names = [text_in(root.get("trajectory_id")), text_in(root.get("session_id")), fallback]
            free = [name for name in names if name and name not in taken]
            name = free[0] if free else f"{fallback} {len(taken) + 1}"
            taken.add(name)
            yield from _read_run(document.path, root, name, parent)
            agents = mappings_in(root.get("subagent_trajectories"))
            waiting += [(agent, f"{name} sub-agent {n}", name) for n, agent in enumerate(agents, start=1)]


def _is_atif(value: Json) -> bool:
    return text_in(value.get("schema_version")).startswith(_MARK) and isinstance(value.get("steps"), list)


def _read_run(file: str, root: Json, name: str, parent: str | None) -> Iterator[RunOrProblem]:
    steps = list_in(root.get("steps"))
    own = [step for step in map(mapping_in, steps) if step.get("source") == "agent"]
    # An agent whose steps are answered, but hold no calls, acts in its messages.
    acts_in_text = not any(mappings_in(step.get("tool_calls")) for step in own) and any(map(_list_results, own))
    run = _AtifRun(Assembler(file, observations="user" if acts_in_text else "tools"), root)
    for number, step in enumerate(steps, start=1):
        run.feed_step(step, number)
    trajectory = run.assembler.finish(name, format=AtifReader.name, parent=parent)
    yield from yield_run(run.assembler, trajectory, missing=f"trajectory {name!r} has no agent step")


def _list_results(step: Json) -> Sequence[Json]:
    return mappings_in(mapping_in(step.get("observation")).get("results"))


class _AtifRun:
    """Feeds the steps of one trajectory to the assembler. Problems name step numbers as lines."""

    def __init__(self, assembler: Assembler, root: Json) -> None:
        agent = mapping_in(root.get("agent"))
        self.assembler = assembler
        self._in_text = assembler.observations == "user"
        self._model = text_in(agent.get("model_name"))
        self.assembler.add_tools(mappings_in(agent.get("tool_definitions")))

    def feed_step(self, step: object, number: int) -> None:
        if not isinstance(step, dict):
            self.assembler.report_problem(f"a JSON {type(step).__name__} instead of a step; left out", number)
            return
        match step.get("source"):
            case "system":
                self.assembler.add_system(parse_content(step.get("message")) + _join_results(step))
            case "user":
                self.assembler.add_user(parse_content(step.get("message")) + _join_results(step))
            case "agent" if step.get("is_copied_context") is True:
                # As text: what it said, its calls, their results.
                calls = make_content("\n".join(f"{each.name} {each.arguments}" for each in _parse_actions(step)))
                self.assembler.add_user(parse_content(step.get("message")) + calls + _join_results(step))
            case "agent":
                self._feed_agent(step, number)
            case _:
                self.assembler.report_problem("a step whose source is none of system, user and agent; left out", number)

    def _feed_agent(self, step: Json, number: int) -> None:
        said = parse_content(step.get("message"))
        actions = _parse_actions(step)
        if self._in_text and _list_results(step):
            text = join_text(said)
            actions = [find_action(text) or Action(id="", name="", arguments=text, implicit=True)]
        if step.get("llm_call_count") == 0 and not isinstance(step.get("llm_call_count"), bool):
            # No model was called: the step belongs to the turn before it.
            if self.assembler.turn_count:
                self.assembler.amend_assistant(content=said, actions=() if self._in_text else actions)
            else:
                self.assembler.add_assistant(said, actions=actions)
        else:
            self.assembler.add_assistant(
                said,
                reasoning=text_in(step.get("reasoning_content")),
                actions=actions,
                usage=_read_usage(mapping_in(step.get("metrics"))),
                at=parse_timestamp(step.get("timestamp")),
                model=text_in(step.get("model_name")) or self._model,
                line=number,
            )
        if self._in_text or not actions:
            self.assembler.add_user(_join_results(step))
        else:
            self._add_results(step, actions, number)

    def _add_results(self, step: Json, actions: Sequence[Action], number: int) -> None:
        """Add results to the calls that they name. Results without a name answer the remaining calls, in order."""
        results = _list_results(step)
        named = {text_in(result.get("source_call_id")) for result in results}
        unnamed = [action.id for action in actions if not action.id or action.id not in named]
        for result in results:
            call: str | None = text_in(result.get("source_call_id"))
            if not call:
                call = unnamed.pop(0) if unnamed else None
            if call is None:
                self.assembler.add_user(parse_content(result.get("content")))
            else:
                error = bool_in(mapping_in(result.get("extra")).get("is_error"))
                self.assembler.add_result(call, parse_content(result.get("content")), error=error, line=number)


def _parse_actions(step: Json) -> list[Action]:
    calls = mappings_in(step.get("tool_calls"))
    return [read_call(call, id="tool_call_id", name="function_name") for call in calls]


def _join_results(step: Json) -> Content:
    return join_contents(parse_content(result.get("content")) for result in _list_results(step))


def _read_usage(metrics: Json) -> Usage | None:
    prompt = count_in(metrics.get("prompt_tokens"))
    output = count_in(metrics.get("completion_tokens"))
    if not prompt and not output:
        return None
    extra = mapping_in(metrics.get("extra"))
    return Usage.from_inclusive(
        prompt=prompt,
        output=output,
        cache_read=count_in(metrics.get("cached_tokens")),
        cache_write=find_first_count(extra, _WRITES),
        usd=cost_in(metrics.get("cost_usd")),
    )
