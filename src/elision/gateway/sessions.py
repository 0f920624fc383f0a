"""Which live session a request goes on with; found without help from the client, by what was said.

One live session is one line of a conversation: a context manager and the transcript that it was fed with. A request
that extends a known history continues it. One that goes another way is the same agent's undo, edit or compaction where
that agent is waiting for nobody, and another agent's fork where an answer is still on its way. Two agents that start
with the same words are two sessions from their first call on. What this process does not know the store may.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar

from elision.dialects.live.detect import LIVE_DIALECTS
from elision.gateway.body import RequestBody
from elision.gateway.exchanges import Exchanges, Said
from elision.gateway.identity import Identity
from elision.gateway.routes import Api
from elision.gateway.sent import Sent
from elision.gateway.transcript import Arrived, Transcript, answers
from elision.manager import ContextManager
from elision.manager.offload import INLINE_BYTES
from elision.telemetry.diagnostics import Diagnostics

_log: Final = logging.getLogger("elision.gateway")

#: Histories that one live session leaves for another before each of them gets a session of its own: agents that take
#: turns on branches of one history would have the log read again at every call.
TURNS_BACK: Final = 3
#: Requests straight on behind which a session no longer counts as one that wavers: its client compacted, or went back,
#: and went on.
STRAIGHT: Final = 8
#: Requests that pass as they come behind one that was refused for what we made of it; and how often that doubles.
ALONE: Final = 8
DOUBLED: Final = 6
#: Live sessions of a family that are asked whether a history which begins in other words is theirs, compacted.
ASKED: Final = 16
#: The newest sessions of a key among which is looked for those, and for the one that a body goes on from.
LOOKED: Final = 256
#: Bytes of first messages of which it is remembered what they say.
OPENINGS: Final = 16_000_000
#: Live memory of a session as a multiple of its messages' bytes: bytes, objects, turns (measured: 5.1-6.8).
WEIGHT: Final = 7
_Key = TypeVar("_Key")
_JSON: Final = attrgetter("json")
_ODD: Final = re.compile(r"[^\w.-]+")

#: Family, api and opening words.
Group: TypeAlias = tuple[str, Api, bytes]
#: Namespace and api.
Kin: TypeAlias = tuple[str, Api]
#: Makes the context manager of a session: (its name, family, api, model).
Maker = Callable[[str, str, Api, str], ContextManager]


@dataclass(slots=True, eq=False)
class LiveSession:
    """One conversation in this process.

    lock:     around everything that touches `context`, which is for one caller at a time; never around the upstream.
    flying:   requests that something is still done for. asking: of them those whose client has not its answer yet.
    answered: whether the newest one was answered to its end.
    turned:   how often its history went another way lately. straight: requests since then. used: when it was asked
              last, monotonic seconds.
    newest:   the diagnostics of its newest pass. body: its newest request, so that the next is read from where it ends.
    cold:     whether the store was not asked yet for exchanges that the client never saw. group: where it is found.
    behind:   whether another process may have answered in between, and noted such exchanges.
    left_alone: so many of its next requests pass as they come: what we made of one was refused, `refused` times by now.
    """

    name: str
    family: str
    api: Api
    context: ContextManager
    transcript: Transcript
    exchanges: Exchanges
    sent: Sent = field(default_factory=Sent)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    flying: int = 0
    asking: int = 0
    answered: bool = False
    turned: int = 0
    straight: int = 0
    used: float = 0.0
    cold: bool = True
    behind: bool = False
    left_alone: int = 0
    refused: int = 0
    group: Group = ("", "openai", b"")
    newest: Diagnostics | None = None
    body: RequestBody | None = None

    @property
    def kin(self) -> Kin:
        """Whose it is: sessions of others have nothing to do with it."""
        return _kin(self.family, self.api)

    @property
    def weight(self) -> int:
        """Bytes of memory that it holds, about."""
        if self.body is not None:
            return WEIGHT * len(self.body.raw)
        return 0

    @property
    def busy(self) -> bool:
        """Whether a request of it is on its way."""
        return self.flying > 0

    @property
    def may_turn(self) -> bool:
        """Whether a history that went another way may be this agent's: it waits for nobody, and does not waver."""
        return not self.asking and self.turned < TURNS_BACK

    def note_turn(self, *, another: bool) -> None:
        """A request came; another: whether its history goes another way."""
        if another:
            self.turned, self.straight = (self.turned + 1, 0)
        else:
            self.turned, self.straight = (self.turned, self.straight + 1)
        if self.straight >= STRAIGHT:
            self.turned = 0
        if another:
            # What was refused may be gone with what the client left behind.
            self.left_alone = 0

    def leave_alone(self) -> None:
        """What we made of a request was refused, and taken as it came: the next ones are not touched, more of them each
        time, for the reason may stay or have been an odd one."""
        self.left_alone = ALONE << min(self.refused, DOUBLED)
        self.refused += 1


