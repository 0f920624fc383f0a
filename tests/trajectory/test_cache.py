"""The simulated prompt cache: what a request reads from it."""

from __future__ import annotations

import pytest

from elision.trajectory.cache import LOOK_BACK, PromptCache
from elision.trajectory.prices import CacheRules
from elision.trajectory.view import Segment, Track, View

PREFIX = CacheRules(kind="prefix", ttl=300, minimum=1)
MARKED = CacheRules(kind="breakpoints", ttl=300, minimum=1)


def grown(track: Track, count: int, size: int = 10) -> Track:
    for _ in range(count):
        track.append(Segment(kind="assistant", tokens=size))
    return track


def view(track: Track, *marks: int) -> View:
    return View(call=1, epoch=1, track=track, length=len(track.segments), marks=marks or (len(track.segments),))


def rewritten(track: Track, place: int) -> Track:
    """The same length, rewritten from segment `place` on."""
    return grown(track.fork(place), len(track.segments) - place)


def test_first_request_reads_nothing() -> None:
    """Nothing is cached before anything was sent."""
    assert PromptCache(PREFIX).record_request(view(grown(Track(), 5)), 0.0) == 0


def test_a_longer_view_reads_the_one_before() -> None:
    """Appending reads all that was sent."""
    cache, track = PromptCache(PREFIX), grown(Track(), 5)
    cache.record_request(view(track), 0.0)
    assert cache.record_request(view(grown(track, 2)), 1.0) == 50


def test_a_rewrite_reads_up_to_it() -> None:
    """The cache is lost from the first rewritten segment on."""
    cache, track = PromptCache(PREFIX), grown(Track(), 5)
    cache.record_request(view(track), 0.0)
    assert cache.record_request(view(rewritten(track, 2)), 1.0) == 20


@pytest.mark.parametrize("rules", [PREFIX, MARKED])
def test_entries_live_from_their_last_use(rules: CacheRules) -> None:
    """Each request within the TTL of the last one keeps the prefix alive; a longer gap loses it."""
    cache, track = PromptCache(rules), grown(Track(), 5)
    for now in (0.0, 300.0, 600.0, 900.0):
        read = cache.record_request(view(track), now)
        assert read == (50 if now else 0)
    assert not cache.is_cold(1_200.0)
    assert cache.is_cold(1_200.1)
    assert cache.record_request(view(track), 1_200.1) == 0


def test_unknown_times_are_not_gaps() -> None:
    """Where a recording has no time for a call, the cache is taken to be warm then, and at the next known time."""
    cache, track = PromptCache(PREFIX), grown(Track(), 5)
    cache.record_request(view(track), 1_000_000.0)
    assert cache.record_request(view(track), None) == 50
    assert cache.record_request(view(track), 1_000_010.0) == 50


@pytest.mark.parametrize("rules", [PREFIX, MARKED])
def test_a_copy_holds_the_same_and_has_requests_of_its_own(rules: CacheRules) -> None:
    """What is sent to one is not in the other."""
    cache, track = PromptCache(rules), grown(Track(), 5)
    cache.record_request(view(track), 0.0)
    copied, longer = cache.copy(), grown(track.fork(5), 2)
    assert copied.record_request(view(longer), 1.0) == 50
    assert copied.record_request(view(longer), 2.0) == 70
    assert cache.count_cached(view(longer), 2.0) == 50
    assert cache.record_request(view(track), 3.0) == 50


def test_looking_changes_nothing() -> None:
    """`count_cached` says what a request would read, and sends nothing."""
    cache, track = PromptCache(PREFIX), grown(Track(), 5)
    cache.record_request(view(track), 0.0)
    longer = view(grown(track, 1))
    assert [cache.count_cached(longer, 300.0) for _ in range(2)] == [50, 50]
    assert cache.is_cold(301.0)


def test_models_have_caches_of_their_own() -> None:
    """Another model starts cold, and the first is still warm on return."""
    cache, track = PromptCache(PREFIX), grown(Track(), 5)
    cache.record_request(view(track), 0.0, "a")
    assert cache.is_cold(1.0, "b")
    assert cache.record_request(view(track), 1.0, "b") == 0
    assert cache.record_request(view(track), 2.0, "a") == 50


