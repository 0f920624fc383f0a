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
from elision.gateway.hidden_rounds import HiddenRounds, UpstreamMessage
from elision.gateway.identity import ClientIdentity
from elision.gateway.message_bytes import MessageEncoder
from elision.gateway.request_body import RequestBody
from elision.gateway.routes import Api
from elision.gateway.transcript import ClientTranscript, IncomingMessages, count_answers
from elision.manager import ContextManager
from elision.manager.offload import INLINE_BYTES
from elision.telemetry.diagnostics import Diagnostics

_log: Final = logging.getLogger("elision.gateway")

#: Histories that one live session leaves for another before each of them gets a session of its own: agents that take
#: turns on branches of one history would have the log read again at every call.
MAX_DIVERGENCES: Final = 3
#: Requests straight on behind which a session no longer counts as one that wavers: its client compacted, or went back,
#: and went on.
STEADY_REQUESTS: Final = 8
#: Requests that pass as they come behind one that was refused for what we made of it; and how often that doubles.
BYPASS_REQUESTS: Final = 8
MAX_BYPASS_DOUBLINGS: Final = 6
#: Live sessions of a family that are asked whether a history which begins in other words is theirs, compacted.
MAX_REWRITE_CANDIDATES: Final = 16
#: The newest sessions of a key among which is looked for those, and for the one that a body goes on from.
MAX_SEARCHED_SESSIONS: Final = 256
#: Bytes of first messages of which it is remembered what they say.
MAX_OPENING_BYTES: Final = 16_000_000
#: Live memory of a session as a multiple of its messages' bytes: bytes, objects, turns (measured: 5.1-6.8).
MEMORY_FACTOR: Final = 7
_Key = TypeVar("_Key")
_JSON: Final = attrgetter("json")
_UNSAFE_CHARS: Final = re.compile(r"[^\w.-]+")

#: Family, api and opening words.
OpeningKey: TypeAlias = tuple[str, Api, bytes]
#: Namespace and api.
OwnerKey: TypeAlias = tuple[str, Api]
#: Makes the context manager of a session: (its name, family, api, model).
ContextFactory = Callable[[str, str, Api, str], ContextManager]


@dataclass(slots=True, eq=False)
class LiveSession:
    """One conversation in this process.

    lock:               held while `context` works; never while the provider works.
    requests_in_flight: requests not finished here. requests_unanswered: those whose client still waits.
    is_answered:        whether the newest response reached its end.
    divergences:        recent requests whose history diverged. steady_requests: requests since then.
    last_used:          time of the newest request, monotonic seconds.
    newest_diagnostics: of its newest step. newest_body: its newest request; the next one is parsed from its end.
    is_unloaded:        whether its hidden rounds are not loaded yet. opening_key: its place in the registry.
    is_stale:           whether another process may have answered since, and stored hidden rounds.
    requests_to_bypass: next requests that pass unchanged, after the provider refused an edited one.
    refusals:           edited requests that the provider refused so far.
    """

    name: str
    family: str
    api: Api
    context: ContextManager
    transcript: ClientTranscript
    hidden_rounds: HiddenRounds
    encoder: MessageEncoder = field(default_factory=MessageEncoder)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    requests_in_flight: int = 0
    requests_unanswered: int = 0
    is_answered: bool = False
    divergences: int = 0
    steady_requests: int = 0
    last_used: float = 0.0
    is_unloaded: bool = True
    is_stale: bool = False
    requests_to_bypass: int = 0
    refusals: int = 0
    opening_key: OpeningKey = ("", "openai", b"")
    newest_diagnostics: Diagnostics | None = None
    newest_body: RequestBody | None = None

    @property
    def owner_key(self) -> OwnerKey:
        """Whose it is: sessions of others have nothing to do with it."""
        return _make_owner_key(self.family, self.api)

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that it holds, about."""
        if self.newest_body is not None:
            return MEMORY_FACTOR * len(self.newest_body.raw)
        return 0

    @property
    def is_busy(self) -> bool:
        """Whether a request of it is on its way."""
        return self.requests_in_flight > 0

    @property
    def can_diverge(self) -> bool:
        """Whether a history that went another way may be this agent's: it waits for nobody, and does not waver."""
        return not self.requests_unanswered and self.divergences < MAX_DIVERGENCES

    def note_request(self, *, diverges: bool) -> None:
        """A request came; diverges: whether its history goes another way."""
        if diverges:
            self.divergences, self.steady_requests = (self.divergences + 1, 0)
        else:
            self.divergences, self.steady_requests = (self.divergences, self.steady_requests + 1)
        if self.steady_requests >= STEADY_REQUESTS:
            self.divergences = 0
        if diverges:
            # What was refused may be gone with what the client left behind.
            self.requests_to_bypass = 0

    def begin_bypass(self) -> None:
        """What we made of a request was refused, and taken as it came: the next ones are not touched, more of them each
        time, for the reason may stay or have been an odd one."""
        self.requests_to_bypass = BYPASS_REQUESTS << min(self.refusals, MAX_BYPASS_DOUBLINGS)
        self.refusals += 1


