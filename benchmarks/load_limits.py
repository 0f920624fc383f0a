"""How full the linear-hash directory's buckets may be: pages read per lookup against bytes of it per turn."""

from __future__ import annotations

from random import Random

from elision.stores.linear_hash.directory import PAGE, SPLIT_ABOVE, Directory, KeyMaker

LIMITS = (0.60, 0.75, 0.80, 0.90, 1.00)
#: Turns at which is measured: between two doublings, as the load of single buckets follows the split pointer.
SIZES = (10_000, 13_000, 16_500, 20_000)
LOOKUPS = 3_000


def add_turn(directory: Directory, keys: KeyMaker, number: int) -> None:
    """Enter what a turn enters: its record, the turn, a text and the name of its history."""
    directory.add(keys.make_record_key(1, number), number)
    directory.add(keys.make_turn_key(1, number), number)
    directory.add(keys.make_text_key(b"%d" % number), number)
    directory.add(keys.make_node_key("f", f"n{number}"), number)


def measured(directory: Directory, keys: KeyMaker, turns: int, chance: Random) -> str:
    directory.lookups = directory.pages_read = 0
    for _ in range(LOOKUPS):
        directory.get(keys.make_turn_key(1, chance.randrange(turns)))
    size = directory.pages.count * PAGE / turns
    return f"{directory.pages_read / LOOKUPS:6.3f} / {size:3.0f} B"


def main() -> None:
    print(f"Bucket pages per lookup / bytes of the directory per turn; the store splits above {SPLIT_ABOVE}.")
    print("  limit " + "".join(f"{size:>15,}" for size in SIZES) + "  turns")
    for limit in LIMITS:
        directory, keys, chance, turns, found = Directory(limit), KeyMaker(1), Random(5), 0, []
        for size in SIZES:
            for number in range(turns, size):
                add_turn(directory, keys, number)
            turns = size
            found.append(measured(directory, keys, turns, chance))
        print(f"  {limit:.2f}  " + "".join(f"{each:>15}" for each in found), flush=True)