class Sessions:
    """The live sessions of this process, the least recently used ones closed where they are too many or too large.

    Everything in here runs on the event loop without waiting, so a request finds its session and is taken for its next
    in one step.
    """

    def __init__(
        self,
        make: Maker,
        *,
        most: int,
        memory_bytes: int,
        idle_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._most = most
        self._memory = memory_bytes
        self._idle = idle_seconds
        self._clock = clock
        #: The one used last at the end.
        self._groups: dict[Group, dict[int, LiveSession]] = {}
        self._kin: dict[Kin, dict[int, LiveSession]] = {}
        self._all: dict[int, LiveSession] = {}
        #: Bytes of memory that all of them hold, about.
        self._held = 0
        self._openings: dict[bytes, bytes] = {}
        self._opening_bytes = 0
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[LiveSession]:
        return iter(self._all.values())

    def before(self, namespace: str, api: Api, raw: bytes) -> LiveSession | None:
        """A session whose newest request `raw` probably goes on from, so that it can be read from there on."""
        for live in self._newest((namespace, api)):
            if live.body is not None and live.body.begins(raw):
                return live
        return None

    def find(
        self,
        who: Identity,
        api: Api,
        body: RequestBody,
        *,
        before: LiveSession | None = None,
        arrived: Arrived | None = None,
    ) -> LiveSession:
        """The session that `body` goes on with, taken for it: `release` it when the answer is complete.

        before: whose newest request it was read behind. arrived: the messages of `body`, if they were read already.
        Raises Unreadable where one is no JSON object.
        """
        family = who.family
        arrived = arrived or Arrived(LIVE_DIALECTS[api], body.messages)
        group = (family, api, self._opening(arrived, before.transcript if before is not None else None))
        live = self._known(self._groups.get(group, {}), arrived) or self._compacted(family, api, arrived)
        if live is None:
            live = self._new(who, family, api, body.model)
        self._settle_in(live, group)
        shared = live.transcript.common(arrived)
        live.note_turn(another=shared <= live.transcript.newest)
        live.transcript.take(arrived)
        # One answer is new: the one that was given here. Where there are more, others gave them.
        live.behind = live.behind or not live.answered or live.transcript.answers(shared) > 1
        self._held -= live.weight
        live.body = body
        self._held += live.weight
        live.flying += 1
        live.asking += 1
        live.used = self._clock()
        self._shrink(keep=live)
        return live

    def land(self, live: LiveSession) -> None:
        """An answer goes out to its end: its client may ask again at once, before all of it is written down."""
        live.asking -= 1
        live.answered = True

    def release(self, live: LiveSession, *, answered: bool, landed: bool = False) -> None:
        """An answer is complete, or will never be. landed: whether `land` was told of it."""
        live.flying -= 1
        live.asking -= not landed
        live.answered = answered
        live.used = self._clock()

    # -- whose it is -----------------------------------------------------------------------------------------------

    def _opening(self, arrived: Arrived, before: Transcript | None) -> bytes:
        """What the first message says that says anything: system prompts name no history.

        before: a history that it may share the very bytes of.
        """
        for place, raw in enumerate(arrived.raws):
            if before is not None and place < len(before):
                known = before.entries[place]
            else:
                known = None
            if known is not None and known.raw is raw:
                says = known.says
            elif len(raw) > INLINE_BYTES:
                # To look it up costs as much as to read it, and it was read already.
                says = arrived.says(place, inside=False)
            else:
                says = self._says_first(arrived, place)
            if says:
                return says
        return b""

    def _says_first(self, arrived: Arrived, place: int) -> bytes:
        """What a message says, remembered for the next session that begins with it."""
        raw = arrived.raws[place]
        says = self._openings.get(raw)
        if says is None:
            says = arrived.says(place, inside=False)
            self._opening_bytes += len(raw) + len(says)
            if self._opening_bytes > OPENINGS:
                self._openings.clear()
                self._opening_bytes = len(raw)
            self._openings[raw] = says
        return says

    def _known(self, group: dict[int, LiveSession], arrived: Arrived) -> LiveSession | None:
        shared = {live: live.transcript.common(arrived) for live in reversed(group.values())}
        fitting = [live for live in shared if self._is_its(live, arrived, shared[live])]
        if not fitting:
            return self._rewritten(shared, arrived)
        waiting = [live for live in fitting if shared[live] == len(live.transcript) and not live.asking]
        best = max(fitting, key=lambda live: (shared[live], live in waiting))
        if shared[best] == len(best.transcript) < len(arrived):
            return best
        # It was asked already, or goes another way: then it is rather the next of who waits for just one answer more.
        spoken = best.transcript.spoken(arrived, shared[best])
        following = [live for live in waiting if answers(spoken[shared[live] :]) == 1]
        return max(following, key=lambda live: shared[live], default=best)

    def _is_its(self, live: LiveSession, arrived: Arrived, shared: int) -> bool:
        """Whether a request that shares so many messages may be the session's own next one."""
        transcript = live.transcript
        begun = transcript.newest >= 0
        if shared == len(transcript):
            # The same first words once more: a second try where the first got no answer, else another agent.
            again = shared == len(arrived) and not begun
            return not again or not (live.answered or live.asking)
        if begun and shared > transcript.newest:
            # Only what stands behind the newest answer came another way.
            return not live.asking
        return live.may_turn and shared > transcript.head

    def _rewritten(self, shared: Mapping[LiveSession, int], arrived: Arrived) -> LiveSession | None:
        """The session of a client that rewrote its history behind the task, but for some messages."""
        waiting = (live for live in shared if live.may_turn and len(arrived) > max(shared[live], live.transcript.head))
        return next((live for live in islice(waiting, ASKED) if self._keeps(live, arrived, live.transcript.head)), None)

    def _compacted(self, family: str, api: Api, arrived: Arrived) -> LiveSession | None:
        """The session whose client rewrote its own history from the first word on, but for some messages."""
        if len(arrived) < 2:
            return None
        waiting = (
            live
            for live in self._newest(_kin(family, api), family)
            if live.may_turn
            # Who compacts has less afterwards. A longer history is that of an agent which did some of the same.
            and live.transcript.newest > -1
            and len(arrived) < len(live.transcript)
        )
        return next((live for live in islice(waiting, ASKED) if self._keeps(live, arrived)), None)

    def _newest(self, kin: Kin, family: str = "") -> Iterator[LiveSession]:
        """Those of one key, or of a family of its, that were asked last, the very last first."""
        known = reversed(self._kin.get(kin, {}).values())
        return islice((live for live in known if not family or live.family == family), LOOKED)

    def _keeps(self, live: LiveSession, arrived: Arrived, first: int = 0) -> bool:
        """Whether messages of the session's come again, from place `first` on, at least two in a row."""
        said = live.transcript.said()
        row = 0
        for place in range(first, len(arrived)):
            if arrived.says(place, inside=True) in said:
                row = row + 1
            else:
                row = 0
            if row == 2:
                return True
        return False

    def _new(self, who: Identity, family: str, api: Api, model: str) -> LiveSession:
        told = _ODD.sub("-", who.session)[:40].strip("-") or who.namespace[:9]
        name = f"{told}-{uuid.uuid4().hex[:8]}"
        dialect = LIVE_DIALECTS[api]
        return LiveSession(
            name=name,
            family=family,
            api=api,
            context=self._make(name, family, api, model),
            transcript=Transcript.of_family(dialect, family),
            exchanges=Exchanges(dialect),
        )

    # -- how many --------------------------------------------------------------------------------------------------

    def _settle_in(self, live: LiveSession, group: Group) -> None:
        """The newest of its group, and of all."""
        self._take_out(live)
        live.group = group
        self._groups.setdefault(group, {})[id(live)] = self._all[id(live)] = live
        self._kin.setdefault(live.kin, {})[id(live)] = live

    def _take_out(self, live: LiveSession) -> None:
        self._all.pop(id(live), None)
        _taken_out(self._groups, live.group, live)
        _taken_out(self._kin, live.kin, live)

    def _shrink(self, keep: LiveSession) -> None:
        """Close what is idle for long, too many or too much."""
        now = self._clock()
        gone = list[LiveSession]()
        number = len(self._all)
        held = self._held
        for live in self._all.values():
            if number <= self._most and held <= self._memory and now - live.used <= self._idle:
                break
            if live is not keep and not live.flying:
                number = number - 1
                held = held - live.weight
                gone.append(live)
        for live in gone:
            self._forget(live)

    def _forget(self, live: LiveSession) -> None:
        self._take_out(live)
        self._held -= live.weight
        task = asyncio.get_running_loop().create_task(_closed(live))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Write what is not written yet, of every session."""
        for live in list(self._all.values()):
            self._forget(live)
        await asyncio.gather(*self._closing)


def _kin(family: str, api: Api) -> Kin:
    return family.partition("/")[0], api


def _taken_out(among: dict[_Key, dict[int, LiveSession]], key: _Key, live: LiveSession) -> None:
    known = among.get(key, {})
    known.pop(id(live), None)
    if not known:
        among.pop(key, None)


async def _closed(live: LiveSession) -> None:
    async with live.lock:
        try:
            await asyncio.to_thread(live.context.close)
        except Exception:  # noqa: BLE001 - nobody waits for it, and the other sessions are to be closed as well
            _log.exception("session %s could not be closed", live.name)


def plain(messages: Sequence[Said]) -> list[dict[str, Any]]:
    """Messages as the library takes them."""
    return list(map(_JSON, messages))
