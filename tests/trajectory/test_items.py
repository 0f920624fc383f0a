"""Code-like items: what an action uses that an agent cannot guess, and the line numbers that are none."""

from __future__ import annotations

import base64
import gc
import random
import re
import tracemalloc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

import elision.trajectory.items as module
from elision.trajectory.items import (
    CHARACTERS_KEPT,
    LONGEST_ITEM,
    ItemCache,
    find_items,
    find_items_by_line,
    find_items_uncached,
    strip_gutters,
)
from tests.work import assert_linear

#: How a name can look that is an item in code.
_SHAPE = re.compile(r"[a-z][A-Z]|[A-Za-z0-9]_[A-Za-z0-9]|\A_\w|[A-Za-z]\d|\d[A-Za-z]")


@given(st.lists(st.text("aAbZ_19", min_size=1, max_size=9).filter(str.isidentifier)), st.integers(0, LONGEST_ITEM))
def test_identifiers_of_a_text_are_found_together(names: list[str], more: int) -> None:
    """As each is by its own: three characters or more, not too long, and of a shape that no plain word has."""
    names += [name + "x" * more for name in names]
    module._WORD_CACHE.clear()
    expected = {name for name in names if 3 <= len(name) <= LONGEST_ITEM and _SHAPE.search(name)}
    assert set(find_items_uncached(" ".join(names))) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("call get_user_name now", {"get_user_name"}),
        ("the parseArgs function", {"parseArgs"}),
        ("MAX_RETRIES is 5", {"MAX_RETRIES"}),
        ("see django.db.models", {"django.db.models", "models"} - {"models"}),
        ("in src/app/main.py: done", {"src/app/main.py", "main.py"}),
        ("exit 137", {"137"}),
        ("took 3.14 s, 42 times", set()),
        ("line 1234.5", {"1234.5"}),
        ('use "needle" here', {"needle"}),
        ("`thing` and 'other'", {"thing", "other"}),
        ("just some plain words, nothing else.", set()),
        ("commit 9f26a1b", {"9f26a1b"}),
        ("", set()),
    ],
)
def test_items(text: str, expected: set[str]) -> None:
    """Identifiers, paths, long numbers and quoted words are items; plain words and short numbers are not."""
    assert set(find_items(text)) == expected


def test_order_of_appearance() -> None:
    """Each item once, in the order of the text."""
    assert find_items("b_2 then a_1 then b_2") == ("b_2", "a_1")


def test_a_path_is_its_last_part_too() -> None:
    """Agents name a file by its path and by its name."""
    assert {"lib/deep/mod_a.py", "mod_a.py"} <= set(find_items("lib/deep/mod_a.py:12"))


def test_blobs_are_no_items() -> None:
    """What nobody would write again is left out."""
    assert find_items("data/" + "a1B2" * LONGEST_ITEM) == ()
    assert find_items("aB" * LONGEST_ITEM) == ()


@given(st.text())
def test_any_text(text: str) -> None:
    """Any text has items, each once, none longer than what anybody writes."""
    found = find_items(text)
    assert len(set(found)) == len(found)
    assert all(2 <= len(item) <= LONGEST_ITEM for item in found)


@given(st.text("aB_1./:,-\"'` \n\r\u2028\u00e9", max_size=80), st.sets(st.integers(0, 30)))
def test_lines_with_items_that_are_wanted(text: str, wanted: set[int]) -> None:
    """Exactly the lines that have a wanted item are found, whether it is a word or stands in quotes, with all items."""
    chosen = frozenset(item for place, item in enumerate(find_items(text)) if place in wanted)
    expected = [
        (number, line, find_items(line))
        for number, line in enumerate(text.split("\n"))
        if not chosen.isdisjoint(find_items(line))
    ]
    assert list(find_items_by_line(text, chosen)) == expected


