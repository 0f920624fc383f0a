"""Placeholders: one line that says what happened and how to get it back, or a template that is filled once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import SpecError
from elision.strategies.extractors import BUILT_IN, Outcome
from elision.strategies.gist import KnownIdentifiers
from elision.strategies.placeholder import PUBLISHED_TEXT, TEMPLATE_FIELDS, Placeholders, parse_template
from elision.strategies.spec import describe_strategy, parse_strategy
from elision.strategies.strategy import Masking
from elision.trajectory.turn import Content, Observation, Opaque, Text
from tests.properties.builders import call, long_text, result, step, turn


def written(text: str | Content, placeholders: Placeholders | None = None, **options: object) -> str:
    pair = (call(command="make test"), result(text, **options))  # type: ignore[arg-type]
    one = turn(12, pair)
    return (placeholders or Placeholders()).write_placeholder((12, 1), one, pair[1], KnownIdentifiers())


def test_it_tells_what_happened() -> None:
    """Handle, tool, key argument, outcome, size and gist."""
    text = written(long_text(1))
    assert text.startswith("[t12.1 bash: make test -> ")
    assert "hidden" in text
    assert "src/part_1.py" in text
    assert text.endswith("]")


def test_the_published_one() -> None:
    """`gist=0` and a text of one's own is that text, word for word."""
    plain = Placeholders(gist=0, text=PUBLISHED_TEXT)
    assert written(long_text(1), plain) == PUBLISHED_TEXT == "[Observation omitted for brevity]"


def test_a_text_with_a_gist() -> None:
    """A text of one's own may have a gist behind it."""
    assert written("see handle_one", Placeholders(gist=20, text="[gone]")) == "[gone] handle_one"


def test_no_handle_where_nobody_recalls() -> None:
    """Handles are named only where recall is served."""
    assert "t12.1" not in written(long_text(1), Placeholders(handles=False))


def test_opaque_parts_are_counted() -> None:
    """Images and files are named by their kind, at the tokens they are booked at."""
    assert "; 2 tokens + 1 image (about 85 tokens) hidden" in written((Text("a picture"), Opaque("image", tokens=85)))
    assert "; 1 image (about 85 tokens) hidden" in written((Opaque("image", tokens=85),))
    many = (Opaque("image", tokens=85), Opaque("odd\nkind", tokens=5), Opaque("image", tokens=85))
    assert "; 2 image, 1 odd kind (about 175 tokens) hidden" in written(many)


def test_an_unknown_tool() -> None:
    """A result without a tool's name still has a placeholder."""
    unknown = Observation(action_id="", tool="", content=(Text("words"),), role="user")
    assert Placeholders().write_placeholder((1, 1), step(1), unknown, KnownIdentifiers()).startswith("[t1.1 result")


#: Any text, halves of surrogate pairs included.
_ANY = st.characters(exclude_categories=())


@given(st.text(_ANY, max_size=300), st.text(_ANY, max_size=40), st.integers(0, 60))
def test_one_line(text: str, command: str, budget: int) -> None:
    """Whatever an observation or its call holds, its placeholder is one line, and can be encoded."""
    pair = (call(command=command), result(text))
    found = Placeholders(gist=budget).write_placeholder((3, 1), turn(3, pair), pair[1], KnownIdentifiers())
    assert "\n" not in found
    assert "\r" not in found
    assert found.startswith("[t3.1 bash")
    found.encode("utf-8")


