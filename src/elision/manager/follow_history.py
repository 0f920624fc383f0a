"""Follow the messages of a client: find or begin the branch of the log that they continue, and read what is new.

messages -> branch (by content) -> turns
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import msgspec

from elision.errors import (
    CallbackError,
    ConflictError,
    CorruptError,
    ElisionError,
    StoreError,
    UnknownHandle,
    describe_error,
)
from elision.manager.branch import HistoryChange, SessionBranch, ingest_turns
from elision.manager.branch_lookup import BranchLookup
from elision.manager.deferred_tools import (
    NO_DEFERRAL,
    NOTE_WHOLE_TOOLS,
    SentTools,
    arrange_tools,
    choose_deferral,
    describe_deferral,
    find_known_tools,
    is_deferred_in,
)
from elision.manager.drivers import ComputeOn, Steps, StoreCall
from elision.manager.history import History, find_history_end
from elision.manager.outgoing_request import IncomingRequest
from elision.manager.recall_tools import SentParts, choose_entry, is_recall_served
from elision.manager.request_notes import (
    NOTE_PLACEHOLDERS,
    NOTE_TRIMMED,
    NOTE_UNRELATED,
    HeadChange,
    describe_edit,
    describe_head_change,
    describe_wrong_dialect,
    find_edited_message,
    find_head_change,
    may_hold_placeholder,
    restore_results,
)
from elision.manager.shared_log import FaultReports, LogFactory, LogWriter, find_opened_event, has_same_turns
from elision.manager.think_time import INLINE_BYTES, LARGE_BYTES, estimate_size
from elision.providers.anthropic.bound_thinking import (
    ThinkingPolicy,
    choose_policy_elsewhere,
    choose_thinking_policy,
    has_bound_thinking,
)
from elision.providers.live.client_messages import LiveDialect, ParsedMessage
from elision.providers.provider import Provider
from elision.providers.provider_table import (
    detect_provider,
    find_message_provider,
    find_provider,
    find_tools_provider,
    recognize_provider,
)
from elision.providers.shared.capabilities import Capabilities, find_capabilities
from elision.trajectory.events import Deferral
from elision.trajectory.turn import OPENING_TURNS, TOOL_OUTPUT, Head, ObservationRole, Turn

#: Tokens of a history above which a call is prepared off the event loop, however little is new: to summarize it, or to
#: fit it into a budget, is work on all of it. Below, that is a few milliseconds, and a change of threads costs as much.
LONG_HISTORY_TOKENS: Final = 256_000


class ShapeMismatch(ElisionError):  # noqa: N818 - reads as what it is at the call site
    """A history has the text of a known one, and its results answer other calls. Ids are no part of a history's name.

    No provider accepts both, and what is hidden refers to results that are not there.
    """


@dataclass(frozen=True, slots=True)
class IncomingCall:
    """A call of the client: its request as it is read, and the rules of its model.

    thinking: how thinking that is bound to the messages before it is treated.
    returned: by place the client's own messages in whose stead `request` has what another process read.
    """

    request: IncomingRequest
    model: str
    dialect: LiveDialect
    capabilities: Capabilities
    thinking: ThinkingPolicy
    returned: Mapping[int, Any] = field(default_factory=dict)

    @property
    def binds_thinking(self) -> bool:
        """Whether the model binds its thinking to the messages before it."""
        return self.thinking != "ignore"

    @property
    def body(self) -> Sequence[Any]:
        """The messages that are the history."""
        return self.request.messages[: self.request.end]


class HistoryFollower:
    """Follows the messages of one client.

    branch: the one that they continued last; None to look for it. sent: what the client sends of its views.
    """

    def __init__(self, writer: LogWriter, session: str, faults: FaultReports) -> None:
        self.options = writer.logs.options
        self.logs: LogFactory = writer.logs
        self.branch: SessionBranch | None = None
        self.sent = SentParts()
        #: What the newest messages are probably not meant to be.
        self.notes: list[str] = []
        #: Changes of the head, and of the history, that were noted.
        self._noted_changes: set[HeadChange | Literal["history"]] = set()
        self._writer = writer
        self._session = session
        self._faults = faults
        #: The branch of messages that are read again as another dialect.
        self._left_branch: SessionBranch | None = None
        #: Whether some message showed its dialect.
        self._is_dialect_settled = False
        #: What is to be said of a session that begins now.
        self._deferral_note = ""
        #: The tools of the newest request as they are sent, where that is not as the client gave them.
        self.arranged: SentTools | None = None
        #: The API whose tool definitions the last request had; None if it had none.
        self._tools_provider: Provider | None = None

    def make_lookup(
        self,
        tools: Any = None,
        *,
        bound: bool = False,
        begun: bool = False,
        is_native: bool = False,
        deferral: Deferral = NO_DEFERRAL,
    ) -> BranchLookup:
        """Return the lookup of the session's branches.

        tools: of the request. deferral: of a session that begins with it. The others as for `choose_entry`.
        """
        entry = choose_entry(self.options, tools, bound=bound, begun=begun, is_native=is_native)
        opened = self.logs.make_opened_event(entry, is_served=is_recall_served(entry, tools, self.sent))
        opened = opened.defer(deferral)
        return BranchLookup(store=self._writer.store, root=self._session, logs=self.logs, opened=opened)

    def open_manual_branch(self) -> SessionBranch:
        """Return the branch of a session whose turns are added by hand, loaded where the store has it."""
        if self.branch is None:
            lookup = self.make_lookup()
            self.branch = lookup.load_root_branch() or lookup.begin_session()
        return self.branch

    # -- reading -------------------------------------------------------------------------------------------------

    def read_call(self, request: IncomingRequest, model: str) -> IncomingCall:
        """Return the call that a request makes. model: the session's if ""."""
        model = model or self.options.model
        dialect = self._find_dialect(request, model)
        found = find_capabilities(model)
        thinking: ThinkingPolicy = "ignore"
        if found.binds_thinking and find_provider(dialect.name).checks_thinking:
            thinking = choose_thinking_policy(found, self.options.advanced.thinking)
        elif found.binds_thinking:
            thinking = choose_policy_elsewhere(found, self.options.advanced.thinking)
        request = replace(request, end=find_history_end(dialect, request.messages))
        return IncomingCall(request, model, dialect, found, thinking)

    def _find_dialect(self, request: IncomingRequest, model: str) -> LiveDialect:
        """Return the dialect of the messages. The first message that shows one settles it.

        A framework that goes on with another provider's model gives the whole history in that one's shape: the tools
        show it.
        """
        if self.options.advanced.dialect != "auto":
            self._check_dialect(request)
            return find_provider(self.options.advanced.dialect).live
        before = self._tools_provider
        self._tools_provider = find_tools_provider(request.tools) if request.tools else None
        known = self.branch.history if self.branch else None
        if known is not None and before is not None and self._tools_provider not in (before, None):
            sign = recognize_provider(request.messages, request.system, request.tools, model)
            if sign is not None and sign.live is not known.dialect:
                self._left_branch = self.branch
                self.branch = None
                return sign.live
        if known is None:
            sign = recognize_provider(request.messages, request.system, request.tools, model)
            self._is_dialect_settled = sign is not None
            return detect_provider(request.messages, request.system, request.tools, model).live
        if self._is_dialect_settled:
            return known.dialect
        sign = recognize_provider(request.messages[len(known) :], request.system, request.tools, model)
        self._is_dialect_settled = sign is not None
        if sign is None or sign.live is known.dialect:
            return known.dialect
        # The first messages looked like another dialect's: they are read again.
        self._left_branch = self.branch
        self.branch = None
        return sign.live

    def _check_dialect(self, request: IncomingRequest) -> None:
        """Note that messages are of another API than the caller named. The first message that shows one settles it."""
        known = self.branch.history if self.branch else None
        new = request.messages[len(known) if known is not None else 0 :]
        # The gateway knows the API by the path.
        if self._is_dialect_settled or any(isinstance(message, ParsedMessage) for message in new):
            return
        chosen = find_provider(self.options.advanced.dialect)
        note = describe_wrong_dialect(new, chosen)
        self._is_dialect_settled = bool(note) or find_message_provider(new, chosen) is not None
        if note:
            self.notes.append(note)

    def read_history(self, call: IncomingCall) -> History:
        """Read the messages of `call` from the first on."""
        history = self._make_history(call)
        history.extend(call.body)
        if history.has_placeholders:
            self.notes.append(NOTE_PLACEHOLDERS)
        return history

    def _make_history(self, call: IncomingCall) -> History:
        seed = (self.options.advanced.family or self._session).encode("utf-8", "surrogatepass")
        return History(
            call.dialect, seed, observations=self.options.advanced.observations, tools=bool(call.request.tools)
        )

    def choose_place(self, request: IncomingRequest) -> ComputeOn | None:
        """Return where to compute off the event loop: where there is much to read, or much to look through."""
        history = None
        tokens = 0
        if self.branch is not None:
            history = self.branch.history
            tokens = self.branch.log.state.raw_track.tokens
        if history is None:
            new = list(request.messages)
        else:
            new = history.select_unseen(request.messages)
        if history is None or history.ingested_head is None or history.ingested_head[1] != request.system:
            new.append(request.system)
        if find_known_tools(request.tools) is None:
            new.append(request.tools)
        size = estimate_size(LARGE_BYTES, new)
        if size >= LARGE_BYTES:
            return ComputeOn.LARGE_WORKER
        if size > INLINE_BYTES or tokens > LONG_HISTORY_TOKENS:
            return ComputeOn.WORKER
        return None

    # -- the branch ----------------------------------------------------------------------------------------------

    def load_news(self) -> Steps[StoreError | None]:
        """Write unsaved records, and read what others wrote: a decision needs the whole log.

        Return the error where the store fails. Raises ConflictError.
        """
        branch = self.branch
        if not self.options.is_shared or branch is None or branch.history is None or branch.unverified:
            return None
        try:
            yield from self._writer.catch_up(branch)
        except ConflictError:
            raise
        except StoreError as error:
            return error
        except UnknownHandle:
            # The session was deleted meanwhile: the messages begin it again.
            self.branch = None
        return None

    def restore_results(self, call: IncomingCall) -> Steps[IncomingCall]:
        """Return the first `call` of a process with the results that its client gives back as it was shown them."""
        # In a family no session is given that the placeholders must be of.
        if self.options.advanced.family or not may_hold_placeholder(call.body):
            return call
        lookup = self.make_lookup(call.request.tools)
        try:
            branch: SessionBranch | None = yield StoreCall(lookup.load_latest_branch)
        except StoreError:
            # Whoever looks for the branch next reports it.
            return call
        if branch is None:
            return call
        messages = restore_results(call.request.messages, call.dialect, branch)
        pairs = enumerate(zip(call.request.messages, messages, strict=True))
        returned = {place: given for place, (given, restored) in pairs if restored is not given}
        return replace(call, request=replace(call.request, messages=messages), returned=returned)

    def restore_trimmed(self, call: IncomingCall) -> IncomingCall:
        """Return `call` with the messages that its client dropped, where it trims its own history."""
        history = self.branch.history if self.branch is not None else None
        if history is None or (left_out := history.find_trim(call.body)) is None:
            return call
        if not history.find_turn_at(left_out.stop):
            # It cut a turn.
            return call
        history.kept_head = left_out.start
        messages = history.restore_messages(call.request.messages, left_out)
        end = call.request.end + len(left_out)
        return replace(call, request=replace(call.request, messages=messages, end=end, left_out=left_out))

    def settle_dropped(self, call: IncomingCall, change: HistoryChange) -> Steps[HistoryChange]:
        """Record which turns the client no longer sends. If it sends some of those again, continue on a fork."""
        branch = self.branch
        assert branch is not None
        assert branch.history is not None
        left_out = call.request.left_out
        through = len(branch.history.skipped_nodes)
        if left_out:
            through = branch.history.find_turn_at(left_out.stop) - 1
        dropped = branch.log.state.dropped_turns
        if through > dropped:
            branch.log.drop_turns(through)
            self.notes.append(NOTE_TRIMMED)
        elif through < dropped:
            return (yield from self._fork_untrimmed(branch, call))
        return change

    def _fork_untrimmed(self, current: SessionBranch, call: IncomingCall) -> Steps[HistoryChange]:
        """Continue on a branch that begins before the client dropped turns: it sends them again."""
        request = call.request
        given = replace(request, messages=request.drop_left_out(request.messages), left_out=range(0))
        call = replace(call, request=replace(given, end=request.end - len(request.left_out)))
        history = self.read_history(call)
        yield from self._save_left_branch(current)
        lookup = self._make_lookup_for(call, history)
        fork: SessionBranch = yield StoreCall(lambda: lookup.fork_before_drop(current))
        self._adopt_branch(fork, history, call)
        return HistoryChange.FORK

    def _save_left_branch(self, current: SessionBranch) -> Steps[None]:
        """Write the records of a branch that is left. A failure is a fault of this call."""
        if current.exists and current.unsaved:
            failed = yield from self._writer.try_write(current)
            if failed is not None:
                self._faults.add_fault("store", failed)

    def _resume_trimmed(self, lookup: BranchLookup, history: History, call: IncomingCall) -> Steps[bool]:
        """Continue the session's newest branch if the messages are its history without turns that the client dropped.

        Return whether they are.
        """
        # In a family no session is given that the history must belong to.
        if self.options.advanced.family or not history.turns.turn_count:
            return False
        found: tuple[SessionBranch, int] | None = yield StoreCall(lambda: lookup.find_trimmed(history))
        if found is None:
            return False
        branch, dropped = found
        first = history.count_messages(0)
        trimmed = self._make_history(call)
        trimmed.extend(call.body[:first])
        trimmed.skip_turns([branch.nodes[turn] for turn in range(1, dropped + 1)])
        trimmed.extend(call.body[first:])
        self._adopt_branch(branch, trimmed, call)
        return True

    def follow_history(self, call: IncomingCall) -> Steps[HistoryChange]:
        """Find or make the branch that `call` continues, and read its new messages; return how they continue it.

        Raises ShapeMismatch.
        """
        branch = self.branch
        if branch is None or branch.history is None or branch.unverified:
            return (yield from self._open_branch(call))
        history = branch.history
        common = history.count_common(call.body)
        if self.options.is_shared and (common == len(history) or branch.diverged):
            return (yield from self._continue_shared(branch, history, common, call))
        if common == len(history):
            self._ingest_turns(branch, history.extend(call.body[common:]), call)
            return HistoryChange.CONTINUE
        if _is_amendment(branch, history, common):
            history.truncate(history.turns.turn_count - 1)
            self._ingest_turns(branch, history.extend(call.body[len(history) :]), call)
            return HistoryChange.AMENDED
        return (yield from self._follow_divergence(branch, history.count_intact_turns(common), call))

    def _continue_shared(
        self, branch: SessionBranch, history: History, common: int, call: IncomingCall
    ) -> Steps[HistoryChange]:
        """Continue a branch that other processes write to as well, after what they wrote.

        common: leading messages of the call that were read before.
        """
        if common < len(history):
            intact = min(history.count_intact_turns(common), _count_same_turns(branch, history))
            return (yield from self._follow_divergence(branch, intact, call))
        first = history.extend(call.body[common:])
        if branch.diverged and not has_same_turns(branch, history):
            return (yield from self._follow_divergence(branch, _count_same_turns(branch, history), call))
        known = len(branch.log.state.turns)
        if history.turns.turn_count > known + 1 and (yield from self._is_in_other_branch(history, known)):
            return (yield from self._follow_divergence(branch, known, call))
        if branch.diverged:
            self._adopt_branch(branch, history, call)
        else:
            self._ingest_turns(branch, first, call)
        return HistoryChange.CONTINUE

    def _is_in_other_branch(self, history: History, known: int) -> Generator[StoreCall, Any, bool]:
        """Return whether another branch has turns after the `known` ones, for which another process was asked."""
        nodes = history.list_nodes()[known:]
        family = self.options.advanced.family or self._session
        try:
            found = yield StoreCall(lambda: self._writer.store.locate(family, nodes))
        except StoreError:
            return False
        return found is not None

    def _open_branch(self, call: IncomingCall) -> Steps[HistoryChange]:
        """Find the branch of a history that is read for the first time, or begin one."""
        history = self.read_history(call)
        at_hand = self.branch or self._left_branch
        self._left_branch = None
        lookup = self._make_lookup_for(call, history)
        if at_hand is None and self._is_new_session(history):
            branch = lookup.begin_session()
            self._adopt_branch(branch, history, call)
            return HistoryChange.CONTINUE
        try:
            if at_hand is None and (yield from self._resume_trimmed(lookup, history, call)):
                return HistoryChange.CONTINUE
            found: tuple[SessionBranch, HistoryChange] = yield StoreCall(lambda: lookup.find_branch(history, at_hand))
            branch, change = found
        except ConflictError:
            raise
        except CorruptError as error:
            # The messages have all that the damaged branch was to remember.
            self._faults.add_fault("store", error)
            branch = yield StoreCall(lookup.begin_beside_damage)
            change = HistoryChange.CONTINUE
        except StoreError as error:
            self._faults.add_fault("store", error)
            change = HistoryChange.CONTINUE
            if at_hand is not None and at_hand.unverified and has_same_turns(at_hand, history):
                # The store may have it by now: another branch would be the same session a second time.
                branch = at_hand
            else:
                branch = lookup.begin_session()
            branch.unverified = True
        self._adopt_branch(branch, history, call)
        return change

    def _make_lookup_for(self, call: IncomingCall, history: History) -> BranchLookup:
        bound = call.binds_thinking
        begun = bound and _has_thinking(history)
        return self.make_lookup(
            call.request.tools,
            bound=bound,
            begun=begun,
            is_native=call.thinking == "native",
            deferral=self._choose_deferral(call, history),
        )

    def _choose_deferral(self, call: IncomingCall, history: History) -> Deferral:
        """Return which tools a session defers that begins with `call`."""
        self._deferral_note = ""
        if self.options.tools != "defer" or self.options.shadow or not call.request.tools:
            return NO_DEFERRAL
        if history.turns.turn_count:
            found: Deferral | str = "the session began without Elision, with all definitions"
        else:
            found = choose_deferral(call.request, call.capabilities, find_provider(call.dialect.name), self.logs.sizer)
        if isinstance(found, Deferral):
            self._deferral_note = describe_deferral(found)
            return found
        self._deferral_note = f'tools="defer" changes nothing: {found}'
        return NO_DEFERRAL

    def _is_new_session(self, history: History) -> bool:
        """Return whether the store is known, without waiting, to have no session for a history.

        That is so where the history has no turn to be found by, and no session has the name.
        """
        store = self._writer.nonblocking_store
        if not self.options.advanced.family or history.turns.turn_count or store is None:
            return False
        try:
            store.try_length(self._session)
        except UnknownHandle:
            return True
        except StoreError:
            # The next question to the store reports it.
            return False
        return False

    def _follow_divergence(self, current: SessionBranch, intact: int, call: IncomingCall) -> Steps[HistoryChange]:
        """Leave `current`, with which the messages share `intact` turns, for another branch or a fork."""
        history = self.read_history(call)
        if intact < 0 and not self.options.advanced.family and _is_unrelated(current, history):
            self.notes.append(NOTE_UNRELATED)
        intact = min(intact, len(current.log.state.turns))
        yield from self._save_left_branch(current)
        lookup = self._make_lookup_for(call, history)
        try:
            found: tuple[SessionBranch, HistoryChange] = yield StoreCall(
                lambda: lookup.follow_divergence(current, history, intact)
            )
        except ConflictError:
            raise
        except StoreError as error:
            # The branch that has more of the messages cannot be read.
            self._faults.add_fault("store", error)
            found = yield StoreCall(lambda: lookup.continue_known(current, history, intact))
        branch, change = found
        if change is HistoryChange.CONTINUE and branch is not current and branch.log.state.turns:
            change = HistoryChange.FORK
        before = current.history
        self._adopt_branch(branch, history, call)
        if change is HistoryChange.REPLACED and before is not None and current.log.state.last_view is not None:
            self._note_edit(before, history, current.log.state.last_view.tokens)
        return change

    def _adopt_branch(self, branch: SessionBranch, history: History, call: IncomingCall) -> None:
        """Continue `branch`, whose turns `history` has. Raises ShapeMismatch."""
        branch.history = history
        if self._deferral_note and not branch.exists and branch.new.relation in ("", "sub-agent"):
            self.notes.append(self._deferral_note)
        known = len(branch.log.state.turns)
        history.turns.observations = self._settle_observations(branch)
        # Messages that the client added after the newest turn they share belong to that turn.
        first = known + 1
        if 0 < known <= history.turns.turn_count and history.get_node(known) != branch.nodes.get(known):
            first = known
        for index in range(len(history.skipped_nodes) + 1, min(known, history.turns.turn_count) + 1):
            history.turns.adopt_tags(branch.log.state.turns[index - 1])
            turn, sources = history.turns.build_turn(index)
            if index < first and _count_parts(turn) != _count_parts(branch.log.state.turns[index - 1]):
                raise ShapeMismatch(f"results of turn {index} answer other calls than when they came first")
            history.splice.set_turn(index, sources)
        self.branch = branch
        branch.diverged = False
        if self.options.shadow != branch.log.state.shadow:
            opened = find_opened_event(branch.log.events) or self._make_lookup_for(call, history).opened
            branch.log.record_event(msgspec.structs.replace(opened, shadow=self.options.shadow))
        self._ingest_turns(branch, first, call)

    def _settle_observations(self, branch: SessionBranch) -> ObservationRole:
        """Return which messages were tool results in the turns of `branch`. Later messages do not change that."""
        turns = branch.log.state.turns
        for turn in turns:
            if any(each.role == "user" and TOOL_OUTPUT not in each.tags for each in turn.observations):
                return "user"
        if self.options.advanced.observations == "auto" and len(turns) > OPENING_TURNS:
            return "tools"
        return self.options.advanced.observations

    def _ingest_turns(self, branch: SessionBranch, first: int, call: IncomingCall) -> None:
        pin = self._is_pinned if self.options.advanced.pin else None
        state = branch.log.state
        before = state.head
        tools = call.request.tools
        arranged_before, self.arranged = self.arranged, None
        if state.deferral.tools and not self.options.shadow:
            provider = find_provider(call.dialect.name)
            if is_deferred_in(call.request, state.deferral, call.capabilities, provider):
                self.arranged = arrange_tools(tools, state.deferral, provider)
                tools = self.arranged.counted
            elif tools:
                self.notes.append(NOTE_WHOLE_TOOLS)
        ingest_turns(branch, first, call.request.system, tools, pin)
        if before is not state.head and branch.log.newest_call is not None:
            # Where they were deferred before and are not now, or the reverse, the client did not change its tools.
            are_clients = (self.arranged is None) is (arranged_before is None)
            self._note_head_change(before, branch, notes_tools=are_clients)

    def _note_head_change(self, before: Head, branch: SessionBranch, *, notes_tools: bool) -> None:
        """Say once of each kind that the head is another one than at the call before."""
        state = branch.log.state
        change = find_head_change(before, state.head)
        if change is None or change in self._noted_changes or (change != "text" and not notes_tools):
            return
        tokens = state.make_raw_view().tokens
        if note := describe_head_change(change, before, state.head, tokens, self.logs.prices):
            self._noted_changes.add(change)
            self.notes.append(note)

    def _note_edit(self, before: History, after: History, tokens_before: int) -> None:
        """Say once that the client edited what it had sent. tokens_before: of the prompt before that."""
        if "history" in self._noted_changes or self.branch is None:
            return
        place = find_edited_message(before, after)
        if place is None:
            return
        state = self.branch.log.state
        segment = state.turn_places.get(after.count_intact_turns(place) + 1, state.head_length)
        tokens = min(tokens_before, state.track.tokens) - state.track.count_tokens_before(segment)
        if note := describe_edit(before, after, place, tokens, self.logs.prices):
            self._noted_changes.add("history")
            self.notes.append(note)

    def _is_pinned(self, message: Mapping[str, Any]) -> bool:
        """Return whether the caller's `pin` keeps `message` visible; False where it raises, which is a fault."""
        assert self.options.advanced.pin is not None
        try:
            return bool(self.options.advanced.pin(message))
        except Exception as error:  # noqa: BLE001 - the caller's function must not stop the caller's agent
            failure = CallbackError(f"pin failed: {describe_error(error)}")
            failure.__cause__ = error
            self._faults.add_fault("callback", failure)
            return False


