"""From a text like `anthropic:claude-haiku-4-5` to a summarizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from elision.errors import PriceError, SpecError, SummaryError
from elision.providers.host import Host
from elision.providers.provider_table import HOSTS, PROVIDERS
from elision.providers.shared.capabilities import is_reasoning_model
from elision.summarizers.digest import merge_record, write_digest
from elision.summarizers.endpoints import AnswerCache, CachedEndpoint, Endpoint, HttpEndpoint, LiteLLMEndpoint
from elision.summarizers.model_summarizer import THINKING, ModelSummarizer, SummaryRetryPolicy
from elision.summarizers.prompt import BUILT_IN, SummaryPrompt
from elision.summarizers.summary_acceptance import RequestRedactor
from elision.summarizers.summary_checks import SummaryResult
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.prices import Prices
from elision.trajectory.redact import DEFAULT, Redaction
from elision.trajectory.tokens import make_counter
from elision.trajectory.turn import Turn

#: Variables of the environment that say where a model is served, and with which key.
ACCESS_VARIABLES: Final = tuple(
    sorted({name for host in HOSTS.values() for name in (host.key_variable, host.url_variable)})
)
#: What a spec may begin with.
KINDS: Final = ("digest", *sorted(PROVIDERS), "litellm")


class DigestSummarizer:
    """The digest as a summarizer: no model, no cost. redaction: of what it quotes."""

    def __init__(self, redaction: Redaction = DEFAULT) -> None:
        self._redaction = redaction

    def __call__(self, request: SummaryRequest) -> SummaryResult:
        redactor = RequestRedactor(self._redaction)
        text = write_digest(redactor.redact(request), make_counter().count)
        if not text:
            raise SummaryError("nothing can be said in fewer words", cause="empty")
        return SummaryResult(text=text, route="model-free", attempts=0, redacted=redactor.hits)

    def look_ahead(self, turn: Turn) -> None:
        """Look through a turn that a summary may cover later; what a digest looks up of it is in caches then."""
        clean = RequestRedactor(self._redaction).redact_turn(turn)
        merge_record(SummaryRequest(previous="", task="", turns=(clean,), max_tokens=0))


def make_summarizer(
    spec: str = "digest",
    *,
    api_key: str = "",
    base_url: str = "",
    environment: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    extra: Mapping[str, Any] | None = None,
    proxy: str = "",
    redaction: Redaction = DEFAULT,
    retry_policy: SummaryRetryPolicy | None = None,
    prices: Prices | None = None,
    window: int | None = None,
    prompt: SummaryPrompt = BUILT_IN,
    temperature: float | None = 0,
    cache: AnswerCache | None = None,
) -> ModelSummarizer | DigestSummarizer:
    """Return the summarizer that `spec` names: `digest`, or `KIND:MODEL`.

    KIND is anthropic, openai, openai-responses or litellm.

    api_key, base_url: of the endpoint. environment: where the usual variables (`ANTHROPIC_API_KEY`, `OPENAI_BASE_URL`
             ...) are looked up for what is not given; nothing is read from the process's own. A key from there goes
             to the provider itself or to the base URL from there, never to a `base_url` given here.
    headers, extra: further headers and further fields of each request. proxy: URL of an HTTP proxy.
    prices:  of the model; looked up by its name where not given, save for a server on this machine.
    window:  of the model in tokens, where the prices do not know it.
    prompt:  the built-in one, or one of `load_prompt`. temperature: of each request; None leaves it to the server.
    cache:   where answers are kept by request; what it has is not asked again.

    Raises SpecError for an unknown kind or a missing key, MissingExtra without `llm` or `litellm`.
    """
    kind, _, model = spec.partition(":")
    if spec == "digest":
        return DigestSummarizer(redaction)
    if kind not in KINDS[1:] or not model:
        wanted = ", ".join(name if name == "digest" else f"{name}:MODEL" for name in KINDS)
        raise SpecError(f"no summarizer {spec!r}; there are: {wanted}")
    if kind == "litellm":
        endpoint: Endpoint = LiteLLMEndpoint(model, key=api_key, base_url=base_url, extra=extra)
    else:
        provider = PROVIDERS[kind]
        key, url = _find_access(provider.host, api_key, base_url, environment or {})
        endpoint = HttpEndpoint(provider, model, key=key, base_url=url, headers=headers, extra=extra, proxy=proxy)
        base_url = url
    if cache is not None:
        endpoint = CachedEndpoint(endpoint, cache, kind=kind, base_url=base_url, extra=extra)
    return ModelSummarizer(
        endpoint,
        redaction=redaction,
        retry_policy=retry_policy,
        prices=prices or _find_prices(model, base_url),
        window=window,
        thinking=THINKING if is_reasoning_model(model.rpartition("/")[2]) else 0,
        prompt=prompt,
        temperature=temperature,
    )


def _find_access(host: Host, api_key: str, base_url: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return key and URL. Raises SpecError where the provider itself is asked without a key."""
    url = base_url or environment.get(host.url_variable, "") or host.url
    key = api_key
    if not key and base_url in ("", host.url):
        key = environment.get(host.key_variable, "")
    if not key and url.rstrip("/") == host.url:
        raise SpecError(f"no key for {host.url}; give api_key, or set {host.key_variable}")
    return key, url


def _find_prices(model: str, base_url: str) -> Prices | None:
    if urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1"):
        return None
    try:
        return find_prices(model)
    except PriceError:
        return None
