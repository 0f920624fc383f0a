"""Print a digest of the views of a fixed run: `python -m tests.properties.view_digest`."""

from __future__ import annotations

import hashlib

from elision.testing.builders import head
from elision.trajectory.trajectory import Trajectory
from tests.properties.cases import CASES, SMALL, play_run
from tests.properties.trajectories import KINDS


def digest_views() -> str:
    """Return the SHA-256 of what every third case shows of the run."""
    turns = tuple(KINDS[index % len(KINDS)](index, index * 37) for index in range(1, 26))
    run = Trajectory(id="fixed", head=head(), turns=turns)
    digest = hashlib.sha256()
    for case in list(CASES.values())[::3]:
        for seen in play_run(run, case, SMALL["anthropic"]).views:
            texts = [(each.kind, each.turn, each.index, each.text) for each in seen.segments]
            digest.update(repr(texts).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


if __name__ == "__main__":
    print(digest_views())
