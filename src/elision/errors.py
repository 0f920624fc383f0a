"""Every error Elision raises on purpose.

ElisionError
├── FormatError        a file or record that is no trajectory, or a broken one; names file, place and mend
├── SpecError          a strategy, schedule, rule or price text that does not parse; lists what exists
├── PriceError         an unknown model or price set, or a price that is no price
├── BudgetError        the floor of a view does not fit its budget; carries the numbers
├── LimitError         what a session may cost, or how long it may last, is reached; nothing was decided
├── OutputError        a file that cannot or must not be written; said before the work begins
├── SummaryError       a summarizer's answer that may not replace anything
├── StoreError         a store that cannot be opened, read or written; nothing that was acknowledged is lost
│   ├── ConflictError  somebody else wrote to the session, or writes to the file, in the meantime
│   ├── MissingStore   a store that is to be read and is not there yet
│   └── CorruptError   stored bytes that are not what was written; names the place
├── UnknownHandle      no such session, or nothing under that handle in it
├── DialectError       messages in no shape that Elision knows, or in another one than was named
├── CallbackError      a function of the caller's failed; the pass went on without it
├── SettingError       an unknown or senseless setting; names where it stands
└── MissingExtra       an optional dependency is needed; names the extra to install
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol, TypeAlias

#: Why there is no summary, in one word: the writer was not reached or answered late ("timeout", "connection"), said no
#: ("rate-limited", "server", "rejected"), was asked for too much ("overflow"), was not asked ("circuit-open"), or
#: answered what may not stand for a history (the rest). "other": whoever raised it did not say.
SummaryCause: TypeAlias = Literal[
    "timeout",
    "connection",
    "rate-limited",
    "server",
    "rejected",
    "overflow",
    "circuit-open",
    "malformed",
    "too-large",
    "empty",
    "refusal",
    "error-text",
    "garbage",
    "tool-call",
    "task-continued",
    "truncated",
    "too-long",
    "facts-lost",
    "other",
]


class ElisionError(Exception):
    """The root of the tree; its text is fit to show to a user as it is."""


class FormatError(ElisionError):
    """A file that is no trajectory, or is broken beyond reading."""


class SpecError(ElisionError):
    """A strategy, schedule, rule or budget text that does not parse or has no meaning."""


class PriceError(ElisionError):
    """An unknown model or price set, or a number that is no price."""


class BudgetError(ElisionError):
    """Not even the floor (head + newest turn + tools) fits the budget.

    needed, usable: tokens.
    """

    def __init__(self, message: str, *, needed: int, usable: int) -> None:
        super().__init__(message)
        self.needed = needed
        self.usable = usable


class LimitError(ElisionError):
    """A session that goes no further: whoever was asked before a call did not admit it."""


class Billed(Protocol):
    """What calls used: tokens (`cached` is part of `input`), and USD where the price is known."""

    @property
    def input(self) -> int: ...
    @property
    def cached(self) -> int: ...
    @property
    def output(self) -> int: ...
    @property
    def usd(self) -> float | None: ...


class SummaryError(ElisionError):
    """A summary that could not be written, or failed its checks; the view stays as it was.

    cause:  why, in one word. billed: what the failed calls used, where that is known.
    """

    # Of the class too: an error of the caller's that is one of these may not have called our `__init__`.
    cause: SummaryCause = "other"
    billed: Billed | None = None

    def __init__(self, message: str, *, cause: SummaryCause = "other", billed: Billed | None = None) -> None:
        super().__init__(message)
        self.cause = cause
        self.billed = billed


class StoreError(ElisionError):
    """A store that cannot be opened, read or written now; what was acknowledged is safe."""


class MissingStore(StoreError):  # noqa: N818 - reads as what it is at the call site
    """A store that is to be read, not written, and is not there yet; the first session that is kept makes it."""


class ConflictError(StoreError):
    """A session or store that another writer has changed, or holds."""


class CorruptError(StoreError):
    """Stored bytes that are not what was written."""


class UnknownHandle(ElisionError):  # noqa: N818 - reads as what it is at the call site
    """A session, turn or observation that the store does not keep."""


class DialectError(ElisionError):
    """Messages in no shape that Elision knows, or in another one than was named."""


class CallbackError(ElisionError):
    """A function of the caller's (an extractor, `pin`) that failed; its exception is the cause."""


class SettingError(ElisionError):
    """A setting that is unknown or has no meaning; names where it stands."""


class OutputError(ElisionError):
    """A file that cannot be written, or that is somebody else's."""


class MissingExtra(ElisionError):  # noqa: N818 - reads as what it is at the call site
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra: {install(extra)}")
        self.extra = extra


def describe_error(error: BaseException) -> str:
    """Return the type of `error` and what it says; of an exception of others `str` may fail as well."""
    return f"{type(error).__name__}: {words_of_error(error)}"


def words_of_error(error: BaseException) -> str:
    """Return what `error` says."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception of others
        return "what it says cannot be shown"


def install(extra: str) -> str:
    """How an extra is installed, in words that work here: the package is on no index yet, and its checkout is at hand
    where it runs out of it."""
    source = Path(__file__).parents[1]
    if source.name != "src" or not (source.parent / "pyproject.toml").is_file():
        return f"pip install 'elision[{extra}]', or pip install '.[{extra}]' in a checkout"
    # LiteLLM cannot share an environment with what `make setup` installs.
    if extra == "litellm":
        setup = ""
    else:
        setup = f", or make -C '{source.parent}' setup"
    return f"pip install -e '{source.parent}[{extra}]'{setup}"
