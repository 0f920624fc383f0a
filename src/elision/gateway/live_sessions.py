"""Find the live session that a request continues: by the conversation itself, without help from the client.

A live session is one line of a conversation: a context manager and the messages that it was given. A request that
extends a known history continues it. A request that diverges is the same agent's undo, edit or compaction if no request
of that agent is open; otherwise it is another agent's fork. Two agents that start with the same words are two sessions
from their first call on. The store may know what this process does not.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from elision.gateway.identity import ClientIdentity
from elision.gateway.incoming_messages import HiddenRounds, IncomingMessages, ToolPins
from elision.gateway.request_body import MessageEncoder, PreviousBody, RequestBody
from elision.manager.context import ContextManager, manage_session
from elision.manager.opened_session import Exchanges, OpenedSession
from elision.manager.session_pool import PoolLimits, select_evictable
from elision.manager.think_time import INLINE_BYTES
from elision.providers.live.conversation import Conversation, count_answers
from elision.providers.provider import Api
from elision.providers.provider_table import PROVIDERS
from elision.telemetry.diagnostics import Diagnostics
from elision.trajectory.run_roles import SaidRole

_log: Final = logging.getLogger("elision.gateway")

#: Divergences of one live session before each history gets a session of its own. Agents that alternate between branches
#: of one history would have the log read again at every call.
MAX_DIVERGENCES: Final = 3
#: Steady requests after which the divergences of a session are forgotten: its client compacted, or went back, once.
STEADY_REQUESTS: Final = 8
#: Requests that pass unchanged after an edited one was refused; and how often that number doubles.
BYPASS_REQUESTS: Final = 8
MAX_BYPASS_DOUBLINGS: Final = 6
#: Live sessions of a family that are compared with a history that begins with other words.
MAX_REWRITE_CANDIDATES: Final = 16
#: The newest sessions of a key that are searched for those, and for the one that a body continues.
MAX_SEARCHED_SESSIONS: Final = 256
#: Bytes of first messages whose digests are cached.
MAX_OPENING_BYTES: Final = 16_000_000
#: Live memory of a session as a multiple of its messages' bytes; `python -m benchmarks memory` measures 3.3 to 4.0.
MEMORY_FACTOR: Final = 5
#: Sessions that are closed side by side when the process ends.
_CLOSED_AT_ONCE: Final = 8
_Key = TypeVar("_Key")
_UNSAFE_CHARS: Final = re.compile(r"[^\w.-]+")

#: Family, api and opening words.
OpeningKey: TypeAlias = tuple[str, Api, bytes]
#: Namespace and api.
OwnerKey: TypeAlias = tuple[str, Api]
#: Opens a session: (its name, family, api, model, its parent's name, its role as the client says it).
SessionFactory = Callable[[str, str, Api, str, str, SaidRole], OpenedSession]


@dataclass(slots=True, eq=False)
class LiveSession:
    """One conversation in this process.

    opened, context, exchanges: its log and store, what prepares its calls, and what only the gateway records in it.
    lock:               held while `context` works; never while the provider works.
    requests_in_flight: requests not finished here. requests_unanswered: those whose client still waits.
    is_answered:        whether the newest response reached its end.
    divergences:        recent requests whose history diverged. steady_requests: requests since then.
    last_used:          time of the newest request, monotonic seconds.
    newest_diagnostics: of its newest step. previous_body: the next request is parsed from
                        its end. body_bytes: of its newest request.
    is_unloaded:        whether its hidden rounds are not loaded yet. opening_key: its place in the registry.
    is_stale:           whether another process may have answered since, and stored hidden rounds.
    requests_to_bypass: next requests that pass unchanged, after the provider refused an edited one.
    refusals:           edited requests that the provider refused so far.
    tool_pins:          its tools as they came first, for `pin_tools`.
    """

    name: str
    family: str
    api: Api
    opened: OpenedSession
    context: ContextManager
    exchanges: Exchanges
    conversation: Conversation
    hidden_rounds: HiddenRounds
    encoder: MessageEncoder = field(default_factory=MessageEncoder)
    tool_pins: ToolPins = field(default_factory=ToolPins)
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
    previous_body: PreviousBody | None = None
    body_bytes: int = 0

    @property
    def owner_key(self) -> OwnerKey:
        """Return (namespace, api): only sessions of one owner are compared."""
        return _make_owner_key(self.family, self.api)

    @property
    def memory_bytes(self) -> int:
        """Estimate the bytes of memory that the session holds."""
        return MEMORY_FACTOR * self.body_bytes

    @property
    def is_busy(self) -> bool:
        """Return whether a request of it is open."""
        return self.requests_in_flight > 0

    @property
    def can_diverge(self) -> bool:
        """Return whether a divergent history may be this agent's: it has no open request, and does not alternate."""
        return not self.requests_unanswered and self.divergences < MAX_DIVERGENCES

    def note_request(self, *, diverges: bool) -> None:
        """Count a request. diverges: whether its history differs from the session's."""
        if diverges:
            self.divergences += 1
            self.steady_requests = 0
            # What the provider refused may no longer be in the history.
            self.requests_to_bypass = 0
            return
        self.steady_requests += 1
        if self.steady_requests >= STEADY_REQUESTS:
            self.divergences = 0

    async def load_hidden_rounds(self, conversation: Conversation) -> None:
        """Load the rounds that other gateways stored, or this one before it was restarted.

        conversation: that of a request. Raises whatever the store raises; the next request tries again then.
        """
        async with self.lock:
            if self.is_unloaded:
                # Nothing was recalled before the assistant's first message.
                if conversation.has_answers:
                    await self._load_recorded_rounds(conversation)
            elif self.is_stale:
                self.hidden_rounds.add_events(await self.exchanges.reload_async())
                messages = self.hidden_rounds.expand_messages(conversation)
                # The newest answer is in no log before this request.
                if count_answers([message.is_from_assistant for message in messages]) > self.opened.turn_count + 1:
                    # Another process served the requests after the one at which the session diverged from this one.
                    await self._load_recorded_rounds(conversation)
            self.is_unloaded = False
            self.is_stale = False

    async def _load_recorded_rounds(self, conversation: Conversation) -> None:
        """Load the rounds of a stored session until no more are found: each one may identify later ones."""
        rounds = self.hidden_rounds
        known = -1
        while len(rounds.events_by_node) > known:
            known = len(rounds.events_by_node)
            messages = rounds.expand_messages(conversation)
            rounds.add_events(await self.exchanges.find_stored_async(messages))

    def take_bypass(self) -> bool:
        """Return whether the next request passes unchanged, which is counted."""
        if not self.requests_to_bypass:
            return False
        self.requests_to_bypass -= 1
        return True

    def begin_bypass(self) -> None:
        """Let the next requests pass unchanged, since the provider refused an edited one and took the original.

        Each time there are more of them: the cause may persist, or may have been an exception.
        """
        self.requests_to_bypass = BYPASS_REQUESTS << min(self.refusals, MAX_BYPASS_DOUBLINGS)
        self.refusals += 1


