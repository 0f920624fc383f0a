"""Token counts: of texts and messages, by the vocabularies that ship with the package, and on the provider's scale.

A counter counts a text exactly, or estimates and says so. A `Tokenizer` says how a family of models counts, before a
provider reported any usage: 1.0 to 1.6 tokens are billed for one that we count (o200k) of what a model reads, and what
a model wrote is billed again as it was reported, one for one. `prices.toml` has the families; `elision audit
--calibrate` fits them. A `Sizer` counts messages by both.

A client may keep part of its prompt to itself (tools that `prepare` is not shown), and no table is exact. So a
`TokenScale` learns two things from the prompts that a provider reports: how long the newest one was, and how fast they
grow. Until then the scale is as expected.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Final, Protocol

from elision.errors import PriceError, SpecError
from elision.trajectory.foreign_text import digest_text
from elision.trajectory.turn import Action, Content, Head, Message, Observation, Text, Turn, has_sealed_reasoning
from elision.trajectory.vocabulary import Encoder, load_fastest_encoder

#: Tokens a chat message costs beyond its text: role and delimiters (OpenAI cookbook, "How to count tokens": 3-4).
TOKENS_PER_MESSAGE = 4
#: Tokens a tool call costs beyond its name and arguments: id, type and delimiters. Fitted on the prompt totals that
#: Claude Code and pi sessions were billed; see `elision audit --calibrate`.
TOKENS_PER_CALL = 8
#: A reported output below this share of our count of the message is not all that the model wrote: some formats keep the
#: count of a response's first fragment.
CREDIBLE_OUTPUT = 0.5
#: Texts whose counts are kept, some 5 MB of them; the half that was counted first goes when there are more.
TEXTS_KEPT = 1 << 15
#: Texts that are kept themselves, with their counts.
NEWEST_TEXTS_KEPT = 256
#: Characters of a text that is its own name; a longer one is known by its hash.
SHORT_TEXT = 32
#: Tokens by our count that prompts must have grown by before their growth says how the provider counts.
GROWN_TOKENS: Final = 500
#: Billed tokens per counted token, at least and at most: beyond that a report is odd.
LEAST_RATE = 0.5
MOST_RATE = 4.0
#: Billed tokens of a whole prompt per counted token, at least and at most: beyond that a proxy reports something else.
LEAST_SHARE: Final = 0.25
MOST_SHARE: Final = 4.0
#: Tokens that a client may send without showing them to `prepare`: system prompt and tools, of several MCP servers too.
UNSEEN_TOKENS: Final = 50_000


class TokenCounter(Protocol):
    """Counts the tokens of a text.

    name:  what to call the counts in a report ("o200k", "estimate").
    is_exact: False for an estimate.
    """

    name: str
    is_exact: bool

    def count(self, text: str) -> int: ...


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
                # Only the newer half stays. Another thread may count meanwhile: it finds the old table or the new one.
                seen = list(self._known_counts.items())
                self._known_counts = dict(seen[len(seen) // 2 :])
            if self._encoder is None:
                # A thread may load it ahead: who needs it meanwhile waits for that, instead of loading it once more.
                with self._load_lock:
                    self._encoder = self._encoder or self._load_encoder(self.name)
            known = self._known_counts[key] = self._encoder.count(text)
        if SHORT_TEXT < len(text) < 50_000:
            if len(self._newest_counts) >= NEWEST_TEXTS_KEPT:
                self._newest_counts = {}
            self._newest_counts[text] = known
        return known


class EstimatingCounter:
    """Characters / 4 for ASCII, 1 token a character for the rest. Mean error 19 % on ASCII; never called exact."""

    name = "estimate"
    is_exact = False

    def count(self, text: str) -> int:
        if text.isascii():
            return -(-len(text) // 4)
        wide = sum(1 for letter in text if ord(letter) > 127)
        return wide + -(-(len(text) - wide) // 4)


#: Those of the process. A vocabulary is loaded when the first text is counted.
_COUNTERS: Final[Mapping[str, TokenCounter]] = {
    "o200k": VocabularyCounter("o200k"),
    "cl100k": VocabularyCounter("cl100k"),
    "estimate": EstimatingCounter(),
}


def make_counter(name: str = "o200k") -> TokenCounter:
    """The process's counter of that name: o200k, cl100k (both exact) or estimate. Raises SpecError."""
    if name not in _COUNTERS:
        raise SpecError(f"no token counter {name!r}; there are: {', '.join(_COUNTERS)}")
    return _COUNTERS[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """The scale of one family.

    models: beginnings of the bare names of its models, lower case, with dashes for dots.
    tokens_per_counted: billed tokens for a token that we count, of what the model reads.
    output_sent_again: whether all of the reported output is a part of the next prompt. Where it is not, since it holds
    reasoning that stays with the provider, the text of the answer is counted. Sealed reasoning is always sent again.
    """

    name: str
    models: tuple[str, ...] = ()
    tokens_per_counted: float = 1.0
    output_sent_again: bool = False
    source: str = ""
    dated: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.tokens_per_counted) and 0.25 <= self.tokens_per_counted <= 4):
            raise PriceError(
                f"tokenizer {self.name}: tokens_per_counted is {self.tokens_per_counted!r}; "
                "give a number from 0.25 to 4"
            )

    def measure_fit(self, model: str) -> int:
        """Return how many characters of a bare model name are those of the family; 0 for another family."""
        return max((len(start) for start in self.models if model.startswith(start)), default=0)


