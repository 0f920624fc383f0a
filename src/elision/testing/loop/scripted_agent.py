"""An agent without a model: it reads the prompt that it is sent, and nothing else, and decides the next calls.

Its answer is a function of the prompt, the seed and its knobs. A fact that the prompt does not show is recalled, read
again, or guessed, so what hiding causes is caused, not assumed.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from elision.agent.model import Json, ModelAnswer, Prompt, Shape, parse_model_answer
from elision.testing.exchange import ReplySpec
from elision.testing.loop.task_plan import Knobs, draw_share
from elision.testing.loop.world import WORDS, Call, Find, Skill
from elision.testing.recorded_provider import RESPONSE_FORMATS
from elision.testing.recorded_run import RecordedReply
from elision.trajectory.tool_definitions import RECALL_TOOL, SEARCH_TOOL
from elision.trajectory.turn import Action
from elision.trajectory.usage import Usage

SUMMARY_LABEL: Final = "[Record of turns"
#: Nothing follows the last need of a step that is shown whole.
_STEP: Final = re.compile(r"step (\d+): need ((?:\S+ \(in [^()]+\)(?:, )?)+)(?=[\n\"\\;]|$)")
_NEED: Final = re.compile(r"(\S+) \(in ([^()]+)\)")
_ACCEPTED: Final = re.compile(r"step (\d+) accepted")
#: What the world says of a step that is not in order, and what the agent itself says when it goes on.
_OPEN: Final = re.compile(r"step (\d+) is open|On to step (\d+)\.")
_REJECTED: Final = re.compile(r"step (\d+) rejected: (\S+) is not right")
_REPORT: Final = re.compile(r"submit a report, written as .*?, of: (.+)\.")
_COUNT: Final = re.compile(r"(\d+) (?:steps|issues|conflicts|exchange requests|cases|questions)")
_NOTE: Final = re.compile(r"(\S+) is `([^`]+)`")
_HANDLE: Final = re.compile(r"\bt\d+\.\d+\b")
#: Share of what rot hits that is confused with a neighbour, instead of overlooked.
_CONFUSED: Final = 0.3
#: Share of reads again that ask for the fact, where a family can, instead of the whole document.
_NARROW: Final = 0.5


@dataclass(slots=True)
class _Seen:
    """What a prompt shows.

    facts:   the facts of each text, the newest text first, with the tokens that follow it and whether they were true
             there: a call, a note, a summary and a recalled result may tell of what was before.
    fetched: results of the calls that read a document. recalled: texts of calls for hidden results, with their results.
    rejected: (label, value) that were refused. summary: what stands for earlier turns.
    """

    done: int = 0
    steps: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    facts: list[tuple[float, bool, Mapping[str, str]]] = field(default_factory=list)
    fetched: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    recalled: list[tuple[str, str]] = field(default_factory=list)
    rejected: set[tuple[str, str]] = field(default_factory=set)
    tokens: float = 0.0
    summary: str = ""


class ScriptedAgent:
    """Takes the place of a model in a run.

    counts: what it did, for reports; no decision reads it.
    """

    def __init__(self, skill: Skill, seed: int, knobs: Knobs, shape: Shape = "openai") -> None:
        self.shape = shape
        self.name = "scripted"
        self.counts: Counter[str] = Counter()
        self._skill = skill
        self._seed = seed
        self._knobs = knobs
        self._reader = PromptReader()
        self._known_facts: dict[str, Mapping[str, str]] = {}
        self._answers = 0

    def answer(self, prompt: Prompt) -> ModelAnswer:
        pieces = self._reader.read(prompt)
        tools = frozenset(str((tool.get("function") or tool).get("name")) for tool in prompt.tools)
        words, calls = self.decide(pieces, tools)
        self._answers += 1
        actions = tuple(
            Action(id=f"call_{self._answers}_{place}", name=name, arguments=json.dumps(arguments))
            for place, (name, arguments) in enumerate(calls)
        )
        reply = RecordedReply(number=self._answers, text=words, calls=actions)
        spec = ReplySpec(reply=reply, usage=Usage(), model=self.name, id=str(self._answers))
        answer = parse_model_answer(self.shape, RESPONSE_FORMATS[self.shape].build_body(spec))
        # It counts no tokens: that is the meter's.
        return replace(answer, usage=None)

    def decide(self, pieces: Sequence[PromptPiece], tools: frozenset[str]) -> tuple[str, Sequence[Call]]:
        """Return what the agent says, and the calls that it makes."""
        seen = self._look_through(pieces)
        steps, report_needs = _read_task(pieces)
        step = seen.done + 1
        newest = self._list_newest_facts(pieces)
        notes = self._take_notes(newest)

        def find(pattern: str) -> re.Match[str] | None:
            return next((found for piece in reversed(pieces) if (found := re.search(pattern, piece.text))), None)

        if seen.summary and seen.done == 0 and not seen.steps:
            return self._speak("What is done already?", notes), [self._skill.ask_status()]
        look = self._look_again(pieces, seen)
        if look is not None:
            return self._speak(f"Step {seen.done} went through. Is it as it should be?", notes), [look]
        if seen.done >= steps:
            values, calls = self._obtain(report_needs, step, seen, tools)
            if calls:
                return self._speak("The report needs more.", self._take_notes(newest, report_needs)), calls
            return self._speak("Everything is done; here is the report.", notes), [self._skill.submit(values)]
        if step not in seen.steps:
            return self._speak(f"On to step {step}.", notes), [self._open_step(step, seen, tools, find)]
        values, calls = self._obtain(seen.steps[step], step, seen, tools)
        if calls:
            return self._speak(f"Step {step} needs more.", self._take_notes(newest, seen.steps[step])), calls
        return self._speak(f"All values of step {step} are known.", notes), [self._skill.apply(step, values, find)]

    # -- what the prompt shows -----------------------------------------------------------------------------------------

    def _look_through(self, pieces: Sequence[PromptPiece]) -> _Seen:
        seen = _Seen(tokens=sum(piece.tokens for piece in pieces))
        calls = {piece.call: piece for piece in pieces if piece.kind == "call"}
        results = {piece.call: piece.text for piece in pieces if piece.kind == "result"}
        recalls = {call for call, piece in calls.items() if piece.name in (RECALL_TOOL, SEARCH_TOOL)}
        before = 0.0
        for piece in pieces:
            before += piece.tokens
            if piece.kind == "system":
                continue
            if piece.kind == "call":
                self._look_at_call(piece, results.get(piece.call, ""), seen)
                facts = self._skill.list_values(piece.name, piece.arguments)
            else:
                self._look_at_text(piece, calls, seen)
                facts = self._list_facts(piece.text)
            if facts:
                is_present = piece.kind == "result" and piece.call not in recalls
                seen.facts.append((seen.tokens - before, is_present, facts))
        seen.facts.reverse()
        return seen

    def _look_at_call(self, call: PromptPiece, result: str, seen: _Seen) -> None:
        for document in self._skill.list_documents(call.name, call.arguments):
            seen.fetched[document].append(result)
        if call.name in (RECALL_TOOL, SEARCH_TOOL):
            seen.recalled.append((call.text, result))

    def _look_at_text(self, piece: PromptPiece, calls: Mapping[str, PromptPiece], seen: _Seen) -> None:
        if piece.kind == "user" and SUMMARY_LABEL in piece.text:
            seen.summary = piece.text
        elif "step " in piece.text:
            for numbers in _OPEN.findall(piece.text):
                seen.done = max(seen.done, int("".join(numbers)) - 1)
        if piece.kind != "said":
            self._look_at_result(piece, calls, seen)

    def _look_at_result(self, piece: PromptPiece, calls: Mapping[str, PromptPiece], seen: _Seen) -> None:
        if "step " not in piece.text:
            return
        for number, needs in _STEP.findall(piece.text):
            seen.steps[int(number)] = _NEED.findall(needs)
        for number in _ACCEPTED.findall(piece.text):
            seen.done = max(seen.done, int(number))
        rejected = _REJECTED.search(piece.text)
        if rejected and piece.call in calls:
            call = calls[piece.call]
            label = rejected[2]
            seen.rejected.add((label, self._skill.list_values(call.name, call.arguments).get(label, "")))

    def _list_facts(self, text: str) -> Mapping[str, str]:
        known = self._known_facts.get(text)
        if known is None:
            known = self._known_facts[text] = {**dict(_NOTE.findall(text)), **dict(self._skill.facts.findall(text))}
        return known

    def _find_value(self, label: str, step: int, seen: _Seen) -> str | None:
        """Return the newest value of a fact that the prompt shows and the agent does not overlook; None for none."""
        changes = self._skill.states.match(label) is not None
        is_doubted = any(name == label for name, _ in seen.rejected)
        for behind, is_present, facts in seen.facts:
            value = facts.get(label)
            if value is None or (label, value) in seen.rejected or (changes and not is_present):
                continue
            # The place is rounded, so that the same fact is not looked for anew at every call.
            # Who was told that a value is wrong looks closely.
            risk = 0.0 if is_doubted else self._knobs.rot * behind / 100_000
            if risk and self._draw(label, step, round(behind, -4), "rot") < risk:
                others = [each for name, each in facts.items() if name != label]
                if others and self._draw(label, step, "confused") < _CONFUSED:
                    self.counts["confused"] += 1
                    return others[int(self._draw(label, step, "other") * len(others))]
                self.counts["overlooked"] += 1
                continue
            return value
        return None

    # -- how it gets what it needs -------------------------------------------------------------------------------------

    def _obtain(
        self, needs: Iterable[tuple[str, str]], step: int, seen: _Seen, tools: frozenset[str]
    ) -> tuple[dict[str, str], list[Call]]:
        """Return the values of what a step needs, and the calls for those that are missing."""
        values: dict[str, str] = {}
        calls: list[Call] = []
        for label, document in needs:
            value = self._find_value(label, step, seen)
            if value is None:
                value = self._guess(label, document, step, seen)
            if value is not None:
                values[label] = value
                continue
            call = self._ask_for(label, document, step, seen, tools)
            if call not in calls:
                calls.append(call)
        together = self._draw(step, "parallel") < self._knobs.parallel
        return values, calls if together else calls[:1]

    def _guess(self, label: str, document: str, step: int, seen: _Seen) -> str | None:
        """Return what a careless agent takes for a fact that it has read and no longer sees; None if it is careful."""
        hidden = seen.fetched.get(document)
        if not hidden or self._draw(label, step, "careless") >= self._knobs.careless:
            return None
        # First what a placeholder of its document shows, then another value of that kind.
        shown: list[str] = [value for text in hidden for value in self._skill.value.findall(text)]
        others = [each for _, _, facts in seen.facts for name, each in facts.items() if name[:3] == label[:3]]
        for value in (*shown[:1], *others[:1]):
            if (label, value) not in seen.rejected:
                self.counts["guesses"] += 1
                return value
        return None

    def _ask_for(self, label: str, document: str, step: int, seen: _Seen, tools: frozenset[str]) -> Call:
        hidden = seen.fetched.get(document, [])
        changes = self._skill.states.match(label) is not None
        pattern = self._skill.make_recall_pattern(label)
        tried = any(json.dumps(pattern)[1:-1] in call or label in call for call, _ in seen.recalled)
        if hidden:
            self.counts["hidden"] += 1
        # A recall gives what was true then, so what changes is read again.
        if not (changes or tried):
            call = self._recall(hidden, pattern, tools)
            if call is None and not hidden and document in seen.summary:
                call = self._search(label, step, tools)
            if call is not None:
                return call
        narrow = (hidden or tried) and self._draw(label, step, "narrow") < _NARROW
        return self._skill.fetch(document, label if narrow and not changes else "")

    def _search(self, label: str, step: int, tools: frozenset[str]) -> Call | None:
        if not self._knobs.recalls or SEARCH_TOOL not in tools or self._draw(label, step, "search") >= 0.5:
            return None
        self.counts["recalls"] += 1
        return SEARCH_TOOL, {"query": label}

    def _recall(self, hidden: Sequence[str], pattern: str, tools: frozenset[str]) -> Call | None:
        """Return the recall of what is hidden in the newest of these results; None without a placeholder or tool."""
        handle = next((found[0] for text in reversed(hidden) if (found := _HANDLE.search(text))), None)
        if handle is None or not self._knobs.recalls or RECALL_TOOL not in tools:
            return None
        self.counts["recalls"] += 1
        return RECALL_TOOL, {"handle": handle, "pattern": pattern}

    def _open_step(self, step: int, seen: _Seen, tools: frozenset[str], find: Find) -> Call:
        call = self._skill.open_step(step, find)
        documents = self._skill.list_documents(*call)
        hidden = [text for document in documents for text in seen.fetched.get(document, ())]
        tried = any(f"step {step}:" in asked for asked, _ in seen.recalled)
        recall = None if tried else self._recall(hidden, f"step {step}:", tools)
        return call if recall is None else recall

    def _look_again(self, pieces: Sequence[PromptPiece], seen: _Seen) -> Call | None:
        """Return the call that looks at what was just changed, where the agent does so."""
        newest = pieces[-1].text
        accepted = _ACCEPTED.search(newest)
        if pieces[-1].kind != "result" or accepted is None or int(accepted[1]) != seen.done:
            return None
        if self._draw(seen.done, "look") >= self._knobs.looks_again:
            return None
        look = self._skill.look(seen.done)
        # What shows that a step was accepted may be the look itself.
        return look if look is not None and look != (pieces[-2].name, pieces[-2].arguments) else None

    # -- what it says --------------------------------------------------------------------------------------------------

    def _list_newest_facts(self, pieces: Sequence[PromptPiece]) -> Mapping[str, str]:
        newest: dict[str, str] = {}
        for piece in reversed(pieces):
            if piece.kind != "result":
                break
            newest.update(self._skill.facts.findall(piece.text))
        return newest

    def _take_notes(self, newest: Mapping[str, str], needs: Sequence[tuple[str, str]] = ()) -> str:
        """Return notes of some facts, and of those that a step needs which is not complete: they may soon be hidden."""
        needed = {label for label, _ in needs}
        return "".join(
            f" {label} is `{value}`."
            for label, value in newest.items()
            if (label in needed or self._draw(label, "note") < self._knobs.notes)
            and not self._skill.states.match(label)
        )

    def _speak(self, words: str, notes: str) -> str:
        # A model thinks aloud: some 20 to 120 tokens, the same for the same words.
        length = 4 + int(18 * self._draw(words, "length"))
        thought = " ".join(
            f"the {WORDS[int(self._draw(words, place) * len(WORDS))]} has to be settled before what depends on it,"
            for place in range(length // 3)
        )
        return f"{words} {thought}{notes}".strip()

    def _draw(self, *key: object) -> float:
        return draw_share(self._seed, *key)


def _read_task(pieces: Sequence[PromptPiece]) -> tuple[int, list[tuple[str, str]]]:
    """Return how many steps the task has, and what its report needs."""
    task = next(piece.text for piece in pieces if piece.kind == "user")
    count = _COUNT.search(task)
    report = _REPORT.search(task)
    assert count is not None, "the task is not shown"
    assert report is not None, "the task has no report"
    return int(count[1]), _NEED.findall(report[1])


#: Characters of a token, about.
_CHARACTERS_PER_TOKEN = 3.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPiece:
    """One thing in a prompt.

    text:  what it says; of a call its arguments.
    name, arguments: of a call. call: id of the call, and of the result that answers it.
    """

    kind: Literal["system", "user", "said", "call", "result"]
    text: str
    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    call: str = ""

    @property
    def tokens(self) -> float:
        return len(self.text) / _CHARACTERS_PER_TOKEN


class PromptReader:
    """Reads prompts of one conversation. A message that was read is known again: views repeat the very object."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Json, tuple[PromptPiece, ...]]] = {}

    def read(self, prompt: Prompt) -> list[PromptPiece]:
        pieces = [PromptPiece(kind="system", text=_join_texts(prompt.system))] if prompt.system else []
        for message in prompt.messages:
            known = self._known.get(id(message))
            if known is None or known[0] is not message:
                # The message is kept, so that no other gets its id.
                known = self._known[id(message)] = (message, tuple(_split_message(message)))
            pieces += known[1]
        return pieces


