"""A summary's way into the view: requested, redacted, priced, checked and framed. A failed one changes nothing.

Secrets are taken out of a request before a summarizer is given it. `CircuitBreaker` says when a summary may be
requested again after a failed one, counted in calls, without a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Final, Literal

import msgspec

from elision.errors import Billed, SummaryError
from elision.strategies.decision_context import DecisionContext
from elision.strategies.policy import Policy
from elision.strategies.schedules import SummaryCall, choose_summary_call
from elision.summarizers.summary_checks import LONGEST_ANSWER, SummaryResult, check_summary, has_sound_usage
from elision.trajectory.foreign_text import make_encodable, remove_controls
from elision.trajectory.items import find_items
from elision.trajectory.plan import Summary, SummaryRequest, make_handle
from elision.trajectory.redact import DEFAULT, Redaction
from elision.trajectory.state import State
from elision.trajectory.summary_block import choose_kept_interjections, format_summary_block, quote_user_words
from elision.trajectory.trajectory import join_assistant_text
from elision.trajectory.turn import Content, Message, Opaque, Text, Turn

#: What a summary costs that no model wrote.
MODEL_FREE = SummaryCall(route="model-free", input=0, cached=0, output=0, usd=0.0)

#: Calls to wait after the first and the second failure in a row, and after all further ones.
BACK_OFF: Final = (5, 10, 60)


def build_request(
    state: State, covers: int, max_tokens: int, route: Literal["fresh", "extend"] = "fresh", newest: int | None = None
) -> SummaryRequest:
    """Return the request for a summary of turns up to `covers`, unmasked, with the previous summary and the task.

    newest: the newest turn that the request may depend on; None for the one before the newest of all, since a request
    is built one turn ahead where the digest writes it.
    """
    newest = len(state.turns) - 1 if newest is None else newest
    return SummaryRequest(
        previous=state.summary.text if state.summary else "",
        task="\n\n".join(message.text for message in state.head.messages if message.role == "user"),
        turns=tuple(state.turns[state.covered_turns : covers]),
        max_tokens=max_tokens,
        shown=frozenset(_list_shown_items(state, state.turns[covers:newest])),
        route=route,
    )


def _list_shown_items(state: State, turns: Iterable[Turn]) -> Iterator[str]:
    """Yield the items that the view shows of `turns`, or that are no facts after them."""
    for turn in turns:
        yield from find_items(join_assistant_text(turn))
        for message in turn.interjections:
            yield from find_items(message.text)
        for position, observation in enumerate(turn.observations, start=1):
            shown = state.find_hiding_text((turn.index, position))
            yield from find_items(observation.text if shown is None else shown)


def estimate_call(state: State, context: DecisionContext, covers: int, output: int) -> SummaryCall:
    """Return a call that writes `output` tokens about turns up to `covers`, by the cheaper route, as we count it."""
    hidden = sum(state.sizer.count_observation(state.find_observation(key)) for key in state.hidden if key[0] <= covers)
    return choose_summary_call(
        context.prices,
        covered=state.count_raw_tokens_before(covers + 1) - state.count_raw_tokens_before(state.covered_turns + 1),
        previous=state.sizer.count(state.summary.text) if state.summary else state.task_tokens,
        live=state.track.tokens,
        live_cached=context.count_cached_tokens(state, state.unchanged_length),
        hidden=hidden,
        output=output,
    )


def bill_call(state: State, context: DecisionContext, covers: int, answer: SummaryResult | SummaryError) -> SummaryCall:
    """Return what `answer` cost: as the summarizer reports it, else as we count it.

    A failed call is billed for its input.
    """
    if isinstance(answer, SummaryError):
        return _bill_failure(state, context, covers, answer)
    if answer.input:
        return _bill_reported_usage(context, answer, answer.route)
    if answer.route == MODEL_FREE.route:
        return MODEL_FREE
    if len(answer.text) <= LONGEST_ANSWER:
        output = state.sizer.count(answer.text)
    else:
        output = len(answer.text) // 4
    return estimate_call(state, context, covers, output)


def _bill_failure(state: State, context: DecisionContext, covers: int, error: SummaryError) -> SummaryCall:
    bill = error.billed
    if bill is None or not has_sound_usage(bill):
        return estimate_call(state, context, covers, 0)
    if bill.input:
        return _bill_reported_usage(context, bill, "fresh")
    if error.cause == "timeout":
        return estimate_call(state, context, covers, 0)
    # The summarizer counts, and got no answer: nothing is billed for that. A request that timed out may be.
    return SummaryCall(route="fresh", input=0, cached=0, output=0, usd=0.0)


def _bill_reported_usage(context: DecisionContext, bill: Billed, route: str) -> SummaryCall:
    usd = bill.usd
    if usd is None:
        usd = context.prices.bill_call(bill.input, bill.cached, bill.output).usd
    return SummaryCall(route=route, input=bill.input, cached=bill.cached, output=bill.output, usd=usd)


def accept_summary(
    state: State,
    policy: Policy,
    covers: int,
    answer: str,
    call: SummaryCall,
    redaction: Redaction = DEFAULT,
    *,
    max_tokens: int,
    room_tokens: int | None = None,
    writer: str = "",
) -> Summary:
    """Return `answer`, redacted, as the summary of turns 1 ... `covers`. Raises SummaryError if it may not be one.

    max_tokens: tokens that it was asked to have at most. room_tokens: tokens that the budget leaves for what replaces
    those turns, None for no limit. writer: the model, "" for none or an unknown one. A summary is part of every later
    request: what no request can carry is replaced, and control characters are taken out.
    """
    if len(answer) > LONGEST_ANSWER:
        raise SummaryError(f"it has {len(answer)} characters", cause="too-large")
    # Controls first: what remains when they are taken out may be a secret.
    answer = redaction.redact_text(remove_controls(make_encodable(answer)))
    if not answer.strip():
        raise SummaryError("it is empty", cause="empty")
    if covers <= state.covered_turns:
        raise SummaryError("what it covers is covered already")
    if call.route != MODEL_FREE.route:
        check_summary(answer, build_request(state, covers, max_tokens), state.sizer.count)
    block, kept, tokens = _frame_answer(state, policy, covers, answer, max_tokens)
    if tokens >= count_replaced_tokens(state, covers):
        raise SummaryError("it is not shorter than what it replaces", cause="too-long")
    if room_tokens is not None and tokens > room_tokens:
        raise SummaryError(f"it takes {tokens} tokens where the budget leaves {room_tokens}", cause="too-long")
    return Summary(
        covers=covers,
        text=answer,
        block=block,
        interjections=kept,
        input_tokens=call.input,
        output_tokens=call.output,
        cached_tokens=call.cached,
        usd=call.usd,
        route=call.route,
        writer=redaction.redact_text(remove_controls(make_encodable(writer))),
    )


def _frame_answer(
    state: State, policy: Policy, covers: int, answer: str, max_tokens: int
) -> tuple[str, tuple[int, ...], int]:
    """Return the block that has `answer` and what is quoted word for word, the turns whose words stay, and all tokens.

    max_tokens: of the summary, and of the user's words that are quoted.
    """
    sizer = state.sizer
    covered = state.turns[:covers]
    sizes = [sum(sizer.count_message(message) for message in turn.interjections) for turn in covered]
    kept = choose_kept_interjections(covered, sizes, policy.options.keep_user_tokens)
    dropped: list[Message] = []
    for turn in covered:
        if turn.index not in kept:
            dropped.extend(turn.interjections)
    stated = [each for each in policy.constraints if each.turn <= covers and each.turn not in kept]
    constraints, older = quote_user_words(dropped, stated, answer, max_tokens, sizer)
    quotes = _collect_quotes(state, policy, covers)
    block = make_encodable(format_summary_block(answer, covers, quotes, older, constraints))
    return block, kept, sizer.count_text(block) + sum(sizes[index - 1] for index in kept)


def count_replaced_tokens(state: State, covers: int) -> int:
    """Return the tokens that a summary of turns 1 ... `covers` replaces."""
    place = state.turn_places.get(covers + 1, len(state.track.segments))
    return state.track.count_tokens_before(place) - state.track.count_tokens_before(state.head_length)


def _collect_quotes(state: State, policy: Policy, covers: int) -> list[tuple[str, str]]:
    """Return what is protected in turns 1 ... `covers`, by name, in order."""
    quotes = {(turn, 0): (f"turn {turn}", join_assistant_text(state.turns[turn - 1])) for turn in policy.pinned_turns}
    for key in policy.candidates.protected:
        result = state.find_observation(key)
        others = [part.kind for part in result.content if isinstance(part, Opaque)]
        note = f"\n[{', '.join(others)}: not shown here]" if others else ""
        quotes[key] = (f"{make_handle(key)} {result.tool}".strip(), result.text + note)
    return [quotes[key] for key in sorted(quotes) if key[0] <= covers]


class CircuitBreaker:
    """One session's memory of failed summaries."""

    def __init__(self) -> None:
        self.failures = 0
        self.retry_at = 0

    def may_ask(self, call: int) -> bool:
        """Return whether a summary may be requested at call `call`."""
        return call >= self.retry_at

    def find_retry(self, call: int) -> int:
        """Return the next call that may request a summary if the one requested at call `call` is not used."""
        return call + BACK_OFF[min(self.failures, len(BACK_OFF) - 1)]

    def record_failure(self, call: int) -> int:
        """Record that the summary requested at call `call` was not used; return the next call that may request one."""
        self.retry_at = self.find_retry(call)
        self.failures += 1
        return self.retry_at

    def record_success(self) -> None:
        self.failures = 0
        self.retry_at = 0