def test_half_an_emoji_in_an_odd_place() -> None:
    """Of a tool's name, of an extractor's words, of a text of one's own: it would stand in every later request."""
    odd = Observation(action_id="", tool="look\ud83d", content=(Text("words " * 50),), role="user")
    table = BUILT_IN.register(lambda *_: Outcome(label="cut \ud83d", result="\udcff"))
    for placeholders in (Placeholders(extractors=table), Placeholders(text="gone \ud83d")):
        assert "\ufffd" in placeholders.write_placeholder((1, 1), step(1), odd, KnownIdentifiers()).encode(
            "utf-8"
        ).decode("utf-8")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        # The documents' own texts.
        ("[Observation omitted for brevity]", "[Observation omitted for brevity]"),
        ("[Output omitted for brevity]", "[Output omitted for brevity]"),
        ("[Turn {turn} observation omitted for brevity]", "[Turn 12 observation omitted for brevity]"),
        ("[Previous {lines} lines omitted]", "[Previous 50 lines omitted]"),
        (
            "[Observation hidden - see turn {turn} for full output]",
            "[Observation hidden - see turn 12 for full output]",
        ),
        (
            "[OMITTED_OBSERVATION: too old; available in memory store]",
            "[OMITTED_OBSERVATION: too old; available in memory store]",
        ),
        ("Old environment output: ({lines} lines omitted)", "Old environment output: (50 lines omitted)"),
    ],
)
def test_published_texts(template: str, expected: str) -> None:
    """The texts of the published strategies come out word for word, by their fields."""
    text = "\n".join(f"handle_{number} = {number}" for number in range(50))
    assert written(text, Placeholders(gist=0, text=template)) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"results": [1, 2, 3]}', "[Masked: results: 3 items]"),
        ('{"schema": {"fields": [1, 2, 3]}}', "[Masked: schema.fields: 3 items]"),
        ("", "[Masked: no output]"),
    ],
)
def test_masked_with_a_brief_summary(body: str, expected: str) -> None:
    """`[Masked: {outcome}]` names what an answer held."""
    pair = (call("query"), result(body, "query"))
    found = Placeholders(gist=0, text="[Masked: {outcome}]").write_placeholder(
        (1, 1), turn(1, pair), pair[1], KnownIdentifiers()
    )
    assert found == expected


def test_every_field() -> None:
    """Each field has a value; the gist is where the template names it, and nothing of the rest is repeated in it."""
    template = "|".join(f"{name}={{{name}}}" for name in TEMPLATE_FIELDS)
    found = written("see handle_one\nand handle_two", Placeholders(gist=20, text=template))
    values = dict(piece.split("=", 1) for piece in found.split("|"))
    assert values["turn"] == "12"
    assert values["handle"] == "t12.1"
    assert values["tool"] == "bash"
    assert values["arguments"] == "make test"
    assert values["lines"] == "2"
    assert values["characters"] == str(len("see handle_one\nand handle_two"))
    assert int(values["tokens"]) > 3
    assert values["outcome"]
    assert values["gist"]
    assert not set(values["gist"].split()) & set(values["outcome"].split())


def test_gist_follows_a_template_that_does_not_name_it() -> None:
    """As after a fixed text; with `gist=0` and `{gist}`, nothing is there and no blank is left."""
    assert written("see handle_one", Placeholders(gist=20, text="[gone {turn}]")) == "[gone 12] handle_one"
    assert written("see handle_one", Placeholders(gist=20, text="[gone: {gist}]")) == "[gone: handle_one]"
    assert written("see handle_one", Placeholders(gist=0, text="[gone {gist}]")) == "[gone]"


def test_a_handle_only_where_recall_is_served() -> None:
    """`{handle}` names it, so the recall tools are offered; without recall the field is empty."""
    named = Placeholders(gist=0, text="[{handle} {tool} hidden]")
    assert named.names_handle
    assert written("x", named) == "[t12.1 bash hidden]"
    unread = Placeholders(gist=0, text="[{handle} {tool} hidden]", handles=False)
    assert not unread.names_handle
    assert written("x", unread) == "[bash hidden]"
    assert not Placeholders(text="[hidden]").names_handle
    assert not Placeholders(text="[{{handle}} hidden]").names_handle


def test_lines_of_all_text_parts() -> None:
    """Lines are counted part by part, as `splitlines` counts them; parts that are no text have none."""
    assert written((Text("a\nb\n"), Opaque("image", tokens=85), Text("c")), Placeholders(gist=0, text="{lines}")) == "3"
    assert written("", Placeholders(gist=0, text="{lines}")) == "0"
    tokens = written((Text("word"), Opaque("image", tokens=85)), Placeholders(gist=0, text="{tokens}"))
    assert tokens == "86"