@pytest.mark.parametrize("piece", ["a.b/", "_", "'", "a:", '"x'])
def test_hostile_text_takes_linear_time(piece: str) -> None:
    """Long runs of punctuation do not stall the extractor."""
    assert_linear(lambda size: find_items(piece * (size // len(piece))), 16_000)


class Result(str):
    """A text that says when it is gone."""

    __slots__ = ("__weakref__",)


def test_large_texts_are_not_kept_for_long() -> None:
    """Those of a few turns are, for those who ask again; a session of large results leaves no more in memory."""
    texts = [Result(f"name_{number} " + "x" * (CHARACTERS_KEPT // 8)) for number in range(40)]
    held = [weakref.ref(text) for text in texts]
    for text in texts:
        assert text.split()[0] in find_items(text)
    assert find_items(texts[-1]) is find_items(texts[-1])
    del text, texts
    gc.collect()
    assert sum(each() is not None for each in held) < 8


@given(st.lists(st.integers(1, 30_000), max_size=40))
def test_a_cache_of_items_is_never_larger_than_it_may_be(sizes: list[int]) -> None:
    """But for the newest text, which stays however long it is."""
    cache = ItemCache(20_000)
    for number, size in enumerate(sizes):
        text = f"name_{number} ".ljust(size)
        assert cache.find_items(text) is cache.find_items(text)
        assert cache.size <= max(20_000, len(text))


_SNIPPETS = st.sampled_from(
    [
        " ",
        "\n",
        ",",
        "a_b",
        "a1.py",
        "'in/quotes'",
        '"a,b;c_d"',
        "`",
        '"',
        "'",
        "<b>",
        "</x_y>",
        "\\n",
        "é",
        "[]",
        "x" * 400,
    ]
)


@given(st.lists(_SNIPPETS, max_size=40).map("".join), st.integers(5, 70))
def test_pieces_come_to_the_same(text: str, size: int) -> None:
    """However a large text is cut: no word that has items is, and nothing in quotes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "PIECE", size)
        in_pieces = module.find_items_uncached(text)
        by_line = list(find_items_by_line(text, set(in_pieces)))
    assert in_pieces == module.find_items_uncached(text)
    assert by_line == list(find_items_by_line(text, set(in_pieces)))


@pytest.mark.parametrize(
    "text",
    [
        "some_name in/a/path.py 'quoted' " * 20_000,
        " " * 600_000,
        base64.b64encode(random.Random(1).randbytes(500_000)).decode(),
        '{"path":"src/a.py","line":12,"text":"x,y"},' * 15_000,
        ",".join(map(str, range(100_000))),
    ],
    ids=["words", "blanks", "base64", "JSON", "one line of numbers"],
)
def test_a_large_text_is_looked_through_in_pieces(text: str) -> None:
    """No call of C gets all of it."""
    pieces = list(module._split_pieces(text))
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= 3 * module.PIECE


def test_kept_words_take_a_few_megabytes() -> None:
    """A process that reads ever new words soon holds as much for them as it ever will."""
    tracemalloc.start()
    try:
        module._WORD_CACHE.clear()
        for number in range(0, 100_000, 1_000):
            module.find_items_uncached("\n".join(f"src/part_{each}.py" for each in range(number, number + 1_000)))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 8_000_000


def test_a_url_has_no_parts_but_its_end() -> None:
    """Its colon separates no path from a line."""
    assert find_items("see https://a.org/b_c") == ("https://a.org/b_c", "b_c")
    assert find_items("src/a.py:120: x") == ("src/a.py:120", "src/a.py", "120", "a.py:120", "a.py")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'"\nTestCase"', ["TestCase"]),
        (r"+469: \t\t\tclassName=", ["469", "className"]),
        (r"agent_side.x_y\n", ["agent_side.x_y", "x_y"]),
        (r"agent_side\n+404", ["agent_side", "404"]),
        (r"Fund \u00ae x_y", ["x_y"]),
        (r"the \"quoted\" word", ["quoted"]),
        (r"src\tests\test_file", [r"src\tests\test_file"]),
        ("<li>some_name</li></ul>", ["some_name"]),
        ('"og:site_name": "twitter:title"', []),
    ],
)
def test_no_debris_of_escapes_and_pages(text: str, expected: list[str]) -> None:
    """Escapes separate words, unless they may be folders of a path; tags and keys of a page's metadata are no items."""
    assert find_items(text) == tuple(expected)


def test_the_numbers_of_a_table_are_no_items() -> None:
    """A text of more different numbers than MOST_NUMBERS is a table; of fewer, each may be looked up again."""
    few = ",".join(map(str, range(1_000, 1_000 + module.MOST_NUMBERS)))
    assert len(find_items(few)) == module.MOST_NUMBERS
    many = ",".join(f"{number}.5" for number in range(1_000, 3_000))
    assert find_items(f"{many} row_id\nlast_name 4711") == ("row_id", "last_name")


def test_of_a_great_many_words_those_at_both_ends_are_looked_at() -> None:
    """No text takes more than MOST_WORDS entries of the cache that all texts share."""
    module._WORD_CACHE.clear()
    found = find_items(",".join(f"A{number:06}" for number in range(3 * module.MOST_WORDS)))
    assert len(found) == module.MOST_WORDS
    assert (found[0], found[-1]) == ("A000000", f"A{3 * module.MOST_WORDS - 1:06}")
    assert len(module._WORD_CACHE) <= module.MOST_WORDS


CODE = ("def run_it(self):", "    return self.result_of", "", "class Other:")


def numbered(form: str, start: int = 3451) -> str:
    return "\n".join(form.format(number, line) for number, line in enumerate(CODE, start))


@pytest.mark.parametrize(
    "form",
    ["{}:{}", "{:6}\t{}", "{:6}→{}", "{}→{}", "{}|{}", "{}-{}", "{}: {}", "src/app.py:{}:{}", "Line {}:{}", "  {}:{}"],
)
def test_gutters_are_no_items(form: str) -> None:
    """Whoever numbered the lines, the numbers go and the code stays."""
    text = numbered(form)
    assert any("345" in item for item in find_items(text))
    left = find_items(strip_gutters(text))
    assert not any("345" in item for item in left)
    assert {"run_it", "self.result_of"} <= set(left)
    assert ("src/app.py" in left) == ("src/app.py" in form)


@pytest.mark.parametrize(
    "line",
    [
        "3451:def run_it(self):",
        "3451:    return",
        "src/app.py:3451:x = 1",
        "Line 3451:x",
        "  3451\tx",
        "3451→x",
        "3451:    12: x",
    ],
)
def test_a_single_line_is_enough_where_its_form_says_it(line: str) -> None:
    """One hit of a search, one line of a view."""
    assert "3451" not in strip_gutters(line)


@pytest.mark.parametrize(
    "text",
    [
        "404: Not Found",
        "src/app.py:3451: AssertionError",
        "src/app.py:3451:17: error: no such name",
        '  File "src/app.py", line 3451, in run_it',
        "2026-11-22 10:15:00 started\n2026-11-23 10:15:00 ended",
        "4096\t./src\n4100\t./tests",
        " 3451 | Ada\n 3452 | Grace",
        "3451\tAda\n3452\tGrace",
        "user:3451:name\nuser:3452:name",
        "8080:80",
        "@@ -3451,7 +3451,6 @@",
        "500: Internal Server Error\n501: Not Implemented",
        "3451 3452\n3453 3454",
    ],
)
def test_other_numbers_stay(text: str) -> None:
    """Places of errors, codes, times, sizes, rows of a table."""
    assert strip_gutters(text) is text


def test_a_number_that_is_said_too_stays() -> None:
    """Only the gutter goes: the same number within a line is evidence."""
    assert "3451" in find_items(strip_gutters("3451:port = 3451"))


def test_numbers_as_long_as_a_blob() -> None:
    """Digits without end are a number like any other."""
    text = "9" * 10_000 + ":x\n" + "9" * 10_000 + ":y"
    assert strip_gutters(text).split() == ["x", "y"]
