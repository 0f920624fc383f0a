"""A recorded request with its response, written to a file, is read as a run of its own API's format."""

from __future__ import annotations

import json

from elision.formats.document import Document
from elision.formats.registry import find_reader
from elision.trajectory.trajectory import Trajectory
from tests.recorded.bills import read_usage
from tests.recorded.cassettes import Exchange, find_cassettes, load_exchanges
from tests.recorded.hidden_views import list_answer_messages

FORMATS = {"openai": "openai-chat", "openai-responses": "openai-responses", "anthropic": "anthropic-messages"}


def test_a_request_with_its_response_is_a_run() -> None:
    """The format is the API's, and the last turn is the answer, with its usage."""
    answered = [each for each in load_exchanges(find_cassettes()) if each.api and each.status == 200]
    whole = [each for each in answered if not each.is_stream and list_answer_messages(each)]
    assert [(each.name, problem) for each in whole if (problem := misread(each))] == []


def misread(exchange: Exchange) -> str:
    """What is wrong with the run that is read; "" if nothing is."""
    assert exchange.api is not None
    pair = {"request": exchange.request_json(), "response": exchange.response_json()}
    document = Document("pair.json", json.dumps(pair).encode())
    reader = find_reader(document)
    if reader is None or reader.name != FORMATS[exchange.api]:
        return f"taken for {reader and reader.name}"
    runs = [each for each in reader.read(document) if isinstance(each, Trajectory)]
    if [run.turns[-1].usage for run in runs] != [read_usage(exchange)]:
        return f"usage of {[run.turns[-1].usage for run in runs]}, the bill is {read_usage(exchange)}"
    return ""
