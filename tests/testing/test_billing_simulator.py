"""Usage as a provider's cache makes it."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from elision.testing.billing_simulator import BillingSimulator, hash_prefixes
from elision.testing.parsed_request import PromptBlock, split_into_blocks
from elision.trajectory.cache import PromptCache
from elision.trajectory.prices import CacheRules, Prices, Rates
from elision.trajectory.tokens import make_counter
from elision.trajectory.usage import Usage
from elision.trajectory.view import Segment, Track, View

PREFIX = Prices(
    name="prefix",
    tiers=((0, Rates(input=1.0, output=5.0, cache_write=1.25, cache_read=0.1)),),
    cache=CacheRules(kind="prefix", ttl=300, minimum=10),
)
MARKED = Prices(
    name="marked",
    tiers=((0, Rates(input=1.0, output=5.0, cache_write=1.25, cache_write_1h=2.0, cache_read=0.1)),),
    cache=CacheRules(kind="breakpoints", ttl=300, minimum=10),
)
FREE_WRITES = Prices(name="free", tiers=((0, Rates(input=1.0, output=5.0, cache_read=0.1)),), cache=PREFIX.cache)


def prompt(*texts: str, marks: Sequence[int] = (), tokens: int = 10, hours: Sequence[int] = ()) -> list[PromptBlock]:
    """A prompt of one block a text. marks: blocks with a breakpoint. hours: those with one that asks for an hour."""
    return [
        PromptBlock(
            text=text, tokens=tokens, has_breakpoint=at in marks or at in hours, ttl="1h" if at in hours else ""
        )
        for at, text in enumerate(texts)
    ]


def read(
    meter: BillingSimulator, sent: list[PromptBlock], prices: Prices = PREFIX, now: float = 0.0, owner: str = "me"
) -> Usage:
    return meter.bill_request(hash_prefixes(owner, sent), prices, now)


def test_a_longer_prompt_reads_what_the_shorter_wrote() -> None:
    """With a prefix cache everything sent is written, and what a later prompt begins with is read."""
    meter = BillingSimulator()
    assert read(meter, prompt("a", "b")) == Usage(cache_write=20)
    assert read(meter, prompt("a", "b", "c")) == Usage(cache_read=20, cache_write=10)
    assert read(meter, prompt("a", "x", "c")) == Usage(cache_read=10, cache_write=20)


def test_forks_share_their_beginning() -> None:
    """Two conversations with one beginning read each other's prefix, in any order."""
    meter = BillingSimulator()
    read(meter, prompt("a", "b", "c"))
    read(meter, prompt("a", "x", "y"))
    assert read(meter, prompt("a", "b", "c", "d")).cache_read == 30


def test_owners_share_nothing() -> None:
    """Another key or another model finds nothing."""
    meter = BillingSimulator()
    read(meter, prompt("a", "b"))
    assert read(meter, prompt("a", "b"), owner="other").cache_read == 0


def test_entries_die() -> None:
    """An entry lives from the start of the request that last used it."""
    meter = BillingSimulator()
    read(meter, prompt("a", "b"), now=0)
    assert read(meter, prompt("a", "b"), now=300).cache_read == 20
    assert read(meter, prompt("a", "b"), now=600).cache_read == 20
    assert read(meter, prompt("a", "b"), now=901).cache_read == 0


def test_only_marks_are_written() -> None:
    """With breakpoints, what stands behind the last mark is plain input, and is not there the next time."""
    meter = BillingSimulator()
    assert read(meter, prompt("a", "b", "c", marks=[1]), MARKED) == Usage(input=10, cache_write=20)
    assert read(meter, prompt("a", "b", "c", "d", marks=[2]), MARKED) == Usage(input=10, cache_read=20, cache_write=10)
    assert read(meter, prompt("a", "b", "c", "d"), MARKED) == Usage(input=40)


