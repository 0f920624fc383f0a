"""Placeholders: one line that says what happened and how to recall the result (design 5), or a template's text.

A template is a text with fields in braces, such as `[turn {turn}: {lines} lines omitted]`. The values come from tools,
so they are untrusted: they are put in once and never read as a template.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from msgspec.structs import replace

from elision.errors import SpecError
from elision.strategies.extractors import BUILT_IN, Extractors
from elision.strategies.extractors.outcome import describe_arguments, find_tool_name, shorten_to_line
from elision.strategies.gist import KnownIdentifiers, write_gist
from elision.trajectory.foreign_text import make_encodable
from elision.trajectory.plan import Key, make_handle
from elision.trajectory.redact import DEFAULT, Redaction
from elision.trajectory.tokens import make_counter
from elision.trajectory.turn import Content, Observation, Text, Turn

#: The placeholder of the published masking strategies.
PUBLISHED_TEXT = "[Observation omitted for brevity]"

#: Characters of the key argument. The call itself is in the view, right above: this only says which one it was.
LABEL_CHARS = 24
#: Characters of the key argument where a fold refers to a call far above.
CALL_CHARS = 60
#: Characters of the outcome.
RESULT_CHARS = 64
#: Characters of a template's `{arguments}`, and of its `{tool}`.
ARGUMENTS_CHARS = 80
TOOL_CHARS = 60
#: How long the file is of which a label names lines.
_FILE_LENGTH = re.compile(r"(?<=\d) of \d+$")
_NO_BRACKETS = str.maketrans("[]", "()")
#: Every field, in the order of the documentation, and what it names.
TEMPLATE_FIELDS: Mapping[str, str] = {
    "turn": "number of the turn",
    "handle": "handle by which the result is recalled",
    "tool": "name of the tool",
    "arguments": "arguments of the call",
    "lines": "lines of the result",
    "tokens": "o200k tokens of the result",
    "characters": "characters of the result",
    "outcome": "what came of the call",
    "gist": "names and numbers that the agent may need again",
}

#: Names that other programs use -> ours, for "did you mean".
_OTHER_NAMES = {
    "args": "arguments",
    "brief": "outcome",
    "chars": "characters",
    "command": "arguments",
    "i": "turn",
    "id": "handle",
    "index": "turn",
    "n_lines": "lines",
    "name": "tool",
    "result": "outcome",
    "size": "tokens",
    "step": "turn",
    "summary": "outcome",
    "turn_idx": "turn",
    "x": "turn",
}
_PIECE = re.compile(r"(?P<text>[^{}]+)|(?P<brace>\{\{|\}\})|\{(?P<field>[^{}\n]*)\}|(?P<lone>[{}])")
#: Characters of a template in an error.
_EXCERPT_CHARS = 200
#: After these, and at the beginning of a line, nothing precedes an empty field that a blank would separate.
_OPENERS = ("[", "(", "<", "{", '"', "'", "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placeholders:
    """How placeholders are written.

    gist:    its budget in o200k tokens, whatever the model; 0 for none.
    text:    a template instead of a description of what happened; "" for the description. Its fields are
             `TEMPLATE_FIELDS`; the gist follows it where it does not name {gist}.
    handles: whether handles are named; only where recall is served. redaction: of secrets that a text would name.

    Raises SpecError for a text that is no template.
    """

    gist: int = 50
    text: str = ""
    handles: bool = True
    extractors: Extractors = BUILT_IN
    redaction: Redaction = DEFAULT

    def __post_init__(self) -> None:
        parse_template(self.text)

    @property
    def names_handle(self) -> bool:
        """Whether placeholders name the handle by which the hidden result is recalled."""
        return self.handles and (not self.text or "handle" in parse_template(self.text).fields)

    @property
    def writes_gists(self) -> bool:
        """Whether any placeholder has a gist, and so depends on what the agent knows already."""
        return self.gist > 0

    @property
    def fixed_text(self) -> str:
        """The placeholder of every result where the template has no fields, and no gist follows it; "" otherwise."""
        template = parse_template(self.text)
        if not self.text or template.fields or self.writes_gists:
            return ""
        return make_encodable(self.redaction.redact_text(template.fill_fields(str)))

    def write_placeholder(self, key: Key, turn: Turn, observation: Observation, known: KnownIdentifiers) -> str:
        """Return the placeholder of `observation`, of `turn`. known: the identifiers of the log so far."""
        # The placeholder may outlive the observation: it must not name a secret.
        return make_encodable(self.redaction.redact_text(self._write_unredacted(key, turn, observation, known)))

    def describe_call(self, turn: Turn, observation: Observation) -> str:
        """Return which call gave `observation`, of `turn`: tool and key argument, on one line without brackets."""
        # Before anything is cut: half a secret is no secret to the rules that find them.
        turn, observation = _redact_call(turn, observation, self.redaction)
        tool = shorten_to_line(find_tool_name(turn.find_action(observation), observation), TOOL_CHARS)
        label = self.extractors.find_outcome(turn, observation).label
        label = _shorten_label(_FILE_LENGTH.sub("", label), CALL_CHARS)
        return make_encodable(f"{tool} {label}".strip().translate(_NO_BRACKETS))

    def _write_unredacted(self, key: Key, turn: Turn, observation: Observation, known: KnownIdentifiers) -> str:
        if self.text:
            return self._fill_template(parse_template(self.text), key, turn, observation, known)
        outcome = self.extractors.find_outcome(turn, observation)
        name = f"{make_handle(key)} " if self.handles else ""
        tool = observation.tool or "result"
        description = f"{name}{tool}"
        label = _shorten_label(outcome.label)
        if label:
            description += f": {label}"
        description += f" -> {_shorten_result(outcome.result) or 'done'}"
        size = _format_size(observation)
        gist = self._write_gist(observation, known, description)
        if gist:
            return f"[{description}; {size} | {gist}]"
        return f"[{description}; {size}]"

    def _fill_template(
        self,
        template: PlaceholderTemplate,
        key: Key,
        turn: Turn,
        observation: Observation,
        known: KnownIdentifiers,
    ) -> str:
        values = self._find_values(template.fields, key, turn, observation)
        if template.fields:
            shown_text = template.fill_fields(lambda name: values.get(name, ""))
        else:
            # A fixed text has nothing of this result to leave out of the gist.
            shown_text = ""
        gist = self._write_gist(observation, known, shown_text)
        if "gist" in template.fields:
            values["gist"] = gist
        text = template.fill_fields(lambda name: values[name])
        if gist and "gist" not in template.fields:
            return f"{text} {gist}"
        return text

    def _write_gist(self, observation: Observation, known: KnownIdentifiers, shown_text: str) -> str:
        return write_gist(observation.text, known, self.gist, make_counter("o200k"), shown_text=shown_text)

    def _find_values(self, fields: frozenset[str], key: Key, turn: Turn, observation: Observation) -> dict[str, str]:
        """Return the values of `fields`, each one printable line; all but {gist}, which depends on the others."""
        values: dict[str, str] = {"turn": str(key[0]), "handle": ""}
        if self.handles:
            values["handle"] = make_handle(key)
        tool = find_tool_name(turn.find_action(observation), observation)
        values["tool"] = shorten_to_line(tool, TOOL_CHARS) or "result"
        if "arguments" in fields:
            values["arguments"] = self._describe_arguments(turn, observation)
        if "lines" in fields:
            # As SWE-agent counts them (`LastNObservations`), so that its text comes out as it writes it.
            texts = [part.text for part in observation.content if isinstance(part, Text)]
            values["lines"] = str(sum(len(text.splitlines()) for text in texts))
        if "tokens" in fields:
            others = sum(part.tokens for part in observation.content if not isinstance(part, Text))
            values["tokens"] = str(make_counter("o200k").count(observation.text) + others)
        values["characters"] = str(len(observation.text))
        if "outcome" in fields:
            outcome = self.extractors.find_outcome(turn, observation)
            values["outcome"] = _shorten_result(outcome.result) or "done"
        return values

    def _describe_arguments(self, turn: Turn, observation: Observation) -> str:
        action = turn.find_action(observation)
        if action is None:
            return ""
        # Before they are cut: half a secret is no secret to the rules that find them.
        redacted = replace(action, arguments=self.redaction.redact_text(action.arguments))
        return shorten_to_line(describe_arguments(redacted), ARGUMENTS_CHARS)


def _redact_call(turn: Turn, observation: Observation, redaction: Redaction) -> tuple[Turn, Observation]:
    """Return both without secrets, as far as a label is taken from them; themselves where they have none."""
    actions = tuple(
        replace(action, arguments=redaction.redact_text(action.arguments))
        if action.id == observation.action_id
        else action
        for action in turn.actions
    )
    said, shown = _redact_content(turn.content, redaction), _redact_content(observation.content, redaction)
    if shown != observation.content:
        observation = replace(observation, content=shown)
    if actions != turn.actions or said != turn.content:
        turn = replace(turn, actions=actions, content=said)
    return turn, observation


def _redact_content(parts: Content, redaction: Redaction) -> Content:
    return tuple(Text(redaction.redact_text(part.text)) if isinstance(part, Text) else part for part in parts)


def _shorten_label(label: str, limit: int = LABEL_CHARS) -> str:
    """Return `label` cut to `limit` characters: a path keeps its end, anything else its beginning."""
    if len(label) <= limit:
        return label
    if " " in label.split("/", 1)[0] or "/" not in label:
        return f"{label[: limit - 1]}…"
    tail = label[1 - limit :]
    if "/" in tail[:-12]:
        tail = tail[tail.find("/") :]
    return f"…{tail}"


def _shorten_result(result: str) -> str:
    if len(result) <= RESULT_CHARS:
        return result
    return f"{result[: RESULT_CHARS - 1]}…"


def _format_size(observation: Observation) -> str:
    """Return how many tokens are hidden. Parts that are no text are named by kind, with their estimated tokens."""
    others = [part for part in observation.content if not isinstance(part, Text)]
    tokens = make_counter("o200k").count(observation.text)
    if not others:
        return f"{tokens} tokens hidden"
    kinds = Counter(" ".join(part.kind.split())[:LABEL_CHARS] for part in others)
    named = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    booked = f"{named} (about {sum(part.tokens for part in others)} tokens)"
    if tokens:
        return f"{tokens} tokens + {booked} hidden"
    return f"{booked} hidden"


@dataclass(frozen=True, slots=True)
class TemplatePiece:
    """A literal text of a template, or the name of a field of it."""

    text: str
    is_field: bool


@dataclass(frozen=True, slots=True)
class PlaceholderTemplate:
    """A template that was read: its pieces in order, and the fields that it names."""

    pieces: tuple[TemplatePiece, ...]
    fields: frozenset[str]

    def fill_fields(self, find_value: Callable[[str], str]) -> str:
        """Return the text with the value of each field, which `find_value` returns for the field's name.

        An empty value takes one blank beside it away: the one before it, or the one after it where it begins a line
        or follows an opening bracket or quote.
        """
        filled = ""
        skips_blank = False
        for piece in self.pieces:
            if piece.is_field:
                text = find_value(piece.text)
                if text:
                    skips_blank = False
                elif filled.endswith(" "):
                    filled = filled[:-1]
                else:
                    skips_blank = not filled or filled.endswith(_OPENERS)
            else:
                text = piece.text
                if skips_blank:
                    text = text.removeprefix(" ")
                    skips_blank = False
            filled += text
        return filled


@lru_cache(maxsize=64)
def parse_template(text: str) -> PlaceholderTemplate:
    """Return the template that `text` writes: fields as `{name}`, braces as `{{` and `}}`.

    Raises SpecError for an unknown field and for a lone brace, with the place and the fields that there are.
    """
    pieces: list[TemplatePiece] = []
    for match in _PIECE.finditer(text):
        if match["lone"]:
            raise SpecError(
                f"placeholder: {match['lone']!r} at character {match.start() + 1} of {_quote_template(text)} "
                f"belongs to no field; write {match['lone'] * 2} for a brace; fields: {_list_fields()}"
            )
        if match["field"] is None:
            pieces.append(TemplatePiece(match["text"] or match["brace"][0], is_field=False))
            continue
        if match["field"] not in TEMPLATE_FIELDS:
            raise SpecError(
                f"placeholder: no field {match[0]!r} (character {match.start() + 1} of {_quote_template(text)}); "
                f"{_suggest_field(match['field'])}: {_list_fields()}; {{{{ and }}}} write braces"
            )
        pieces.append(TemplatePiece(match["field"], is_field=True))
    return PlaceholderTemplate(tuple(pieces), frozenset(piece.text for piece in pieces if piece.is_field))


def _quote_template(text: str) -> str:
    if len(text) <= _EXCERPT_CHARS:
        return repr(text)
    return f"{text[:_EXCERPT_CHARS]!r}…"


def _list_fields() -> str:
    return ", ".join(f"{{{name}}}" for name in TEMPLATE_FIELDS)


def _suggest_field(name: str) -> str:
    """Return what an error says before the fields that there are."""
    # Format specifications (`{turn:03}`) and attributes (`{turn.index}`) have no meaning here.
    word = re.split(r"[:!.\[]", name, maxsplit=1)[0].strip().lower()
    if word in TEMPLATE_FIELDS:
        near = [word]
    elif word in _OTHER_NAMES:
        near = [_OTHER_NAMES[word]]
    else:
        near = get_close_matches(word[:40], TEMPLATE_FIELDS, 1)
    if near:
        return f"did you mean {{{near[0]}}}? There are"
    return "there are"
