"""A provider in a process of its own, which holds every request against the recording that its agent works through.

    python -m tests.gateway.playing COUNT LONGEST

It says its address, plays until its input ends, and then says what it saw as JSON.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Final

from elision.testing.exchange import ReceivedRequest
from elision.testing.playback import Playback
from tests.gateway.trials import Trial, marks, recorded, trials
from tests.processes import start_process

#: Which agent asks, and for which turn: headers that only a provider reads.
AGENT: Final = "x-trial-agent"
TURN: Final = "x-trial-turn"
_MARK: Final = re.compile(rb"\[(?:agent|pair)-\d{4} turn \d+\]")


@dataclass(slots=True)
class Saw:
    """requests: of each agent. wrong: what was not as recorded. bytes: of all requests. shorter: requests in which not
    every observation stood whole. tools: requests that offered recall."""

    requests: dict[int, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    bytes: int = 0
    shorter: int = 0
    tools: int = 0


class Check:
    """Told of every request."""

    def __init__(self, known: list[Trial]) -> None:
        self.saw = Saw()
        self._known = known

    def __call__(self, received: ReceivedRequest) -> None:
        number = int(received.headers[AGENT])
        trial, turn = self._known[number], int(received.headers[TURN])
        self.saw.requests[number] = self.saw.requests.get(number, 0) + 1
        self.saw.bytes += len(received.raw)
        self.saw.tools += b'"elision_recall"' in received.raw
        for problem in self._problems(received, trial, turn):
            self.saw.wrong.append(f"agent {number}, turn {turn}: {problem}")
        # What was looked at is let go: this process is not what is measured.
        received.raw, received.body = b"", {}

    def _problems(self, received: ReceivedRequest, trial: Trial, turn: int) -> Iterator[str]:
        yield from received.problems
        if received.status != 200:
            yield f"status {received.status}"
        if (received.run, received.turn, received.api) != (trial.run.id, turn, trial.api):
            yield f"answered as turn {received.turn} of {received.run} by {received.api}"
        if received.key != hashlib.sha256(trial.key.encode()).hexdigest()[:8]:
            yield "another's key"
        found = Counter(_MARK.findall(received.raw))
        expected = [mark.encode() for mark in marks(turn - 1, trial.number)]
        if foreign := found.keys() - set(expected):
            yield f"another's words: {sorted(foreign)[:3]}"
        seen = [mark for mark, made in zip(expected, trial.run.turns, strict=False) if made.observations]
        if seen and found[seen[-1]] < 2:
            yield "the newest observation is not there"
        self.saw.shorter += any(found[mark] < 2 for mark in seen)


@dataclass(slots=True)
class Playing:
    """One that runs; `ended` says what it saw."""

    process: subprocess.Popen[str]
    url: str

    def ended(self) -> Saw:
        out, _ = self.process.communicate(timeout=60)
        told = json.loads(out)
        counted = {int(number): count for number, count in told.pop("requests").items()}
        return Saw(requests=counted, **told)


@contextmanager
def playing(count: int, longest: int) -> Iterator[Playing]:
    """A provider of those agents."""
    command = [sys.executable, "-m", "tests.gateway.playing", str(count), str(longest)]
    with start_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Playing(process, process.stdout.readline().strip())


def main() -> None:
    check = Check(trials(int(sys.argv[1]), int(sys.argv[2])))
    with Playback(recorded()) as server:
        server.provider.on_request = check
        print(server.url, flush=True)
        sys.stdin.read()
    print(json.dumps(asdict(check.saw)))


if __name__ == "__main__":
    main()
