"""Linear hashing: the directory is a dictionary that grows by one bucket at a time, in memory and in its file."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import CorruptError, StoreError
from elision.stores.linear_hash.directory import (
    CAPACITY,
    MAX_NUMBER,
    PAGE,
    SPLIT_ABOVE,
    Directory,
    KeyMaker,
    check_number,
    load_directory,
    save_directory,
)

#: Bucket pages per lookup that the store promises on average.
BAR = 1.1


def make_key(number: int) -> bytes:
    return KeyMaker(7).make_record_key(1, number)


def list_entries(directory: Directory) -> list[tuple[bytes, int]]:
    return sorted(entry[1:] for entry in directory.iterate_entries())


def test_one_bucket_at_a_time() -> None:
    """Each insertion adds at most one bucket, at the split pointer; the load stays under its limit."""
    directory = Directory()
    for number in range(20_000):
        buckets, split, level = directory.buckets, directory.split, directory.level
        directory.add(make_key(number), number)
        directory.settle()
        assert directory.buckets - buckets in (0, 1)
        if directory.buckets > buckets:
            assert (directory.level, directory.split) in ((level, split + 1), (level + 1, 0))
        assert directory.buckets == (1 << directory.level) + directory.split
    assert directory.load <= SPLIT_ABOVE
    assert not any(directory.is_misplaced(bucket, key) for bucket, key, _ in directory.iterate_entries())
    assert [directory.get(make_key(number)) for number in range(20_000)] == list(range(20_000))
    assert directory.pages_read / directory.lookups < BAR
    assert directory.get(make_key(20_000)) is None


steps_of_a_directory = st.tuples(
    st.sampled_from(["put", "add", "remove", "settle"]), st.integers(0, 12), st.integers(0, 3)
)


@given(st.lists(steps_of_a_directory, max_size=80))
def test_it_is_a_dictionary_of_several_values(steps: list[tuple[str, int, int]]) -> None:
    """`put` has one value for a key, `add` several, `remove` takes one away."""
    directory = Directory()
    model: list[tuple[bytes, int]] = []
    for what, number, value in steps:
        key = make_key(number)
        if what == "put" and sum(each[0] == key for each in model) <= 1:
            directory.put(key, value)
            model = [each for each in model if each[0] != key] + [(key, value)]
        elif what == "add":
            directory.add(key, value)
            model.append((key, value))
        elif what == "remove":
            directory.remove(key, value)
            if (key, value) in model:
                model.remove((key, value))
        else:
            directory.settle()
        assert sorted(directory.get_all(key)) == sorted(each[1] for each in model if each[0] == key)
    assert list_entries(directory) == sorted(model)


def test_keys_of_one_bucket_are_a_chain() -> None:
    """Nothing but equal hashes makes a chain long; it is read to its end, and a split gives its pages back."""
    directory = Directory(split_above=9.0)
    for number in range(CAPACITY * 5):
        directory.add(make_key(number), number)
    directory.settle()
    assert (directory.buckets, directory.pages.count) == (1, 6)
    assert [directory.get(make_key(number)) for number in range(CAPACITY * 5)] == list(range(CAPACITY * 5))


def test_a_file_is_the_directory_again(tmp_path: Path) -> None:
    """Changed pages and others; what changes afterwards changes the memory alone, until it is saved."""
    directory = Directory()
    for number in range(5_000):
        directory.add(make_key(number), number)
    save_directory(tmp_path / "directory", directory, (1, 2), 99, b"catalogue")
    saved = load_directory(tmp_path / "directory")
    assert (saved.log_id, saved.key_id, saved.offset, saved.catalogue) == (1, 2, 99, b"catalogue")
    loaded = saved.directory
    assert list_entries(loaded) == list_entries(directory)
    for number in range(5_000, 9_000):
        loaded.add(make_key(number), number)
    assert load_directory(tmp_path / "directory").directory.entries == 5_000
    save_directory(tmp_path / "directory", loaded, (1, 2), 100, b"")
    again = load_directory(tmp_path / "directory").directory
    assert list_entries(again) == list_entries(loaded)
    assert [again.get(make_key(number)) for number in range(9_000)] == list(range(9_000))


def test_any_flipped_bit_of_its_file_is_seen(tmp_path: Path) -> None:
    """Page 0, buckets, table and catalogue have checksums; a shorter file is seen too."""
    directory, rng = Directory(), Random(3)
    for number in range(2_000):
        directory.add(make_key(number), number)
    path = tmp_path / "directory"
    save_directory(path, directory, (1, 2), 99, b"catalogue" * 20)
    whole = path.read_bytes()
    used = [*range(60), *(rng.randrange(PAGE, len(whole)) for _ in range(60)), len(whole) - 1]
    for offset in used:
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 8]) + whole[offset + 1 :])
        with pytest.raises(CorruptError):
            load_directory(path)
        path.write_bytes(whole[:offset])
        with pytest.raises(CorruptError):
            load_directory(path)


def test_keys_are_the_same_in_every_process() -> None:
    """A key that changed would lose every record."""
    keys = KeyMaker(0x0123456789ABCDEF)
    assert keys.make_record_key(1, 1).hex() == "6f9db294e9b1118f"
    assert keys.make_turn_key(1, 1).hex() == "6f9db234e9b1112f"
    assert keys.make_mask_key(1, 1, 1).hex() == "3bac0588b8b130c0"
    assert keys.make_node_key("f", "n").hex() == "ae2c7dbaa18987b8"
    assert keys.make_text_key(b"text").hex() == "122883cd33cda44c"


@given(st.sets(st.tuples(st.integers(0, 2**29 - 1), st.integers(0, MAX_NUMBER)), max_size=50))
def test_keys_of_records_and_turns_never_collide(named: set[tuple[int, int]]) -> None:
    """They are mixed one to one."""
    keys = KeyMaker(5)
    made = {make(*each) for each in named for make in (keys.make_record_key, keys.make_turn_key)}
    assert len(made) == 2 * len(named)


def test_a_number_that_does_not_fit_is_refused() -> None:
    """It would be the key of another one."""
    with pytest.raises(StoreError, match="turn 4294967296"):
        check_number(MAX_NUMBER + 1, "turn")
