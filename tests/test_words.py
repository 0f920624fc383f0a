"""Names in `src` keep the rules that the project set itself; `python tools/measure_words.py` prints the figures."""

from __future__ import annotations

import ast
import runpy
from collections import defaultdict
from functools import cache
from pathlib import Path

import elision

SOURCE = Path(elision.__file__).parent
MEASURE = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "measure_words.py"))

#: Module names that several folders have, as the modules are the same thing for two providers, stores or doors.
SAME_THING = {
    "parse": "the same for each provider",
    "render": "the same for each provider",
    "record": "the same for each provider",
    "stream": "the same for each provider",
    "store": "the same for each kind of store, and the command of that name",
    "app": "the application of the gateway, and of the command line",
    "closed_loop": "the experiment, and the command of that name",
    "outcomes": "of runs: the lab's, and the command of that name; of actions: what summaries say of them",
    "playback": "the server, and the command of that name",
    "replay": "the lab's, and the command of that name",
    "view": "the values, and the command of that name",
    "registry": "of formats, and of extractors",
}
#: Functions whose name is a bare participle, each with its reason.
PARTICIPLES = {
    "agent/environment.py: overflowed": "public: the provider reported that the request was too long",
    "manager/context.py: overflowed": "public: the provider reported that the request was too long",
}
#: Shares of function names, in the direction in which they may move.
MOST_ONE_WORD = 0.40
LEAST_VERBS = 0.80


_Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def _definitions() -> list[tuple[str, _Function | ast.ClassDef]]:
    """Every function and class with its file."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [
        (path.relative_to(SOURCE).as_posix(), node)
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, kinds)
    ]


def _is_property(node: _Function) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)


def test_no_function_is_a_bare_participle() -> None:
    """`told`, `said`, `settled` say what became of something, not what a function does."""
    found = {
        f"{file}: {node.name}"
        for file, node in _definitions()
        if not isinstance(node, ast.ClassDef)
        and not _is_property(node)
        and "_" not in node.name.strip("_")
        and MEASURE["is_participle"](node.name.strip("_"))
    }
    assert found == set(PARTICIPLES)


def test_no_class_name_occurs_twice() -> None:
    """Go to definition, and a search, lead to one place."""
    places = defaultdict(list)
    for file, node in _definitions():
        if isinstance(node, ast.ClassDef):
            places[node.name].append(file)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_no_module_name_occurs_twice() -> None:
    """Unless the modules are the same thing for two providers or stores. Adapters have their frameworks' names."""
    places = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        if path.parent.name != "adapters":
            places[path.stem].append(path)
    twice = {name for name, files in places.items() if len(files) > 1 and not name.startswith("__")}
    assert twice == set(SAME_THING)


def test_function_names_begin_with_a_verb() -> None:
    """And most have an object: one word says enough only where it is unique."""
    functions = [node.name for _, node in _definitions() if not isinstance(node, ast.ClassDef)]
    names = [name.strip("_").split("_") for name in functions if not (name.startswith("__") and name.endswith("__"))]
    longer = [words for words in names if len(words) > 1]
    verbs = [words for words in longer if words[0] in MEASURE["VERBS"] | MEASURE["PREDICATES"]]
    assert 1 - len(longer) / len(names) <= MOST_ONE_WORD
    assert len(verbs) / len(longer) >= LEAST_VERBS
