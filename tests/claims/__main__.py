"""Print what placeholders and digests claim that results do not bear out: `python -m tests.claims [PATH ...]`.

PATH is a recording or a folder of them; by default ../shared/corpus, or the sample runs of the project.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from tests.claims.checks import CHECKS, list_false_claims
from tests.claims.digests import find_bare_numbers, find_denied_lines, write_last_digest
from tests.claims.hidden_results import EXAMPLES, list_hidden_results, list_runs
from tests.corpus import CORPUS, list_recordings


def main() -> int:
    """Print the counts and the claims; return 1 if there are any."""
    folders = [Path(name) for name in sys.argv[1:]] or [CORPUS if CORPUS.is_dir() else EXAMPLES]
    placeholders = items = digests = 0
    found: dict[str, list[str]] = defaultdict(list)
    for run in list_runs([path for folder in folders for path in list_recordings(folder)]):
        for hidden in list_hidden_results(run):
            placeholders += 1
            items += len(hidden.items)
            for check, what in list_false_claims(hidden):
                found[check].append(f"{hidden.place}: {hidden.outcome}: {what}")
        text, turns = write_last_digest(run)
        digests += bool(text)
        found["digest: a line that the agent denies"] += find_denied_lines(text, turns)
        found["digest: a number without its key"] += find_bare_numbers(text, turns)
    print(f"{placeholders} placeholders with {items} items, {digests} digests")
    for check in {**dict.fromkeys(CHECKS), **found}:
        print(f"{len(found[check]):6} {check}", *found[check][:8], sep="\n         ")
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
