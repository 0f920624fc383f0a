"""What a session's prompts would have cost without us, call by call, as the provider counts them."""

from __future__ import annotations

import pytest

from elision.strategies.session_costs import BookedCall, CountedPrompt, SessionCosts
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.token_scale import TokenScale
from elision.trajectory.usage import Usage

PRICES = find_price_set("anthropic")


class Session:
    """Calls that add to each other, and what the provider reports of them."""

    def __init__(self) -> None:
        self.scale = TokenScale()
        self.costs = SessionCosts(PRICES, self.scale)
        self._calls = 0

    def add_call(self, ours: int, raw: int, billed: int, *, cached: int = 0, usage: Usage | None = None) -> None:
        """Book a call of `ours` and `raw` tokens by our count, for which the provider counts `billed`."""
        self._calls += 1
        self.costs.record_call(
            BookedCall(
                number=self._calls,
                ours=CountedPrompt(tokens=ours, cached_tokens=cached),
                raw=CountedPrompt(tokens=raw, cached_tokens=cached),
                has_client_marks=True,
                is_shadow=False,
                is_extra=False,
                extends=self._calls > 1,
            )
        )
        self.scale.add_report(ours, billed, extends=self._calls > 1)
        self.costs.confirm_newest(usage)


def test_a_recall_s_share_of_what_is_new_is_ours_alone() -> None:
    """Of 3,000 billed tokens that are new, 400 of 1,000 by our count would be there without us."""
    session = Session()
    session.add_call(1_000, 1_000, 1_000)
    session.add_call(2_000, 2_000, 2_000)
    session.add_call(3_000, 2_400, 5_000)
    assert session.costs.count_newest() == (5_000, 2_000 + 1_200)


def test_what_is_folded_as_it_arrives_is_longer_without_us() -> None:
    """The raw prompt grows by what was billed, and by what folding left out at the rate that is expected."""
    session = Session()
    session.add_call(1_000, 1_000, 1_000)
    session.add_call(1_400, 2_000, 1_800)
    assert session.costs.count_newest() == (1_800, 1_000 + 800 + 600)


def test_a_prompt_is_found_in_the_cache_as_long_as_it_was_billed() -> None:
    """Not in proportion to the whole new prompt, of which the new part may be counted otherwise."""
    session = Session()
    session.add_call(10_000, 10_000, 15_000)
    session.add_call(11_000, 11_000, 20_000, cached=PRICES.cache.count_usable(10_000))
    found = PRICES.cache.count_usable(15_000)
    assert session.costs.newest.ours.cache_read == found
    assert session.costs.newest.raw.cache_read == found


@pytest.mark.parametrize("read", [0, 19_000])
def test_where_nothing_is_hidden_nothing_is_saved(read: int) -> None:
    """Both bills are the reported one, whatever the cache was expected to hold."""
    session = Session()
    session.add_call(10_000, 10_000, 15_000)
    usage = Usage(input=20_000 - read, cache_read=read, cache_write=0, output=10)
    session.add_call(11_000, 11_000, 20_000, cached=PRICES.cache.count_usable(10_000), usage=usage)
    assert session.costs.newest.ours.cache_read == read
    assert session.costs.newest.raw == session.costs.newest.ours