def redact_request(request: SummaryRequest) -> SummaryRequest:
    """Return `request` without the secrets that its own rules name: what every summarizer is given."""
    if request.redaction is None:
        return request
    return RequestRedactor(request.redaction).redact(request)


@dataclass(slots=True)
class RequestRedactor:
    """A redaction that counts what it took out."""

    redaction: Redaction
    hits: int = 0

    def redact_text(self, text: str) -> str:
        clean, hits = self.redaction.redact_and_count(text)
        self.hits += hits
        return clean

    def redact(self, request: SummaryRequest) -> SummaryRequest:
        """Return `request` with every text redacted, except the live prefix: a cache holds exactly its bytes."""
        if request.redacted_by == self.redaction:
            return request
        previous = self.redact_text(request.previous)
        turns = tuple(map(self.redact_turn, request.turns))
        shown = request.shown
        if shown:
            # An item alone has no words by which a rule finds a secret. So only those stay that redacted texts have.
            texts = [previous, *(observation.text for turn in turns for observation in turn.observations)]
            shown = shown.intersection(chain.from_iterable(map(find_items, texts)))
        return replace(
            request,
            redacted_by=self.redaction,
            previous=previous,
            task=self.redact_text(request.task),
            turns=turns,
            shown=shown,
        )

    def redact_turn(self, turn: Turn) -> Turn:
        """Return `turn` with every text redacted: the same object where it has no secret."""
        clean, hits = _redact_turn(self.redaction, turn)
        self.hits += hits
        return clean

    def redact_parts(self, turn: Turn) -> Turn:
        """Do as `redact_turn`, without a cache."""
        before = self.hits
        clean = msgspec.structs.replace(
            turn,
            content=self._redact_content(turn.content),
            reasoning=self.redact_text(turn.reasoning),
            actions=tuple(
                msgspec.structs.replace(action, arguments=self.redact_text(action.arguments)) for action in turn.actions
            ),
            observations=tuple(
                msgspec.structs.replace(observation, content=self._redact_content(observation.content))
                for observation in turn.observations
            ),
            interjections=tuple(
                msgspec.structs.replace(message, content=self._redact_content(message.content))
                for message in turn.interjections
            ),
        )
        # Nearly every turn has none: the same object, for which caches of earlier readers hold.
        return turn if self.hits == before else clean

    def _redact_content(self, parts: Content) -> Content:
        return tuple(Text(self.redact_text(part.text)) if isinstance(part, Text) else part for part in parts)


@lru_cache(maxsize=128)
def _redact_turn(redaction: Redaction, turn: Turn) -> tuple[Turn, int]:
    """Return `turn` redacted, and how much was. It is read while the model thinks, and again by a summary of it."""
    redactor = RequestRedactor(redaction)
    return redactor.redact_parts(turn), redactor.hits
