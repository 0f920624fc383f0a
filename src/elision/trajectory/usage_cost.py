"""What a reported call cost."""

from __future__ import annotations

from elision.errors import PriceError
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.prices import Prices
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


def _find_model_prices(model: str, usual: Prices) -> Prices:
    try:
        return find_prices(model)
    except PriceError:
        return usual
