"""What a reported call cost."""

from __future__ import annotations

from elision.errors import PriceError
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.prices import Bill, Prices
from elision.trajectory.usage import Usage


def cost_reported_usage(usage: Usage, prices: Prices) -> float:
    """Return what a reported call cost, in USD: as the provider stated it, else its tokens at list prices.

    prices: of the model that was asked. What another model did for it is billed at that model's own list, or at
    `prices` if no list is known.
    """
    if usage.usd is not None:
        return usage.usd
    usd = prices.cost_usage(usage)
    for other in usage.others:
        usd += _find_model_prices(other.model, prices).cost_usage(other.usage) - prices.cost_usage(other.usage)
    return usd


def bill_reported_usage(usage: Usage, prices: Prices) -> Bill:
    """Return the bill of a reported call. prices: of the model that was asked."""
    return Bill(
        input=usage.input,
        cache_write=usage.cache_write,
        cache_read=usage.cache_read,
        output=usage.output,
        usd=cost_reported_usage(usage, prices),
        cache_write_1h=usage.cache_write_1h,
    )


def _find_model_prices(model: str, usual: Prices) -> Prices:
    try:
        return find_prices(model)
    except PriceError:
        return usual
