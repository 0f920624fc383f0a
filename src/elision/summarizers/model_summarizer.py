"""A summary written by a model: request, checks, another request where they fail, and the bill of all.

    question -> endpoint -> answer -> checks -> SummaryResult
        ^                                |
        +----- shorter, or with a note on what was wrong ----------------+

A request that was answered is not repeated unchanged. The same request is sent twice only to a server that gave no
answer (too many requests, an error of its own, no connection, a timeout).
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from elision.errors import SummaryError
from elision.providers.llm.answers import EndpointAnswer, EndpointFault
from elision.summarizers.endpoints import Endpoint, EndpointRequest
from elision.summarizers.prompt import BUILT_IN, SummaryPrompt, build_extension, fit_prompt, list_strings
from elision.summarizers.summary_acceptance import RequestRedactor
from elision.summarizers.summary_checks import LONGEST_ANSWER, SummaryProblem, SummaryResult, find_problem
from elision.trajectory.plan import LivePrefix, SummaryRequest
from elision.trajectory.prices import Prices
from elision.trajectory.redact import DEFAULT, Redaction
from elision.trajectory.tokens import make_counter
from elision.trajectory.usage import Usage

#: Tokens left to a model at first, once it turns out to reason.
FIRST_REASONING_TOKENS: Final = 8_000


#: Tokens assumed for an unknown window.
UNKNOWN_WINDOW: Final = 128_000
#: Share of the window that a prompt may fill by our count: other models count up to a third more tokens.
_PROMPT_SHARE: Final = 0.75
#: Share of the window that may be left for reasoning at most.
_REASONING_SHARE: Final = 0.25
#: Tokens left for reasoning where a model is known to think first.
THINKING: Final = FIRST_REASONING_TOKENS
_THOUGHT: Final = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>\s*", re.DOTALL)
_TRANSIENT: Final = frozenset(["timeout", "connection", "rate-limited", "server"])


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRetryPolicy:
    """How often and how long one summary is tried.

    attempts: answers, each to another request. repeats: of one request that got no answer.
    call_seconds, seconds: time limits of one request and of all together.
    pause: seconds before the first repeat where the server names none; doubled for each further one.
    """

    attempts: int = 3
    repeats: int = 2
    call_seconds: float = 60.0
    seconds: float = 120.0
    pause: float = 0.5


class ModelSummarizer:
    """A summarizer that asks `endpoint`.

    redaction: what is taken out of requests and answers. prices: of the model, for its window and the bill; None if
    unknown. window: of the model, in tokens, where it is not that of `prices`. thinking: tokens left for reasoning.
    prompt: the built-in one, or the user's own. temperature: of each request; None leaves it to the server.
    clock, sleep: those of `time`, or a test's own.

    A call raises SummaryError with the reason and with what the failed requests used. Several threads may call it.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        redaction: Redaction = DEFAULT,
        retry_policy: SummaryRetryPolicy | None = None,
        prices: Prices | None = None,
        window: int | None = None,
        thinking: int = 0,
        prompt: SummaryPrompt = BUILT_IN,
        temperature: float | None = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.endpoint = endpoint
        self.redaction = redaction
        self.retry_policy = retry_policy or SummaryRetryPolicy()
        self.prices = prices
        self.window = window or _find_window(prices)
        self.reasoning = ReasoningBudget(thinking)
        self.prompt = prompt
        if temperature is not None and temperature == int(temperature):
            # A whole number is sent as one: 0, not 0.0.
            temperature = int(temperature)
        self.temperature = temperature
        self._longest: int | None = None
        self._lock = threading.Lock()
        self.clock = clock
        self.sleep = sleep

    def __repr__(self) -> str:
        return f"ModelSummarizer({self.endpoint!r})"

    def __call__(self, request: SummaryRequest) -> SummaryResult:
        return _SummaryAttempt(self, request).run()

    @property
    def thinking_tokens(self) -> int:
        """Return the tokens left for reasoning now."""
        return self.reasoning.tokens

    @property
    def max_thinking_tokens(self) -> int:
        """Return the most tokens that may be left for reasoning: as given, or a share of the window if that is more."""
        return max(self.reasoning.least_tokens, int(_REASONING_SHARE * self.window))

    def cap_answer(self, max_tokens: int) -> int:
        """Return `max_tokens`, or the most that the model writes, if it reported that."""
        if self._longest is None:
            return max_tokens
        return min(max_tokens, self._longest)

    def learn_window(self, tokens: int) -> None:
        """Remember the window that the model reported."""
        with self._lock:
            self.window = min(self.window, tokens)

    def learn_longest(self, tokens: int) -> None:
        """Remember the longest answer that the model reported."""
        with self._lock:
            self._longest = tokens if self._longest is None else min(self._longest, tokens)


