"""Linear hashing: the table is a dictionary that grows and shrinks by one bucket at a time."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from elision.stores.linear_hash.changes import DELETE, HEAD, PUT, Change
from elision.stores.linear_hash.meta import Meta
from elision.stores.linear_hash.pager import Pager
from elision.stores.linear_hash.table import MERGE_BELOW, SPLIT_ABOVE, Table, bucket_of
from tests.stores.linear_hash.disk import Disk

#: Bucket pages per lookup that the store promises on average.
BAR = 1.3


def fresh() -> Table:
    disk = Disk(Random(0))
    table = Table(Pager(disk.open("pages"), disk.open("log"), Meta(file_id=1)))
    table.begin()
    return table


def put(table: Table, number: int, size: int = 0) -> None:
    table.apply_change(Change(PUT, b"key %d" % number, b"head %d" % number, bytes(size)))


@given(st.integers(0, 2**64 - 1), st.integers(0, 12), st.data())
def test_an_address_is_a_bucket_that_exists(hashed: int, level: int, data: st.DataObject) -> None:
    """And a split moves a key to the new bucket or leaves it where it is."""
    split = data.draw(st.integers(0, (1 << level) - 1))
    before = bucket_of(hashed, level, split)
    assert 0 <= before < (1 << level) + split
    grown = (level, split + 1) if split + 1 < 1 << level else (level + 1, 0)
    after = bucket_of(hashed, *grown)
    assert after == before or (before == split and after == split + (1 << level))


def test_one_bucket_at_a_time() -> None:
    """Each insertion adds at most one bucket, at the split pointer; the load stays under its limit."""
    table, meta = (found := fresh()), found.meta
    for number in range(3_000):
        buckets, split, level = meta.buckets, meta.split, meta.level
        put(table, number)
        assert meta.buckets - buckets in (0, 1)
        if meta.buckets > buckets:
            assert (meta.level, meta.split) in ((level, split + 1), (level + 1, 0))
    assert meta.buckets > 20
    assert 0.9 * SPLIT_ABOVE < table.load <= SPLIT_ABOVE


def test_a_table_shrinks_as_it_grew() -> None:
    """Buckets merge below the load limit; overflow pages and values go to the free list, and are used again."""
    table, meta = (found := fresh()), found.meta
    for number in range(2_000):
        put(table, number, 300 * (number % 20))
    pages, most = meta.pages, meta.buckets
    for number in range(1_990):
        table.apply_change(Change(DELETE, b"key %d" % number))
        assert table.load >= MERGE_BELOW or meta.buckets == 1 or number < 100
    assert meta.buckets == meta.bucket_pages < most / 20
    assert meta.records == 10
    assert meta.pages - meta.free_pages < 40
    for number in range(1_990):
        put(table, number, 300 * (number % 20))
    assert meta.pages <= pages + 5
    for number in range(2_000):
        record = table.get(b"key %d" % number)
        assert record is not None
        assert (record.head, len(record.value)) == (b"head %d" % number, 300 * (number % 20))


def test_lookups_read_few_pages_and_stay_flat() -> None:
    """At each size the average is within the bar, and does not grow with the table."""
    table, rng = fresh(), Random(1)
    means, number = [], 0
    for size in (1_000, 4_000, 16_000):
        while number < size:
            table.apply_change(
                Change(PUT, b"key %d" % number, bytes(rng.choice((4, 24, 44, 90))), bytes(rng.choice((0, 13, 60))))
            )
            number += 1
        table.reads.lookups = table.reads.bucket_pages = 0
        for each in range(size):
            assert table.head(b"key %d" % each) is not None
        means.append(table.reads.bucket_pages / table.reads.lookups)
    assert max(means) <= BAR
    assert means[-1] <= means[0] * 1.1


operations = st.lists(
    st.tuples(
        st.sampled_from([PUT, PUT, PUT, HEAD, DELETE]),
        st.integers(0, 40),
        st.integers(0, 1_024),
        st.sampled_from([0, 1, 64, 65, 700, 2_028, 2_029, 4_064, 4_065, 6_092, 6_093, 20_000]),
    ),
    max_size=120,
)


@given(operations)
def test_a_table_is_a_dictionary(steps: list[tuple[int, int, int, int]]) -> None:
    """Whatever is put, given another head or deleted; values of every size around the limits."""
    table, model = fresh(), dict[bytes, tuple[bytes, bytes]]()
    for number, (op, name, head, value) in enumerate(steps):
        key, first = b"k%d" % name, bytes([number % 256]) * head
        if op == HEAD and key not in model:
            continue
        table.apply_change(Change(op, key, first, bytes([number % 251]) * value))
        if op == DELETE:
            model.pop(key, None)
        else:
            model[key] = (first, model[key][1] if op == HEAD else bytes([number % 251]) * value)
        assert table.meta.records == len(model)
    assert {record.key: (record.head, record.value) for record in table.records()} == model
    for key, (first, _) in model.items():
        assert table.head(key) == first
    assert table.get(b"none") is None