def test_minimum_and_step() -> None:
    """Prefixes below the minimum are not cached; beyond it whole steps are."""
    cache, track = PromptCache(CacheRules(minimum=1024, step=128, ttl=300)), grown(Track(), 1, size=1_000)
    cache.record_request(view(track), 0.0)
    assert cache.record_request(view(grown(track, 1, size=300)), 1.0) == 0
    assert cache.record_request(view(grown(track, 1, size=10)), 2.0) == 1024 + 2 * 128
    assert cache.record_request(view(track), 3.0) == 1024 + 2 * 128


def test_no_cache() -> None:
    """Without a cache nothing is ever read, and it is always cold."""
    cache, track = PromptCache(CacheRules(kind="none"), warm=40), grown(Track(), 5)
    cache.record_request(view(track), 0.0)
    assert cache.record_request(view(track), 0.0) == 0
    assert cache.is_cold(0.0)


def test_a_warm_head() -> None:
    """What other runs keep warm is read by the first request and behind every gap, up to what is sent."""
    cache, track = PromptCache(PREFIX, warm=25), grown(Track(), 2)
    assert cache.record_request(view(track), 0.0) == 20
    assert cache.record_request(view(grown(track, 3)), 1_000.0) == 25
    assert cache.record_request(view(track), 1_001.0) == 50


def test_only_marks_are_entries() -> None:
    """Behind breakpoints only what a request marked is read later, however much of it is shared."""
    cache, track = PromptCache(MARKED), grown(Track(), 8)
    cache.record_request(view(track, 2, 8), 0.0)
    assert cache.record_request(view(rewritten(track, 6), 2, 8), 1.0) == 20
    assert cache.record_request(view(track, 8), 2.0) == 20


def test_a_mark_looks_back_twenty_blocks() -> None:
    """An entry more than 20 blocks in front of the newest shared place is out of reach."""
    for distance, read in ((LOOK_BACK, 100), (LOOK_BACK + 1, 0)):
        cache, track = PromptCache(MARKED), grown(Track(), 10 + distance)
        cache.record_request(View(call=1, epoch=1, track=track, length=10 + distance, marks=(10,)), 0.0)
        assert cache.record_request(view(track, 10 + distance), 1.0) == read


def test_an_entry_that_is_marked_again_is_read() -> None:
    """A rewrite more than 20 blocks behind the head still reads the head, which this request marks too."""
    cache, track = PromptCache(MARKED), grown(Track(), 60)
    cache.record_request(view(track, 3, 60), 0.0)
    assert cache.record_request(view(rewritten(track, 40), 3, 40, 60), 1.0) == 30


def kept(track: Track, hour: int, *marks: int) -> View:
    """A view whose first `hour` segments are kept for an hour."""
    length = len(track.segments)
    return View(call=1, epoch=1, track=track, length=length, marks=marks or (length,), hour_length=hour)


def test_each_entry_lives_as_long_as_its_breakpoint_says() -> None:
    """Behind a pause of half an hour the front that is kept for an hour is read, and the rest is not."""
    cache, track = PromptCache(MARKED), grown(Track(), 5)
    cache.record_request(kept(track, 2, 2, 5), 0.0)
    assert cache.count_cached(kept(track, 2, 2, 5), 300.0) == 50
    assert cache.count_cached(kept(track, 2, 2, 5), 1_800.0) == 20
    assert not cache.is_cold(1_800.0)
    assert cache.count_cached(kept(track, 2, 2, 5), 3_600.1) == 0
    assert cache.is_cold(3_600.1)


def test_an_hour_begins_anew_with_every_use() -> None:
    """A request within the hour keeps the entry for another one, whatever life its own breakpoint names."""
    cache, track = PromptCache(MARKED), grown(Track(), 5)
    cache.record_request(kept(track, 5), 0.0)
    assert cache.record_request(kept(track, 0), 3_000.0) == 50
    assert cache.count_cached(kept(track, 0), 6_000.0) == 50
    assert cache.count_cached(kept(track, 0), 6_601.0) == 0


def test_a_dead_entry_is_written_for_as_long_as_is_asked() -> None:
    """What was kept for an hour and is written again for five minutes lives five minutes."""
    cache, track = PromptCache(MARKED), grown(Track(), 5)
    cache.record_request(kept(track, 5), 0.0)
    cache.record_request(kept(track, 0), 5_000.0)
    assert cache.is_cold(5_301.0)


