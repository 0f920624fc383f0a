"""What must hold of every framework with the adapter, written once. Each check raises AssertionError and says where.

They read recordings, and the adapter's store; the frameworks are not here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from elision import open_store
from elision.trajectory.events import UsageReported
from tests.adapters.recording import LegRecord, Message, Request, count_common
from tests.adapters.scenarios import describe_failure, list_part

#: Cost of a token that a request shares with the one before it, and of one that it does not: a cache read, and a write.
READ, WRITE = 0.1, 1.25
#: What the model says when it has played its steps.
LAST_WORDS = "All parts are listed."


def split_by_agent(requests: Iterable[Request]) -> dict[str, list[Request]]:
    """Return the requests of each agent, in order. A refused request is left out: the model answered nothing."""
    found: dict[str, list[Request]] = {}
    for request in requests:
        if not request.refused:
            found.setdefault(request.agent, []).append(request)
    return found


def check_ended(record: LegRecord) -> None:
    """Check that every run of a leg ended as the script has it, without an error."""
    assert not record.error, f"{record.scenario}, leg {record.leg}: {record.error}"
    assert record.texts, f"{record.scenario}, leg {record.leg}: no run ended"
    for thread, text in record.texts.items():
        assert LAST_WORDS in text, f"{record.scenario}, {thread} ended with {text[:200]!r}"


def check_pairs(record: LegRecord) -> None:
    """Check that in each request every call is answered before anyone else speaks, and nothing else is answered."""
    for number, request in enumerate(record.requests, 1):
        broken = find_broken_pair(request.messages)
        assert not broken, f"{record.scenario}, request {number} of {request.agent}: {broken}"


def find_broken_pair(messages: Sequence[Message]) -> str:
    """Return what is wrong with the calls and results of a request; "" if nothing is."""
    waiting: set[str] = set()
    for at, message in enumerate(messages):
        if message.role == "tool":
            if message.answers not in waiting:
                return f"message {at} answers {message.answers!r}, which was not called"
            waiting.remove(message.answers)
        elif waiting:
            return f"message {at} ({message.role}) comes before the results of {sorted(waiting)}"
        else:
            waiting = {call.id for call in message.calls}
    return f"no results of {sorted(waiting)}" if waiting else ""


def check_stored_raw(record: LegRecord) -> None:
    """Check that what the framework stored has every result as the tool returned it."""
    for thread, history in record.stored.items():
        results = {message.answers: message for message in history if message.role == "tool"}
        for message in history:
            for call in message.calls:
                expected = find_expected_text(call.tool, call.arguments.get("part"), call.id)
                if expected and call.id in results:
                    text = results[call.id].text
                    assert expected in text, f"{record.scenario}: {thread} stores {text[:120]!r} for {call.id}"
        hidden = [message.text[:120] for message in history if message.handle]
        assert not hidden, f"{record.scenario}: {thread} stores placeholders, the first is {hidden[0]!r}"


def find_expected_text(tool: str, part: object, call_id: str) -> str:
    """Return what the result of a call has; "" for calls of other tools."""
    if not isinstance(part, int):
        # A shell has commands: the id says which part it was.
        name, _, number = call_id.removeprefix("call_").rpartition("_")
        if name not in ("look", "fail") or not number.isdigit():
            return ""
        tool, part = name, int(number)
    if tool == "fail":
        return describe_failure(part)
    return list_part(part) if tool in ("look", "picture") else ""


def check_masked(record: LegRecord, least: int) -> None:
    """Check that the last request of a leg hides at least so many results."""
    count = sum(bool(message.handle) for message in record.requests[-1].messages)
    assert count >= least, f"{record.scenario}: the last request hides {count} results, and not {least}"


def check_nothing_masked(record: LegRecord) -> None:
    """Check that no request hides a result."""
    for number, request in enumerate(record.requests, 1):
        hidden = [message.text[:120] for message in request.messages if message.handle]
        assert not hidden, f"{record.scenario}, request {number}: {hidden[0]!r}"


def check_results_kept(record: LegRecord) -> None:
    """Check that each result is sent raw or as a placeholder, under its own call's id and with its error state."""
    raw: dict[tuple[str, str], Message] = {}
    for number, request in enumerate(record.requests, 1):
        for message in request.messages:
            if message.role != "tool":
                continue
            where = f"{record.scenario}, request {number}, result of {message.answers}"
            first = raw.setdefault((request.agent, message.answers), message)
            assert message.failed == first.failed, f"{where}: failed was {first.failed} and is {message.failed}"
            if not message.handle:
                assert message == first, f"{where} was {first.text[:120]!r} and is {message.text[:120]!r}"


