"""Print how recorded exchanges went through a gateway: `python -m tests.recorded [FOLDER]`.

FOLDER holds cassettes; by default those in ../shared/cassettes, or the sample of the project.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.recorded.cassettes import Exchange, find_cassettes, load_exchanges
from tests.recorded.replay import MODES, Mode, replay_exchanges


def main() -> int:
    """Print the totals; return 1 where something differs."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else find_cassettes()
    exchanges = load_exchanges(folder)
    played = [each for each in exchanges if each.provider]
    print(f"{len(exchanges)} exchanges in {len({each.file for each in exchanges})} files of {folder}")
    _print_kinds(played)
    skipped = Counter(each.host for each in exchanges if not each.provider)
    print(f"{skipped.total()} skipped, other hosts: {', '.join(f'{host} {n}' for host, n in skipped.most_common())}")
    print(f"\n{'mode':16}{'exchanges':>10}{'upstream equal':>16}{'returned equal':>16}{'unexplained':>13}")
    unexplained = [_print_mode(played, mode) for mode in MODES]
    return int(any(unexplained))


def _print_kinds(played: Sequence[Exchange]) -> None:
    asked = [each for each in played if each.api]
    streams, errors = sum(each.is_stream for each in played), sum(each.status >= 400 for each in played)
    print(f"{len(played)} replayed: {len(asked)} ask a model, {len(played) - len(asked)} other paths;", end=" ")
    print(f"{streams} streams, {errors} errors")


def _print_mode(played: Sequence[Exchange], mode: Mode) -> int:
    replayed = replay_exchanges(played, mode)
    found = [(each.exchange.name, difference) for each in replayed for difference in each.differences()]
    upstream = sum(each.is_upstream_equal for each in replayed)
    returned = sum(each.is_returned_equal for each in replayed)
    print(f"{mode.name:16}{len(replayed):>10}{upstream:>16}{returned:>16}{len(found):>13}")
    for name, difference in found:
        print(f"  {name}: {difference}")
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