def _find_window(prices: Prices | None) -> int:
    """Return the window of the model, or what is just below its price cliff."""
    if prices is None:
        return UNKNOWN_WINDOW
    sizes = [size for size in (prices.window, prices.find_cliff()) if size]
    return min(sizes, default=UNKNOWN_WINDOW)


class _SummaryAttempt:
    """One summary from its first request to its result."""

    def __init__(self, summarizer: ModelSummarizer, request: SummaryRequest) -> None:
        self.summarizer = summarizer
        self.redactor = RequestRedactor(summarizer.redaction)
        self.raw = request
        self.clean = self.redactor.redact(request)
        self.live = self._find_live_prefix()
        self.bill = SummaryBill(summarizer.prices)
        self.started_at = summarizer.clock()
        self.thinking_tokens = summarizer.thinking_tokens
        self.prompt_limit = self._compute_prompt_limit()
        self.count = make_counter().count

    def run(self) -> SummaryResult:
        """Return the summary. Raises SummaryError."""
        problem: SummaryProblem | None = None
        sent: set[str] = set()
        for _ in range(self.summarizer.retry_policy.attempts):
            request = self._build_request(problem)
            if problem and request.text in sent:
                break
            sent.add(request.text)
            answer = self._ask_until_answered(request)
            if isinstance(answer, EndpointFault):
                problem = self._shorten_prompt(request, answer)
                continue
            self.bill.add_answer(answer, request, self.count)
            text = self.redactor.redact_text(_clean_answer(answer))
            problem = self._judge_answer(answer, text)
            if problem is None:
                if answer.usage is not None:
                    # Less is left for reasoning where this answer took less.
                    self.summarizer.reasoning.shrink(max(0, answer.usage.output - self.count(text)))
                return self._make_result(text)
        assert problem is not None, "at least one attempt"
        raise SummaryError(problem.reason, cause=problem.cause, billed=self.bill.make_result())

    # -- asking ----------------------------------------------------------------------------------------------------

    def _find_live_prefix(self) -> LivePrefix | None:
        """Return the live prefix if the request is to extend it.

        A secret in it forbids that: to take it out would change the cached bytes, and to leave it in would send it.
        """
        live = self.raw.live
        if live is None or self.raw.route != "extend" or not self.summarizer.endpoint.can_extend(live):
            return None
        if any(map(self.summarizer.redaction.has_secret, list_strings((live.messages, live.system)))):
            return None
        return live

    def _compute_answer_limit(self) -> int:
        """Return the tokens that an answer may take: the summary's limit, and what reasoning needs."""
        return self.summarizer.cap_answer(self.clean.max_tokens + self.thinking_tokens)

    def _compute_prompt_limit(self) -> int:
        """Return the tokens that a prompt may take, by our count."""
        return int(_PROMPT_SHARE * self.summarizer.window) - self._compute_answer_limit()

    def _build_request(self, problem: SummaryProblem | None) -> EndpointRequest:
        note = ""
        if problem and problem.correction:
            note = f"[An earlier answer could not be used: {problem.reason}. {problem.correction}]"
        prompt = self.summarizer.prompt
        if self.live is None:
            text = fit_prompt(self.clean, max(self.prompt_limit, 1), self.count, note, prompt)
        else:
            text = self.redactor.redact_text(build_extension(self.raw, self.live, note, prompt))
        return EndpointRequest(
            text=text,
            max_tokens=self._compute_answer_limit(),
            seconds=0,
            live=self.live,
            temperature=self.summarizer.temperature,
        )

    def _ask_until_answered(self, request: EndpointRequest) -> EndpointAnswer | EndpointFault:
        """Return the answer to `request`; a server that gives none is asked again."""
        policy = self.summarizer.retry_policy
        fault = EndpointFault(cause="timeout", reason=f"the {policy.seconds:g} s for a summary are over")
        for repeat in range(policy.repeats + 1):
            if self._count_seconds_left() <= 0:
                return fault
            timed = replace(request, seconds=min(policy.call_seconds, self._count_seconds_left()))
            self.bill.calls += 1
            answer = self.summarizer.endpoint.ask(timed)
            if isinstance(answer, EndpointAnswer):
                return answer
            fault = answer
            if fault.max_output_tokens is not None and 0 < fault.max_output_tokens < request.max_tokens:
                self.summarizer.learn_longest(fault.max_output_tokens)
                request = replace(request, max_tokens=fault.max_output_tokens)
                continue
            wait_seconds = fault.wait_seconds
            if wait_seconds is None:
                wait_seconds = policy.pause * 2**repeat
            is_last = repeat == policy.repeats or wait_seconds >= self._count_seconds_left()
            if fault.cause not in _TRANSIENT or is_last:
                return fault
            self.summarizer.sleep(wait_seconds)
        return fault

    def _count_seconds_left(self) -> float:
        return self.summarizer.retry_policy.seconds - (self.summarizer.clock() - self.started_at)

    def _shorten_prompt(self, request: EndpointRequest, fault: EndpointFault) -> SummaryProblem:
        """Shorten the next prompt, and return why. Raises SummaryError unless the prompt was too long."""
        if fault.cause != "overflow":
            if fault.cause == "rejected":
                # The server may refuse so much room for the answer: the next summary asks for less.
                self.summarizer.reasoning.reset()
            raise SummaryError(fault.reason, cause=fault.cause, billed=self.bill.make_result())
        if fault.window_tokens:
            self.summarizer.learn_window(fault.window_tokens)
        if self.live is not None:
            self.live = None
            limit = int(0.9 * (fault.window_tokens or self.prompt_limit)) - self._compute_answer_limit()
            self.prompt_limit = min(self.prompt_limit, limit)
            return SummaryProblem("overflow", fault.reason, "")
        share = 0.5
        if fault.window_tokens and fault.prompt_tokens and fault.window_tokens < fault.prompt_tokens:
            share = fault.window_tokens / fault.prompt_tokens
        self.prompt_limit = int(0.9 * share * self.count(request.text))
        return SummaryProblem("overflow", fault.reason, "")

    # -- judging ---------------------------------------------------------------------------------------------------

    def _judge_answer(self, answer: EndpointAnswer, text: str) -> SummaryProblem | None:
        """Return why `text` may not be the summary; None if it may."""
        if answer.stop == "tool":
            return SummaryProblem("tool-call", "it called a tool", "Call no tool; write the summary as text.")
        if answer.stop == "refusal":
            return SummaryProblem(
                "refusal",
                "the model refused, or its provider's filter did",
                "Nothing is asked of you but a record of what the quoted turns did; write that record.",
            )
        if answer.stop == "length" and not text.strip():
            # All of it went into reasoning; the next answers of this model get room for that.
            self._grow_reasoning()
            return SummaryProblem("truncated", "it ended before it began", "Think briefly.")
        return find_problem(text, self.clean, self.count)

    def _grow_reasoning(self) -> None:
        """Leave more for reasoning, which took all tokens; if those were the most, go back to the first amount."""
        most = self.summarizer.max_thinking_tokens
        if self.thinking_tokens >= most:
            self.summarizer.reasoning.reset()
            return
        self.summarizer.reasoning.grow(self.thinking_tokens, most)
        self.thinking_tokens = max(self.thinking_tokens, self.summarizer.thinking_tokens)
        self.prompt_limit = min(self.prompt_limit, self._compute_prompt_limit())

    def _make_result(self, text: str) -> SummaryResult:
        return replace(
            self.bill.make_result(),
            text=text,
            route="fresh" if self.live is None else "extend",
            redacted=self.redactor.hits,
            writer=self.summarizer.endpoint.model,
            seconds=self.summarizer.clock() - self.started_at,
        )


