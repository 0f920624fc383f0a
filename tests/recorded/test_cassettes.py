"""Cassettes are read into exchanges, whatever way their bodies are written."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.recorded.cassettes import APIS, SAMPLE_FOLDER, Exchange, find_cassettes, load_exchanges

CASSETTE = """\
interactions:
- request:
    headers:
      Content-Type: [application/json]
      x-twice: [one, two]
    method: POST
    uri: https://api.anthropic.com/v1/messages?beta=true
    parsed_body: {model: claude, note: 'é'}
  response:
    headers:
      content-type: [text/event-stream; charset=utf-8]
    status: {code: 200, message: OK}
    body: {string: "event: ping\\ndata: {}\\n\\n"}
- request:
    method: GET
    uri: https://api.openai.com/v1/files/f
    headers: {}
    body: ''
  response:
    headers: {content-type: application/octet-stream}
    status: {code: 404, message: Not Found}
    body: {string: !!binary "AAEC"}
- request:
    method: POST
    uri: https://example.org/v1/messages
    body: null
  response:
    headers: {}
    status: {code: 200, message: null}
    body: {base64_string: "AAEC"}
"""


def read_text(folder: Path, text: str) -> tuple[Exchange, ...]:
    """The exchanges of a cassette with this text."""
    (folder / "a.yaml").write_text(text)
    return load_exchanges(folder)


def test_json_bodies_are_written_without_spaces(tmp_path: Path) -> None:
    """A parsed body is written as the providers' clients write JSON."""
    assert read_text(tmp_path, CASSETTE)[0].request_body == '{"model":"claude","note":"é"}'.encode()


def test_a_stream_is_known_by_its_content_type(tmp_path: Path) -> None:
    """A stream keeps its text, and says that it is one."""
    first, second, _ = read_text(tmp_path, CASSETTE)
    assert first.is_stream
    assert first.response_body == b"event: ping\ndata: {}\n\n"
    assert not second.is_stream


def test_bytes_are_read_in_both_spellings(tmp_path: Path) -> None:
    """Binary bodies are the same bytes as YAML's binary and as base64."""
    _, second, third = read_text(tmp_path, CASSETTE)
    assert second.response_body == third.response_body == b"\x00\x01\x02"


def test_a_request_is_told_by_its_host_method_and_path(tmp_path: Path) -> None:
    """Only a POST to a provider's own endpoint asks a model; any other host has no provider."""
    found = [(each.provider, each.api, each.target) for each in read_text(tmp_path, CASSETTE)]
    assert found == [
        ("anthropic", "anthropic", "/v1/messages?beta=true"),
        ("openai", None, "/v1/files/f"),
        (None, None, "/v1/messages"),
    ]


def test_a_header_with_two_values_is_two_headers(tmp_path: Path) -> None:
    """Names are in lower case; each value is a field of its own."""
    fields = read_text(tmp_path, CASSETTE)[0].request_headers
    assert fields == (("content-type", "application/json"), ("x-twice", "one"), ("x-twice", "two"))


def test_a_broken_interaction_is_named(tmp_path: Path) -> None:
    """What cannot be read is said with its file and its place."""
    with pytest.raises(ValueError, match=r"a\.yaml: interaction 0 cannot be read: KeyError\('uri'\)"):
        read_text(tmp_path, "interactions: [{request: {}, response: {}}]")


def test_a_compressed_cassette_is_the_same(tmp_path: Path) -> None:
    """Files of the sample may be compressed; the name of an exchange does not depend on it."""
    plain = read_text(tmp_path, CASSETTE)
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "a.yaml.gz").write_bytes(gzip.compress(CASSETTE.encode()))
    assert load_exchanges(tmp_path / "packed") == plain


@pytest.mark.parametrize("folder", sorted({SAMPLE_FOLDER, find_cassettes()}), ids=lambda folder: folder.parent.name)
def test_all_recordings_are_read(folder: Path) -> None:
    """Every cassette at hand is read: each API is there, whole and streamed, and so are requests that were refused."""
    exchanges = [each for each in load_exchanges(folder) if each.provider]
    kinds = {(each.api, each.is_stream) for each in exchanges if each.api}
    assert kinds == {(api, stream) for api in set(APIS.values()) for stream in (False, True)}
    assert {200, 400, 404} <= {each.status for each in exchanges}
