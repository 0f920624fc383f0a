"""Side calls are told by what they ask for, and never by being short alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from elision.testing import builders
from elision.trajectory.run_roles import ROLES, find_run_role
from elision.trajectory.turn import Head, Message

#: (system prompt, first message), as agents send them.
SIDE = {
    "claude-code topic": (
        "Analyze if this message indicates a new conversation topic. If it does, extract a 2-3 word title.",
        "mend the parser",
    ),
    "claude-code title": ("", "Please write a 5-10 word title for the following conversation:\n\nUser: mend it"),
    "claude-code summary": ("Summarize this coding conversation in under 50 characters.", "User: mend it"),
    "opencode": ("You are a title generator. You output ONLY a thread title.", "mend the parser"),
    "open-webui": ("", "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history."),
    "claude-code session": (
        "Generate a concise, sentence-case title (3-7 words) that captures the main topic of this coding session.",
        "mend the parser",
    ),
    "librechat": ("", "Provide a concise, 5-word-or-less title for the conversation, using title case."),
    "gemini-cli": ("", "Decide who should logically speak next: 'user' or 'model'."),
    "compaction": ("", "Your task is to create a detailed summary of the conversation so far."),
    "a classifier": ("Classify the user's message as safe or unsafe.", "rm -rf build"),
}
TASKS = {
    "a question": ("You are a helpful assistant.", "What does this traceback mean?"),
    "a task": ("You are a coding agent.", "Fix the title bar, which is cut off on phones."),
    "a title in a chat": ("You are a helpful assistant.", "Write a title for my blog post about gardens."),
    "a class in a chat": ("", "Classify this customer request as urgent or not: my parcel is late."),
    "a summary of a file": ("You are a coding agent.", "Summarize README.md."),
    "a title for a text": ("You are a helpful assistant.", "Write a title for my blog post about sour dough."),
    "tags for a page": ("", "Suggest tags and a headline for the product page below."),
}


def ask(system: str, user: str) -> Head:
    said = [Message(role="system", content=builders.user(system).content)] if system else []
    return Head(messages=(*said, builders.user(user)))


@pytest.mark.parametrize("name", SIDE)
def test_side_calls(name: str) -> None:
    head, answer = ask(*SIDE[name]), builders.turn(1, text="Mend the parser")
    assert find_run_role(head, [answer], is_started=False) == "side"
    assert find_run_role(head, [answer], is_started=True) == "side"


@pytest.mark.parametrize("name", TASKS)
def test_a_short_run_is_no_side_call(name: str) -> None:
    head, answer = ask(*TASKS[name]), builders.turn(1, text="So it is.")
    assert find_run_role(head, [answer], is_started=False) == "main"
    assert find_run_role(head, [answer], is_started=True) == "sub-agent"


def test_what_a_client_says_counts() -> None:
    """Whatever the run asks for, and whoever started it."""
    for said in ROLES:
        assert find_run_role(ask(*SIDE["opencode"]), [], is_started=True, said=said) == said


def test_who_calls_tools_is_at_work() -> None:
    head = ask(*SIDE["opencode"])
    assert find_run_role(head, [builders.step(1)], is_started=False) == "main"
    with_tools = Head(messages=head.messages, tools=({"name": "bash"},))
    assert find_run_role(with_tools, [builders.turn(1, text="A title")], is_started=False) == "main"
    assert find_run_role(head, [builders.turn(each, text="A title") for each in (1, 2, 3)], is_started=False) == "main"


def test_a_user_who_goes_on_talking_is_in_a_chat() -> None:
    head = ask("", "Summarize the chat that I paste here.")
    first = builders.turn(1, text="They agree.")
    assert find_run_role(head, [first], is_started=False) == "side"
    talking = replace(first, interjections=(builders.user("And who was right?"),))
    assert find_run_role(head, [talking], is_started=False) == "main"


def test_a_label_is_short() -> None:
    head = ask(*SIDE["claude-code title"])
    assert find_run_role(head, [builders.turn(1, text="An article. " * 100)], is_started=False) == "main"
