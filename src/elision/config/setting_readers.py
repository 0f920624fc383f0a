"""What a setting may be: from the text of a variable, or the value of a TOML file, to the value it means.

Each reader raises ValueError with the fix: what to give instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from elision.errors import PriceError, SpecError
from elision.providers.provider_table import PROVIDERS
from elision.stores.store_urls import FORMS, STORE_KINDS
from elision.strategies.schedules import HindsightSchedule, Schedule
from elision.strategies.spec import parse_schedule
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.price_table import load_price_table

Reader: TypeAlias = Callable[[object], Any]

#: Switches a limit off, where a lower source or a preset sets one.
NONE: Final = "none"
_FLAGS: Final = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}
_WHOLE: Final = re.compile(r"[+-]?\d{1,3}(?:[_,]?\d{3}){0,6}|[+-]?\d{1,18}")


def read_text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("give a text")
    return value.strip()


def read_flag(value: object) -> bool:
    found = value if isinstance(value, bool) else _FLAGS.get(str(value).strip().lower())
    if found is None:
        raise ValueError("give true or false")
    return found


def whole(least: int, what: str, most: int | None = None) -> Reader:
    """Whole numbers from `least` on, up to `most` if there is one. what: their unit, "" for none."""
    if most is None:
        bounds = f"{least} or more"
    else:
        bounds = f"{least} to {most}"

    def read(value: object) -> int:
        number = value
        if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
            number = int(re.sub("[_,]", "", value))
        if isinstance(number, bool) or not isinstance(number, int) or number < least or (most and number > most):
            raise ValueError(f"give a whole number{what and f' of {what}'}, {bounds}")
        return number

    return read


_SIZES: Final = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE: Final = re.compile(r"(\d[\d_,]{0,18})\s*([a-z]*)", re.IGNORECASE | re.ASCII)


def read_size(value: object) -> int:
    """Bytes, 1 or more; "64MiB" is 67,108,864."""
    if isinstance(value, str):
        found = _SIZE.fullmatch(value.strip())
    else:
        found = None
    if found and found[2].lower() in _SIZES:
        value = int(re.sub("[_,]", "", found[1])) * _SIZES[found[2].lower()]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**60:
        raise ValueError("give bytes, such as 64MiB, 500MB or a whole number, 1 or more")
    return value


def read_share(value: object) -> float:
    """A share above 0 and up to 1; "85%" is 0.85."""
    if isinstance(value, str):
        found = _read_number(value.strip().removesuffix("%"))
    else:
        found = _read_number(value)
    if isinstance(value, str) and value.strip().endswith("%"):
        found /= 100
    if not 0 < found <= 1:
        raise ValueError("give a share above 0 and up to 1, such as 0.85, or 85 %")
    return found


def read_usd(value: object) -> float:
    """US dollars, above 0; "$2.50" is 2.5."""
    found = _read_number(value.strip().removeprefix("$") if isinstance(value, str) else value)
    if not found > 0:
        raise ValueError("give US dollars, above 0")
    return found


def read_seconds(value: object) -> float:
    """Seconds, above 0."""
    found = _read_number(value)
    if not found > 0:
        raise ValueError("give seconds, above 0")
    return found


def read_temperature(value: object) -> float:
    """A temperature, 0 to 2."""
    found = _read_number(value)
    if not 0 <= found <= 2:
        raise ValueError("give a temperature, 0 to 2")
    return found


def _read_number(value: object) -> float:
    try:
        found = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan
    if math.isfinite(found):
        return found
    return math.nan


def optional(read: Reader) -> Reader:
    """What `read` reads, or "none"."""

    def either(value: object) -> Any:
        if value is None or (isinstance(value, str) and value.strip().lower() == NONE):
            return None
        try:
            return read(value)
        except ValueError as error:
            raise ValueError(f"{error}, or {NONE}") from None

    return either


def read_example(value: object) -> str:
    """ "on", "off" (flags too), or the path of a file."""
    word = str(value).strip().lower()
    if isinstance(value, bool) or word in _FLAGS:
        return "on" if read_flag(value) else "off"
    return read_text(value)


def choice(words: Sequence[str]) -> Reader:
    """One of `words`, any case."""

    def read(value: object) -> str:
        word = str(value).strip().lower()
        if word not in words:
            raise ValueError(f"give one of: {', '.join(words)}")
        return word

    return read


def read_schedule(value: object) -> Schedule:
    """A schedule that works while an agent runs."""
    try:
        found = parse_schedule(read_text(value))
    except SpecError as error:
        raise ValueError(f"give cache-aware or every-turn: {error}") from None
    if isinstance(found, HindsightSchedule):
        raise ValueError("give cache-aware or every-turn; hindsight needs a recorded run")
    return found


def read_placeholder(value: object) -> str:
    """A text of one's own; "none" for Elision's, which is ""."""
    found = read_text(value)
    if found.lower() == NONE:
        return ""
    return found


def read_names(value: object) -> tuple[str, ...]:
    """A list of texts, or one text with commas."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("give names, with commas between them")
    return tuple(part.strip() for part in parts if part.strip())


