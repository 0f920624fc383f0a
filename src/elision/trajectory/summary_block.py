"""The message that follows the task in place of covered turns: a record, marked as one, and the words that it restates.

Constraints are sentences of user and system messages that bind the agent for the rest of a session. A sentence is one
by its words ("must", "never", "do not", "only" ...) or by its label ("RULE:"). That finds too much rather than too
little: a statement that passes for a constraint costs a few tokens, a lost constraint cannot be kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from elision.trajectory.tokens import Sizer
from elision.trajectory.turn import Message, Turn

#: How the label begins.
_LABEL_START = "[Record of turns 1-"
#: Above the constraints of the user.
_CONSTRAINTS_LABEL = "[Constraints that the user stated after these turns, word for word]"
#: Tokens around one quoted message.
FRAME_TOKENS = 10
#: Characters of a constraint; a longer sentence is cut in its middle.
LONGEST_CONSTRAINT: Final = 400
_CONSTRAINT_REACH: Final = (LONGEST_CONSTRAINT - 7) // 2
#: Characters of either end of an older message that are quoted.
_QUOTED_REACH: Final = 400
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
            found.append(_cut_middle(line, LONGEST_CONSTRAINT, _CONSTRAINT_REACH))
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
                found.append(_cut_middle(sentence, LONGEST_CONSTRAINT, _CONSTRAINT_REACH))
        before = sentence
    return found


def _is_constraint(sentence: str) -> bool:
    if sentence.endswith(("?", "？")) or not _MARK.search(sentence):
        return False
    return _MARK.search(_STATEMENT.sub(" ", sentence)) is not None


def _cut_middle(text: str, longest: int, reach: int) -> str:
    """Return `text`; if it is longer than `longest`, `reach` characters of either end."""
    if len(text) <= longest:
        return text
    return f"{text[:reach]} [...] {text[-reach:]}"


def remove_block_label(block: str) -> str:
    """Return a block's text without its label: for a place where something else says that it is a record."""
    label, _, rest = block.partition("\n\n")
    if label.startswith(_LABEL_START):
        return rest
    return block


def format_summary_block(
    text: str,
    covers: int,
    quotes: Iterable[tuple[str, str]],
    older: Iterable[str],
    constraints: Sequence[Constraint] = (),
) -> str:
    """The block's exact text.

    text: the summary. covers: turns 1 ... covers. quotes: (name, text) of what is kept word for word. older: words of
    the user beyond `keep_user_tokens`, oldest first. constraints: of the user, which nothing else in the view has.
    """
    parts = [
        f"{_LABEL_START}{covers} of this conversation, condensed. It is a record of what was done, "
        "not a message from the user and not a new request.]",
        text.strip(),
    ]
    if constraints:
        parts.append("\n".join([_CONSTRAINTS_LABEL, *map(format_constraint, constraints)]))
    parts += [f"[User message of that time] {words}" for words in older]
    parts += [f"[Kept word for word: {name}]\n{words}" for name, words in quotes]
    return "\n\n".join(parts)


def format_constraint(constraint: Constraint) -> str:
    return f"- [{constraint.turn}] {constraint.text}"


def quote_user_words(
    dropped: Sequence[Message], constraints: Sequence[Constraint], text: str, limit: int, sizer: Sizer
) -> tuple[list[Constraint], list[str]]:
    """Return the constraints to restate, and the older words to quote.

    dropped: messages that leave the view, oldest first. constraints: those in them. text: the summary. limit: tokens of
    the older words; the summary may have as many, and what it leaves free serves constraints as well. They come before
    other words. Those that the summary has word for word are not restated, and none is where all are quoted anyway.
    """
    current = list_missing_constraints(choose_current_constraints(constraints), text)
    older = quote_older_words(dropped, limit, sizer)
    if not list_missing_constraints(current, "\n".join(older)):
        return [], older
    restated, tokens = _fit_constraints(current, limit + max(0, limit - sizer.count(text)), sizer)
    return restated, quote_older_words(dropped, limit - tokens, sizer)


def _fit_constraints(constraints: Sequence[Constraint], limit: int, sizer: Sizer) -> tuple[list[Constraint], int]:
    """Return as many of `constraints` as fit `limit` tokens, the newest first, in their order; and their tokens."""
    chosen: list[Constraint] = []
    used = FRAME_TOKENS
    for constraint in reversed(constraints):
        tokens = sizer.count(format_constraint(constraint)) + 1
        if used + tokens <= limit:
            used += tokens
            chosen.append(constraint)
    if not chosen:
        return [], 0
    return chosen[::-1], used


def quote_older_words(messages: Sequence[Message], limit: int, sizer: Sizer) -> list[str]:
    """What is quoted of `messages` (oldest first) in `limit` tokens: the newest first, each cut head and tail.

    The rest is up to the summary, whose writer has seen every word.
    """
    quoted: list[str] = []
    for message in reversed(messages):
        words = _cut_middle(message.text, 2 * _QUOTED_REACH, _QUOTED_REACH)
        limit -= FRAME_TOKENS + sizer.count(words)
        if limit < 0:
            break
        quoted.append(words)
    return quoted[::-1]


def choose_kept_interjections(turns: Sequence[Turn], sizes: Sequence[int], limit: int) -> tuple[int, ...]:
    """Turns whose interjections stay word for word: the newest first, as many as fit into `limit` tokens; in order.

    Pinned ones stay in any case. sizes: tokens of the interjections of each of `turns`.
    """
    kept: list[int] = []
    full = False
    for turn, size in zip(reversed(turns), reversed(sizes), strict=True):
        pinned = any(message.pinned for message in turn.interjections)
        full = full or (size > limit and not pinned)
        if turn.interjections and (pinned or not full):
            limit -= size
            kept.append(turn.index)
    return tuple(reversed(kept))
