"""What habits cost: read from a run's calls, and priced as the calls that have them were billed."""

from __future__ import annotations

import pytest

from elision.audit.habits import LARGE_TOKENS, find_reads_apart, measure_rewritten_files, only_reads, pick_examples
from elision.audit.habits import CallExample as Example
from elision.audit.run_partition import partition_run
from elision.testing import builders
from elision.trajectory.turn import Action, Turn
from elision.trajectory.usage import Usage
from tests.audit.planted_runs import PRICES, RATES, SIZER


def shell(command: str) -> Action:
    return builders.call("bash", command=command)


def read(index: int, command: str, shown: str = "nothing of use") -> Turn:
    return builders.turn(index, (shell(command), builders.result(shown)))


@pytest.mark.parametrize(
    "action",
    [
        shell("cat a.py"),
        shell("cd /src && grep -rn 'x' . | head -20"),
        shell("git log -3; git status"),
        shell("find . -name '*.py' 2>/dev/null"),
        builders.call("Grep", pattern="x"),
        builders.call("get_user_details", user_id="u1"),
        builders.call("str_replace_editor", command="view", path="a.py"),
    ],
    ids=lambda action: action.arguments,
)
def test_it_only_reads(action: Action) -> None:
    assert only_reads(action)


@pytest.mark.parametrize(
    "action",
    [
        shell("cat a.py > b.py"),
        shell("make test"),
        shell("find . -name x -delete"),
        shell("sed -i s/a/b/ a.py"),
        shell("cat a.py && rm a.py"),
        shell("cat $(make name)"),
        shell("echo x | tee a.py"),
        shell(""),
        builders.call("getaway", car="x"),
        builders.call("edit", path="a.py", old_string="a"),
    ],
    ids=lambda action: action.name + action.arguments,
)
def test_it_may_change_something(action: Action) -> None:
    assert not only_reads(action)


@pytest.mark.parametrize(
    ("second", "shown"),
    [
        ("cat src/beta.py", "import beta\nsrc/beta.py"),
        ("cat src/beta.py", "see beta.py in src"),
        ("sed -n '40,60p' src/alpha.py", "nothing of use"),
        ("grep -n run src/alpha.py", "nothing of use"),
    ],
)
def test_a_read_that_builds_on_the_one_before_is_not_apart(second: str, shown: str) -> None:
    """It names what that one showed, goes on in the same file, or repeats the call."""
    assert find_reads_apart([read(1, "grep -n run src/alpha.py", shown), read(2, second)]) == frozenset()


def test_reads_apart() -> None:
    turns = [
        read(1, "cat src/alpha.py"),
        read(2, "cat src/beta.py"),
        read(3, "cd /w && ls docs"),
        read(4, "make"),
        read(5, "ls tests"),
        builders.turn(6, text="Now I know."),
    ]
    assert find_reads_apart(turns) == {2, 3}


def test_lines_that_are_written_again() -> None:
    first, second = "one = 1\ntwo = 2\n", "one = 1\ntwo = 3\nthree = 3\n"

    def write(index: int, text: str, path: str = "a.py") -> Turn:
        return builders.turn(index, (builders.call("write", path=path, content=text), builders.result("ok")))

    turns = [write(1, first), write(2, second), write(3, second, "b.py"), read(4, "cat > a.py <<'EOF'\none = 1\nEOF")]
    assert measure_rewritten_files(turns, SIZER) == {2: SIZER.count("one = 1\n")}
    turns.append(read(5, "cat > c.py <<'EOF'\none = 1\nEOF\ncat > d.py <<EOF\nx\nEOF"))
    turns.append(read(6, "cat > c.py <<'EOF'\none = 1\ntwo = 2\nEOF"))
    assert 6 not in measure_rewritten_files(turns[:-1], SIZER)
    turns[-2] = read(5, "cat > c.py <<'EOF'\none = 1\ntwo = 4\nEOF")
    assert measure_rewritten_files(turns, SIZER)[6] == SIZER.count("one = 1\n")


def test_the_bill_of_habits() -> None:
    """A read apart costs the old text of its call, and a large result what it has beyond the bound, read or written."""
    large = "word " * 3 * LARGE_TOKENS
    prompts = [1_000, 1_000 + SIZER.count_text(large), 0, 0]
    prompts[2] = prompts[1] + 500
    prompts[3] = prompts[2] + 500
    usages = [
        Usage(cache_read=before, cache_write=prompt - before, output=10)
        for before, prompt in zip([0, *prompts], prompts, strict=False)
    ]
    commands = [
        ("cat src/alpha.py", large),
        ("cat src/beta.py", "b" * 90),
        ("cat src/gamma.py", "c" * 90),
        ("make", "d"),
    ]
    turns = [
        Turn(
            index=index,
            content=(),
            actions=(shell(command),),
            observations=(builders.result(shown),),
            usage=usage,
        )
        for index, ((command, shown), usage) in enumerate(zip(commands, usages, strict=True), start=1)
    ]
    run = partition_run(builders.trajectory(*turns), SIZER, price=lambda model, on: PRICES)
    assert run is not None
    apart = run.habits["reads-apart"]
    read_price = RATES.read_price / 1e6
    assert apart.calls == 2
    assert apart.usd == pytest.approx((prompts[0] + prompts[1]) * read_price)
    tokens = prompts[1] - prompts[0]
    beyond = tokens - tokens * LARGE_TOKENS / SIZER.count_text(large)
    expected = beyond * (RATES.write_price / 1e6 + 2 * read_price)
    assert run.habits["large-results"].usd == pytest.approx(expected, rel=0.02)
    assert "whole-files" not in run.habits
    assert [each.call for each in run.examples["reads-apart"]] == [3, 2]


def test_the_most_expensive_calls_are_shown() -> None:
    calls = [Example("a", "main", number, usd) for number, usd in enumerate([0.1, 0.5, 0.2, 0.5], start=1)]
    assert [each.call for each in pick_examples(calls)] == [2, 4, 3]
