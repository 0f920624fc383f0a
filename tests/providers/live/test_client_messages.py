"""Messages as objects of a provider's package, as JSON."""

from __future__ import annotations

from typing import Any

from openai.types.responses import ResponseFunctionWebSearch
from openai.types.responses.response_function_web_search import ActionSearch, ActionSearchSource

from elision.providers.live.client_messages import convert_to_json


class Own:
    """A message of somebody's own class, whose `model_dump` knows no more than it must."""

    def model_dump(self, *, mode: str, exclude_none: bool) -> dict[str, Any]:
        return {"role": "user", "content": "Look.", "mode": mode}


def test_a_value_that_the_package_does_not_know_is_no_warning() -> None:
    """Providers send words that are newer than the package; the object is read as it came, in silence."""
    source = ActionSearchSource.model_construct(type="api", name="oai-weather")
    action = ActionSearch.model_construct(type="search", query="weather", sources=[source])
    item = ResponseFunctionWebSearch.model_construct(
        id="ws_1", type="web_search_call", status="completed", action=action
    )
    sources = [{"type": "api", "name": "oai-weather"}]
    assert convert_to_json(item) == {
        "id": "ws_1",
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "search", "query": "weather", "sources": sources},
    }


def test_any_object_that_can_be_dumped_is_read() -> None:
    """It need not be pydantic's."""
    assert convert_to_json(Own()) == {"role": "user", "content": "Look.", "mode": "json"}