def test_arguments_are_cut_and_hold_no_secret() -> None:
    """Arguments are one short line. A secret in them is replaced before they are cut, so that no half of it is left."""
    secret = "ghp_" + "Ab3dEf6hIj9lMn2pQr5tUv8xYz1BcD4eFg7h"
    for command in (f"curl -H 'Authorization: token {secret}' https://x.example", "echo " + "word " * 9 + secret):
        pair = (call(command=command), result("done"))
        found = Placeholders(gist=0, text="{arguments}").write_placeholder(
            (1, 1), turn(1, pair), pair[1], KnownIdentifiers()
        )
        assert "ghp_" not in found
        assert len(found) <= 80
    pair = (call(command="a\nb" * 100), result("done"))
    found = Placeholders(gist=0, text="{arguments}").write_placeholder(
        (1, 1), turn(1, pair), pair[1], KnownIdentifiers()
    )
    assert "\n" not in found
    assert len(found) <= 80


def test_no_call_no_arguments() -> None:
    """A result that answers no call has no arguments, and an unknown tool is called a result."""
    odd = Observation(action_id="", tool="", content=(Text("words"),), role="user")
    found = Placeholders(gist=0, text="[{tool} {arguments} gone]").write_placeholder(
        (1, 1), step(1), odd, KnownIdentifiers()
    )
    assert found == "[result gone]"


@given(st.text(_ANY, max_size=200), st.text(_ANY, max_size=80), st.text(_ANY, max_size=20))
def test_a_filled_template_is_one_line(text: str, command: str, tool: str) -> None:
    """Whatever a tool or a call holds, a template of one line is one line, and can be encoded."""
    template = "".join(f"[{{{name}}}]" for name in TEMPLATE_FIELDS)
    pair = (call(command=command), result(text, tool))
    found = Placeholders(gist=10, text=template).write_placeholder((3, 1), turn(3, pair), pair[1], KnownIdentifiers())
    assert len(found.splitlines()) == 1
    found.encode("utf-8")


@pytest.mark.parametrize(
    ("command", "text", "expected"),
    [
        ("cat src/a.py", "x = 1", "bash src/a.py"),
        (
            "open a.py 19",
            "[File: /repo/a.py (569 lines total)]\n(18 more lines above)\n19:x = 1\n20:y = 2\n(549 more lines below)",
            "bash /repo/a.py:19-20",
        ),
        ("cd /repo && python -m pytest 'tests/test_a.py::test_b[c-d]'", "1 passed in 0.1s", None),
        ("echo 'one\ntwo'\nls", "one\ntwo", None),
        ("echo \ud800\u2028\x1b[31m", "x", None),
        ("x" * 5_000, "x", "bash " + "x" * 59 + "…"),
    ],
)
def test_a_call_in_a_few_words(command: str, text: str, expected: str | None) -> None:
    """Tool and key argument: one short line, without brackets, which end a reference."""
    pair = (call(command=command), result(text))
    found = Placeholders().describe_call(turn(3, pair), pair[1])
    assert expected in (None, found)
    assert found.isprintable()
    assert len(found) <= 70
    assert not set("[]") & set(found)


@given(st.text(), st.text(), st.text(max_size=99))
def test_any_call_in_a_few_words(command: str, text: str, tool: str) -> None:
    """Whatever the call was."""
    pair = (call(tool, command=command), result(text, tool))
    found = Placeholders().describe_call(turn(3, pair), pair[1])
    assert found.isprintable()
    assert not set("[]\n") & set(found)
    assert len(found) <= 100


def test_a_call_in_a_few_words_has_no_secret() -> None:
    """Wherever it would be cut: in the arguments, the result, and the words of the turn."""
    secret = "ghp_" + "Ab3dEf6hIj9lMn2pQr5tUv8xYz1BcD4eFg7h"
    for length in range(0, 90, 5):
        for command, text in (
            ("x" * length + f" {secret}", "done"),
            ("", f"URL: https://x.example/{'x' * length}{secret}"),
        ):
            pair = (call(command=command), result(text))
            assert "Ab3dE" not in Placeholders().describe_call(turn(3, pair), pair[1])


