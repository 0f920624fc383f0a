"""JSON lines and JSON values out of bytes."""

from __future__ import annotations

import pytest

from elision.errors import FormatError
from elision.formats import document as lines
from elision.formats.document import Document, JsonLine, peek_objects, peek_value, read_json_lines, read_json_value
from elision.trajectory.trajectory import Problem


def split(data: bytes) -> tuple[list[tuple[int, object]], list[Problem]]:
    found = list(read_json_lines(Document("f", data)))
    return (
        [(item.number, item.value) for item in found if isinstance(item, JsonLine)],
        [item for item in found if isinstance(item, Problem)],
    )


def error_of(data: bytes) -> str:
    with pytest.raises(FormatError) as caught:
        read_json_value(Document("f", data))
    return str(caught.value)


def test_blank_lines_count_but_say_nothing() -> None:
    """Line numbers are those of the file, blank lines and carriage returns included."""
    assert split(b'{"a": 1}\r\n\n  \n{"a": 2}') == ([(1, {"a": 1}), (4, {"a": 2})], [])


def test_several_objects_on_a_line() -> None:
    """A line that holds several objects gives them all, under its number."""
    assert split(b'{"a": 1} {"a": 2}{"a": 3}\n') == ([(1, {"a": 1}), (1, {"a": 2}), (1, {"a": 3})], [])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{broken", "broken JSON at column 2"),
        (b'{"a": "\xff"}', "byte 0xff at column 8 is not UTF-8"),
        (b"[1, 2]", "a JSON list instead of an object"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"1" * 5_000 + b"}", "unreadable JSON"),
    ],
)
def test_a_broken_line_costs_itself_alone(line: bytes, reason: str) -> None:
    """A line that cannot be read is a Problem with its number, and the lines around it are read."""
    values, problems = split(b'{"a": 1}\n' + line + b'\n{"a": 3}\n')
    assert values == [(1, {"a": 1}), (3, {"a": 3})]
    assert [(problem.file, problem.line) for problem in problems] == [("f", 2)]
    assert reason in problems[0].reason


def test_what_stands_before_the_break_is_kept() -> None:
    """Of a line that breaks off, the whole objects before the break are read."""
    values, problems = split(b'{"a": 1} {"a": ')
    assert values == [(1, {"a": 1})]
    assert len(problems) == 1


def test_too_long_a_line_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line over the limit is reported and passed over without being parsed."""
    monkeypatch.setattr(lines, "LINE_LIMIT", 20)
    values, problems = split(b'{"a": "' + b"x" * 30 + b'"}\n{"a": 2}\n')
    assert values == [(2, {"a": 2})]
    assert "over the limit" in problems[0].reason


def test_byte_order_mark_and_nan() -> None:
    """A byte order mark is no part of the first line, and NaN is read, since Python recorders write it."""
    values, problems = split(b'\xef\xbb\xbf{"a": NaN}\n')
    assert str(values) == "[(1, {'a': nan})]"
    assert problems == []
    assert read_json_value(Document("f", b'\xef\xbb\xbf{"a": 1}')) == {"a": 1}


def test_halves_of_surrogate_pairs_are_replaced() -> None:
    """Half a surrogate pair, which nothing could encode again, becomes U+FFFD; whole pairs stay."""
    data = rb'{"a": ["\ud83d", "\ud83d\ude00"], "\udc00": 1}'
    expected = {"a": ["\ufffd", "\U0001f600"], "\ufffd": 1}
    assert split(data)[0] == [(1, expected)]
    assert read_json_value(Document("f", data)) == expected


@pytest.mark.parametrize(
    ("data", "place", "mend"),
    [
        (b"", "f:", "empty"),
        (b" \n ", "f:", "empty"),
        (b"\x89PNG\r\n", "f:1:1:", "begins with"),
        (b'{"a": [1,\n 2', "f:2:3:", "cut off"),
        (b'{"a": "unfinished', "f:1:7:", "cut off"),
        (b'{"a": 1}\n{"a": 2}', "f:2:1:", "JSON lines"),
        (b'{"a" 1, "b": 2}', "f:1:6:", "fix it there"),
        (b'{"a":\n"\xe4"}', "f:2:2:", "UTF-8"),
        (b"[" * 100_000, "f:", "nested too deeply"),
    ],
)
def test_a_broken_value_names_place_and_mend(data: bytes, place: str, mend: str) -> None:
    """An unreadable file gives an error with file, line, column and what to do."""
    message = error_of(data)
    assert message.startswith(place)
    assert mend in message


def test_peek_passes_over_a_broken_start() -> None:
    """Sniffing sees the first parsable objects, also behind broken lines, and never raises."""
    assert peek_objects(Document("f", b'{broken\n\xff\n{"a": 1}\n{"a": 2}\n{"a": 3}\n'), 2) == [{"a": 1}, {"a": 2}]
    assert peek_objects(Document("f", b"\x00\x01")) == []


def test_peek_value_needs_every_mark() -> None:
    """A file without one of the marks is not even parsed; a broken one is nothing."""
    document = Document("f", b'{"steps": 1}')
    assert peek_value(document, "steps") == {"steps": 1}
    assert peek_value(document, "steps", "history") is None
    assert peek_value(Document("f", b'{"steps": '), "steps") is None
