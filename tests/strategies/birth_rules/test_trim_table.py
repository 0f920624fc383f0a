"""The rules together, as strategies name them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from elision.strategies.birth_rules import TRIMS, trim_at_birth
from elision.trajectory.tokens import make_counter
from tests.strategies.birth_rules.test_generated_paths import GENERATED
from tests.strategies.birth_rules.test_package_noise import KEPT, ROUTINE
from tests.strategies.birth_rules.test_passing_tests import REPORTS

count_tokens = make_counter().count
_NOTE = re.compile(r"\[[\d,]+ (?:lines|characters).* left out: t1\.1\]")
_LINES = st.sampled_from(
    [
        *GENERATED,
        *KEPT,
        *(line for lines in ROUTINE.values() for line in lines),
        *(line for report in REPORTS.values() for line in "\n".join(report).split("\n")),
        "\x1b[31mred\x1b[0m",
        "10%\r20%\r30%",
        "Downloading 10%",
        "Downloading 20%",
        "x" * 500,
    ]
)


def test_only_named_rules_act() -> None:
    """Without names nothing is left out; with all of them, what each leaves out."""
    text = "\n".join([*ROUTINE["apt"], *GENERATED])
    assert trim_at_birth(text, (), count_tokens) is None
    assert trim_at_birth(text, ["packages"], count_tokens, handle="t1.1") == "\n".join(
        ["[7 lines of package manager routine left out: t1.1]", *GENERATED]
    )
    both = trim_at_birth(text, ["generated", "packages"], count_tokens)
    assert both == "[7 lines of package manager routine left out]\n[6 lines of generated files left out]"


def test_a_small_saving_is_left_alone() -> None:
    """Sixty tokens are the least."""
    assert trim_at_birth("Collecting a\nCollecting b\nCollecting c", TRIMS, count_tokens) is None


def test_ends_are_kept_after_all_else() -> None:
    """What the other rules leave is measured against the limit."""
    noise = "\n".join(ROUTINE["apt"] * 50)
    text = f"begin\n{noise}\nend"
    assert trim_at_birth(text, ["packages"], count_tokens, ends=100) == (
        "begin\n[350 lines of package manager routine left out]\nend"
    )
    shown = trim_at_birth(text, (), count_tokens, ends=100)
    assert shown is not None
    assert count_tokens(shown) < 130


@given(st.lists(_LINES, max_size=40), st.sets(st.sampled_from(sorted(TRIMS))), st.sampled_from([0, 50, 200]))
def test_what_is_kept_is_kept_word_for_word(lines: list[str], names: set[str], ends: int) -> None:
    """Each line that is shown is a note, or a line of the result in its place; what `terminal` changes apart."""
    names.discard("terminal")
    shown = trim_at_birth("\n".join(lines), names, count_tokens, ends=ends, handle="t1.1")
    rest = iter(lines)
    for line in (shown or "").split("\n") if shown is not None else []:
        assert _NOTE.fullmatch(line) or any(_is_kept(line, own) for own in rest)


def _is_kept(line: str, own: str) -> bool:
    return line == own or (len(own) > 100 and (own.startswith(line) or own.endswith(line)))
