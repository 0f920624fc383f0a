"""The mirror between a framework's messages and plain ones: a contract that every adapter may rely on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from elision import Advanced, Cache
from elision.adapters.mirror import Mirror, read_message_text
from elision.manager import ContextManager
from tests.manager.agents import SHAPES, make_history

EAGER = "masking(window=2, schedule=every-turn, fold=false)"
FOLDING = "hybrid(window=2, summarize_at=6, tail=2, summary_max_tokens=120, schedule=every-turn, fold=false)"


@dataclass(frozen=True, eq=False)
class Note:
    """A message of a framework that holds several plain ones. name: a field that no provider has."""

    plain: tuple[dict[str, Any], ...]
    name: str = ""


def _rebuild(note: Note, sent: Mapping[int, dict[str, Any]]) -> Note | None:
    return replace(note, plain=tuple(sent[part] for part in sorted(sent)))


MIRROR = Mirror[Note](
    to_plain=lambda note: note.plain,
    rebuild=_rebuild,
    make_user_message=lambda text: Note(({"role": "user", "content": text},), name="summary"),
)


def open_context(strategy: str, dialect: str = "openai") -> ContextManager:
    return ContextManager(
        strategy,
        advanced=Advanced(dialect=dialect, cache=Cache(control="client")),
        store="memory:",
    )  # type: ignore[arg-type]


def test_what_is_unchanged_is_the_very_object() -> None:
    """A masked result is a copy that keeps its other fields; all else is what the framework gave."""
    notes = [Note((plain,), name=f"n{place}") for place, plain in enumerate(make_history("openai", 6))]
    mirrored = MIRROR.translate(notes)
    view = open_context(EAGER).prepare(mirrored.plain)
    restored = mirrored.restore(view)
    changed = [place for place, note in enumerate(restored) if note is not notes[place]]
    assert changed == [2, 4, 6, 8]
    assert [restored[place].name for place in changed] == ["n2", "n4", "n6", "n8"]
    assert all("tokens hidden" in restored[place].plain[0]["content"] for place in changed)
    assert all("tokens hidden" not in note.plain[0]["content"] for note in notes)


def test_a_summary_is_a_new_message_and_what_it_covers_is_left_out() -> None:
    """Its text is given to `make_user_message`."""
    notes = [Note((plain,)) for plain in make_history("openai", 12)]
    mirrored = MIRROR.translate(notes)
    restored = mirrored.restore(open_context(FOLDING).prepare(mirrored.plain))
    assert len(restored) < len(notes)
    assert [note.name for note in restored].count("summary") == 1
    assert restored[0] is notes[0]
    assert restored[-1] is notes[-1]


def test_a_summary_that_is_joined_to_the_task_rebuilds_it() -> None:
    """Anthropic's roles take turns: the task's copy says both."""
    notes = [Note((plain,)) for plain in make_history("anthropic", 12)]
    mirrored = MIRROR.translate(notes)
    restored = mirrored.restore(open_context(FOLDING, "anthropic").prepare(mirrored.plain))
    assert read_message_text(restored[0].plain[0]).startswith("Mend the parser.\n[Record of turns")


def test_one_message_may_hold_many() -> None:
    """Only the parts that are masked are other than given; a message of which nothing is left is dropped."""
    first, *steps = make_history("openai", 6)
    notes = [Note((first,)), *(Note(tuple(steps[at : at + 2])) for at in range(0, len(steps), 2))]
    mirrored = MIRROR.translate(notes)
    restored = mirrored.restore(open_context(EAGER).prepare(mirrored.plain))
    assert [note is given for note, given in zip(restored, notes, strict=True)] == [True, *[False] * 4, True, True]
    assert restored[1].plain[0] is steps[0]
    assert restored[1].plain[1]["tool_call_id"] == steps[1]["tool_call_id"]


def test_a_message_without_plain_ones_stays_where_it_is() -> None:
    """What an adapter does not know passes through, at the end too."""
    notes = [Note((plain,)) for plain in make_history("openai", 6)]
    odd = [Note((), name=f"odd {number}") for number in range(3)]
    given = [odd[0], *notes[:5], odd[1], *notes[5:], odd[2]]
    mirrored = MIRROR.translate(given)
    restored = mirrored.restore(open_context(EAGER).prepare(mirrored.plain))
    assert [place for place, note in enumerate(restored) if note in odd] == [0, 6, len(given) - 1]


def test_rebuilding_to_nothing_drops_the_message() -> None:
    """An adapter may say that nothing of a message is worth sending."""
    mirror = replace(MIRROR, rebuild=lambda note, sent: None)
    notes = [Note((plain,)) for plain in make_history("openai", 6)]
    mirrored = mirror.translate(notes)
    restored = mirrored.restore(open_context(EAGER).prepare(mirrored.plain))
    assert len(restored) == len(notes) - 4


@given(data=st.data())
def test_the_restored_messages_say_what_the_view_says(data: st.DataObject) -> None:
    """However plain messages are spread over those of a framework, restoring loses and adds nothing."""
    strategy = data.draw(st.sampled_from([EAGER, FOLDING]))
    shape = data.draw(st.sampled_from(["openai", "openai-responses", "anthropic"]))
    plain = make_history(shape, data.draw(st.integers(0, 14)))
    notes = []
    while plain:
        size = data.draw(st.integers(1, 3))
        notes.append(Note(tuple(plain[:size])))
        plain = plain[size:]
    mirrored = MIRROR.translate(notes)
    view = open_context(strategy, shape).prepare(mirrored.plain)
    restored = mirrored.restore(view)
    sent = [part for note in restored for part in note.plain]
    assert list(map(read_message_text, sent)) == list(map(read_message_text, view.messages))
    assert [note for note in restored if note in notes] == [note for note in notes if note in restored]


def test_restored_messages_continue_the_history() -> None:
    """The framework keeps its own list: each call gives all of it, and is one turn longer."""
    context = open_context(EAGER)
    notes: list[Note] = []
    for plain in [make_history("openai", 0), *(SHAPES["openai"](step) for step in range(8))]:
        notes += [Note((each,)) for each in plain]
        mirrored = MIRROR.translate(notes)
        view = context.prepare(mirrored.plain)
        assert len(mirrored.restore(view)) == len(notes)
        assert view.diagnostics.history == "continue"


def test_results_in_messages_of_their_own_stay_apart() -> None:
    """Results in messages of their own, and a prompt after one, keep their messages where results are hidden."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "List all."}]
    for turn in range(6):
        ids = [f"call-{turn}-{one}" for one in range(2)]
        uses = [{"type": "tool_use", "id": id, "name": "look", "input": {"at": id}} for id in ids]
        history.append({"role": "assistant", "content": uses})
        for id in ids:
            text = f"{id} says {turn} oranges\n" * 200
            result = {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": text}]}
            history.append({"role": "user", "content": [result]})
        if turn == 1:
            history.append({"role": "user", "content": [{"type": "text", "text": "Go on."}]})
    notes = [Note((plain,)) for plain in history]
    mirrored = MIRROR.translate(notes)
    view = open_context(EAGER, "anthropic").prepare(mirrored.plain)
    restored = mirrored.restore(view)
    assert len(restored) == len(notes)
    changed = [place for place, note in enumerate(restored) if note is not notes[place]]
    assert changed == [2, 3, 5, 6, 9, 10, 12, 13]
    for place in changed:
        ((given,), (sent,)) = ((each.plain[0]["content"]) for each in (notes[place], restored[place]))
        assert sent["tool_use_id"] == given["tool_use_id"]
        assert "tokens hidden" in str(sent["content"])
