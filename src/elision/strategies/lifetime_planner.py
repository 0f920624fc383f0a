"""Choose how long cache entries live: five minutes, an hour, or as long as a few pings keep them alive.

A write for an hour costs more at once, and saves a write after each pause that it outlasts. What is expected of the
pauses follows from those of the session so far (`pauses.py`) and a prior. Nothing lengthens the life of what is written
already, so a session goes over to an hour where nothing is left in the cache, and every token is written for as long as
it is expected to be of use: what is hidden soon is not kept for an hour.

The planner is a fold over the calls of a session. The same calls give the same choice in any process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elision.strategies.pauses import MOST_PINGS, PauseHistogram
from elision.trajectory.cache import HOUR_SECONDS
from elision.trajectory.lifetimes import CacheLifetime, LifetimeChoice
from elision.trajectory.prices import Prices, Rates

#: The constants were set on one half of recordings and patterns of pauses (`python -m benchmarks lifetimes`).
#: Pauses assumed before any is seen, by the pings that they need, the last ones being longer than an hour: after an
#: answer with tool calls, and after one without, which a person answers.
PRIOR_AFTER_CALLS = (30.0, 0.2, 0.1, 0.1, 0.05, 0.05, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.02)
PRIOR_AFTER_WORDS = (5.0, 0.5, 0.2, 0.1, 0.05, 0.05, 0.05, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.6)
#: What is longer than an hour, by the pings of an hour that it needs; the first number is of those that need one.
PRIOR_LONG = (0.05, 0.05, 0.05, 0.0, 0.0, 0.0, 0.0, 0.05, 0.05, 0.05, 0.05, 0.0, 0.65)
#: Answers of each kind that are assumed to have ended a session.
ENDS_AFTER_CALLS = 2.0
ENDS_AFTER_WORDS = 1.0
#: Calls that are expected to come: so many, and a share of those made.
HORIZON_CALLS = 50.0
HORIZON_SHARE = 0.5
#: What an hour must be expected to save, as a multiple of what it costs more: to begin with it, and to go on with it.
#: Who stops between two pauses has paid for nothing.
BEGIN_RISK = 3.0
STAY_RISK = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LifetimeOffer:
    """One request whose entries are about to be written.

    turns:        in the request. stable_turn: the newest of them before what a later pass may hide.
    tokens:       of the prompt. lasting_tokens: leading ones that are in the cache and live an hour.
    may_last:     whether what it writes can live an hour: it reads nothing that lives less.
    calls:        so far. rewrites: of these, calls that rewrote the prompt.
    is_timed:     whether it is known when it is sent. Without that nothing is known of pauses.
    """

    turns: int
    stable_turn: int
    tokens: int
    lasting_tokens: int
    may_last: bool
    calls: int
    rewrites: int
    is_timed: bool = True


class _PauseForecast:
    """The pauses after one kind of answers.

    answers: of that kind so far that another call followed. ends: answers that are assumed to have ended a session.
    """

    def __init__(self, life: float, prior: Sequence[float], ends: float) -> None:
        self.answers = 0
        self._ends = ends
        self.short = PauseHistogram(life, prior)
        long_pauses = [prior[-1] * share for share in PRIOR_LONG]
        self.long = PauseHistogram(HOUR_SECONDS, (sum(prior[:-1]), *long_pauses))

    @property
    def ending(self) -> float:
        """How likely no call follows an answer of this kind."""
        return self._ends / (1 + self._ends + self.answers)

    def add_pause(self, pause: float) -> None:
        self.short.add_pause(pause)
        self.long.add_pause(pause)


class LifetimePlanner:
    """A fold over the calls of one session.

    newest: what was decided for the newest call; None where the client decided.
    """

    def __init__(self, prices: Prices) -> None:
        self.newest: CacheLifetime | None = None
        self._prices = prices
        self._after_calls = _PauseForecast(prices.cache.ttl, PRIOR_AFTER_CALLS, ENDS_AFTER_CALLS)
        self._after_words = _PauseForecast(prices.cache.ttl, PRIOR_AFTER_WORDS, ENDS_AFTER_WORDS)
        #: When each model had its newest request, in seconds.
        self._asked_at: dict[str, float] = {}

    def record_call(self, now: float | None, model: str, *, follows_words: bool) -> None:
        """Take note of a call at `now` (seconds; None if unknown), before its lifetimes are chosen.

        follows_words: whether the answer before it had no tool calls.
        """
        forecast = self._after_words if follows_words else self._after_calls
        forecast.answers += 1
        if now is None:
            return
        before = self._asked_at.get(model)
        self._asked_at[model] = now
        if before is not None and now >= before:
            forecast.add_pause(now - before)

    def choose_lifetime(self, choice: LifetimeChoice, most_pings: int, offer: LifetimeOffer) -> CacheLifetime | None:
        """Return what holds for the entries of a request; None where the client decides.

        most_pings: that may be sent in one pause.
        """
        has_hours = self._prices.cache.kind == "breakpoints" and self._prices.tiers[0][1].cache_write_1h is not None
        if choice == "client" or not has_hours:
            return None
        if choice == "5m":
            return CacheLifetime()
        if choice == "1h":
            return CacheLifetime(hour_turn=offer.turns)
        if not offer.is_timed:
            return CacheLifetime(planned=True)
        return self._plan(min(most_pings, MOST_PINGS), offer)

    def _plan(self, most_pings: int, offer: LifetimeOffer) -> CacheLifetime:
        rates = self._prices.find_rates(offer.tokens)
        read = rates.read_price
        rewrite = rates.write_price - read
        hour_turn = self._choose_hour_turn(rates, most_pings, offer)
        if hour_turn != offer.turns and offer.tokens:
            # Pings read the whole prompt, and save what would die.
            rewrite *= 1 - offer.lasting_tokens / offer.tokens
        pings = []
        for forecast in (self._after_calls, self._after_words):
            pauses = forecast.long if hour_turn == offer.turns else forecast.short
            pings.append(pauses.plan_pings(read, rewrite, most_pings, forecast.ending).pings)
        return CacheLifetime(hour_turn=hour_turn, pings=pings[0], pings_after_words=pings[1], planned=True)

    def _choose_hour_turn(self, rates: Rates, most_pings: int, offer: LifetimeOffer) -> int | None:
        """Return the newest turn to write for an hour; None for nothing."""
        if not offer.may_last:
            return None
        saved, ends = self._estimate_call(rates, most_pings)
        risk = STAY_RISK if offer.lasting_tokens else BEGIN_RISK
        premium = risk * (rates.write_price_1h - rates.write_price)
        ends += 1 / (HORIZON_CALLS + HORIZON_SHARE * offer.calls)
        # What is not stable is written again at the next rewrite.
        if saved > premium * (ends + offer.rewrites / (offer.calls + 1)):
            return offer.turns
        if saved > premium * ends:
            return offer.stable_turn
        return None

    def _estimate_call(self, rates: Rates, most_pings: int) -> tuple[float, float]:
        """Return what an hour saves a token in the pause after a call, and how likely that pause outlasts the hour.

        The saving is in USD per million tokens.
        """
        read = rates.read_price
        rewrite = rates.write_price - read
        answers = 1 + self._after_calls.answers + self._after_words.answers
        saved = ends = 0.0
        for forecast, count in (
            (self._after_calls, 1 + self._after_calls.answers),
            (self._after_words, self._after_words.answers),
        ):
            brief = forecast.short.plan_pings(read, rewrite, most_pings, forecast.ending)
            lasting = forecast.long.plan_pings(read, rewrite, most_pings, forecast.ending)
            saved += count / answers * (brief.cost - lasting.cost)
            ends += count / answers * forecast.long.estimate_share(1)
        return saved, ends
