"""What a summarizer call costs, by the cheaper of two routes (design 4)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elision.trajectory.prices import Prices

#: The summarization prompt around the turns, in tokens; a test holds it against the prompt itself.
INSTRUCTION_TOKENS = 600
#: The label and frame around a summary's text in the view, in tokens.
BLOCK_TOKENS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryCall:
    """One summarizer call as billed. Tokens; input includes cached; usd in USD.

    fixed_usd: the part of usd that waiting does not make larger.
    """

    route: str
    input: int
    cached: int
    output: int
    usd: float
    fixed_usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryOffer:
    """A summary that may be made now: the newest turn that it covers, the tokens of the view with it, and its cost.

    shortened_to: its most tokens, where one as long as the strategy's limit would not make the view smaller; 0 for that
    limit.
    """

    covers: int
    view_tokens: int
    call: SummaryCall
    shortened_to: int = 0


def limit_user_words(user_tokens: int, keep: int, limit: int) -> int:
    """Tokens that the user's `user_tokens` in covered turns take behind a summary, at most: what is beyond `keep` is
    quoted in the block, within `limit` in all."""
    if user_tokens <= keep:
        return user_tokens
    return keep + limit


def choose_summary_call(
    prices: Prices, *, covered: int, previous: int, live: int, live_cached: int, hidden: int, output: int
) -> SummaryCall:
    """The cheaper route.

    covered: raw tokens of the newly covered turns. previous: of the previous summary or the task.
    live, live_cached: tokens of the live view, and how much of it is in cache now.
    hidden: raw tokens of covered observations that the live view only holds placeholders of; the extending request
    has to carry them again, since a summary is written from unmasked turns.
    """
    fresh = INSTRUCTION_TOKENS + previous + covered
    extend = INSTRUCTION_TOKENS + live + hidden
    routes = (("fresh", fresh, 0), ("extend", extend, live_cached))
    calls = [
        SummaryCall(
            route=route,
            input=prompt,
            cached=cached,
            output=output,
            usd=prices.bill_call(prompt, cached, output).usd,
        )
        for route, prompt, cached in routes
    ]
    least = min(calls, key=lambda call: call.usd)
    # What does not grow with the turns covered: it is paid once a summary, however long that waits.
    fixed = prices.bill_call(INSTRUCTION_TOKENS + previous, 0, output).usd
    return replace(least, fixed_usd=min(fixed, least.usd))