_NO_BRACE = st.text(st.characters(exclude_categories=(), exclude_characters="{}"), max_size=12)


def fill(text: str, **values: str) -> str:
    return parse_template(text).fill_fields(lambda name: values.get(name, ""))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{trun}]", "no field '{trun}' (character 2 of '[{trun}]'); did you mean {turn}? There are: {turn}, {handle}"),
        ("[Turn {i} observation omitted]", "no field '{i}' (character 7 of "),
        ("[Turn {turn_idx} omitted]", "did you mean {turn}?"),
        ("{turn:03}", "did you mean {turn}?"),
        ("{tool.name}", "did you mean {tool}?"),
        ("{0}", "no field '{0}' (character 1 of '{0}'); there are: {turn}"),
        ("{}", "no field '{}'"),
        ("gone {", "'{' at character 6 of 'gone {' belongs to no field; write {{ for a brace; fields: {turn}"),
        ("} gone", "'}' at character 1 of '} gone' belongs to no field; write }} for a brace"),
        ("{{turn}", "'}' at character 7"),
        ("{turn", "'{' at character 1"),
        ("{" * 3, "'{' at character 3"),
        ("x" * 300 + "{nothing}", "character 301"),
    ],
)
def test_errors_name_field_and_place(text: str, message: str) -> None:
    """A template with an unknown field or a lone brace is refused where a strategy is made, by code or as text."""
    with pytest.raises(SpecError) as caught:
        parse_template(text)
    assert message in str(caught.value)
    assert "placeholder: " in str(caught.value)
    assert "{gist}" in str(caught.value)
    assert len(str(caught.value)) < 500
    with pytest.raises(SpecError):
        Masking(placeholder=text)
    with pytest.raises(SpecError):
        parse_strategy(f'masking(placeholder="{text}")')


def test_a_template_is_a_text() -> None:
    """Anything but a text is refused."""
    with pytest.raises(SpecError, match="give a text"):
        Masking(placeholder=5)  # type: ignore[arg-type]


@given(st.lists(st.sampled_from(["{{", "}}", *(f"{{{name}}}" for name in TEMPLATE_FIELDS)]) | _NO_BRACE).map("".join))
def test_round_trip(text: str) -> None:
    """A strategy with a template has a text that is read as that strategy."""
    strategy = Masking(placeholder=text)
    assert parse_strategy(describe_strategy(strategy)) == strategy


@given(st.text(_ANY, max_size=30), st.text(_ANY, min_size=1, max_size=30))
def test_values_are_never_read_as_templates(literal: str, value: str) -> None:
    """Braces, fields and backslashes in a value come out as they are, and so does every literal text."""
    written = literal.replace("{", "{{").replace("}", "}}")
    assert fill(written) == literal
    assert fill(f"{written}{{tool}}|{written}", tool=value) == f"{literal}{value}|{literal}"
    assert fill("{tool} {turn}", tool="{turn} {0} {{", turn="3") == "{turn} {0} {{ 3"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[{handle} {tool}]", "[bash]"),
        ("[{tool} {handle}]", "[bash]"),
        ("[{tool} {handle}: hidden]", "[bash: hidden]"),
        ("{handle} hidden", "hidden"),
        ("a {handle} b", "a b"),
        ("a{handle} b", "a b"),
        ("a  {handle}  b", "a   b"),
        ("one\n{handle} two", "one\ntwo"),
        ("({handle} {gist} {tool})", "(bash)"),
        ("{handle}", ""),
        ("{{{handle} {tool}}}", "{bash}"),
    ],
)
def test_an_empty_field_takes_one_blank_along(text: str, expected: str) -> None:
    """Where a handle, arguments or a gist is empty, no two blanks remain and none after a bracket."""
    assert fill(text, tool="bash") == expected
