"""Endpoints of each API, as the tests of summaries make them."""

from __future__ import annotations

from functools import partial

from elision.providers.provider_table import PROVIDERS
from elision.summarizers.endpoints import HttpEndpoint

AnthropicEndpoint = partial(HttpEndpoint, PROVIDERS["anthropic"])
OpenAIChatEndpoint = partial(HttpEndpoint, PROVIDERS["openai"])
OpenAIResponsesEndpoint = partial(HttpEndpoint, PROVIDERS["openai-responses"])
