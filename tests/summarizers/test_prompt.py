"""The prompt for a summary, and one of the user's own, in which only its own markers are filled."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import SettingError
from elision.summarizers.prompt import (
    EXAMPLE,
    INSTRUCTIONS,
    LARGEST_FILE,
    LEAST_CHARACTERS,
    MARKERS,
    SummaryPrompt,
    build_extension,
    build_prompt,
    fit_prompt,
    load_prompt,
)
from elision.summarizers.summary_checks import find_problem
from elision.trajectory.plan import LivePrefix
from elision.trajectory.tokens import make_counter
from tests.summarizers.turns import make_request, make_turn


def test_it_holds_instructions_limit_task_and_turns() -> None:
    """The prompt is the instructions, the limit in tokens, the task, and every turn."""
    text = build_prompt(
        make_request(
            make_turn(4, "I look.", command="ls src", result="a.py", user="Go on"), task="Mend it", max_tokens=777
        )
    )
    assert text.startswith(INSTRUCTIONS)
    for part in (
        "At most 621 tokens",
        "<task>\nMend it",
        "[turn 4: assistant]\nI look.",
        "command: ls src",
        "a.py",
        "Go on",
    ):
        assert part in text


def test_a_previous_summary_stands_in_for_the_task() -> None:
    """With a previous summary the task is not told again."""
    text = build_prompt(make_request(make_turn(4, "I look."), previous="Earlier: found it.", task="Mend it"))
    assert "Earlier: found it." in text
    assert "Mend it" not in text


def test_short_texts_are_whole_and_long_ones_lose_their_middle() -> None:
    """Only texts that are too long are cut, to head and tail, and the cut says how much is missing."""
    long = "HEAD " + "x" * 50_000 + " TAIL"
    text = build_prompt(make_request(make_turn(1, "short words", command="ls", result=long)), window=10_000)
    assert "short words" in text
    assert "HEAD" in text
    assert "TAIL" in text
    assert "characters left out" in text
    assert len(text) < 10_000 + len(INSTRUCTIONS) + 1_000


def test_no_text_is_cut_to_its_first_words() -> None:
    """However small the window, every text keeps LEAST_CHARACTERS."""
    turns = [make_turn(n, command="ls", result="y" * 20_000) for n in range(1, 6)]
    assert build_prompt(make_request(*turns), window=10).count("y") >= 5 * LEAST_CHARACTERS


def test_a_window_that_fits_cuts_nothing() -> None:
    """Turns that fit are told word for word."""
    body = "line\n" * 4_000
    assert body.strip() in build_prompt(make_request(make_turn(1, command="ls", result=body)), window=30_000)


def test_fitted_to_a_limit_in_tokens() -> None:
    """What fits is told whole, however long; what does not is cut until it does."""
    body = "".join(f"line {n} of the log\n" for n in range(40_000))
    asked = make_request(
        make_turn(1, command="cat log", result=body), make_turn(2, "Done.", command="ls", result="a.py")
    )
    count = make_counter().count
    assert body.strip() in fit_prompt(asked, 900_000, count)
    for limit in (100_000, 20_000, 5_000):
        assert limit // 2 < count(fit_prompt(asked, limit, count)) <= limit


def test_a_note_stands_at_the_end() -> None:
    """What was wrong with an earlier answer is the last thing said."""
    assert build_prompt(make_request(make_turn(1, "Hi.")), note="[It was empty.]").endswith("[It was empty.]")


#: The prompt of a published description of summarization, with its own names of the markers.
PUBLISHED = """\
You are maintaining a context-aware state summary
for an interactive agent working on software engineering tasks.

Previous context:
{previous_context}

Recent turns to summarize:
{turns_text}

Generate a concise summary tracking:
- USER_CONTEXT: Key requirements
- COMPLETED: What's been done
- PENDING: What remains
- CODE_STATE: Current code state
- TESTS: Test status
- CHANGES: Code modifications