def _clean_answer(answer: EndpointAnswer) -> str:
    """Return the text without reasoning that is written into it, and without a last line that was cut off."""
    text = answer.text
    if text.lstrip().startswith("<think"):
        text = _THOUGHT.sub("", text, count=1)
    text = text.strip()
    if answer.stop == "length" and "\n" in text:
        return text.rpartition("\n")[0]
    return text


class SummaryBill:
    """Sums usage and cost. calls: requests sent, also those without an answer, whose cost is unknown and left out."""

    def __init__(self, prices: Prices | None) -> None:
        self.prices = prices
        self.calls = 0
        self._usage = Usage()
        self._usd: float | None = 0.0

    def add_answer(self, answer: EndpointAnswer, request: EndpointRequest, count: Callable[[str], int]) -> None:
        """Add an answer. Where its server reports no usage it is counted, as if nothing had been read from cache."""
        usage = answer.usage or Usage(
            input=_count_prompt_tokens(request, count), output=count(answer.text[:LONGEST_ANSWER])
        )
        self._usage += usage
        usd = usage.usd
        if not usd:
            usd = None if self.prices is None else self.prices.cost_usage(usage)
        if usd is None or self._usd is None:
            self._usd = None
        else:
            self._usd += usd

    def make_result(self) -> SummaryResult:
        """Return a result without a text: what was used so far."""
        return SummaryResult(
            text="",
            input=self._usage.prompt,
            cached=self._usage.cache_read,
            output=self._usage.output,
            usd=self._usd if self._usage.prompt else None,
            attempts=self.calls,
        )