def test_no_breakpoint_lengthens_the_life_of_what_was_written_before() -> None:
    """What was written for five minutes bounds the life of what is written after it, until it is written anew."""
    cache, track = PromptCache(MARKED), grown(Track(), 5)
    cache.record_request(kept(track, 0), 0.0)
    cache.record_request(kept(grown(track, 2), 7), 10.0)
    assert cache.is_cold(311.0)
    cache.record_request(kept(track, 7), 311.0)
    assert cache.count_cached(kept(track, 7), 3_900.0) == 70


def test_a_report_lengthens_what_was_written() -> None:
    """The provider says that entries live an hour of which the request did not say so here."""
    cache, track = PromptCache(MARKED), grown(Track(), 5)
    cache.record_request(kept(track, 0), 0.0)
    cache.lengthen_lifetime()
    assert cache.count_cached(kept(track, 0), 3_000.0) == 50


LOOKING_BACK = CacheRules(kind="prefix", ttl=300, minimum=1, look_back=20)


def add_turns(track: Track, first: int, last: int, size: int = 10) -> Track:
    """Turns of one call: 5 tokens of the assistant's and `size` of its result."""
    for turn in range(first, last + 1):
        track.append(Segment(kind="assistant", tokens=5, turn=turn))
        track.append(Segment(kind="observation", tokens=size, turn=turn, index=1))
    return track


def send_turns(cache: PromptCache, track: Track, first: int, last: int) -> None:
    """A request after each of the turns, which are added to `track`."""
    for turn in range(first, last + 1):
        add_turns(track, turn, turn)
        cache.record_request(view(track, *([1] if turn > 1 else []), len(track.segments)), 0.0)


@pytest.mark.parametrize(("behind", "found"), [(20, True), (21, False)])
def test_a_request_looks_back_few_messages(behind: int, found: bool) -> None:
    """An entry that ends 20 messages before the newest is found, one that ends 21 before it is not."""
    cache, track = PromptCache(LOOKING_BACK), grown(Track(), 0)
    track.append(Segment(kind="head", tokens=100))
    send_turns(cache, track, 1, 30)
    kept = 1 + 2 * (30 - behind)
    changed = add_turns(track.fork(kept), 31 - behind, 30)
    unmarked = View(call=1, epoch=2, track=changed, length=len(changed.segments))
    assert cache.count_cached(unmarked, 0.0) == (changed.count_tokens_before(kept) if found else 0)
    assert cache.count_cached(view(changed, kept, 61), 0.0) == changed.count_tokens_before(kept)


def test_an_entry_ends_where_a_request_ended_or_set_a_breakpoint() -> None:
    """After a rewrite the turns behind it were written as one: a later rewrite among them reads up to a breakpoint."""
    for marks, read in (((1, 21), 21), ((1,), 1)):
        cache, track = PromptCache(LOOKING_BACK), Track()
        track.append(Segment(kind="head", tokens=100))
        send_turns(cache, track, 1, 30)
        first = add_turns(track.fork(11), 6, 30)
        cache.record_request(view(first, *marks, len(first.segments)), 0.0)
        second = add_turns(first.fork(21), 11, 30)
        assert cache.count_cached(view(second, 1, 21, 61), 0.0) == second.count_tokens_before(read)


def test_a_breakpoint_after_the_model_s_words_is_set_before_them() -> None:
    """Only what the client sends bears a breakpoint, so that an entry ends with the message before."""
    track = add_turns(grown(Track(), 0), 1, 3)
    ends = [view(track).find_message_end(place) for place in range(len(track.segments) + 1)]
    assert ends == [0, 0, 2, 2, 4, 4, 6]


def test_results_of_one_turn_are_one_message() -> None:
    """Parallel results count once towards the look-back, the user's words once more."""
    track = Track()
    track.append(Segment(kind="head", tokens=1))
    track.append(Segment(kind="assistant", tokens=1, turn=1))
    for number in (1, 2, 3):
        track.append(Segment(kind="observation", tokens=1, turn=1, index=number))
    track.append(Segment(kind="interjection", tokens=1, turn=1, index=1))
    assert view(track).count_endings(1, 20) == 2
    assert view(track).find_message_end(4) == 1
