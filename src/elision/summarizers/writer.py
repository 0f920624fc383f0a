"""A summary written by a model: asked for, judged, asked for otherwise where it fails, and counted.

    question -> endpoint -> answer -> checks -> Written
        ^                                |
        +----- shorter, or with what was missing or wrong told -----+

A request is never sent again as it was after an answer to it: only a server that gave none (too many requests, an
error of its own, no connection, no answer in time) is asked the same twice.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from elision.errors import SummaryError
from elision.summarizers.checks import Problem, problem
from elision.summarizers.endpoint import Answer, Endpoint, Fault, Question
from elision.summarizers.prompt import extension, fitted, strings
from elision.summarizers.reasoning_room import FIRST, ReasoningRoom
from elision.summarizers.redacted import Redactor
from elision.summarizers.tally import Tally
from elision.summarizers.written import Written
from elision.trajectory.plan import LivePrefix, SummaryRequest
from elision.trajectory.prices import Prices
from elision.trajectory.redact import DEFAULT, Redaction
from elision.trajectory.tokens import counter

#: Tokens of a model whose window nobody knows.
WINDOW: Final = 128_000
#: Share of the window that a prompt may fill by our count: models of others count up to a third more tokens.
_SHARE: Final = 0.75
#: Room for the answer, as a multiple of the summary's limit.
_ROOM: Final = 1.25
#: Share of the window that may be left for reasoning at most.
_REASONING: Final = 0.25
#: Tokens left for reasoning where a model is known to think first.
THINKING: Final = FIRST
_THOUGHT: Final = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>\s*", re.DOTALL)
_TRANSIENT: Final = frozenset(["timeout", "connection", "rate-limited", "server"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long one summary may take.

    attempts: answers that are asked for, each with another request. repeats: of one request that got no answer.
    call_seconds, seconds: limits of one request and of all together.
    pause: seconds before the first repeat where the server names none; doubled for each further one.
    """

    attempts: int = 3
    repeats: int = 2
    call_seconds: float = 60.0
    seconds: float = 120.0
    pause: float = 0.5


