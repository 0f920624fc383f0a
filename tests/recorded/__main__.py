"""Print how recorded exchanges are read, and how they go through a gateway: `python -m tests.recorded [FOLDER]`.

FOLDER holds cassettes; by default those in ../shared/cassettes, or the sample of the project.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from tests.recorded.bills import add_up_bill, check_bill, find_model, price_by_hand
from tests.recorded.cassettes import Exchange, find_cassettes, load_exchanges
from tests.recorded.hidden_views import STRATEGIES, build_hidden_view
from tests.recorded.refusals import check_rules, find_api, find_cause
from tests.recorded.replay import MODES, Mode, replay_exchanges
from tests.recorded.round_trips import check_continuation, check_round_trip, find_continued


def main() -> int:
    """Print the totals; return 1 where something differs."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else find_cassettes(whole=True)
    exchanges = load_exchanges(folder)
    played = [each for each in exchanges if each.provider]
    print(f"{len(exchanges)} exchanges in {len({each.file for each in exchanges})} files of {folder}")
    _print_kinds(played)
    skipped = Counter(each.host for each in exchanges if not each.provider)
    print(f"{skipped.total()} skipped, other hosts: {', '.join(f'{host} {n}' for host, n in skipped.most_common())}")
    print(f"\n{'mode':16}{'exchanges':>10}{'upstream equal':>16}{'returned equal':>16}{'unexplained':>13}")
    unexplained = [_print_mode(played, mode) for mode in MODES]
    asked = [each for each in played if each.api]
    answered = [each for each in asked if each.status == 200]
    problems = [
        *_print_rules([each for each in played if find_api(each)]),
        *_print_bills(answered),
        *_print_turns(asked),
        *_print_views(answered),
    ]
    for name, problem in problems:
        print(f"  {name}: {problem}")
    return int(any(unexplained) or bool(problems))


#: (exchange, what is wrong with it).
Problems: TypeAlias = list[tuple[str, str]]


def _print_rules(requests: Sequence[Exchange]) -> Problems:
    problems = [(each.name, problem) for each in requests for problem in check_rules(each)]
    false = len({name for name, problem in problems if problem.startswith("false")})
    causes = Counter(find_cause(each) for each in requests if each.status >= 400)
    others = ", ".join(f"{cause} {count}" for cause, count in causes.most_common() if cause != "structure")
    print(f"\nrules: {len(requests)} requests, {false} with a false violation;", end=" ")
    print(f"{causes['structure']} refused for their structure, {len(problems) - false} missed; refused for {others}")
    return problems


def _print_bills(answered: Sequence[Exchange]) -> Problems:
    problems = [(each.name, problem) for each in answered for problem in check_bill(each)]
    bills = [(each, bill) for each in answered if (bill := add_up_bill(each)) is not None]
    priced = sum(price_by_hand(bill, find_model(each)) is not None for each, bill in bills)
    streamed = sum(each.is_stream for each, _ in bills)
    print(
        f"bills: {len(bills)}, {streamed} of streams; {len(bills) - len({name for name, _ in problems})} equal;",
        end=" ",
    )
    print(f"{priced} in USD as well")
    return problems


def _print_turns(asked: Sequence[Exchange]) -> Problems:
    problems = [(each.name, problem) for each in asked for problem in check_round_trip(each)]
    equal = len(asked) - len({name for name, _ in problems})
    continued = list(find_continued(asked))
    parted = [(one.name, problem) for one, other in continued for problem in check_continuation(one, other)]
    going_on = len(continued) - len({name for name, _ in parted})
    print(f"turns: {len(asked)} conversations, {equal} equal when they come back;", end=" ")
    print(f"{len(continued)} continued by the next request, {going_on} in one session")
    return problems + parted


def _print_views(answered: Sequence[Exchange]) -> Problems:
    problems: Problems = []
    for strategy in STRATEGIES:
        hidden = [build_hidden_view(each, strategy) for each in answered]
        found = [(each.exchange.name, problem) for each in hidden for problem in each.list_faults()]
        changed = sum(each.is_changed for each in hidden)
        print(f"views: {len(hidden)} by {strategy}, {changed} changed, {len({name for name, _ in found})} invalid")
        problems += found
    return problems


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
