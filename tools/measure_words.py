"""Print how a package names and writes: `python tools/measure_words.py [FOLDER ...]`, a row for each folder.

- one word: share of function names of one word. verb first: share of the longer ones that begin with a verb.
- participles: share of names that are a bare past participle. classes twice: class names that occur more than once.
- complexity/line: decision points as radon counts them, plus one a function, per code line of functions.
- ternaries, compr.: per 1,000 lines that are not blank.

Code lines are lines with code: no blanks, comments or docstrings.
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "src" / "elision"
PREDICATES = frozenset(
    ("is", "has", "can", "needs", "may", "must", "should", "was", "are", "does", "do", "did", "allows")
)
#: Verbs that function names begin with, in the package and in the models of the craft.
_VERBS = """
abort accept accumulate acquire add adjust admit advance align allocate allow amend analyze annotate answer append
apply archive arrange ask assemble assert assign attach authenticate authorize await back balance batch begin bill
bind block branch break bring buffer build bypass cache calculate call cancel capture carry change charge check choose
chunk claim classify clean clear clip clone close coalesce collapse collect combine commit compact compare compile
complete compose compress compute concatenate configure confirm connect consume contain continue convert copy correct
count cover crawl create cut cycle decide declare decode decompress decorate decrease decrypt deduce dedupe defer
define delete deliver denote deny derive describe deserialize detach detect determine diff digest discard discover
dispatch display divide do download drain draw drop dump duplicate echo edit elide emit empty enable encode encrypt
end enforce enqueue ensure enter enumerate escape establish estimate evaluate evict exceed exclude execute exit expand
expect expire explain export expose express extend extract fail fall feed fetch fill filter finalize find finish fit
fix flag flatten flip flush fold follow force fork format forward free freeze fsync gather generate get give group
guard guess handle hash head hide highlight hint hold identify ignore import include increase increment index infer
ingest inherit init initialize inline insert inspect install instrument intercept interpret interrupt invalidate
invoke isolate issue iterate join jump keep kill label launch lay learn leave let limit link list listen load locate
lock log look lookup make map mark mask match materialize measure merge migrate mint mirror mount move name narrow
negotiate normalize note notify number observe obtain offer offload omit open order pack pad page paint parse
partition pass patch pause peek perform persist pick pin place plan play plot point poll pop populate post prefer
prefix prepare preserve press prevent price print probe proceed process produce promote propagate protect prove
provide prune publish pull purge push put query queue quote raise range rank read rebase rebuild recall receive
recognize recompute reconcile reconnect reconstruct record recover redact redirect reduce reference refill refresh
refuse register reject relay release relieve reload remember remove rename render renew reopen reorder repair repeat
replace replay reply report request require rerun reserve reset resolve respond restart restore restrict resume retain
retire retry return reuse reveal revert review revise rewind rewrite roll rotate round route run sample sanitize save
scale scan schedule score scrape scrub seal search seek select send separate serialize serve set settle shadow shape
share shift shorten show shrink shut sign simulate skip sleep slice snapshot solve sort span spawn spell spend splice
split spread spy stage stamp start state steer step stop store stream strip subscribe substitute subtract sum
summarize supersede supply suspend swap switch sync synchronize tag tail take tally test tell throttle throw time
tokenize touch trace track train transform translate traverse trigger trim truncate try tune turn type undo unescape
unfold unite unlink unlock unpack unregister unwrap update upgrade upload use validate verify view visit wait walk
warm warn watch weigh widen withdraw withhold wrap write yield zip
"""
VERBS = frozenset(_VERBS.split())
#: One-word past participles that are no noun and no verb of their own.
_IRREGULAR = """
told said heard shown found given known sent kept met made held left lost gone begun written taken seen done chosen
hidden drawn spoken worn thrown torn broken stolen frozen grown flown driven risen bound built bought brought caught
fed felt fought laid led lent meant paid sold sought spent stood struck stuck swept swung taught thought understood
won wound asked looked
"""
IRREGULAR = frozenset(_IRREGULAR.split())
_NOUNS = "speed need feed seed bed red shed embed indeed exceed proceed succeed heed used based"
NOUNS = frozenset(_NOUNS.split())
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BLANK = frozenset(
    (
        *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
        *(tokenize.ENCODING, tokenize.ENDMARKER),
    )
)
_COUNTED = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
#: Since Python 3.12 an f-string is many tokens, between these two.
_FSTRING_START, _FSTRING_END = (getattr(tokenize, f"FSTRING_{end}", None) for end in ("START", "END"))
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Figures:
    """Counts over some files."""

    #: Lines that are not blank.
    lines: int = 0
    #: Names, operators, numbers and strings. An f-string is one, as Python 3.11 reads it.
    tokens: int = 0
    #: One more than the decision points of each function.
    complexities: list[int] = field(default_factory=list)
    ternaries: int = 0
    comprehensions: int = 0
    short_functions: int = 0
    function_lines: int = 0
    names: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    #: Of all trees.
    nodes: list[ast.AST] = field(default_factory=list)

    def row(self) -> tuple[str, ...]:
        """Return the figures as cells of the table."""
        words = [name.strip("_").split("_") for name in self.names]
        longer = [name for name in words if len(name) > 1]
        count = max(1, len(words))
        verbs = sum(name[0] in VERBS or name[0] in PREDICATES for name in longer)
        participles = sum(len(name) == 1 and is_participle(name[0]) for name in words)
        twice = sum(times > 1 for times in Counter(self.classes).values())
        return (
            str(len(words)),
            f"{self.function_lines / count:.1f}",
            f"{100 * self.short_functions / count:.0f} %",
            f"{100 * (len(words) - len(longer)) / count:.0f} %",
            f"{100 * verbs / max(1, len(longer)):.0f} %",
            f"{100 * participles / count:.1f} %",
            f"{sum(self.complexities) / max(1, self.function_lines):.2f}",
            f"{1000 * self.ternaries / max(1, self.lines):.0f}",
            f"{1000 * self.comprehensions / max(1, self.lines):.0f}",
            f"{twice} of {len(set(self.classes))}",
        )


HEADS = (
    "functions",
    "mean lines",
    "≤ 3 lines",
    "one word",
    "verb first",
    "participles",
    "complexity/line",
    "ternaries/1000",
    "compr./1000",
    "classes twice",
)


def is_participle(word: str) -> bool:
    """Return whether `word` is a bare past participle, as a name of one word."""
    regular = word.endswith("ed") and word not in NOUNS and word not in VERBS
    return regular or word in IRREGULAR


def measure_file(path: Path, figures: Figures) -> None:
    """Add the counts of one file to `figures`."""
    source = path.read_bytes()
    tokens = list(tokenize.tokenize(iter(source.splitlines(keepends=True)).__next__))
    nodes = list(ast.walk(ast.parse(source)))
    code = _code_lines(tokens) - set(_list_docstring_lines(nodes))
    figures.lines += sum(bool(line.strip()) for line in source.splitlines())
    figures.tokens += count_tokens(tokens)
    figures.nodes += nodes
    for node in nodes:
        figures.ternaries += isinstance(node, ast.IfExp)
        figures.comprehensions += isinstance(node, _COMPREHENSIONS)
        if isinstance(node, ast.ClassDef):
            figures.classes.append(node.name)
        if isinstance(node, _FUNCTIONS):
            length = len(code.intersection(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
            figures.complexities.append(1 + sum(map(count_decisions, ast.walk(node))))
            figures.function_lines += length
            figures.short_functions += length <= 3
            if not (node.name.startswith("__") and node.name.endswith("__")):
                figures.names.append(node.name)


def count_tokens(tokens: Iterable[tokenize.TokenInfo]) -> int:
    """Return how many of `tokens` are names, operators, numbers and strings."""
    count = depth = 0
    for token in tokens:
        if token.type == _FSTRING_START:
            count += depth == 0
            depth += 1
        elif token.type == _FSTRING_END:
            depth -= 1
        elif depth == 0:
            count += token.type in _COUNTED
    return count


def _code_lines(tokens: Iterable[tokenize.TokenInfo]) -> set[int]:
    lines: set[int] = set()
    for token in tokens:
        if token.type not in _BLANK:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines


def _list_docstring_lines(nodes: list[ast.AST]) -> Iterator[int]:
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def count_decisions(node: ast.AST) -> int:
    """Return how many decision points a node is itself, as radon counts them."""
    count = _DECISIONS.get(type(node))
    return count(node) if count else 0


#: Kind of node -> its decision points. A look-up: there are a million nodes.
_DECISIONS: dict[type, Callable[[Any], int]] = {
    **dict.fromkeys((ast.If, ast.IfExp, ast.Assert, ast.Lambda), lambda node: 1),
    **dict.fromkeys((ast.For, ast.AsyncFor, ast.While), lambda node: 1 + bool(node.orelse)),
    **dict.fromkeys((ast.Try, ast.TryStar), lambda node: len(node.handlers) + bool(node.orelse)),
    ast.BoolOp: lambda node: len(node.values) - 1,
    ast.comprehension: lambda node: 1 + len(node.ifs),
    ast.Match: lambda node: len(node.cases),
}


def measure_folder(folder: Path) -> Figures:
    """Return the figures of every Python file below `folder`, or of the one file it is."""
    figures = Figures()
    files = [folder] if folder.is_file() else sorted(folder.rglob("*.py"))
    for path in files:
        measure_file(path, figures)
    return figures


def main(folders: list[Path]) -> None:
    """Print a row for each folder; without folders, one for the package and one for each folder in it."""
    rows = folders or [SOURCE, *sorted(path for path in SOURCE.iterdir() if any(path.glob("*.py")))]
    print("".join((f"{'':24}", *(f"{head:>17}" for head in HEADS))))
    for folder in rows:
        print("".join((f"{folder.name:24}", *(f"{cell:>17}" for cell in measure_folder(folder).row()))))


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
