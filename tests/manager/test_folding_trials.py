"""Folding under clients that do anything: following the references in what is sent gives every result back."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from elision import Advanced, ContextManager
from tests.properties.followed_references import REFERENCE, follow_reference
from tests.soak import SOAK

Messages = list[dict[str, Any]]

#: What results are made of: plain lines, empty ones, carriage returns, one very long line, odd characters.
PIECES = (
    "\n".join(f"    value_{number} = compute(source, {number * 7919})" for number in range(30)),
    "\n".join(f"    other_{number} = compute(target, {number * 7907})" for number in range(30)),
    "\n" * 60,
    "\r\n".join(f"row {number};{number * 7901};done" for number in range(25)),
    "begin\n" + "x" * 60_000 + "\nend",
    "\n".join(["ok " + "y" * 300] * 40),
    "tab\tand \u2028 and \x0c and \x85 and é\n" * 20,
    "[same as lines 1–9 of t1.1]\n[same as lines 2–30 of t2.1 (bash make)]",
)


def draw_text(random: Random) -> str:
    pieces = random.choices(PIECES, k=random.randint(1, 4))
    ending = random.choice(["", "\n", "\r\n", f"\nrun {random.randrange(1_000)}"])
    return "\n".join(pieces) + ending


def draw_turn(random: Random, number: int) -> Messages:
    """A call, or several at once, and their results: some of them blocks, some with a picture."""
    count = random.choice([1, 1, 1, 2, 3])
    texts = [draw_text(random) for _ in range(count)]
    if count > 1 and random.random() < 0.5:
        texts = [texts[0]] * count
    uses: Messages = []
    results: Messages = []
    for place, text in enumerate(texts):
        use = f"use-{number}-{place}"
        uses.append({"type": "tool_use", "id": use, "name": "bash", "input": {"command": f"make {number % 7}"}})
        content: Any = text
        if random.random() < 0.3:
            half = text.find("\n") + 1
            content = [{"type": "text", "text": part} for part in (text[:half], text[half:]) if part]
        if random.random() < 0.1:
            picture = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
            content = [{"type": "text", "text": text}, {"type": "image", "source": picture}]
        results.append({"type": "tool_result", "tool_use_id": use, "content": content})
    return [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]


def list_results(messages: Messages) -> Iterator[tuple[str, Any]]:
    """Yield handle and content of each result."""
    turn = 0
    for message in messages:
        turn += message["role"] == "assistant"
        blocks = message["content"] if isinstance(message["content"], list) else []
        results = [block for block in blocks if block["type"] == "tool_result"]
        for position, block in enumerate(results, start=1):
            yield f"t{turn}.{position}", block["content"]


def read_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")


def restore(text: str, own: str, shown: dict[str, str]) -> str:
    """Return `text` with the lines in place of each reference. A line that the agent saw itself is none."""
    kept = set(own.split("\n"))
    lines: list[str] = []
    for line in text.split("\n"):
        found = REFERENCE.fullmatch(line)
        if found is None or line in kept:
            lines.append(line)
        else:
            lines += follow_reference(found, shown[found["handle"]].split("\n"))
    return "\n".join(lines)


def check_view(sent: Messages, messages: Messages) -> int:
    """Check that what is sent has each result, whole, folded or hidden. Return how many are folded."""
    shown = {handle: read_text(content) for handle, content in list_results(sent)}
    folded = 0
    for handle, content in list_results(messages):
        own = read_text(content)
        if handle not in shown or shown[handle] == own or shown[handle].startswith(f"[{handle} bash"):
            continue
        assert isinstance(content, str) or all(block["type"] == "text" for block in content)
        assert restore(shown[handle], own, shown) == own
        assert len(shown[handle]) < len(own)
        folded += 1
    return folded


@pytest.mark.parametrize("seed", range(6 if SOAK else 2))
@pytest.mark.parametrize(
    "strategy",
    [
        "masking(fold=true)",
        "masking(window=3, fold=true, schedule=every-turn)",
        "masking(window=5, fold=true, schedule=every-turn)",
    ],
)
def test_what_is_sent_can_be_read(strategy: str, seed: int) -> None:
    """A client appends, edits, takes back, and sends its newest turn in parts; nothing of a result is lost."""
    random = Random(seed)
    messages: Messages = [{"role": "user", "content": "Mend the parser."}]
    folded = 0
    with ContextManager(
        strategy, advanced=Advanced(dialect="anthropic"), session="s", store="memory:", recall="caller"
    ) as context:
        for number in range(25):
            step = random.random()
            turn = draw_turn(random, number)
            if step < 0.1 and len(messages) > 6:
                del messages[-2 * random.randint(1, 2) :]
            elif step < 0.25 and len(messages) > 4:
                # An older result comes with another text.
                place = random.randrange(2, len(messages), 2)
                messages[place] = copy.deepcopy(messages[place])
                messages[place]["content"][0]["content"] = draw_text(random)
            elif step < 0.4:
                # The results of the newest calls come one by one.
                messages += [turn[0], {"role": "user", "content": turn[1]["content"][:1]}]
                folded += check_view(context.prepare(messages).messages, messages)
                messages[-1] = turn[1]
            else:
                messages += turn
            before = json.dumps(messages)
            folded += check_view(context.prepare(messages).messages, messages)
            assert json.dumps(messages) == before
    assert folded > 10


def test_equal_results_of_one_turn() -> None:
    """The second one refers to the first, which the same turn has."""
    results = [{"type": "tool_result", "tool_use_id": f"u{n}", "content": PIECES[0]} for n in range(3)]
    uses = [{"type": "tool_use", "id": f"u{n}", "name": "bash", "input": {"command": "make"}} for n in range(3)]
    messages = [
        {"role": "user", "content": "Mend the parser."},
        {"role": "assistant", "content": uses},
        {"role": "user", "content": results},
    ]
    with ContextManager("masking(fold=true)", advanced=Advanced(dialect="anthropic"), recall="caller") as context:
        sent = dict(list_results(context.prepare(messages).messages))
    assert sent == {
        "t1.1": PIECES[0],
        "t1.2": "[same as t1.1 (bash make)]",
        "t1.3": "[same as t1.1 (bash make, 1 before the latest)]",
    }
