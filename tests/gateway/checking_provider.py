"""A provider in a process of its own, which holds every request against the recording that its agent works through.

    python -m tests.gateway.checking_provider COUNT LONGEST

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
from tests.gateway.recorded_agents import RecordedAgent, list_marks, load_runs, make_agents
from tests.processes import start_process

#: Which agent asks, and for which turn: headers that only a provider reads.
AGENT_HEADER: Final = "x-trial-agent"
TURN_HEADER: Final = "x-trial-turn"
_MARK: Final = re.compile(rb"\[(?:agent|pair)-\d{4} turn \d+\]")


@dataclass(slots=True)
class Sightings:
    """requests: of each agent. problems: what differed from the recording. bytes: of all requests.

    shortened: requests in which some tool result was hidden. recall_offers: requests that offered recall.
    """

    requests: dict[int, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    bytes: int = 0
    shortened: int = 0
    recall_offers: int = 0


class RequestCheck:
    """Told of every request."""

    def __init__(self, known: list[RecordedAgent]) -> None:
        self.sightings = Sightings()
        self._known = known

    def __call__(self, received: ReceivedRequest) -> None:
        number = int(received.headers[AGENT_HEADER])
        trial, turn = self._known[number], int(received.headers[TURN_HEADER])
        self.sightings.requests[number] = self.sightings.requests.get(number, 0) + 1
        self.sightings.bytes += len(received.raw)
        self.sightings.recall_offers += b'"elision_recall"' in received.raw
        for problem in self._find_problems(received, trial, turn):
            self.sightings.problems.append(f"agent {number}, turn {turn}: {problem}")
        # What was looked at is let go: this process is not what is measured.
        received.raw, received.body = b"", {}

    def _find_problems(self, received: ReceivedRequest, trial: RecordedAgent, turn: int) -> Iterator[str]:
        yield from received.problems
        if received.status != 200:
            yield f"status {received.status}"
        if (received.run, received.turn, received.api) != (trial.run.id, turn, trial.api):
            yield f"answered as turn {received.turn} of {received.run} by {received.api}"
        if received.key != hashlib.sha256(trial.key.encode()).hexdigest()[:8]:
            yield "another's key"
        found = Counter(_MARK.findall(received.raw))
        expected = [mark.encode() for mark in list_marks(turn - 1, trial.number)]
        if foreign := found.keys() - set(expected):
            yield f"another's words: {sorted(foreign)[:3]}"
        seen = [mark for mark, made in zip(expected, trial.run.turns, strict=False) if made.observations]
        if seen and found[seen[-1]] < 2:
            yield "the newest observation is not there"
        self.sightings.shortened += any(found[mark] < 2 for mark in seen)


@dataclass(slots=True)
class CheckingProvider:
    """One that runs; `wait_for_sightings` says what it saw."""

    process: subprocess.Popen[str]
    url: str

    def wait_for_sightings(self) -> Sightings:
        out, _ = self.process.communicate(timeout=60)
        told = json.loads(out)
        counted = {int(number): count for number, count in told.pop("requests").items()}
        return Sightings(requests=counted, **told)


@contextmanager
def start_checking_provider(count: int, longest: int) -> Iterator[CheckingProvider]:
    """A provider of those agents."""
    command = [sys.executable, "-m", "tests.gateway.checking_provider", str(count), str(longest)]
    with start_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield CheckingProvider(process, process.stdout.readline().strip())


def main() -> None:
    check = RequestCheck(make_agents(int(sys.argv[1]), int(sys.argv[2])))
    with Playback(load_runs()) as server:
        server.provider.on_request = check
        print(server.url, flush=True)
        sys.stdin.read()
    print(json.dumps(asdict(check.sightings)))


if __name__ == "__main__":
    main()
