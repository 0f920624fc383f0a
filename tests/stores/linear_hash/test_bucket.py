"""Bucket pages hold records without gaps, whatever comes and goes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elision.stores.linear_hash import bucket
from elision.stores.linear_hash.bucket import BucketEntry
from elision.stores.linear_hash.layout import PAGE, ROOM

records = st.builds(
    BucketEntry,
    st.integers(0, 3) | st.integers(0, 2**64 - 1),
    st.binary(min_size=1, max_size=40),
    st.binary(max_size=60),
    st.binary(max_size=200),
    st.booleans(),
)


@given(st.lists(records, max_size=60, unique_by=lambda each: each.key), st.data())
def test_a_page_is_a_list_of_records(coming: list[BucketEntry], data: st.DataObject) -> None:
    """Inserted, found, given other heads, removed: the page holds what a list would, in order, and counts its room."""
    page, kept = bucket.make_bucket(7), list[BucketEntry]()
    for each in coming:
        if kept and data.draw(st.integers(0, 3)) == 0:
            slot = data.draw(st.integers(0, len(kept) - 1))
            bucket.remove_entry(page, slot)
            del kept[slot]
        if bucket.free_bytes(page) >= each.size:
            bucket.insert_entry(page, each)
            kept.append(each)
        assert list(bucket.read_entries(page)) == kept
        assert bucket.free_bytes(page) == ROOM - sum(each.size for each in kept)
        assert len(page) == PAGE
    for slot, each in enumerate(kept):
        assert bucket.find_slot(page, each.hash, each.key) == slot
        assert bucket.replace_head(page, slot, bytes(len(each.head)))
        assert bucket.read_entry(page, slot) == each._replace(head=bytes(len(each.head)))
    copy = bucket.make_bucket(7)
    bucket.refill_page(copy, bucket.read_entries(page))
    assert copy == page


def test_a_hash_that_stands_across_two_slots_is_no_find() -> None:
    """Bytes that look like a hash where no slot begins are passed over."""
    page = bucket.make_bucket(0)
    bucket.insert_entry(page, BucketEntry(0x1122334455667788, b"a", b"", b"", False))
    for place in range(32, 56):
        looks = int.from_bytes(page[place : place + 8], "little")
        assert bucket.find_slot(page, looks, b"z") == -1
    assert bucket.find_slot(page, 0x1122334455667788, b"a") == 0