#: Of a model whose family is not known, and of price lists that stand for no model: a token is a token of ours.
OURS: Final = Tokenizer(name="o200k")


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


@dataclass(slots=True)
class TokenScale:
    """A fold over reported prompts; work per report and per question is constant.

    counted, billed: the newest reported prompt, in tokens by our count and by the provider's; 0 before the first.
    expected_rate: the rate until prompts have grown by enough.
    """

    expected_rate: float = 1.0
    counted_tokens: int = 0
    billed_tokens: int = 0
    _grown_counted: int = 0
    _grown_billed: int = 0

    def add_report(self, counted: int, billed: int, *, extends: bool) -> bool:
        """The provider counted a prompt. extends: whether it begins with the whole prompt that was reported before.

        Return whether the report is used: no tokenizer is so far from ours, and a prompt that seems to be nearly
        nothing would cost nothing, whatever is in it.
        """
        if not is_credible(counted, billed):
            return False
        if extends and self.counted_tokens and counted > self.counted_tokens:
            self._grown_counted += counted - self.counted_tokens
            self._grown_billed += billed - self.billed_tokens
        self.counted_tokens = counted
        self.billed_tokens = billed
        return True

    @property
    def correction(self) -> int:
        """Tokens that the newest reported prompt had beyond our count of it."""
        return self.billed_tokens - self.counted_tokens

    @property
    def rate(self) -> float:
        """Return billed tokens per counted token of what is added to a prompt or left out of it."""
        # Before prompts have grown by enough, their growth says little.
        if self._grown_counted < GROWN_TOKENS:
            return self.expected_rate
        return min(max(self._grown_billed / self._grown_counted, LEAST_RATE), MOST_RATE)

    def convert_part(self, tokens: int) -> int:
        """Return how many tokens the provider would count for a part of a prompt that has `tokens` by our count."""
        return round(tokens * self.rate)

    def convert_to_billed(self, tokens: int) -> int:
        """Return how many tokens the provider would count for a prompt of `tokens` by our count."""
        shorter = self.counted_tokens - tokens
        along_growth = round(self.billed_tokens - self.rate * shorter)
        if shorter <= 0:
            return along_growth
        in_proportion = round(tokens * self.billed_tokens / self.counted_tokens)
        if self._grown_counted >= GROWN_TOKENS:
            return max(along_growth, in_proportion)
        return in_proportion

    def convert_to_counted(self, tokens: int) -> int:
        """Return the largest prompt by our count for which the provider counts at most about `tokens`."""
        if tokens >= self.billed_tokens or not self.counted_tokens:
            return self.counted_tokens + int((tokens - self.billed_tokens) / self.rate)
        along_growth = self.counted_tokens - int((self.billed_tokens - tokens) / self.rate)
        in_proportion = tokens * self.counted_tokens // self.billed_tokens
        if self._grown_counted >= GROWN_TOKENS:
            return min(along_growth, in_proportion)
        return in_proportion


def is_credible(counted: int, billed: int) -> bool:
    """Return whether a provider may have billed `billed` tokens for a prompt of `counted` by our count."""
    if counted - billed >= GROWN_TOKENS and billed < LEAST_SHARE * counted:
        return False
    return billed <= MOST_SHARE * counted + UNSEEN_TOKENS