def read_patterns(value: object) -> tuple[tuple[str, str], ...]:
    """(name, regular expression) pairs: a table, or lines of the form name=expression."""
    if isinstance(value, str):
        lines = [line.partition("=") for line in value.splitlines() if line.strip()]
        if not all(mark for _, mark, _ in lines):
            raise ValueError("give lines of the form name=expression")
        value = {name.strip(): expression.strip() for name, _, expression in lines}
    if not isinstance(value, Mapping) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        raise ValueError("give a table of names and regular expressions")
    return tuple(value.items())


def read_store(value: object) -> str:
    """The address of a store."""
    scheme, colon, _ = str(value).partition(":")
    if not isinstance(value, str) or not colon or scheme not in STORE_KINDS:
        raise ValueError(f"give one of: {', '.join(FORMS)}")
    return value.strip()


def read_address(value: object) -> str:
    """An HTTP address."""
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s/]\S*", value.strip()):
        raise ValueError("give an address that begins with http:// or https://")
    return value.strip().rstrip("/")


def read_upstream(value: object) -> str:
    """A provider's address, as its own clients take it."""
    found = read_address(value)
    if "?" in found or "#" in found or "@" in found:
        raise ValueError("give an address without a user, a query or a fragment")
    return found


#: Bytes that a token at least has: shorter ones can be guessed.
TOKEN: Final = 16


def read_token(value: object) -> str:
    """A secret that fits a header and a cookie."""
    if not isinstance(value, str) or not re.fullmatch(rf"[A-Za-z0-9._~+/=-]{{{TOKEN},512}}", value.strip()):
        raise ValueError(f"give {TOKEN} or more letters, digits or any of . _ ~ + / = -")
    return value.strip()


def read_prices(value: object) -> str:
    """A named set of prices, or a model whose prices are known."""
    name = read_text(value)
    sets = load_price_table().sets
    try:
        if name not in sets:
            find_prices(name)
    except PriceError as error:
        raise ValueError(f"give a set ({', '.join(sets)}) or a model: {error}") from None
    return name


#: Who can be asked for a summary.
SUMMARY_PROVIDERS: Final = (*sorted(PROVIDERS), "litellm")


def read_summarizer(value: object) -> str:
    """ "digest", which needs no model, or provider:model."""
    spec = str(value).strip()
    provider, _, model = spec.partition(":")
    if not isinstance(value, str) or (spec != "digest" and not (provider in SUMMARY_PROVIDERS and model.strip())):
        raise ValueError(f"give digest, or one of {', '.join(f'{name}:MODEL' for name in SUMMARY_PROVIDERS)}")
    return spec


_QUERY: Final = re.compile(r"(?i)\b(\w*(?:password|passwd|pwd|secret|token|key)=)[^&\s]*")


def conceal_password(url: str) -> str:
    """`url` with its password replaced by ***, wherever one may stand."""
    scheme, mark, rest = url.partition("://")
    if mark and "@" in rest:
        user, _, host = rest.rpartition("@")
        name, colon, _ = user.partition(":")
        rest = f"{name}:***@{host}" if colon else rest
    return _QUERY.sub(r"\1***", f"{scheme}{mark}{rest}")