class SessionRegistry:
    """The live sessions of this process, the least recently used ones closed where they are too many or too large.

    Everything in here runs on the event loop without waiting, so a request finds its session and is taken for its next
    in one step.
    """

    def __init__(
        self,
        make_context: ContextFactory,
        *,
        max_sessions: int,
        memory_bytes: int,
        idle_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_context = make_context
        self._max_sessions = max_sessions
        self._max_memory_bytes = memory_bytes
        self._idle_seconds = idle_seconds
        self._clock = clock
        #: The one used last at the end.
        self._by_opening: dict[OpeningKey, dict[int, LiveSession]] = {}
        self._by_owner: dict[OwnerKey, dict[int, LiveSession]] = {}
        self._by_id: dict[int, LiveSession] = {}
        #: Bytes of memory that all of them hold, about.
        self._held_bytes = 0
        self._openings: dict[bytes, bytes] = {}
        self._opening_bytes = 0
        self._closing_tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[LiveSession]:
        return iter(self._by_id.values())

    def find_continued(self, namespace: str, api: Api, raw: bytes) -> LiveSession | None:
        """A session whose newest request `raw` probably goes on from, so that it can be read from there on."""
        for live in self._iterate_newest((namespace, api)):
            if live.newest_body is not None and live.newest_body.is_prefix_of(raw):
                return live
        return None

    def claim_session(
        self,
        identity: ClientIdentity,
        api: Api,
        body: RequestBody,
        *,
        before: LiveSession | None = None,
        arrived: IncomingMessages | None = None,
    ) -> LiveSession:
        """The session that `body` goes on with, taken for it: `release_session` it when the answer is complete.

        before: whose newest request it was read behind. arrived: the messages of `body`, if they were read already.
        Raises Unreadable where one is no JSON object.
        """
        family = identity.family
        arrived = arrived or IncomingMessages(LIVE_DIALECTS[api], body.messages)
        group = (family, api, self._find_opening(arrived, before.transcript if before is not None else None))
        live = self._find_known(self._by_opening.get(group, {}), arrived) or self._find_compacted(family, api, arrived)
        if live is None:
            live = self._create_session(identity, family, api, body.model)
        self._register(live, group)
        shared = live.transcript.count_shared(arrived)
        live.note_request(diverges=shared <= live.transcript.newest_answer_index)
        live.transcript.adopt_messages(arrived)
        # One answer is new: the one that was given here. Where there are more, others gave them.
        live.is_stale = live.is_stale or not live.is_answered or live.transcript.count_answers_from(shared) > 1
        self._held_bytes -= live.memory_bytes
        live.newest_body = body
        self._held_bytes += live.memory_bytes
        live.requests_in_flight += 1
        live.requests_unanswered += 1
        live.last_used = self._clock()
        self._evict_sessions(keep=live)
        return live

    def mark_answered(self, live: LiveSession) -> None:
        """An answer goes out to its end: its client may ask again at once, before all of it is written down."""
        live.requests_unanswered -= 1
        live.is_answered = True

    def release_session(self, live: LiveSession, *, answered: bool, already_marked: bool = False) -> None:
        """An answer is complete, or will never be. already_marked: whether `mark_answered` was told of it."""
        live.requests_in_flight -= 1
        live.requests_unanswered -= not already_marked
        live.is_answered = answered
        live.last_used = self._clock()

    # -- whose it is -----------------------------------------------------------------------------------------------

    def _find_opening(self, arrived: IncomingMessages, before: ClientTranscript | None) -> bytes:
        """What the first message says that says anything: system prompts name no history.

        before: a history that it may share the very bytes of.
        """
        for place, raw in enumerate(arrived.raws):
            if before is not None and place < len(before):
                known = before.entries[place]
            else:
                known = None
            if known is not None and known.raw is raw:
                says = known.content_digest
            elif len(raw) > INLINE_BYTES:
                # To look it up costs as much as to read it, and it was read already.
                says = arrived.digest_content(place, past_head=False)
            else:
                says = self._digest_opening(arrived, place)
            if says:
                return says
        return b""

    def _digest_opening(self, arrived: IncomingMessages, place: int) -> bytes:
        """What a message says, remembered for the next session that begins with it."""
        raw = arrived.raws[place]
        says = self._openings.get(raw)
        if says is None:
            says = arrived.digest_content(place, past_head=False)
            self._opening_bytes += len(raw) + len(says)
            if self._opening_bytes > MAX_OPENING_BYTES:
                self._openings.clear()
                self._opening_bytes = len(raw)
            self._openings[raw] = says
        return says

    def _find_known(self, group: dict[int, LiveSession], arrived: IncomingMessages) -> LiveSession | None:
        shared = {live: live.transcript.count_shared(arrived) for live in reversed(group.values())}
        fitting = [live for live in shared if self._is_continuation(live, arrived, shared[live])]
        if not fitting:
            return self._find_rewritten(shared, arrived)
        waiting = [live for live in fitting if shared[live] == len(live.transcript) and not live.requests_unanswered]
        best = max(fitting, key=lambda live: (shared[live], live in waiting))
        if shared[best] == len(best.transcript) < len(arrived):
            return best
        # It was asked already, or goes another way: then it is rather the next of who waits for just one answer more.
        spoken = best.transcript.flag_assistant_messages(arrived, shared[best])
        following = [live for live in waiting if count_answers(spoken[shared[live] :]) == 1]
        return max(following, key=lambda live: shared[live], default=best)

    def _is_continuation(self, live: LiveSession, arrived: IncomingMessages, shared: int) -> bool:
        """Whether a request that shares so many messages may be the session's own next one."""
        transcript = live.transcript
        begun = transcript.newest_answer_index >= 0
        if shared == len(transcript):
            # The same first words once more: a second try where the first got no answer, else another agent.
            again = shared == len(arrived) and not begun
            return not again or not (live.is_answered or live.requests_unanswered)
        if begun and shared > transcript.newest_answer_index:
            # Only what stands behind the newest answer came another way.
            return not live.requests_unanswered
        return live.can_diverge and shared > transcript.head_length

    def _find_rewritten(self, shared: Mapping[LiveSession, int], arrived: IncomingMessages) -> LiveSession | None:
        """The session of a client that rewrote its history behind the task, but for some messages."""
        waiting = (
            live
            for live in shared
            if live.can_diverge and len(arrived) > max(shared[live], live.transcript.head_length)
        )
        return next(
            (
                live
                for live in islice(waiting, MAX_REWRITE_CANDIDATES)
                if self._keeps_messages(live, arrived, live.transcript.head_length)
            ),
            None,
        )

    def _find_compacted(self, family: str, api: Api, arrived: IncomingMessages) -> LiveSession | None:
        """The session whose client rewrote its own history from the first word on, but for some messages."""
        if len(arrived) < 2:
            return None
        waiting = (
            live
            for live in self._iterate_newest(_make_owner_key(family, api), family)
            if live.can_diverge
            # Who compacts has less afterwards. A longer history is that of an agent which did some of the same.
            and live.transcript.newest_answer_index > -1
            and len(arrived) < len(live.transcript)
        )
        return next(
            (live for live in islice(waiting, MAX_REWRITE_CANDIDATES) if self._keeps_messages(live, arrived)), None
        )

    def _iterate_newest(self, kin: OwnerKey, family: str = "") -> Iterator[LiveSession]:
        """Those of one key, or of a family of its, that were asked last, the very last first."""
        known = reversed(self._by_owner.get(kin, {}).values())
        return islice((live for live in known if not family or live.family == family), MAX_SEARCHED_SESSIONS)

    def _keeps_messages(self, live: LiveSession, arrived: IncomingMessages, first: int = 0) -> bool:
        """Whether messages of the session's come again, from place `first` on, at least two in a row."""
        said = live.transcript.collect_digests()
        row = 0
        for place in range(first, len(arrived)):
            if arrived.digest_content(place, past_head=True) in said:
                row = row + 1
            else:
                row = 0
            if row == 2:
                return True
        return False

    def _create_session(self, who: ClientIdentity, family: str, api: Api, model: str) -> LiveSession:
        told = _UNSAFE_CHARS.sub("-", who.session)[:40].strip("-") or who.namespace[:9]
        name = f"{told}-{uuid.uuid4().hex[:8]}"
        dialect = LIVE_DIALECTS[api]
        return LiveSession(
            name=name,
            family=family,
            api=api,
            context=self._make_context(name, family, api, model),
            transcript=ClientTranscript.for_family(dialect, family),
            hidden_rounds=HiddenRounds(dialect),
        )

    # -- how many --------------------------------------------------------------------------------------------------

    def _register(self, live: LiveSession, group: OpeningKey) -> None:
        """The newest of its group, and of all."""
        self._unregister(live)
        live.opening_key = group
        self._by_opening.setdefault(group, {})[id(live)] = self._by_id[id(live)] = live
        self._by_owner.setdefault(live.owner_key, {})[id(live)] = live

    def _unregister(self, live: LiveSession) -> None:
        self._by_id.pop(id(live), None)
        _remove_from(self._by_opening, live.opening_key, live)
        _remove_from(self._by_owner, live.owner_key, live)

    def _evict_sessions(self, keep: LiveSession) -> None:
        """Close what is idle for long, too many or too much."""
        now = self._clock()
        gone = list[LiveSession]()
        number = len(self._by_id)
        held = self._held_bytes
        for live in self._by_id.values():
            if (
                number <= self._max_sessions
                and held <= self._max_memory_bytes
                and now - live.last_used <= self._idle_seconds
            ):
                break
            if live is not keep and not live.requests_in_flight:
                number = number - 1
                held = held - live.memory_bytes
                gone.append(live)
        for live in gone:
            self._evict_session(live)

    def _evict_session(self, live: LiveSession) -> None:
        self._unregister(live)
        self._held_bytes -= live.memory_bytes
        task = asyncio.get_running_loop().create_task(_close_context(live))
        self._closing_tasks.add(task)
        task.add_done_callback(self._closing_tasks.discard)

    async def close(self) -> None:
        """Write what is not written yet, of every session."""
        for live in list(self._by_id.values()):
            self._evict_session(live)
        await asyncio.gather(*self._closing_tasks)


def _make_owner_key(family: str, api: Api) -> OwnerKey:
    return family.partition("/")[0], api


def _remove_from(among: dict[_Key, dict[int, LiveSession]], key: _Key, live: LiveSession) -> None:
    known = among.get(key, {})
    known.pop(id(live), None)
    if not known:
        among.pop(key, None)


async def _close_context(live: LiveSession) -> None:
    async with live.lock:
        try:
            await asyncio.to_thread(live.context.close)
        except Exception:  # noqa: BLE001 - nobody waits for it, and the other sessions are to be closed as well
            _log.exception("session %s could not be closed", live.name)


def to_plain_messages(messages: Sequence[UpstreamMessage]) -> list[dict[str, Any]]:
    """Messages as the library takes them."""
    return list(map(_JSON, messages))
