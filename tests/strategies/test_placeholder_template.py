"""Templates of placeholders: read once, filled once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import SpecError
from elision.strategies.masking import Masking
from elision.strategies.placeholder import TEMPLATE_FIELDS, parse_template
from elision.strategies.spec import describe_strategy, parse_strategy

_ANY = st.characters(exclude_categories=())
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
