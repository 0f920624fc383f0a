"""Answers of a model that writes summaries, kept on disk by request: what was answered once is not asked again.

One file for each request, named by a hash of kind, address, model and body. A file is replaced in one step, so that
several processes may use one folder; a damaged file counts as none. Requests are not kept, only what they were hashed
to.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from elision.errors import SettingError
from elision.providers.llm.answers import EndpointAnswer, EndpointFault
from elision.summarizers.endpoints import Endpoint, EndpointRequest
from elision.trajectory.plan import LivePrefix

#: Shape of a file.
FORMAT: Final = "elision.summary-answer/1"
#: Variable of the environment with the folder for all programs' caches.
_CACHE_VARIABLE: Final = "XDG_CACHE_HOME"
#: Bytes of a file that is read; what an endpoint accepts is smaller.
_LARGEST: Final = 16_000_000


def find_default_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder for answers where none is named: below XDG_CACHE_HOME, else below ~/.cache."""
    base = environment.get(_CACHE_VARIABLE, "")
    # By its specification a relative path is ignored.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "elision" / "summaries"


@dataclass(slots=True)
class AnswerCounts:
    """Requests of a summarizer: sent to its model, answered from the cache, answered but not kept (disk full ...)."""

    asked: int = 0
    cached: int = 0
    unsaved: int = 0


class AnswerCache:
    """The folder `folder`, made where it is missing, for this user alone.

    Raises SettingError if nothing can be written there: that is better known before a model is paid.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise SettingError(f"{folder}: answers cannot be kept there: {reason}; name another folder") from None

    def load_answer(self, key: str) -> EndpointAnswer | EndpointFault | None:
        """Return what was kept under `key`; None for nothing, or for a damaged file."""
        try:
            with self._find_path(key).open("rb") as file:
                entry = json.loads(file.read(_LARGEST))
            if entry["format"] != FORMAT or entry["sha256"] != _hash_json(entry["answer"]):
                return None
            answer = entry["answer"]
            if "fault" in answer:
                return msgspec.convert(answer["fault"], EndpointFault)
            return msgspec.convert(answer, EndpointAnswer)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def save_answer(self, key: str, answer: EndpointAnswer | EndpointFault) -> bool:
        """Keep `answer` under `key`, and return whether it could be kept."""
        value = msgspec.to_builtins(answer)
        if isinstance(answer, EndpointFault):
            value = {"fault": value}
        entry = {"format": FORMAT, "sha256": _hash_json(value), "answer": value}
        path = self._find_path(key)
        try:
            path.parent.mkdir(exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
            try:
                with open(handle, "w", encoding="ascii") as file:
                    json.dump(entry, file)
                os.replace(name, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        except OSError:
            return False
        return True

    def _find_path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"


class CachedEndpoint:
    """The model behind `endpoint`; answers that `cache` has are taken from there.

    kind, base_url, extra: of the endpoint, as parts of a request's name; user and password of an address are not.
    Kept are answers, and those refusals after which a shorter request follows: another run then takes the same way.
    Other faults are asked again.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        cache: AnswerCache,
        *,
        kind: str,
        base_url: str = "",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.cache = cache
        self.counts = AnswerCounts()
        # The query too: some providers name the version of their API there. Only a hash of all this is kept.
        query = urlsplit(base_url).query
        self._name = {"kind": kind, "url": strip_credentials(base_url), "query": query, "extra": dict(extra or {})}

    def __repr__(self) -> str:
        return f"CachedEndpoint({self.endpoint!r}, {str(self.cache.folder)!r})"

    @property
    def model(self) -> str:
        return self.endpoint.model

    def can_extend(self, live: LivePrefix) -> bool:
        return self.endpoint.can_extend(live)

    def ask(self, request: EndpointRequest) -> EndpointAnswer | EndpointFault:
        key = self.compute_key(request)
        found = self.cache.load_answer(key)
        if found is not None:
            self.counts.cached += 1
            return found
        self.counts.asked += 1
        answer = self.endpoint.ask(request)
        # Only such a fault makes the next request another one.
        is_telling = (
            isinstance(answer, EndpointAnswer) or answer.cause == "overflow" or answer.max_output_tokens is not None
        )
        if is_telling:
            self.counts.unsaved += not self.cache.save_answer(key, answer)
        return answer

    def compute_key(self, request: EndpointRequest) -> str:
        """Return the hash that names `request`: of all that decides on the answer, and not of its time limit."""
        live = None if request.live is None else asdict(request.live)
        body = {
            "text": request.text,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "live": live,
        }
        return _hash_json({"format": FORMAT, "model": self.model, **self._name, "body": body})


def strip_credentials(url: str) -> str:
    """Return scheme, host, port and path of `url`."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def _hash_json(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