def test_an_entry_has_its_own_clock() -> None:
    """What is written for an hour is reported as that, and is there after half an hour; the rest is not."""
    meter = BillingSimulator()
    assert read(meter, prompt("a", "b", "c", marks=[2], hours=[0]), MARKED) == Usage(cache_write=30, cache_write_1h=10)
    assert read(meter, prompt("a", "b", "c", marks=[2], hours=[0]), MARKED, now=1_800) == Usage(
        cache_read=10, cache_write=20
    )
    assert read(meter, prompt("a", "b", "c", marks=[2], hours=[0]), MARKED, now=5_401) == Usage(
        cache_write=30, cache_write_1h=10
    )


def test_a_breakpoint_does_not_lengthen_the_life_of_what_is_there() -> None:
    """A prefix that was written for five minutes dies after five, and what was written after it for an hour with it."""
    meter = BillingSimulator()
    read(meter, prompt("a", marks=[0]), MARKED)
    assert read(meter, prompt("a", "b", hours=[1]), MARKED) == Usage(cache_read=10, cache_write=10, cache_write_1h=10)
    assert read(meter, prompt("a", "b", hours=[1]), MARKED, now=301) == Usage(cache_write=20, cache_write_1h=20)
    assert read(meter, prompt("a", "b", hours=[1]), MARKED, now=3_900).cache_read == 20


def test_a_mark_looks_back_twenty_blocks() -> None:
    """An entry 20 blocks in front of a mark is found, one 21 in front is not."""
    for behind, found in ((20, 10), (21, 0)):
        meter = BillingSimulator()
        read(meter, prompt("a", marks=[0]), MARKED)
        sent = prompt("a", *map(str, range(behind)), marks=[behind])
        assert read(meter, sent, MARKED).cache_read == found


def test_free_writes_are_plain_input() -> None:
    """Where the provider has no write price, what is not read is input; below the minimum as well."""
    assert read(BillingSimulator(), prompt("a", "b"), FREE_WRITES) == Usage(input=20)
    assert read(BillingSimulator(), prompt("a", tokens=9), PREFIX) == Usage(input=9)


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(1, 5), st.sampled_from((1.0, 200.0, 400.0, 4_000.0)), st.booleans()),
        max_size=12,
    ),
    st.sampled_from((PREFIX, MARKED)),
)
def test_agrees_with_the_simulated_cache(calls: list[tuple[int, int, float, bool]], prices: Prices) -> None:
    """One conversation that grows and is rewritten is billed as `PromptCache` says, marks at the end of each prompt."""
    meter, cache, now, rewritten = BillingSimulator(), PromptCache(prices.cache), 0.0, False
    sent: list[Segment] = []
    for number, (keep, more, gap, asks) in enumerate(calls):
        now += gap
        hour = asks and prices is MARKED
        rewritten = rewritten or keep < len(sent)
        sent = sent[:keep] + [Segment(kind="head", tokens=10, text=f"{number} {each}") for each in range(more)]
        track = Track()
        for segment in sent:
            track.append(segment)
        length = len(sent)
        view = View(
            call=number + 1, epoch=1, track=track, length=length, marks=(length,), hour_length=length if hour else 0
        )
        ends = [length - 1]
        blocks = prompt(*(each.text for each in sent), marks=ends, hours=ends if hour else ())
        billed = read(meter, blocks, prices, now)
        simulated = cache.record_request(view, now)
        # After a rewrite the simulation may have forgotten what the provider still holds of the old branch.
        assert billed.cache_read == simulated or (rewritten and billed.cache_read > simulated)
        assert billed.prompt == view.tokens
        if billed.cache_read == simulated:
            assert (
                billed.cache_write_1h == prices.bill_call(view.tokens, simulated, hour=view.hour_tokens).cache_write_1h
            )


def test_markers_and_nulls_are_not_compared() -> None:
    """Moving a cache marker, or dropping a null, leaves the prefix what it was."""
    text = {"type": "text", "text": "Hello"}
    marked = {**text, "cache_control": {"type": "ephemeral"}, "citations": None}
    plain, other = (
        [*split_into_blocks("anthropic", {"messages": [{"role": "user", "content": [block]}]}, make_counter())]
        for block in (text, marked)
    )
    assert [place.key for place in hash_prefixes("", plain)] == [place.key for place in hash_prefixes("", other)]
    assert (plain[0].has_breakpoint, other[0].has_breakpoint) == (False, True)
