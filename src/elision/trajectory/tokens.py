"""Token counts: exact ones from the vocabularies that ship with the package, or an estimate that says it is one."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Protocol

from elision.errors import SpecError
from elision.trajectory.content import Content, Text, has_sealed_reasoning
from elision.trajectory.text_pieces import digest_text
from elision.trajectory.tokenizer import OURS, Tokenizer
from elision.trajectory.turn import Action, Head, Message, Observation, Turn
from elision.trajectory.vocabulary import Encoder, load_fastest_encoder

#: Tokens a chat message costs beyond its text: role and delimiters (OpenAI cookbook, "How to count tokens": 3-4).
TOKENS_PER_MESSAGE = 4
#: Tokens a tool call costs beyond its name and arguments: id, type and delimiters. Fitted on the prompt totals that
#: Claude Code and pi sessions were billed; see `elision audit --calibrate`.
TOKENS_PER_CALL = 8
#: A reported output below this share of our count of the message is not all that the model wrote: some formats keep the
#: count of a response's first fragment.
CREDIBLE_OUTPUT = 0.5


class TokenCounter(Protocol):
    """Counts the tokens of a text.

    name:  what to call the counts in a report ("o200k", "estimate").
    is_exact: False for an estimate.
    """

    name: str
    is_exact: bool

    def count(self, text: str) -> int: ...


#: Texts whose counts are kept, some 5 MB of them; the half that was counted first goes when there are more.
TEXTS_KEPT = 1 << 15
#: Texts that are kept themselves, with their counts.
NEWEST_TEXTS_KEPT = 256
#: Characters of a text that is its own name; a longer one is known by its hash.
SHORT_TEXT = 32


class VocabularyCounter:
    """Exact counts, cached by content: a text that was counted once is looked up as long as it is among the newest.

    load_encoder: makes the encoder of a vocabulary, when the first text is counted.
    """

    is_exact = True

    def __init__(self, name: str, load_encoder: Callable[[str], Encoder] = load_fastest_encoder) -> None:
        self.name = name
        self._load_encoder = load_encoder
        self._encoder: Encoder | None = None
        self._load_lock = Lock()
        self._known_counts: dict[str | bytes, int] = {}
        self._newest_counts: dict[str, int] = {}

    def count(self, text: str) -> int:
        key: str | bytes = text
        if len(text) > SHORT_TEXT:
            # One pass asks for a text several times; a string knows its own hash.
            newest = self._newest_counts.get(text)
            if newest is not None:
                return newest
            key = digest_text(text)
        known = self._known_counts.get(key)
        if known is None:
            if len(self._known_counts) >= TEXTS_KEPT:
                self._drop_oldest()
            known = self._known_counts[key] = (self._encoder or self._make_encoder()).count(text)
        if SHORT_TEXT < len(text) < 50_000:
            if len(self._newest_counts) >= NEWEST_TEXTS_KEPT:
                self._newest_counts = {}
            self._newest_counts[text] = known
        return known

    def _drop_oldest(self) -> None:
        """Only the newer half stays. Another thread may count meanwhile: it finds the old table or the new one."""
        seen = list(self._known_counts.items())
        self._known_counts = dict(seen[len(seen) // 2 :])

    def _make_encoder(self) -> Encoder:
        # A thread may load it ahead: who needs it meanwhile waits for that, instead of loading it once more.
        with self._load_lock:
            self._encoder = self._encoder or self._load_encoder(self.name)
            return self._encoder


class EstimatingCounter:
    """Characters / 4 for ASCII, 1 token a character for the rest. Mean error 19 % on ASCII; never called exact."""

    name = "estimate"
    is_exact = False

    def count(self, text: str) -> int:
        if text.isascii():
            return -(-len(text) // 4)
        wide = sum(1 for letter in text if ord(letter) > 127)
        return wide + -(-(len(text) - wide) // 4)


_COUNTERS: dict[str, Callable[[], TokenCounter]] = {
    "o200k": lambda: VocabularyCounter("o200k"),
    "cl100k": lambda: VocabularyCounter("cl100k"),
    "estimate": EstimatingCounter,
}


def make_counter(name: str = "o200k") -> TokenCounter:
    """The process's counter of that name: o200k, cl100k (both exact) or estimate. Raises SpecError."""
    if name not in _COUNTERS:
        raise SpecError(f"no token counter {name!r}; there are: {', '.join(_COUNTERS)}")
    return _make_named_counter(name)