def _count_prompt_tokens(request: EndpointRequest, count: Callable[[str], int]) -> int:
    tokens = count(request.text)
    live = request.live
    if live:
        prefix = (live.system, list(live.tools), list(live.messages))
        tokens += count(json.dumps(prefix, ensure_ascii=False, default=str))
    return tokens


class ReasoningBudget:
    """Tokens left to one model, shared by all summaries that it writes. Several threads may use it.

    They double where an answer ended within its reasoning, up to a ceiling that each caller gives, and come down again
    where answers need less. tokens: the first amount, and the least.
    """

    def __init__(self, tokens: int) -> None:
        self.least_tokens = self.tokens = tokens
        self._lock = threading.Lock()

    def grow(self, used: int, most: int) -> None:
        """Leave more than `used` tokens, all of which an answer took, but no more than `most`.

        Concurrent answers that ended alike count once.
        """
        with self._lock:
            self.tokens = max(self.tokens, min(most, max(FIRST_REASONING_TOKENS, 2 * used)))

    def shrink(self, needed: int) -> None:
        """Leave twice the tokens that an answer `needed` for reasoning, but at least half of those left so far."""
        with self._lock:
            self.tokens = max(self.least_tokens, min(self.tokens, max(2 * needed, self.tokens // 2)))

    def reset(self) -> None:
        """Leave what was left at first: more was of no use, or was refused."""
        with self._lock:
            self.tokens = self.least_tokens