class SessionRegistry:
    """The live sessions of this process. The least recently used ones are closed where they are too many or too large.

    All methods run on the event loop without waiting, so a request finds and claims its session in one step.
    """

    def __init__(
        self,
        open_session: SessionFactory,
        *,
        max_sessions: int,
        memory_bytes: int,
        idle_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_session = open_session
        self._limits = PoolLimits(sessions=max_sessions, idle_seconds=idle_seconds, memory_bytes=memory_bytes)
        self._clock = clock
        #: The one used last at the end.
        self._by_opening: dict[OpeningKey, dict[int, LiveSession]] = {}
        self._by_owner: dict[OwnerKey, dict[int, LiveSession]] = {}
        self._by_id: dict[int, LiveSession] = {}
        #: Bytes of memory that all of them hold, about.
        self._held_bytes = 0
        self._openings: dict[bytes, bytes] = {}
        self._opening_bytes = 0
        self._evicted: deque[LiveSession] = deque()
        self._closing_task: asyncio.Task[None] | None = None
        self._settling_tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[LiveSession]:
        return iter(self._by_id.values())

    def find_continued(self, namespace: str, api: Api, raw: bytes) -> LiveSession | None:
        """Return a session whose newest request `raw` probably continues, so that only the rest is parsed."""
        for session in self._iterate_newest((namespace, api)):
            if session.previous_body is not None and session.previous_body.is_prefix_of(raw):
                return session
        return None

    def claim_session(
        self,
        identity: ClientIdentity,
        api: Api,
        body: RequestBody,
        *,
        before: LiveSession | None = None,
        incoming: IncomingMessages | None = None,
    ) -> LiveSession:
        """Return the session that `body` continues, claimed: call `release_session` when the response is complete.

        before: the session whose newest request was parsed before. incoming: the messages of `body`, if parsed.
        Raises UnreadableBody where a message is not a JSON object.
        """
        family = identity.family
        if incoming is None:
            known = tuple(before.conversation.messages) if before is not None else ()
            incoming = IncomingMessages(PROVIDERS[api].live, body.messages, known)
        group = (family, api, self._find_opening(incoming))
        session = _find_known(self._by_opening.get(group, {}), incoming) or self._find_compacted(family, api, incoming)
        if session is None:
            session = self._create_session(identity, family, api, body.model)
        self._register(session, group)
        shared = incoming.count_shared(session.conversation)
        diverges = shared <= session.conversation.newest_answer_index
        session.note_request(diverges=diverges and not incoming.trims_front(session.conversation, shared))
        incoming.extend_conversation(session.conversation)
        # One new answer is this process's own. If there are more, others gave them.
        session.is_stale = (
            session.is_stale or not session.is_answered or session.conversation.count_answers_from(shared) > 1
        )
        self._held_bytes -= session.memory_bytes
        session.previous_body = body.make_previous([message.raw for message in session.conversation.messages])
        session.body_bytes = len(body.raw)
        self._held_bytes += session.memory_bytes
        session.requests_in_flight += 1
        session.requests_unanswered += 1
        session.last_used = self._clock()
        self._evict_sessions(keep=session)
        return session

    def mark_answered(self, session: LiveSession) -> None:
        """Note that a response has reached its end: the next request may come before everything is stored."""
        session.requests_unanswered -= 1
        session.is_answered = True

    def release_session(self, session: LiveSession, *, answered: bool, already_marked: bool = False) -> None:
        """Release a claim, whether the response is complete or not. already_marked: `mark_answered` was called."""
        session.requests_in_flight -= 1
        session.requests_unanswered -= not already_marked
        session.is_answered = answered
        session.last_used = self._clock()

    # -- whose it is -----------------------------------------------------------------------------------------------

    def _find_opening(self, incoming: IncomingMessages) -> bytes:
        """Return the digest of the first message that has one: system prompts identify no history."""
        for place, raw in enumerate(incoming.raws):
            if incoming.is_known(place) or len(raw) > INLINE_BYTES:
                # Where it is large, to look it up costs as much as to read it, and it was read already.
                says = incoming.parse(place).opening_digest
            else:
                says = self._digest_opening(incoming, place)
            if says:
                return says
        return b""

    def _digest_opening(self, incoming: IncomingMessages, place: int) -> bytes:
        """Return a message's digest, cached for the next session that begins with it."""
        raw = incoming.raws[place]
        says = self._openings.get(raw)
        if says is None:
            says = incoming.parse(place).opening_digest
            self._opening_bytes += len(raw) + len(says)
            if self._opening_bytes > MAX_OPENING_BYTES:
                self._openings.clear()
                self._opening_bytes = len(raw)
            self._openings[raw] = says
        return says

    def _find_compacted(self, family: str, api: Api, incoming: IncomingMessages) -> LiveSession | None:
        """Return a session whose client rewrote its history from the first message on, and kept some messages."""
        if len(incoming) < 2:
            return None
        candidates = (
            session
            for session in self._iterate_newest(_make_owner_key(family, api), family)
            if session.can_diverge
            # A compacted history is shorter. A longer one is that of another agent that did some of the same.
            and session.conversation.newest_answer_index > -1
            and len(incoming) < len(session.conversation)
        )
        for session in islice(candidates, MAX_REWRITE_CANDIDATES):
            if _keeps_messages(session, incoming):
                return session
        return None

    def _iterate_newest(self, kin: OwnerKey, family: str = "") -> Iterator[LiveSession]:
        """Yield the sessions of one owner, or of one of its families, the most recently used first."""
        known = reversed(self._by_owner.get(kin, {}).values())
        return islice((session for session in known if not family or session.family == family), MAX_SEARCHED_SESSIONS)

    def _create_session(self, who: ClientIdentity, family: str, api: Api, model: str) -> LiveSession:
        prefix = _UNSAFE_CHARS.sub("-", who.session)[:40].strip("-") or who.namespace[:9]
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        dialect = PROVIDERS[api].live
        # Where the parent is not at hand, such as in another worker, the sub-agent is a session like any other.
        kin = who.parent_family
        parents = self._iterate_newest(_make_owner_key(kin, api), kin) if kin else ()
        parent = next((session.opened.name for session in parents), "")
        opened = self._open_session(name, family, api, model, parent, who.role)
        return LiveSession(
            name=name,
            family=family,
            api=api,
            opened=opened,
            context=manage_session(opened),
            exchanges=Exchanges(opened),
            conversation=Conversation.for_family(dialect, family),
            hidden_rounds=HiddenRounds(dialect),
        )

    # -- how many --------------------------------------------------------------------------------------------------

    def _register(self, session: LiveSession, group: OpeningKey) -> None:
        """Make the session the newest of its group, and of all."""
        self._unregister(session)
        session.opening_key = group
        self._by_opening.setdefault(group, {})[id(session)] = self._by_id[id(session)] = session
        self._by_owner.setdefault(session.owner_key, {})[id(session)] = session

    def _unregister(self, session: LiveSession) -> None:
        self._by_id.pop(id(session), None)
        _remove_from(self._by_opening, session.opening_key, session)
        _remove_from(self._by_owner, session.owner_key, session)

    def _evict_sessions(self, keep: LiveSession) -> None:
        """Close sessions that are idle for too long, too many or too large."""
        for session in select_evictable(
            self._by_id.values(),
            self._limits,
            count=len(self._by_id),
            held_bytes=self._held_bytes,
            now=self._clock(),
            keep=keep,
        ):
            self._evict_session(session)

    def _evict_session(self, session: LiveSession) -> None:
        self._unregister(session)
        self._held_bytes -= session.memory_bytes
        self._evicted.append(session)
        if self._closing_task is None or self._closing_task.done():
            self._closing_task = asyncio.get_running_loop().create_task(self._close_evicted())

    async def _close_evicted(self) -> None:
        """Close them one after another: where one large session takes the place of hundreds, the loop stays free."""
        while self._evicted:
            await _close_context(self._evicted.popleft())

    def settle_sessions(self) -> None:
        """Begin to write what sessions could not write: the store is back, and their next request may never come."""
        task = asyncio.get_running_loop().create_task(_settle_contexts(list(self._by_id.values())))
        self._settling_tasks.add(task)
        task.add_done_callback(self._settling_tasks.discard)

    @property
    def is_settling(self) -> bool:
        """Return whether something that the store missed is still to be written: who ends the process now loses it."""
        return bool(self._settling_tasks)

    async def close(self) -> None:
        """Write the pending events of every session."""
        for session in list(self._by_id.values()):
            self._evict_session(session)
        # Nobody asks any more, so that those who wait for a store may wait side by side.
        closing = [asyncio.ensure_future(self._close_evicted()) for _ in range(_CLOSED_AT_ONCE)]
        if self._closing_task is not None and not self._closing_task.done():
            closing.append(self._closing_task)
        await asyncio.gather(*self._settling_tasks, *closing)


# -- whose it is -------------------------------------------------------------------------------------------------------


def _find_known(group: dict[int, LiveSession], incoming: IncomingMessages) -> LiveSession | None:
    shared = {session: incoming.count_shared(session.conversation) for session in reversed(group.values())}
    fitting = [session for session in shared if _is_continuation(session, incoming, shared[session])]
    if not fitting:
        return _find_rewritten(shared, incoming)
    waiting = [
        session
        for session in fitting
        if shared[session] == len(session.conversation) and not session.requests_unanswered
    ]
    best = max(fitting, key=lambda session: (shared[session], session in waiting))
    if shared[best] == len(best.conversation) < len(incoming):
        return best
    # The best one was asked already, or diverges. A session that lacks just one answer is more likely then.
    spoken = incoming.flag_answers(best.conversation, shared[best])
    following = [session for session in waiting if count_answers(spoken[shared[session] :]) == 1]
    return max(following, key=lambda session: shared[session], default=best)


def _is_continuation(session: LiveSession, incoming: IncomingMessages, shared: int) -> bool:
    """Return whether a request that shares so many messages may be the session's own next one."""
    conversation = session.conversation
    begun = conversation.newest_answer_index >= 0
    if shared == len(conversation):
        # The same first words again: a retry where the first request got no response, else another agent.
        again = shared == len(incoming) and not begun
        return not again or not (session.is_answered or session.requests_unanswered)
    if begun and shared > conversation.newest_answer_index:
        # Only messages after the newest answer differ.
        return not session.requests_unanswered
    return session.can_diverge and shared > conversation.head_length


def _find_rewritten(shared: Mapping[LiveSession, int], incoming: IncomingMessages) -> LiveSession | None:
    """Return a session whose client rewrote its history after the task, and kept some messages."""
    candidates = (
        session
        for session in shared
        if session.can_diverge and len(incoming) > max(shared[session], session.conversation.head_length)
    )
    for session in islice(candidates, MAX_REWRITE_CANDIDATES):
        if _keeps_messages(session, incoming, session.conversation.head_length):
            return session
    return None


def _keeps_messages(session: LiveSession, incoming: IncomingMessages, first: int = 0) -> bool:
    """Return whether two messages in a row of the session occur in the request, from message `first` on."""
    digests = session.conversation.collect_digests(session.conversation.head_length)
    row = 0
    for place in range(first, len(incoming)):
        row = row + 1 if incoming.parse(place).digest in digests else 0
        if row == 2:
            return True
    return False


def _make_owner_key(family: str, api: Api) -> OwnerKey:
    return family.partition("/")[0], api


def _remove_from(among: dict[_Key, dict[int, LiveSession]], key: _Key, session: LiveSession) -> None:
    known = among.get(key, {})
    known.pop(id(session), None)
    if not known:
        among.pop(key, None)


async def _settle_contexts(sessions: Sequence[LiveSession]) -> None:
    for session in sessions:
        async with session.lock:
            await session.opened.settle_async()


async def _close_context(session: LiveSession) -> None:
    async with session.lock:
        try:
            await asyncio.to_thread(session.context.close)
        except Exception:  # noqa: BLE001 - nobody waits for it, and the other sessions are to be closed as well
            _log.exception("session %s could not be closed", session.name)
