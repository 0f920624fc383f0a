"""The scripts of `tools/`: which tests `make quick` runs, mutants, and how names, sizes and walks are measured."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

TOOLS = Path(__file__).parents[1] / "tools"
MEASURE = runpy.run_path(str(TOOLS / "measure_words.py"))
SIZES = runpy.run_path(str(TOOLS / "measure_sizes.py"))
WALK = runpy.run_path(str(TOOLS / "trace_walk.py"))
with patch.object(sys, "path", [str(TOOLS), *sys.path]):
    MUTATE = runpy.run_path(str(TOOLS / "mutate.py"))
SELECT = MUTATE["select_tests"]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("tests/test_tools.py", "tests/test_tools.py"),
        ("src/elision/stores/sqlite.py", "tests/stores/test_sqlite.py"),
        ("src/elision/engine/event_log.py", "tests/engine/test_event_log.py"),
        ("tests/work.py", "tests/test_helpers.py"),
    ],
)
def test_a_changed_file_brings_its_tests(changed: str, expected: str) -> None:
    """A test file itself, the mirror of a module, and the tests that import a helper."""
    assert Path(expected) in SELECT({Path(changed)})


def test_nothing_changed_brings_no_test() -> None:
    """Nor does a page, and no test that starts servers is brought."""
    assert SELECT(set()) == SELECT({Path("README.md")}) == []
    assert not [path for path in SELECT({Path("src/elision/__init__.py")}) if path.parts[1] == "e2e"]


def test_names_are_measured(tmp_path: Path) -> None:
    """A file of known shape gives known figures."""
    file = tmp_path / "module.py"
    file.write_text(
        '"""Text."""\n\n\nclass A:\n    def told(self):\n        return 1 if self and not self else 2\n\n\n'
        "class B:\n    class A:\n        def load_run(self):\n            return [x for x in self]\n\n"
        "        def last_run(self):\n            return 1\n",
        encoding="utf-8",
    )
    figures = MEASURE["measure_folder"](file)
    assert figures.names == ["told", "load_run", "last_run"]
    assert figures.complexities == [3, 2, 1]
    assert (figures.ternaries, figures.comprehensions, figures.function_lines) == (1, 1, 6)
    shares = figures.row()[3:6]
    assert shares == ("33 %", "50 %", "33.3 %")
    assert figures.row()[-1] == "1 of 2"


def test_sizes_are_measured(tmp_path: Path) -> None:
    """A package of known shape gives known figures."""
    package = tmp_path / "one"
    package.mkdir()
    (package / "module.py").write_text("class A:\n    def b(self):\n        return 1\n", encoding="utf-8")
    sizes = SIZES["measure_packages"](tmp_path)["one"]
    assert (sizes.files, sizes.lines) == (1, 3)
    assert sizes.classes == [(3, 1, "one/module.py A")]
    assert sizes.functions == [(2, "one/module.py b")]
    assert "      3    1  one/module.py A" in SIZES["describe_sizes"]({"one": sizes})


def test_the_walk_of_messages_is_traced() -> None:
    """It begins at the public method, and files outside of the package do not count."""
    walk = WALK["trace_prepare"]()
    assert ("ContextManager.prepare", "messages") in {(function, name) for _, function, name in walk.names}
    assert all(file.endswith(".py") and not file.startswith("/") for file, _, _ in walk.names)


def test_a_mutant_changes_one_place_of_a_function(tmp_path: Path) -> None:
    """Comparisons, conditions, numbers, results and calls; no annotation, no word, nothing outside of functions."""
    file = tmp_path / "module.py"
    source = (
        'LIMIT = 3\n\n\ndef pick(given: list[int], most: int = 4) -> int:\n    """Text of 5."""\n'
        '    if len(given) < most and given:\n        print(f"{1}")\n        return given[0]\n    return 7\n'
    )
    file.write_text(source, encoding="utf-8")
    found = MUTATE["list_mutants"](tmp_path, file)
    assert [(each.line, each.old, each.new) for each in found] == [
        (6, "len(given) < most and given", "not (len(given) < most and given)"),
        (6, " and ", " or "),
        (6, " < ", " <= "),
        (7, 'print(f"{1}")', "pass"),
        (8, "given[0]", "None"),
        (8, "0", "1"),
        (9, "7", "8"),
    ]
    assert b"return given[1]\n" in found[5].apply(source.encode())


def test_mutants_are_those_of_their_seed() -> None:
    """As many of each folder, the same ones every time."""
    first, again, other = (MUTATE["choose_mutants"](seed, 10) for seed in (1, 1, 2))
    assert first == again != other
    assert {each.path.split("/")[1] for each in first} == set(MUTATE["FOLDERS"])


def test_the_nearest_tests_are_tried_on_a_mutant_first() -> None:
    """The mirror, whoever imports the module, and last the folders."""
    mirror, near, *folders = MUTATE["list_steps"]("elision/stores/packing.py")
    assert mirror == ["tests/stores/test_packing.py"]
    assert mirror[0] not in near
    assert all(path.endswith(".py") for path in near)
    assert folders == [["tests/stores"], ["tests/manager"], ["tests/cli"]]