@cache
def _make_named_counter(name: str) -> TokenCounter:
    # Behind the default: `make_counter()` and `make_counter("o200k")` must be one, or every text is counted twice.
    return _COUNTERS[name]()


class Sizer:
    """Sizes of messages, in tokens, as a chat API bills them: text, opaque parts and the frame around them.

    reasoning: whether recorded reasoning is sent again with its message.
    tokenizer: of the model that is billed. Counts of text are multiplied by its scale.
    takes_output: whether a message of the model is as long as its output was reported. Only where the model that
    reported it is of that tokenizer.
    """

    def __init__(
        self, counter: TokenCounter, *, reasoning: bool = True, tokenizer: Tokenizer = OURS, takes_output: bool = False
    ) -> None:
        self.counter = counter
        self.reasoning = reasoning
        self.tokenizer = tokenizer
        self.takes_output = takes_output
        self.count = counter.count if tokenizer.tokens_per_counted == 1 else self._count_scaled

    def count_as(self, tokenizer: Tokenizer) -> Sizer:
        """Return the sizer that counts as models of `tokenizer` do: this one, if it does."""
        if tokenizer == self.tokenizer:
            return self
        return Sizer(self.counter, reasoning=self.reasoning, tokenizer=tokenizer)

    def take_output(self) -> Sizer:
        """Return the sizer for which a message of the model is as long as its output was reported."""
        if self.takes_output:
            return self
        return Sizer(self.counter, reasoning=self.reasoning, tokenizer=self.tokenizer, takes_output=True)

    def _count_scaled(self, text: str) -> int:
        return round(self.counter.count(text) * self.tokenizer.tokens_per_counted)

    def count_content(self, parts: Content) -> int:
        return sum(self.count(part.text) if isinstance(part, Text) else part.tokens for part in parts)

    def count_message(self, message: Message) -> int:
        return TOKENS_PER_MESSAGE + self.count_content(message.content)

    def count_text(self, text: str) -> int:
        """A whole message that says `text`."""
        return TOKENS_PER_MESSAGE + self.count(text)

    def count_observation(self, observation: Observation) -> int:
        return TOKENS_PER_MESSAGE + self.count_content(observation.content)

    def count_assistant(self, turn: Turn) -> int:
        """The assistant message of `turn`, reasoning and calls included."""
        counted = self._count_answer(turn)
        if not self.takes_output or turn.usage is None or turn.usage.output < CREDIBLE_OUTPUT * counted:
            return counted
        if self.tokenizer.output_sent_again or has_sealed_reasoning(turn.content):
            return turn.usage.output
        return min(turn.usage.output, counted)

    def _count_answer(self, turn: Turn) -> int:
        calls = (action for action in turn.actions if not action.implicit)
        # Where reasoning is sealed, the text beside it is a summary of it for the user, which is not billed.
        if turn.reasoning and self.reasoning and not has_sealed_reasoning(turn.content):
            thought = self.count(turn.reasoning)
        else:
            thought = 0
        spoken = TOKENS_PER_MESSAGE + self.count_content(turn.content) + thought
        return spoken + sum(map(self.count_call, calls))

    def count_call(self, call: Action) -> int:
        return TOKENS_PER_CALL + self.count(call.name) + self.count(call.arguments)

    def count_tools(self, head: Head) -> int:
        if head.tools:
            return self.count(json.dumps(list(head.tools), ensure_ascii=False))
        return 0