Keep it under 200 tokens.
"""


def write_file(folder: Path, text: str | bytes) -> Path:
    path = folder / "prompt.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refuse(folder: Path, text: str | bytes, example: str = "off") -> str:
    path = write_file(folder, text)
    with pytest.raises(SettingError) as caught:
        load_prompt(path, example)
    return str(caught.value).replace(str(path), "PROMPT")


def test_the_published_prompt_works_as_it_is(tmp_path: Path) -> None:
    """Its markers have other names here, which mean the same; the limit is added, since it has no marker for it."""
    prompt = load_prompt(write_file(tmp_path, PUBLISHED))
    asked = make_request(make_turn(4, "I look.", command="ls src", result="a.py"), task="Mend it", max_tokens=250)
    text = build_prompt(asked, prompt=prompt)
    assert text.startswith("You are maintaining a context-aware state summary\n")
    assert "Previous context:\nMend it\n" in text
    assert "Recent turns to summarize:\n[turn 4: assistant]\nI look." in text
    assert text.endswith("Keep it under 200 tokens.\n\nAt most 200 tokens. Answer with the summary alone.")
    assert INSTRUCTIONS not in text


def test_every_marker_is_filled(tmp_path: Path) -> None:
    own = "P<{previous}> K<{task}> M<{max_tokens}> E<{example}>\n<PREVIOUS_SUMMARY/>\n{tagged_turns}\n"
    prompt = load_prompt(write_file(tmp_path, own), "on")
    asked = make_request(make_turn(3, "Hi.", command="ls", result="a.py"), previous="Before.", task="Do", max_tokens=99)
    text = build_prompt(asked, prompt=prompt)
    assert text.startswith(f"P<Before.> K<Do> M<79> E<{EXAMPLE.strip()}>")
    assert "<TURN-3>\n[turn 3: assistant]\nHi." in text
    assert text.endswith("</TURN-3>")
    assert "At most" not in text


def test_a_marker_in_double_braces_is_text(tmp_path: Path) -> None:
    """And braces without a name, as JSON has them, are text anyway."""
    prompt = load_prompt(write_file(tmp_path, 'Write {"done": []}, {{turns}} or {{own_word}}.\n{previous}\n{turns}\n'))
    text = build_prompt(make_request(make_turn(1, "Hi.")), prompt=prompt)
    assert text.startswith('Write {"done": []}, {turns} or {own_word}.\n')


@given(st.text(alphabet="{}turnspeviousmax_k \n", max_size=60), st.sampled_from(sorted(MARKERS)))
def test_markers_in_the_turns_are_never_filled(noise: str, name: str) -> None:
    """Property: what the run says is put in as it is, whatever it looks like."""
    said = f"A{noise}{{{name}}}{{{{{name}}}}}{{0.__class__}}%s$turns Z"
    prompt = SummaryPrompt(template="{previous}|{turns}|{max_tokens}")
    text = build_prompt(make_request(make_turn(1, said), task=said, max_tokens=77), prompt=prompt)
    task, rest = said.strip(), f"[turn 1: assistant]\n{said}"
    assert text == f"{task}|{rest}|61"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{previous}\nno turns\n", "PROMPT: no line has {turns} or {tagged_turns}; add one where the turns belong"),
        ("{turns}\n", "PROMPT: no line has {previous}; add it where the previous summary belongs"),
        ("{previous}\n{turns}\n\n{turns}", "PROMPT:4: the turns a second time, after line 2; keep one marker"),
        ("{previous}\n{turns}{tagged_turns}", "PROMPT:2: the turns a second time, after line 2; keep one marker"),
        ("", "PROMPT: empty; write the text into it"),
        (b"{previous}\n{turns}\n\xff", "PROMPT:3: no UTF-8; save the file as UTF-8"),
        (b"{turns}" + b"x" * LARGEST_FILE, "PROMPT: larger than 100,000 bytes; give a shorter text"),
        (
            "{previous}\n{turns}\n{language}",
            "PROMPT:3: no marker {language}; there are {previous}, {turns}, {tagged_turns}, {task}, {max_tokens}, "
            "{example}; write {{language}} for the text itself",
        ),
    ],
)
def test_a_wrong_template_is_refused_by_file_and_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert refuse(tmp_path, text) == message


def test_a_folder_is_no_prompt(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read: Is a directory; give the path of a text file"):
        load_prompt(tmp_path)


def test_an_example_needs_its_place(tmp_path: Path) -> None:
    assert refuse(tmp_path, "{previous}{turns}", "on") == (
        "PROMPT: no line has {example}; add it, or set summary_example=off"
    )


def test_the_built_in_prompt_may_show_an_example(tmp_path: Path) -> None:
    """Off by default; on, or a file's; marked as another run's."""
    asked = make_request(make_turn(1, "Hi."))
    assert "<example>" not in build_prompt(asked)
    shown = build_prompt(asked, prompt=load_prompt(example="on"))
    assert f"<example>\n{EXAMPLE.strip()}\n</example>" in shown
    assert "from another run" in shown
    own = write_file(tmp_path, "USER_CONTEXT: a trip to Rome\n")
    assert "<example>\nUSER_CONTEXT: a trip to Rome\n</example>" in build_prompt(
        asked, prompt=load_prompt(example=str(own))
    )


def test_the_example_is_a_summary_that_would_be_taken() -> None:
    """It has the sections in the order that the prompt names them, in few words, and passes the checks of form."""
    sections = [line.partition(":")[0] for line in EXAMPLE.splitlines()]
    places = [INSTRUCTIONS.index(f"\n{section}:") for section in sections]
    assert places == sorted(places)
    count = make_counter().count
    assert 100 < count(EXAMPLE) <= 300
    long = make_request(make_turn(1, "word " * 900), max_tokens=300)
    assert find_problem(EXAMPLE, long, count) is None


def test_the_built_in_prompt_fits_the_kind_of_task() -> None:
    """It says that the sections follow the task, that needless details are left out, and what comes first."""
    flat = " ".join(INSTRUCTIONS.split())
    assert "Fit them to the kind of task" in flat
    assert "skip details that this kind of task does not need" in flat
    assert "First come the user's requirements and goals, then what is done apart from what is not" in flat


def test_an_extension_uses_the_own_prompt_too() -> None:
    """After the live view, task and earlier record are above; only what the view does not show is quoted."""
    seen = make_turn(1, "Look.", command="ls", result="a.py")
    hidden = make_turn(2, "More.", command="cat a.py", result="print('{turns}')")
    live = LivePrefix(
        dialect="openai",
        messages=(
            {"role": "user", "content": "Task"},
            {"role": "assistant", "content": "Look."},
            {"role": "tool", "content": "a.py"},
            {"role": "assistant", "content": "More."},
        ),
        model="m",
    )
    prompt = SummaryPrompt(template="OWN\n{previous}\n{turns}")
    text = build_extension(make_request(seen, hidden, max_tokens=120), live, prompt=prompt)
    assert "OWN\n(in the conversation above)\nTo be recorded: the conversation above" in text
    assert "print('{turns}')" in text
    assert text.endswith("At most 96 tokens. Answer with the summary alone.")
    assert INSTRUCTIONS not in text