def _split_message(message: Json) -> Iterator[PromptPiece]:
    role, content = message["role"], message.get("content")
    if role == "tool":
        yield _make_result(message["tool_call_id"], content)
        return
    kind: Any = {"assistant": "said", "user": "user"}.get(role, "system")
    if isinstance(content, str):
        yield PromptPiece(kind=kind, text=content)
    for block in content if isinstance(content, list) else ():
        if block["type"] == "tool_use":
            yield _make_call(block["id"], block["name"], block["input"])
        elif block["type"] == "tool_result":
            yield _make_result(block["tool_use_id"], block.get("content"))
        elif "text" in block:
            yield PromptPiece(kind=kind, text=block["text"])
    for call in message.get("tool_calls") or ():
        yield _make_call(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))


def _make_call(call: str, name: str, arguments: Mapping[str, Any]) -> PromptPiece:
    return PromptPiece(kind="call", text=json.dumps(arguments), name=name, arguments=arguments, call=call)


def _make_result(call: str, content: Any) -> PromptPiece:
    text = _join_texts(content)
    if text.startswith('{"output"'):
        # The JSON form of a command's result. One that was cut or hidden is text.
        try:
            text = json.loads(text)["output"]
        except ValueError:
            text = text.replace("\\n", "\n").replace('\\"', '"')
    return PromptPiece(kind="result", text=text, call=call)


def _join_texts(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content or () if "text" in block)
