from __future__ import annotations

from elision.summarizers.prompt import INSTRUCTIONS, LEAST, build_prompt, fit_prompt
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
    """However small the window, every text keeps LEAST characters."""
    turns = [make_turn(n, command="ls", result="y" * 20_000) for n in range(1, 6)]
    assert build_prompt(make_request(*turns), window=10).count("y") >= 5 * LEAST


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
