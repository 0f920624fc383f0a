"""Constraints: sentences of user and system messages that bind the agent for the rest of a session.

A sentence is one by its words ("must", "never", "do not", "only" ...) or by its label ("RULE:"). That finds too much
rather than too little: a statement that passes for a constraint costs a few tokens, a lost constraint cannot be kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from elision.trajectory.turn import Turn

#: Characters of a constraint; a longer sentence is cut in its middle.
LONGEST_CONSTRAINT: Final = 400
#: Characters of a text that are searched: what is longer was pasted.
_SEARCHED: Final = 40_000

# By language. "must have" and "there must" guess what happened.
_MARKS: Final = (
    r"must(?:n['’]t| not)?\b(?! have\b)|never|do not|don['’]t|always|only|shall not|may not|not allowed|forbidden|"
    r"prohibited|required to|under no circumstances|from now on|no longer",
    r"niemals|nie|immer|nur|muss|müssen|darf|dürfen|verboten|ab sofort",
    r"jamais|toujours|uniquement|seulement|ne (?:\w+ ){1,3}pas|doit|doivent|interdit|désormais",
    r"nunca|siempre|solo|sólo|solamente|debes?|deben|prohibido",
)
_MARK: Final = re.compile(
    rf"\b(?:{'|'.join(_MARKS)})\b|(?:必须|不要|绝不|禁止|只能|只允许|必ず|絶対|だけ|しないで)", re.IGNORECASE
)
#: Each sentence that is one has one of these, in lower case. To look for them takes a sixth of the time.
_HINTS: Final = (
    *("must", "never", "not", "don", "always", "only", "forbidden", "prohibited", "required", "circumstances", "now"),
    *("longer", "nie", "immer", "nur", "muss", "müssen", "darf", "dürfen", "verboten", "sofort", "jamais", "toujours"),
    *("uniquement", "seulement", "pas", "doit", "doivent", "interdit", "désormais", "nunca", "siempre", "solo", "sólo"),
    *(
        "solamente",
        "deb",
        "prohibido",
        "必须",
        "不要",
        "绝不",
        "禁止",
        "只能",
        "只允许",
        "必ず",
        "絶対",
        "だけ",
        "しないで",
    ),
    *("rule", "constraint", "requirement", "restriction", "limit", "polic", "important"),
)
_STATEMENT: Final = re.compile(
    r"\b(?:I|we|they|you) (?:do not|don['’]t) (?:know|think|see|have|understand|remember|mind|believe|recall|get)\b|"
    r"\bthere must be\b",
    re.IGNORECASE,
)
_LABEL: Final = re.compile(
    r"[\W_]*(?:[A-Za-z]+ ){0,3}"
    r"(?:rules?|constraints?|requirements?|restrictions?|limits?|polic(?:y|ies)|important)[*_]*:",
    re.IGNORECASE,
)
#: A sentence that begins with its mark may be about the one before it: "The cap is $500. Never exceed it."
_LEANS_BACK: Final = re.compile(rf"(?:(?:and|but|also|so|please)[, ]+)?(?:{'|'.join(_MARKS)})\b", re.IGNORECASE)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])")
_LIST_MARK: Final = re.compile(r"\A\s*(?:[-*•>]\s+|#{1,6}\s+|\d{1,2}[.)]\s+)")
_FENCE: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
# A value that a sentence sets: another one in its place is a newer version of the constraint.
_SET_VALUE: Final = re.compile(
    r"\b(is|are|be|at most|at least|than|under|below|above|exceed|until|before|after) "
    r"([$€£]?\d[\d.,:/-]*\d|[$€£]?\d)(?= |$|[%.,;])"
)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint, word for word, and the turn after which the user gave it."""

    turn: int
    text: str


def find_constraints(text: str) -> list[str]:
    """Return the constraints in `text`, in order, each on one line. Code blocks and questions are none."""
    found: list[str] = []
    if not _has_hint(text[:_SEARCHED]):
        return found
    for line in filter(_has_hint, _FENCE.sub("\n", text[:_SEARCHED]).splitlines()):
        line = " ".join(_LIST_MARK.sub("", line, count=1).split())
        if _LABEL.match(line):
            found.append(_cut_middle(line))
        elif _MARK.search(line):
            found += _find_in_line(line)
    return found


def list_turn_constraints(turn: Turn) -> list[Constraint]:
    """Return the constraints that the user, or the system, gave after `turn`."""
    return [Constraint(turn.index, text) for message in turn.interjections for text in find_constraints(message.text)]


def choose_current_constraints(constraints: Iterable[Constraint]) -> list[Constraint]:
    """Return `constraints`, oldest first, without those that a newer one repeats or replaces.

    A constraint is replaced by one that differs from it in nothing but a value that it sets: "The cap is $400." by "The
    cap is $700." Any other two stay side by side, since only their reader can tell what the newer one means.
    """
    newest: dict[str, Constraint] = {}
    for constraint in constraints:
        key = _SET_VALUE.sub(r"\1 #", normalize_constraint(constraint.text))
        # The newer one comes last, as the user said it.
        newest.pop(key, None)
        newest[key] = constraint
    return list(newest.values())


def list_missing_constraints(constraints: Iterable[Constraint], shown: str) -> list[Constraint]:
    """Return the `constraints` that `shown` does not have word for word, but for letter case and white space."""
    text = normalize_constraint(shown)
    return [constraint for constraint in constraints if normalize_constraint(constraint.text) not in text]


def normalize_constraint(text: str) -> str:
    """Return `text` in lower case, on one line, without the full stop at its end."""
    return " ".join(text.replace("’", "'").lower().split()).rstrip(".! ")


def _has_hint(text: str) -> bool:
    lower = text.lower()
    return any(hint in lower for hint in _HINTS)


def _find_in_line(line: str) -> list[str]:
    found: list[str] = []
    before = ""
    for sentence in _SENTENCE_END.split(line):
        if _is_constraint(sentence):
            if before and _LEANS_BACK.match(sentence) and len(before) + len(sentence) < LONGEST_CONSTRAINT:
                if found and found[-1].endswith(before):
                    found[-1] += f" {sentence}"
                else:
                    found.append(f"{before} {sentence}")
            else:
                found.append(_cut_middle(sentence))
        before = sentence
    return found


def _is_constraint(sentence: str) -> bool:
    if sentence.endswith(("?", "？")) or not _MARK.search(sentence):
        return False
    return _MARK.search(_STATEMENT.sub(" ", sentence)) is not None


def _cut_middle(text: str) -> str:
    if len(text) <= LONGEST_CONSTRAINT:
        return text
    reach = (LONGEST_CONSTRAINT - 7) // 2
    return f"{text[:reach]} [...] {text[-reach:]}"
