"""A summarizer's answer on its way into the view: asked for, priced, checked, framed. A failed one changes nothing."""

from __future__ import annotations

from typing import Literal

from elision.errors import Billed, SummaryError
from elision.strategies.decision_context import DecisionContext
from elision.strategies.policy import Policy
from elision.strategies.summary_cost import SummaryCall, choose_summary_call
from elision.summarizers.summary_checks import check_summary
from elision.summarizers.summary_result import SummaryResult, has_sound_usage
from elision.trajectory.content import Opaque
from elision.trajectory.encodable import make_encodable, remove_controls
from elision.trajectory.plan import Summary, SummaryRequest, handle
from elision.trajectory.redact import DEFAULT, Redaction
from elision.trajectory.spoken import spoken
from elision.trajectory.state import State
from elision.trajectory.summary_block import block, kept_interjections, older_words
from elision.trajectory.turn import Observation

#: What a summary costs that no model was asked for.
MODEL_FREE = SummaryCall(route="model-free", input=0, cached=0, output=0, usd=0.0)

#: Characters from which on an answer is no summary, whatever it says; counting its tokens would take seconds.
LARGEST = 200_000


def build_request(
    state: State, covers: int, max_tokens: int, route: Literal["fresh", "extend"] = "fresh"
) -> SummaryRequest:
    """What is asked for: turns up to `covers`, unmasked, behind the previous summary or the task."""
    return SummaryRequest(
        previous=state.summary.text if state.summary else "",
        task="\n\n".join(message.text for message in state.head.messages if message.role == "user"),
        turns=tuple(state.turns[state.covered : covers]),
        max_tokens=max_tokens,
        route=route,
    )


def estimate_call(state: State, situation: DecisionContext, covers: int, output: int) -> SummaryCall:
    """A call that writes `output` tokens about turns up to `covers`, by the cheaper route, as we count it."""
    hidden = sum(state.sizer.observation(state.observation(key)) for key in state.hidden if key[0] <= covers)
    return choose_summary_call(
        situation.prices,
        covered=state.raw_start(covers + 1) - state.raw_start(state.covered + 1),
        previous=state.sizer.count(state.summary.text) if state.summary else state.task_tokens,
        live=state.track.tokens,
        live_cached=situation.count_cached_tokens(state, state.sent),
        hidden=hidden,
        output=output,
    )


def bill_call(
    state: State, situation: DecisionContext, covers: int, answer: SummaryResult | SummaryError
) -> SummaryCall:
    """What `answer` cost: as its writer says, else as we count it; a failed call is billed for its input."""
    if isinstance(answer, SummaryError):
        told = _find_usable_bill(answer.billed)
    else:
        told = answer
    if isinstance(answer, SummaryError) and told and not told.input and answer.cause != "timeout":
        # Its writer counts, and was never answered: nothing is billed for that. What timed out may be.
        return SummaryCall(route="fresh", input=0, cached=0, output=0, usd=0.0)
    if told is None or not told.input:
        call = estimate_call(
            state, situation, covers, _count_tokens(state, answer.text) if isinstance(answer, SummaryResult) else 0
        )
        # A summary that says it was written without a model cost nothing.
        if isinstance(answer, SummaryResult) and answer.route == MODEL_FREE.route:
            return MODEL_FREE
        return call
    if told.usd is not None:
        usd = told.usd
    else:
        usd = situation.prices.bill(told.input, told.cached, told.output).usd
    if isinstance(answer, SummaryResult):
        route = answer.route
    else:
        route = "fresh"
    return SummaryCall(route=route, input=told.input, cached=told.cached, output=told.output, usd=usd)


def _find_usable_bill(billed: Billed | None) -> Billed | None:
    """What a failed summary says it used; None where it says nothing, or figures that are none."""
    if billed is not None and has_sound_usage(billed):
        return billed
    return None


def _count_tokens(state: State, text: str) -> int:
    if len(text) <= LARGEST:
        return state.sizer.count(text)
    return len(text) // 4


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
) -> Summary:
    """`answer`, redacted, as the summary of turns 1 ... `covers`. Raises SummaryError if it may not replace them.

    limit: tokens that it was asked to have at most. room: tokens that the budget leaves for what stands in the place of
    those turns, None for no limit. A summary stands in every later request: what no request can carry is replaced, and
    control characters are taken out.
    """
    if len(answer) > LARGEST:
        raise SummaryError(f"it has {len(answer)} characters", cause="too-large")
    # A secret must not come together by what is taken out between its parts.
    answer = redaction.text(remove_controls(make_encodable(answer)))
    if not answer.strip():
        raise SummaryError("it is empty", cause="empty")
    if covers <= state.covered:
        raise SummaryError("what it covers is covered already")
    if call.route != MODEL_FREE.route:
        check_summary(answer, build_request(state, covers, max_tokens), state.sizer.count)
    options = policy.strategy
    sizer = state.sizer
    covered = state.turns[:covers]
    sizes = [sum(sizer.message(message) for message in turn.interjections) for turn in covered]
    kept = kept_interjections(covered, sizes, options.keep_user_tokens)
    beyond = [message for turn in covered if turn.index not in set(kept) for message in turn.interjections]
    older = older_words(beyond, max_tokens, sizer)
    text = make_encodable(block(answer, covers, _collect_quotes(state, policy, covers), older))
    said = sum(sizes[index - 1] for index in kept)
    taken = sizer.text(text) + said
    if taken >= count_replaced_tokens(state, covers):
        raise SummaryError("it is not shorter than what it replaces", cause="too-long")
    if room_tokens is not None and taken > room_tokens:
        raise SummaryError(f"it takes {taken} tokens where the budget leaves {room_tokens}", cause="too-long")
    return Summary(
        covers=covers,
        text=answer,
        block=text,
        interjections=kept,
        input_tokens=call.input,
        output_tokens=call.output,
        cached_tokens=call.cached,
        usd=call.usd,
        route=call.route,
    )


def count_replaced_tokens(state: State, covers: int) -> int:
    """Tokens that a summary of turns 1 ... `covers` takes the place of."""
    place = state.turn_places.get(covers + 1, len(state.track.segments))
    return state.track.start(place) - state.track.start(state.head_length)


def _collect_quotes(state: State, policy: Policy, covers: int) -> list[tuple[str, str]]:
    """What is protected in turns 1 ... `covers`, by name, in order."""
    quotes = {(turn, 0): (f"turn {turn}", spoken(state.turns[turn - 1])) for turn in policy.pinned_turns}
    for key in policy.protected:
        result = state.observation(key)
        quotes[key] = (f"{handle(key)} {result.tool}".strip(), result.text + _note_opaque_parts(result))
    return [quotes[key] for key in sorted(quotes) if key[0] <= covers]


def _note_opaque_parts(result: Observation) -> str:
    """A note for the parts of a quoted result that are no text and stay in the store."""
    kinds = [part.kind for part in result.content if isinstance(part, Opaque)]
    if kinds:
        return f"\n[{', '.join(kinds)}: not shown here]"
    return ""