def check_objects(record: LegRecord, added: int = 0) -> None:
    """Check that untouched messages are the framework's very objects: others hold a placeholder, or are new.

    added: how many objects of a request may be new, such as a summary or the system prompt.
    """
    for number, request in enumerate(record.requests, 1):
        if request.objects is not None:
            copied = sum(not same and not hidden for same, hidden in request.objects)
            assert copied <= added, (
                f"{record.scenario}, request {number} of {request.agent}: {copied} objects are copies"
            )


def check_prefix_kept(earlier: Request, later: Request) -> None:
    """Check that a request begins with all messages of an earlier one."""
    common = count_common(earlier.messages, later.messages)
    assert common == len(earlier.messages), (
        f"message {common} of {len(earlier.messages)} differs: "
        f"{earlier.messages[common].text[:120]!r} became {later.messages[common].text[:120]!r}"
    )


def count_rewrites(requests: Sequence[Request]) -> int:
    """Return how many requests do not begin with the one before them: a provider's cache is lost from there on."""
    return sum(count_common(one.messages, two.messages) < len(one.messages) for one, two in pairwise(requests))


def count_cost(requests: Sequence[Request]) -> float:
    """Return what prompts cost, in tokens of plain input: `READ` for what the last request had, else `WRITE`."""
    total = 0.0
    before: list[Message] = []
    for request in requests:
        same = count_common(before, request.messages)
        tokens = [message.tokens for message in request.messages]
        total += READ * sum(tokens[:same]) + WRITE * sum(tokens[same:])
        before = request.messages
    return total


def check_recall(record: LegRecord) -> None:
    """Check that the model read a hidden result again, and got the raw text."""
    asked = [call for request in record.requests for message in request.messages for call in message.calls]
    recalls = {call.id: call for call in asked if call.tool == "elision_recall"}
    assert recalls, f"{record.scenario}: no handle appeared, so nothing was recalled"
    results = [message for message in record.requests[-1].messages if message.answers in recalls]
    results = results or [
        message for request in record.requests for message in request.messages if message.answers in recalls
    ]
    assert results, f"{record.scenario}: the recall was not answered"
    assert "needle-" in results[0].text, f"{record.scenario}: the recall returned {results[0].text[:200]!r}"


def check_usage(record: LegRecord, store: str, detail: str) -> None:
    """Check that the store has the usage of every answered model call once, and no other.

    detail: what the framework tells, as `Recordings.usage`. A framework that tells nothing is not checked.
    """
    if detail == "nothing":
        return
    opened = open_store(store)
    try:
        found = Counter(
            (event.usage.prompt, event.usage.cache_read if detail != "prompt" else 0, event.usage.output)
            for session in opened.sessions()
            for event in opened.events(session.key)
            if isinstance(event, UsageReported)
        )
    finally:
        opened.close()
    expected = Counter(
        (request.usage.prompt, request.usage.cached if detail != "prompt" else 0, request.usage.output)
        for request in record.requests
        if not request.refused
    )
    assert found == expected, f"{record.scenario}: not recorded {expected - found}, recorded beside {found - expected}"


def check_sessions(store: str, least: int) -> None:
    """Check that the store has at least so many sessions: one for each history."""
    opened = open_store(store)
    try:
        names = [session.key for session in opened.sessions()]
    finally:
        opened.close()
    assert len(names) >= least, f"{len(names)} sessions, and not {least}: {names}"


def check_tools_stand(record: LegRecord, *, may_enter: bool = False) -> None:
    """Check that the tools of an agent are the same in all of its requests, from the first on.

    may_enter: whether more may follow them, once: the recall tools, which Elision adds as it first hides something.
    """
    for agent, requests in split_by_agent(record.requests).items():
        known = requests[0].tools
        for number, request in enumerate(requests, 1):
            if may_enter and known == requests[0].tools == request.tools[: len(known)]:
                known = request.tools
            assert request.tools == known, f"{record.scenario}: {agent} has other tools in request {number}"


def check_thinking_kept(record: LegRecord) -> None:
    """Check that the service never had to drop thinking: nothing before it was changed in the text."""
    for number, request in enumerate(record.requests, 1):
        assert not request.extra.get("dropped_thinking"), f"{record.scenario}, request {number}: thinking was dropped"