def _count_same_turns(branch: SessionBranch, history: History) -> int:
    """Return how many leading turns branch and history share."""
    same = 0
    most = min(len(branch.log.state.turns), history.turns.turn_count)
    while same < most and history.get_node(same + 1) == branch.nodes.get(same + 1):
        same += 1
    return same


def _is_amendment(branch: SessionBranch, history: History, common: int) -> bool:
    """Return whether only the ending of the newest turn differs, and nothing of it that is hidden or folded.

    common: leading messages that are unchanged.
    """
    newest = history.turns.turn_count
    if not newest or history.count_intact_turns(common) != newest - 1:
        return False
    if common < history.turns.find_answer_end(newest):
        return False
    fixed = branch.log.state.list_fixed_keys(newest)
    return all(place < common for place in history.splice.find_messages(fixed))


def _is_unrelated(branch: SessionBranch, history: History) -> bool:
    """Return whether `history` begins in the middle of a run, or has no message of the history of `branch`."""
    before = branch.history
    if before is None:
        return False
    return not history.turns.head or before.collect_digests().isdisjoint(history.collect_digests())


def _has_thinking(history: History) -> bool:
    conversation = history.turns
    first = len(history.skipped_nodes) + 1
    turns = (conversation.build_turn(index)[0] for index in range(first, conversation.turn_count + 1))
    return any(map(has_bound_thinking, turns))


def _count_parts(turn: Turn) -> tuple[int, int]:
    """Return the numbers of results and of the user's messages in `turn`."""
    return len(turn.observations), len(turn.interjections)
