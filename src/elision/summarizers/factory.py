"""From a text like `anthropic:claude-haiku-4-5` to a summarizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from elision.errors import PriceError, SpecError, SummaryError
from elision.summarizers.anthropic_endpoint import ANTHROPIC, Anthropic
from elision.summarizers.digest import digest
from elision.summarizers.endpoint import Endpoint
from elision.summarizers.litellm_endpoint import LiteLLM
from elision.summarizers.openai_compatible import OPENAI, OpenAICompatible, reasons
from elision.summarizers.openai_responses import OpenAIResponses
from elision.summarizers.redacted import Redactor
from elision.summarizers.writer import THINKING, Patience, Writer
from elision.summarizers.written import Written
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.prices import Prices
from elision.trajectory.redact import DEFAULT, Redaction
from elision.trajectory.tokens import counter


@dataclass(frozen=True, slots=True, kw_only=True)
class _Maker:
    """A kind of endpoint. key, base: environment variables that are usual for it. home: where it is served."""

    make: Callable[..., Endpoint]
    key: str
    base: str
    home: str


_MAKERS: Final[Mapping[str, _Maker]] = {
    "anthropic": _Maker(make=Anthropic, key="ANTHROPIC_API_KEY", base="ANTHROPIC_BASE_URL", home=ANTHROPIC),
    "openai": _Maker(make=OpenAICompatible, key="OPENAI_API_KEY", base="OPENAI_BASE_URL", home=OPENAI),
    "openai-responses": _Maker(make=OpenAIResponses, key="OPENAI_API_KEY", base="OPENAI_BASE_URL", home=OPENAI),
}
#: What a spec may begin with.
KINDS: Final = ("digest", *_MAKERS, "litellm")


class ModelFree:
    """The digest as a summarizer: no model, no cost. redaction: of what it quotes."""

    def __init__(self, redaction: Redaction = DEFAULT) -> None:
        self._redaction = redaction

    def __call__(self, request: SummaryRequest) -> Written:
        redactor = Redactor(self._redaction)
        text = digest(redactor.request(request), counter().count)
        if not text:
            raise SummaryError("nothing can be said in fewer words", cause="empty")
        return Written(text=text, route="model-free", attempts=0, redacted=redactor.hits)


def summarizer(
    spec: str = "digest",
    *,
    api_key: str = "",
    base_url: str = "",
    environment: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    extra: Mapping[str, Any] | None = None,
    proxy: str = "",
    redaction: Redaction = DEFAULT,
    patience: Patience | None = None,
    prices: Prices | None = None,
    window: int | None = None,
) -> Writer | ModelFree:
    """The summarizer that `spec` names: `digest`, or `KIND:MODEL` with anthropic, openai, openai-responses or litellm.

    api_key, base_url: of the endpoint. environment: where the usual variables (`ANTHROPIC_API_KEY`, `OPENAI_BASE_URL`
             ...) are looked up for what is not given; nothing is read from the process's own. A key from there goes
             to the provider itself or to the base URL from there, never to a `base_url` given here.
    headers, extra: further headers and further fields of each request. proxy: URL of an HTTP proxy.
    prices:  of the model; looked up by its name where not given, save for a server on this machine.
    window:  of the model in tokens, where the prices do not know it.

    Raises SpecError for an unknown kind or a missing key, MissingExtra without `llm` or `litellm`.
    """
    kind, _, model = spec.partition(":")
    if spec == "digest":
        return ModelFree(redaction)
    if kind not in KINDS[1:] or not model:
        wanted = ", ".join(name if name == "digest" else f"{name}:MODEL" for name in KINDS)
        raise SpecError(f"no summarizer {spec!r}; there are: {wanted}")
    if kind == "litellm":
        endpoint: Endpoint = LiteLLM(model, key=api_key, base_url=base_url, extra=extra)
    else:
        maker = _MAKERS[kind]
        key, url = _access(maker, api_key, base_url, environment or {})
        endpoint = maker.make(model, key=key, base_url=url, headers=headers, extra=extra, proxy=proxy)
        base_url = url
    return Writer(
        endpoint,
        redaction=redaction,
        patience=patience,
        prices=prices or _prices(model, base_url),
        window=window,
        thinking=THINKING if reasons(model.rpartition("/")[2]) else 0,
    )


def _access(maker: _Maker, api_key: str, base_url: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """Key and URL. Raises SpecError where the provider itself is asked without a key."""
    url = base_url or environment.get(maker.base, "") or maker.home
    key = api_key or ("" if base_url not in ("", maker.home) else environment.get(maker.key, ""))
    if not key and url.rstrip("/") == maker.home:
        raise SpecError(f"no key for {maker.home}; give api_key, or set {maker.key}")
    return key, url


def _prices(model: str, base_url: str) -> Prices | None:
    if urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1"):
        return None
    try:
        return find_prices(model)
    except PriceError:
        return None