class Writer:
    """A summarizer: asks `endpoint`.

    redaction: what is taken out of requests and answers. prices: of the model, for its window and the bill; None where
    unknown. window: of the model, in tokens, where it is not that of `prices`. thinking: tokens left for reasoning.
    clock, sleep: time's own; others for tests.

    Calling it raises SummaryError, which says why and what the failed calls used. Safe to use from several threads.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        redaction: Redaction = DEFAULT,
        patience: Patience | None = None,
        prices: Prices | None = None,
        window: int | None = None,
        thinking: int = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.endpoint = endpoint
        self.redaction = redaction
        self.patience = patience or Patience()
        self.prices = prices
        self.window = window or _window(prices)
        self.reasoning = ReasoningRoom(thinking)
        self._longest: int | None = None
        self._lock = threading.Lock()
        self.clock = clock
        self.sleep = sleep

    def __repr__(self) -> str:
        return f"Writer({self.endpoint!r})"

    def __call__(self, request: SummaryRequest) -> Written:
        return _Job(self, request).run()

    @property
    def thinking(self) -> int:
        """Tokens left for reasoning now."""
        return self.reasoning.tokens

    @property
    def most_thinking(self) -> int:
        """Tokens that may be left for reasoning at most: as given, or a share of the window if that is more."""
        return max(self.reasoning.least, int(_REASONING * self.window))

    def cap_answer(self, max_tokens: int) -> int:
        """`max_tokens`, or what the model writes at most, where it said so."""
        if self._longest is None:
            return max_tokens
        return min(max_tokens, self._longest)

    def learn_window(self, tokens: int) -> None:
        """The model said how large its window is."""
        with self._lock:
            self.window = min(self.window, tokens)

    def learn_longest(self, tokens: int) -> None:
        """The model said how long its answers may be."""
        with self._lock:
            if self._longest is None:
                self._longest = tokens
            else:
                self._longest = min(self._longest, tokens)


def _window(prices: Prices | None) -> int:
    """The window of the model, or what is just below its price cliff."""
    known = (prices.window, prices.cliff()) if prices else ()
    return min((size for size in known if size), default=WINDOW)


class _Job:
    """One summary on its way."""

    def __init__(self, writer: Writer, request: SummaryRequest) -> None:
        self.writer = writer
        self.redactor = Redactor(writer.redaction)
        self.raw = request
        self.clean = self.redactor.request(request)
        self.live = self._extended()
        self.tally = Tally(writer.prices)
        self.begun = writer.clock()
        self.thinking = writer.thinking
        self.limit = self._longest_prompt()
        self.count = counter().count

    def run(self) -> Written:
        """The summary. Raises SummaryError."""
        found: Problem | None = None
        sent: set[str] = set()
        for _ in range(self.writer.patience.attempts):
            question = self._question(found)
            if found and question.text in sent:
                break
            sent.add(question.text)
            answer = self._answered(question)
            if isinstance(answer, Fault):
                found = self._shorter(question, answer)
                continue
            self.tally.add(answer, question, self.count)
            text = self.redactor.text(_said(answer))
            found = self._judged(answer, text)
            if found is None:
                self._leave_less(answer, text)
                return self._written(text)
        assert found is not None, "at least one attempt"
        raise SummaryError(found.reason, cause=found.cause, billed=self.tally.written())

    # -- asking ----------------------------------------------------------------------------------------------------

    def _extended(self) -> LivePrefix | None:
        """The live prefix if the request is to extend it.

        A secret in it forbids that: taken out it would change the cached bytes, and left in it would be ours to send.
        """
        live = self.raw.live
        if live is None or self.raw.route != "extend" or not self.writer.endpoint.extends(live):
            return None
        found = self.writer.redaction.found
        if any(map(found, strings((live.messages, live.system)))):
            return None
        return live

    def _room(self) -> int:
        """Tokens that an answer may take."""
        return self.writer.cap_answer(int(_ROOM * self.clean.max_tokens) + self.thinking)

    def _longest_prompt(self) -> int:
        """Tokens that a prompt may take, by our count."""
        return int(_SHARE * self.writer.window) - self._room()

    def _question(self, found: Problem | None) -> Question:
        if found and found.mend:
            note = f"[An earlier answer could not be used: {found.reason}. {found.mend}]"
        else:
            note = ""
        if self.live is None:
            text = fitted(self.clean, max(self.limit, 1), self.count, note)
        else:
            text = self.redactor.text(extension(self.raw, self.live, note))
        return Question(text=text, max_tokens=self._room(), seconds=0, live=self.live)

    def _answered(self, question: Question) -> Answer | Fault:
        """The answer to `question`; a server that gives none is asked again."""
        patience = self.writer.patience
        fault = Fault(cause="timeout", reason=f"the {patience.seconds:g} s for a summary are over")
        for repeat in range(patience.repeats + 1):
            if self._left() <= 0:
                return fault
            asked = replace(question, seconds=min(patience.call_seconds, self._left()))
            self.tally.calls += 1
            answer = self.writer.endpoint.ask(asked)
            if isinstance(answer, Answer):
                return answer
            fault = answer
            if fault.longest is not None and 0 < fault.longest < question.max_tokens:
                self.writer.learn_longest(fault.longest)
                question = replace(question, max_tokens=fault.longest)
                continue
            if fault.wait is None:
                wait = patience.pause * 2**repeat
            else:
                wait = fault.wait
            if fault.cause not in _TRANSIENT or repeat == patience.repeats or wait >= self._left():
                return fault
            self.writer.sleep(wait)
        return fault

    def _left(self) -> float:
        return self.writer.patience.seconds - (self.writer.clock() - self.begun)

    def _shorter(self, question: Question, fault: Fault) -> Problem:
        """What to do about a fault: only a prompt that is too long can be mended. Raises SummaryError."""
        if fault.cause != "overflow":
            if fault.cause == "rejected":
                # Perhaps for so much room: the next summary asks for less.
                self.writer.reasoning.reset()
            raise SummaryError(fault.reason, cause=fault.cause, billed=self.tally.written())
        if fault.room:
            self.writer.learn_window(fault.room)
        size = self.count(question.text)
        if fault.room and fault.sent and fault.room < fault.sent:
            share = fault.room / fault.sent
        else:
            share = 0.5
        if self.live is None:
            self.limit = int(0.9 * share * size)
        else:
            self.live = None
            self.limit = min(self.limit, int(0.9 * (fault.room or self.limit)) - self._room())
        return Problem(cause="overflow", reason=fault.reason, mend="")

    # -- judging ---------------------------------------------------------------------------------------------------

    def _judged(self, answer: Answer, text: str) -> Problem | None:
        if answer.stop == "tool":
            return Problem(
                cause="tool-call", reason="it called a tool", mend="Call no tool; write the summary as text."
            )
        if answer.stop == "refusal":
            return Problem(
                cause="refusal",
                reason="the model refused, or its provider's filter did",
                mend="Nothing is asked of you but a record of what the quoted turns did; write that record.",
            )
        if answer.stop == "length" and not text.strip():
            # All of it went into reasoning; the next answers of this model get room for that.
            self._leave_more()
            return Problem(cause="truncated", reason="it ended before it began", mend="Think briefly.")
        return problem(text, self.clean, self.count)

    def _leave_more(self) -> None:
        """Leave more for reasoning, which took all there was; where that is the most already, go back."""
        most = self.writer.most_thinking
        if self.thinking >= most:
            self.writer.reasoning.reset()
            return
        self.writer.reasoning.grow(self.thinking, most)
        self.thinking = max(self.thinking, self.writer.thinking)
        self.limit = min(self.limit, self._longest_prompt())

    def _leave_less(self, answer: Answer, text: str) -> None:
        """Leave less for reasoning where `answer`, which came, took less."""
        if answer.usage is not None:
            self.writer.reasoning.shrink(max(0, answer.usage.output - self.count(text)))

    def _written(self, text: str) -> Written:
        return replace(
            self.tally.written(),
            text=text,
            route="fresh" if self.live is None else "extend",
            redacted=self.redactor.hits,
            seconds=self.writer.clock() - self.begun,
        )


def _said(answer: Answer) -> str:
    """What was said: without reasoning that stands in the text, and without a last line that was cut off."""
    if answer.text.lstrip().startswith("<think"):
        text = _THOUGHT.sub("", answer.text, count=1)
    else:
        text = answer.text
    whole, newline, _ = text.strip().rpartition("\n")
    if answer.stop == "length" and newline:
        return whole
    return text.strip()
