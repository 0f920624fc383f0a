"""The checks see what they are for: each passes on a run that is right, and fails where one thing of it is wrong."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest

from elision import ContextManager
from tests.adapters import checks
from tests.adapters.recording import Answer, Call, LegRecord, Message, Player, Recorder, Request
from tests.adapters.scenarios import MODEL, PlannedCall, Step, list_part, look_at

PLACEHOLDER = "[t1.1 look: 1 -> done; 600 tokens hidden]"


def play_run(steps: tuple[Step, ...] | None = None) -> LegRecord:
    """Return the record of a run whose requests only grow; its last result is an error."""
    recorder = Recorder()
    player = Player(recorder, "thread-1", MODEL, steps or look_at(range(1, 4)))
    history = [Message("user", "List all parts.")]
    while True:
        recorder.note_given("thread-1", history)
        recorder.note_sent("thread-1", history, lambda message: [message])
        answer = player.answer(history)
        if answer.overflow:
            continue
        if not answer.calls:
            break
        history = [*history, Message("assistant", calls=answer.calls), *answer_calls(answer)]
    record = LegRecord("plain", 0, recorder.requests, {"thread-1": history}, {"thread-1": answer.text})
    return LegRecord.from_json(record.to_json())


def answer_calls(answer: Answer) -> list[Message]:
    return [Message("tool", list_part(call.arguments["part"]), answers=call.id, failed=False) for call in answer.calls]


def hide_result(record: LegRecord, request: int, at: int) -> LegRecord:
    """Return the record with a placeholder in place of a result, in that request and all later ones."""
    made = deepcopy(record)
    for each in made.requests[request:]:
        each.messages[at].text = PLACEHOLDER
    return made


def drop_result(record: LegRecord) -> None:
    del record.requests[-1].messages[-1]


def answer_twice(record: LegRecord) -> None:
    record.requests[-1].messages.append(record.requests[-1].messages[-1])


def interrupt_pair(record: LegRecord) -> None:
    record.requests[-1].messages.insert(-1, Message("user", "And now?"))


@pytest.mark.parametrize("spoil", [drop_result, answer_twice, interrupt_pair])
def test_broken_pairs_are_seen(spoil: Callable[[LegRecord], None]) -> None:
    record = play_run()
    checks.check_pairs(record)
    spoil(record)
    with pytest.raises(AssertionError, match="request 4 of thread-1"):
        checks.check_pairs(record)


def test_stored_placeholders_are_seen() -> None:
    record = play_run()
    checks.check_stored_raw(record)
    record.stored["thread-1"][2].text = PLACEHOLDER
    with pytest.raises(AssertionError, match="thread-1 stores"):
        checks.check_stored_raw(record)


def test_changed_results_are_seen() -> None:
    """A placeholder is no change, another text and another error state are."""
    record = hide_result(play_run(), 2, 2)
    checks.check_results_kept(record)
    record.requests[3].messages[4].text += "!"
    with pytest.raises(AssertionError, match="result of call_look_2"):
        checks.check_results_kept(record)
    record = hide_result(play_run(), 2, 2)
    record.requests[2].messages[2].failed = True
    with pytest.raises(AssertionError, match="failed was False and is True"):
        checks.check_results_kept(record)


def test_hidden_results_are_counted() -> None:
    record = hide_result(play_run(), 2, 2)
    checks.check_masked(record, 1)
    with pytest.raises(AssertionError, match="hides 1 results, and not 2"):
        checks.check_masked(record, 2)
    with pytest.raises(AssertionError, match="request 3"):
        checks.check_nothing_masked(record)


def test_copied_objects_are_seen() -> None:
    record = play_run()
    checks.check_objects(record)
    objects = record.requests[-1].objects
    assert objects is not None
    objects[0] = (False, True)
    checks.check_objects(record)
    objects[0] = (False, False)
    checks.check_objects(record, added=1)
    with pytest.raises(AssertionError, match="request 4 of thread-1: 1 objects are copies"):
        checks.check_objects(record)


def test_rewrites_and_costs() -> None:
    """A request that only grows pays a tenth for what was there; a rewrite pays for all from there on."""
    record = play_run()
    hidden = hide_result(record, 2, 2)
    assert checks.count_rewrites(record.requests) == 0
    assert checks.count_rewrites(hidden.requests) == 1
    first, second = record.requests[:2]
    old = sum(message.tokens for message in first.messages)
    new = sum(message.tokens for message in second.messages) - old
    assert checks.count_cost([first, second]) == pytest.approx(1.25 * old + 0.1 * old + 1.25 * new)
    assert checks.count_cost(hidden.requests[:3]) > checks.count_cost(record.requests[:3]) * 0.9
    checks.check_prefix_kept(record.requests[2], record.requests[3])
    with pytest.raises(AssertionError, match="message 2 of 5 differs"):
        checks.check_prefix_kept(record.requests[2], hidden.requests[3])


def test_usage_that_is_lost_or_doubled_is_seen(tmp_path: object) -> None:
    """The store has each answered call's usage once."""
    record = play_run()
    for times in (1, 0, 2):
        store = f"sqlite:///{tmp_path}/{times}.db"
        with ContextManager(store=store, model=MODEL) as context:
            for request in record.requests:
                context.prepare([make_chat_message(message) for message in request.messages])
                for _ in range(times if request is record.requests[-1] else 1):
                    usage = request.usage
                    context.record(
                        {
                            "prompt_tokens": usage.prompt,
                            "completion_tokens": usage.output,
                            "prompt_tokens_details": {"cached_tokens": usage.cached},
                        }
                    )
        if times == 1:
            checks.check_usage(record, store, "cached")
            checks.check_sessions(store, 1)
            continue
        with pytest.raises(AssertionError, match="plain: not recorded"):
            checks.check_usage(record, store, "cached")


def make_chat_message(message: Message) -> dict[str, object]:
    made: dict[str, object] = {"role": message.role, "content": message.text}
    if message.calls:
        made["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": "{}"}}
            for call in message.calls
        ]
    if message.answers:
        made["tool_call_id"] = message.answers
    return made


def test_the_model_recalls_the_first_handle_once() -> None:
    steps = tuple(Step((PlannedCall("look", part),), recalls=part > 1) for part in range(1, 5))
    player = Player(Recorder(), "thread-1", MODEL, steps)
    hidden = [Message("tool", PLACEHOLDER, answers="call_look_9")]
    asked = [player.answer(hidden).calls[0] for _ in steps]
    assert [call.tool for call in asked] == ["look", "elision_recall", "look", "look"]
    assert asked[1].arguments == {"handle": "t1.1"}


def test_an_overflow_is_refused_once() -> None:
    steps = (Step((PlannedCall("look", 1),), overflows=True),)
    recorder = Recorder()
    player = Player(recorder, "thread-1", MODEL, steps)
    message = Message("user", "A prompt. " * 100)
    refused, answered = player.answer([message]), player.answer([message])
    assert refused.refusal == "prompt is too long: 250 tokens > 200 maximum"
    assert [call.tool for call in answered.calls] == ["look"]
    assert [request.refused for request in recorder.requests] == [True, False]


def test_a_record_is_the_same_after_the_pipe() -> None:
    record = play_run()
    record.requests[0].messages[0].thinking = [("hm", "sig")]
    assert LegRecord.from_json(record.to_json()) == record
    assert isinstance(record.requests[0], Request)
    assert record.stored["thread-1"][1].calls == [Call("call_look_1", "look", {"part": 1})]
