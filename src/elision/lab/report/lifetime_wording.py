"""The sentences of a report about cache lifetimes, the same in terminal, page and picture."""

from __future__ import annotations

from elision.lab.report import figures
from elision.lab.report.wording import describe_prices
from elision.lab.results import Study
from elision.lab.run_prices import SEVERAL


def has_lifetimes(study: Study) -> bool:
    """Whether there is a choice at the prices of `study`: entries of five minutes, or of an hour."""
    return study.prices.name == SEVERAL or study.prices.tiers[0][1].cache_write_1h is not None


def describe_study_prices(study: Study) -> str:
    """The prices in full, and how long cache entries live where the recordings do not decide that."""
    text = describe_prices(study.prices)
    usd = study.prices.tiers[0][1].cache_write_1h
    if study.lifetime.choice == "client" or not has_lifetimes(study):
        return text
    if study.lifetime.choice == "5m":
        return f"{text}; cache entries live five minutes"
    written = f", written at {figures.format_rate(usd)}" if usd is not None else ""
    if study.lifetime.choice == "1h":
        return f"{text}; cache entries live an hour{written}"
    pings = study.lifetime.most_pings
    limit = f"at most {figures.format_plural(pings, 'ping')} in a pause" if pings else "without pings"
    lives = f"cache entries live five minutes or an hour{written}, as planned, {limit}"
    return f"{text}; {lives}; sending everything is billed as recorded"
