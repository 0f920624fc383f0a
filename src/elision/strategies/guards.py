"""When a run should end: too many turns, too much money, or no progress. A guard reports; the caller decides."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from elision.errors import SpecError
from elision.strategies.extractors.result_text import find_complaint, find_exception_line, is_refusal, unwrap_output
from elision.trajectory.foreign_text import digest_text
from elision.trajectory.plan import Stop, StopHint
from elision.trajectory.turn import Observation, Opaque, Turn

#: Turns within which a call that is made again is a repeat: loops go round several calls, but a file that is opened
#: again much later is a second look. Measured: docs/guides/choosing.md.
REPEAT_TURNS = 10

#: Characters at each end of a result in which times and addresses are looked for; all of it is compared.
CHARS_PER_END = 400
#: What differs between two runs of one command that did the same: durations, times of day, addresses. All begin with a
#: digit: places without one cost next to nothing (five times faster than three patterns that begin with \b).
_VOLATILE = re.compile(
    r"[0-9](?:[0-9]:[0-9][0-9]:[0-9][0-9](?:[.,][0-9]{1,9})?|x[0-9a-fA-F]{4,16}"
    r"|[0-9]{0,8}(?:\.[0-9]{1,9})?\s?(?:ms|us|ns|s|secs?|seconds?|minutes?)\b)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """Limits of a run; None for no limit.

    max_turns:      turns after which it must stop, 1 or more.
    max_cost_usd:   USD at which it must stop, summarizer included; above 0.
    plateau_window: consecutive turns without progress after which there is a hint, 2 or more: a single turn that
                    failed, or repeats another, means nothing.
    """

    max_turns: int | None = None
    max_cost_usd: float | None = None
    plateau_window: int | None = None

    def __post_init__(self) -> None:
        _check_limit("max_turns", self.max_turns, 1)
        _check_limit("plateau_window", self.plateau_window, 2)
        usd = self.max_cost_usd
        if usd is not None and (isinstance(usd, bool) or not (math.isfinite(usd) and usd > 0)):
            raise SpecError(f"guards(max_cost_usd={usd}): give USD, above 0")

    def start_watch(self) -> RunWatch:
        """Return the watch of a new session."""
        return RunWatch(self)


def _check_limit(name: str, value: int | None, least: int) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        raise SpecError(f"guards({name}={value}): give turns, {least} or more")


class RunWatch:
    """One session under its guards: a fold over turns. Its work grows with the newest turn alone.

    A turn makes no progress if it has results, and each of them failed or answers a call that got the same result a
    few turns before; or if it has none, and repeats an earlier text. A user's message starts the count again.
    """

    def __init__(self, guards: Guards) -> None:
        self.guards = guards
        self.turns = 0
        self._past_prints: deque[frozenset[bytes]] = deque(maxlen=REPEAT_TURNS)
        self._failed = 0
        self._repeated = 0

    def add_turn(self, turn: Turn) -> None:
        self.turns = turn.index
        if self.guards.plateau_window is None:
            return
        how = self._find_standstill(turn)
        if turn.interjections or not how:
            self._failed = self._repeated = 0
        else:
            self._failed += how == "failed"
            self._repeated += how == "repeats"

    def copy(self) -> RunWatch:
        """Return a copy, which may be given other turns."""
        made = RunWatch(self.guards)
        made.turns = self.turns
        made._failed = self._failed
        made._repeated = self._repeated
        made._past_prints = self._past_prints.copy()
        return made

    def find_stop(self, cost_usd: float) -> Stop | None:
        """Return what must end the run, whose bill so far is `cost_usd`; None while it may continue."""
        limits = (
            ("max_turns", self.guards.max_turns, self.turns),
            ("max_cost_usd", self.guards.max_cost_usd, cost_usd),
        )
        for guard, limit, value in limits:
            if limit is not None and value >= limit:
                return Stop(guard=guard, limit=limit, value=value)
        return None

    def find_hint(self) -> StopHint | None:
        """Return the hint that the newest `plateau_window` turns or more made no progress; None if they did."""
        window = self.guards.plateau_window
        turns = self._failed + self._repeated
        if window is None or turns < window:
            return None
        return StopHint(turns=turns, why=_explain_standstill(self._failed, self._repeated))

    def _find_standstill(self, turn: Turn) -> Literal["failed", "repeats", ""]:
        """Return how `turn` made no progress; "" if it did."""
        prints = _fingerprint_turn(turn)
        repeats = [any(print in past for past in self._past_prints) for print in prints]
        self._past_prints.append(frozenset(prints))
        if all(repeats):
            return "repeats"
        if not turn.observations:
            return ""
        fails = (repeat or is_failure(seen) for repeat, seen in zip(repeats, turn.observations, strict=True))
        if all(fails):
            return "failed"
        return ""


def _explain_standstill(failed: int, repeated: int) -> str:
    if not repeated:
        return "all of them failed"
    same = "repeated earlier calls and got the same results"
    if failed:
        return f"{failed} of them failed, {repeated} {same}"
    return f"all of them {same}"


def _fingerprint_turn(turn: Turn) -> list[bytes]:
    """Return a fingerprint of each call with its result; of the text if there is no result."""
    if not turn.observations:
        return [_fingerprint(turn.text, *(f"{action.name} {action.arguments}" for action in turn.actions))]
    found = []
    for observation in turn.observations:
        action = turn.find_action(observation)
        # Text protocol without a call that could be read: the text is the call.
        if action is not None:
            call = f"{action.name} {action.arguments}"
        else:
            call = turn.text
        # Two screenshots by the same call are different results.
        parts = [
            json.dumps([part.kind, part.data], default=repr) if isinstance(part, Opaque) else ""
            for part in observation.content
        ]
        found.append(_fingerprint(call, _remove_volatile_text(observation.text), *parts))
    return found


def _remove_volatile_text(text: str) -> str:
    if len(text) <= 2 * CHARS_PER_END:
        return _VOLATILE.sub("#", text)
    return (
        _VOLATILE.sub("#", text[:CHARS_PER_END])
        + text[CHARS_PER_END:-CHARS_PER_END]
        + _VOLATILE.sub("#", text[-CHARS_PER_END:])
    )


def _fingerprint(*texts: str) -> bytes:
    digest = blake2b(digest_size=16)
    for text in texts:
        digest.update(len(text).to_bytes(8, "big") + digest_text(text))
    return digest.digest()


def is_failure(observation: Observation) -> bool:
    """Return whether a result is a failure: by the environment's flag, by its exit code, or as nothing but an error.

    A traceback counts even beside exit code 0: `command | head` hides the code.
    """
    if observation.error:
        return True
    envelope = unwrap_output(observation.text)
    if envelope.has_failed or observation.error is False:
        return envelope.has_failed
    if envelope.exit_code == 0:
        return bool(find_exception_line(envelope.body))
    return bool(find_exception_line(envelope.body) or find_complaint(envelope.body)) or is_refusal(envelope.body)
