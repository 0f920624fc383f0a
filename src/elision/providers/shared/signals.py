"""Read what providers report about a context in errors and responses: too long, not cached, edited, thinking dropped.

This is ground truth at no cost. Nothing here raises, for any answer: what cannot be read is None or left out. The
sentences come from the providers' documentation and from their users' reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from elision.providers.shared.json_reading import count_in, mapping_in, mappings_in, text_in

#: Longer texts are searched in their first part only: an error that quotes the prompt says what it is in front.
_SEARCHED_LENGTH: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """A prompt did not fit. tokens: of the prompt; limit: of the window; None where the error does not say."""

    tokens: int | None = None
    limit: int | None = None


_N = r"(?:[\d,]{1,15})"
#: (provider, pattern with named groups). The first that fits is taken, so patterns with numbers come first.
_OVERFLOWS: Final[tuple[tuple[str, str], ...]] = (
    ("Anthropic", rf"prompt is too long: (?P<tokens>{_N}) tokens > (?P<limit>{_N})"),
    ("Anthropic", rf"exceed context limit: (?P<tokens>{_N}) \+ {_N} > (?P<limit>{_N})"),
    ("Google", rf"token count \((?P<tokens>{_N})\) exceeds the maximum number of tokens allowed \((?P<limit>{_N})\)"),
    ("xAI", rf"maximum prompt length is (?P<limit>{_N}) but the request contains (?P<tokens>{_N})"),
    ("llama.cpp", rf"request \((?P<tokens>{_N}) tokens\) exceeds the available context size \((?P<limit>{_N})"),
    ("Together", rf"input \((?P<tokens>{_N}) tokens\) is longer than the model's context length \((?P<limit>{_N})"),
    ("Mistral", rf"contains (?P<tokens>{_N}) tokens.{{0,60}}?with (?P<limit>{_N}) maximum context length"),
    ("OpenAI", rf"configured limit of (?P<limit>{_N}) tokens.{{0,20}}? resulted in (?P<tokens>{_N})"),
    ("Kimi", rf"exceeded model token limit: (?P<limit>{_N}) \(requested: (?P<tokens>{_N})"),
    ("Copilot", rf"token count of (?P<tokens>{_N}) exceeds the limit of (?P<limit>{_N})"),
    ("SGLang", rf"input length \(?(?P<tokens>{_N})\)?.{{0,20}}? exceeds.{{0,60}}?length (?:of )?\(?(?P<limit>{_N})"),
    # vLLM, OpenAI and OpenRouter name the whole first and the prompt's part of it in brackets.
    ("many", rf"maximum context length is (?P<limit>{_N}) tokens.{{0,160}}?[( ](?P<tokens>{_N})(?: tokens)? "
             r"(?:in (?:the|your) (?:messages|prompt|input)|in your prompt|of text input|from the input|input tokens)"),
    ("many", rf"maximum context length is (?P<limit>{_N}) tokens.{{0,80}}?"
             rf"(?:resulted in|requested(?: about)?) (?P<tokens>{_N})"),
    ("many", rf"maximum context length (?:is|of) \(?(?P<limit>{_N})"),
)  # fmt: skip
_OVERFLOW_PATTERNS: Final = tuple(re.compile(pattern, re.IGNORECASE | re.DOTALL) for _, pattern in _OVERFLOWS)
#: The same without numbers.
_OVERFLOW_WITHOUT_NUMBERS: Final = re.compile(
    r"""
      prompt\ is\ too\ long | input\ is\ too\ long\ for\ requested\ model     # Anthropic, Bedrock
    | context[_ ](?:length|window)[_ ]exceeded                                  # OpenAI's and Anthropic's codes
    | exceeds?\ the\ (?:model's\ )?context\ (?:window|length)                   # OpenAI, LiteLLM
    | exceeds\ the\ available\ context\ size | exceed_context_size_error        # llama.cpp
    | token\ count.{0,40}exceeds\ the\ maximum                                  # Google
    | reduce\ the\ length\ of\ (?:the|your)\ (?:messages|prompt|input)          # Groq, vLLM
    | greater\ than\ the\ context\ length                                       # LM Studio
    | context\ window\ exceeds\ limit                                           # MiniMax
    | longer\ than\ the\ model's\ context\ length
    | request_too_large | request\ exceeds\ the\ maximum\ size                # Anthropic, in bytes (HTTP 413)
    """,
    re.IGNORECASE | re.VERBOSE,
)


def parse_overflow(answer: object) -> Overflow | None:
    """Read what an error (its text, or its body as JSON) reports of a prompt that was too long; None if it reports
    none.

    A body that is no error is searched for a `stop_reason` or `error` that says so.
    """
    if isinstance(answer, Mapping):
        counted = _read_counts(answer)
        return counted or _match_overflow(" ".join(_list_error_texts(answer)))
    if isinstance(answer, str):
        return _match_overflow(answer)
    return None


def _read_counts(body: Mapping[str, Any]) -> Overflow | None:
    """Read the numbers that llama.cpp names in its error."""
    error = mapping_in(body.get("error")) or body
    limit = count_in(error.get("n_ctx"))
    if limit:
        return Overflow(tokens=count_in(error.get("n_prompt_tokens")) or None, limit=limit)
    return None


def _list_error_texts(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a body that say what went wrong, but not what the model or the user said."""
    yield from (text_in(body.get(name)) for name in ("message", "code", "type", "stop_reason", "detail"))
    if isinstance(body.get("error"), str):
        yield body["error"]
    error = mapping_in(body.get("error")) or mapping_in(mapping_in(body.get("response")).get("error"))
    yield from (text_in(error.get(name)) for name in ("message", "code", "type"))
    # OpenRouter quotes the upstream's own error there.
    yield text_in(mapping_in(error.get("metadata")).get("raw"))


def _match_overflow(text: str) -> Overflow | None:
    text = text[:_SEARCHED_LENGTH]
    for pattern in _OVERFLOW_PATTERNS:
        if found := pattern.search(text):
            numbers = {name: int(value.replace(",", "") or 0) for name, value in found.groupdict().items()}
            return Overflow(tokens=numbers.get("tokens") or None, limit=numbers.get("limit") or None)
    if _OVERFLOW_WITHOUT_NUMBERS.search(text):
        return Overflow()
    return None


# -- the cache --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheMiss:
    """The provider says why a prompt was not read from its cache.

    reason: the provider's word (`messages_changed`, `tools_changed`, `context_compacted`, `model_changed` ...).
    tokens: how many of the prompt were read anew, by its estimate; 0 where it does not say.
    """

    reason: str
    tokens: int = 0


def parse_cache_miss(response: Mapping[str, Any]) -> CacheMiss | None:
    """Read Anthropic's `diagnostics.cache_miss_reason` or OpenAI's `prompt_cache_diagnostics`; None if there was no
    miss, or the request did not ask."""
    reason = mapping_in(mapping_in(response.get("diagnostics")).get("cache_miss_reason"))
    if word := text_in(reason.get("type")):
        return CacheMiss(reason=word, tokens=count_in(reason.get("cache_missed_input_tokens")))
    found = mapping_in(response.get("prompt_cache_diagnostics"))
    word = text_in(found.get("type"))
    if word == "cache_miss":
        word = text_in(found.get("reason")) or word
    elif word not in ("comparison_response_not_found", "unavailable"):
        return None
    return CacheMiss(reason=word, tokens=count_in(found.get("cache_missed_tokens")))


# -- what was changed on the way to the model -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformation:
    """Thinking that did not fit the messages before it.

    is_dropped: whether the model was spared it; if not, it was let pass.
    place:   the block, as the provider writes it. reason: the provider's word, `prefix_binding_mismatch` for an edit.
    """

    is_dropped: bool
    place: str
    reason: str


#: Type -> whether the block was dropped; the provider asks readers to pass over types that they do not know.
_TRANSFORMATION_TYPES: Final[Mapping[str, bool]] = {"thinking_dropped": True, "thinking_mismatch_allowed": False}


def parse_transformations(response: Mapping[str, Any]) -> tuple[Transformation, ...]:
    """Read Anthropic's `input_transformations`, in order."""
    return tuple(
        Transformation(
            is_dropped=_TRANSFORMATION_TYPES[text_in(each.get("type"))],
            place=text_in(each.get("path")),
            reason=text_in(each.get("reason")),
        )
        for each in mappings_in(response.get("input_transformations"))
        if text_in(each.get("type")) in _TRANSFORMATION_TYPES
    )


#: The place of the block that failed, and of the first change, in Anthropic's error about bound thinking.
_UNBOUND_PATTERN = re.compile(
    r"(messages\.\d+\.content\.\d+).{0,20}?Invalid `signature` in `thinking` block", re.DOTALL
)


def find_unbound_thinking(answer: object) -> str | None:
    """Return the place of the first thinking block that was refused because something before it was edited; None if an
    error says something else."""
    if isinstance(answer, Mapping):
        answer = " ".join(_list_error_texts(answer))
    if not isinstance(answer, str) or "bound to a different conversation" not in answer:
        return None
    found = _UNBOUND_PATTERN.search(answer[:_SEARCHED_LENGTH])
    return found[1] if found else None
