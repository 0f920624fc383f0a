"""The vocabularies that ship with the package, and the encoders that count tokens by them.

tiktoken is the reference. gigatoken (the extra `fast-tokens`) is some 20 times faster; it is used where it is installed
and never changes a count.
"""

from __future__ import annotations

import binascii
import gzip
import hashlib
import logging
import mmap
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from time import thread_time
from typing import Final, Protocol, TypeAlias

from elision.errors import SpecError, describe_error
from elision.trajectory.foreign_text import split_text

_log: Final = logging.getLogger("elision.trajectory")

#: Returns how many tokens a text has.
Count: TypeAlias = Callable[[str], int]

#: A text with contractions, digits, white space, scripts and emoji: a wrong splitter counts it differently.
PROBE: Final = (
    "It's THEY'LL camelCase HTTPServer x1234567 3.14159\r\n\n\n\t  def f(a_b):  # naïve ÄÖÜ straße ПРИВЕТ мир\n"
    "{\"key\": [1, 22, 4444]}   \n'quoted'/path/to/file.py:12: …→ 日本語 한국어 👩‍👩‍👧 ===>>>\n"
)
#: Texts of these characters alone are counted by gigatoken. Tokenizers split a text by the classes of its characters,
#: and gigatoken knows a newer Unicode than tiktoken: what it takes for a letter may be none to tiktoken. In these
#: ranges no character will become a letter, mark or number.
_SETTLED: Final = re.compile(
    "[\x00-\u0377\u0391-\u03a1\u03a3-\u052f\u1e00-\u1eff\u2000-\u2064\u20a0-\u20bf\u2100-\u218b\u2190-\u2bff"
    "\u3000-\u303f\u3041-\u3096\u3099-\u30ff\u3400-\u4dbf\u4e00-\u9fef\uac00-\ud7a3\ufe0f\uff01-\uff5e\ufffd"
    "\U0001f300-\U0001faff]*"
)
#: Bytes that gigatoken's memory may grow by before it is loaded anew, since it keeps every word that it ever split. To
#: load it stops all threads for half a second: 100 MB of source code grow it by 10 MB, 10 MB of random words by 100.
MAX_GROWN_BYTES: Final = 100_000_000
#: What a character costs at most, in bytes of that memory; counted so where the system does not measure it.
_BYTES_PER_CHARACTER: Final = 10
_PAGE_BYTES: Final = mmap.PAGESIZE
#: Of texts with fewer characters only each sixteenth is measured, and stands for the others: to ask takes as long as to
#: count.
_SHORT: Final = 4_000
_SAMPLED: Final = 16
#: Characters of a text that are counted in one call.
LONGEST_COUNTED: Final = 100_000
#: Characters of a block: the longest tokens of one character divide it, 128 spaces, 64 dashes and 3 digits.
_BLOCK: Final = 1_536
#: Seconds of processor time from which on that call was slow. Known words take 0.3 to 0.9 ms, new ones 4 to 13 ms.
_SLOW_SECONDS: Final = 0.0025
#: Characters at the start of a long piece that show whether its words are known.
_TRIED: Final = 4_096
#: Slow trials in a row after which the rest of a text is not given to gigatoken.
_MOST_SLOW: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """A vocabulary as OpenAI publishes it (tiktoken, MIT).

    file, digest: its ranks, compressed, and the SHA-256 of them decompressed.
    pattern:      splits a text into words. special_tokens: by their names.
    probe_tokens: what PROBE counts.
    """

    file: str
    digest: str
    pattern: str
    special_tokens: Mapping[str, int]
    probe_tokens: int


VOCABULARIES: Final[Mapping[str, Vocabulary]] = {
    "o200k": Vocabulary(
        file="o200k_base.tiktoken.gz",
        digest="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        pattern=r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        special_tokens={"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
        probe_tokens=81,
    ),
    "cl100k": Vocabulary(
        file="cl100k_base.tiktoken.gz",
        digest="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        pattern=r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
        r"|\s*[\r\n]|\s+(?!\S)|\s",
        special_tokens={
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
        probe_tokens=94,
    ),
}


class Encoder(Protocol):
    """Counts the tokens of a text. Special tokens in a text are text; a lone surrogate counts as a question mark."""

    def count(self, text: str) -> int: ...


def _split_text(text: str) -> Iterable[str]:
    """Return `text` in pieces that encoders can digest: tiktoken's pattern is quadratic on megabytes without a space.

    A word of 100,000 spaces takes either of them 13 ms or more, and gigatoken keeps it. So blocks of one character are
    pieces of their own.
    """
    if len(text) < _BLOCK and text.isascii():
        return (text,)
    return _split_blocks(text)


def _split_blocks(text: str) -> Iterator[str]:
    for piece in split_text(text, LONGEST_COUNTED):
        shown = piece if piece.isascii() else piece.encode("utf-8", "replace").decode("utf-8")
        start = 0
        for at in range(0, len(shown) - _BLOCK + 1, _BLOCK):
            # The first and last characters differ almost everywhere, so few blocks are compared.
            if shown[at] == shown[at + _BLOCK - 1] and shown[at : at + _BLOCK] == shown[at] * _BLOCK:
                if start < at:
                    yield shown[start:at]
                yield shown[at : at + _BLOCK]
                start = at + _BLOCK
        if start < len(shown):
            yield shown[start:]


class TiktokenEncoder:
    """Counts by tiktoken. Raises SpecError if the vocabulary's file is damaged."""

    def __init__(self, name: str) -> None:
        import tiktoken  # 23 ms, and not every user of the values counts

        vocabulary = VOCABULARIES[name]
        # 200,000 lines of a token and its rank, read by loops in C: a gateway starts with this.
        fields = _read_ranks(vocabulary).split()
        ranks = dict(zip(map(binascii.a2b_base64, fields[::2]), map(int, fields[1::2]), strict=True))
        self._encoding = tiktoken.Encoding(
            name=name,
            pat_str=vocabulary.pattern,
            mergeable_ranks=ranks,
            special_tokens=dict(vocabulary.special_tokens),
        )

    def count(self, text: str) -> int:
        # Special tokens in recorded text are text: a trajectory must not be able to shrink or break its own count.
        return sum(map(len, map(self._encoding.encode_ordinary, _split_text(text))))


class GigatokenEncoder:
    """Counts by gigatoken, and by tiktoken what the two may split differently.

    Raises ImportError if gigatoken is not installed, and SpecError if it counts PROBE differently.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._reference: TiktokenEncoder | None = None
        self._count_words = _load_gigatoken(name)
        self._memory = _ResidentMemory()
        self._grown_bytes = 0
        self._short_texts = 0
        tokens = self._count_words(PROBE)
        if tokens != VOCABULARIES[name].probe_tokens:
            raise SpecError(f"it counts {tokens} tokens of {name} where {VOCABULARIES[name].probe_tokens} are right")

    def count(self, text: str) -> int:
        tokens = counted = slow = 0
        before = ""
        for piece in _split_text(text):
            if piece != before:
                before = piece
                # It keeps every word that it ever split, and to load it anew stops all threads. So tiktoken counts
                # large texts of ever new words, such as base64.
                if slow < _MOST_SLOW and len(piece) == LONGEST_COUNTED:
                    slow = slow + 1 if self._is_new(piece[:_TRIED]) else 0
                if slow or not (piece.isascii() or _SETTLED.fullmatch(piece)):
                    self._reference = self._reference or TiktokenEncoder(self._name)
                    counted = self._reference.count(piece)
                else:
                    counted = self._count_piece(piece)
            # The same again where megabytes are white space, which takes longest of all.
            tokens += counted
        return tokens

    def _is_new(self, text: str) -> bool:
        """Return whether most words of `text` had to be learned."""
        began = thread_time()
        self._count_piece(text)
        return thread_time() - began > _SLOW_SECONDS * len(text) / LONGEST_COUNTED

    def _count_piece(self, text: str) -> int:
        if self._grown_bytes > MAX_GROWN_BYTES:
            # Zero first, or each thread that counts meanwhile would load it as well.
            self._grown_bytes = 0
            self._count_words = _load_gigatoken(self._name)
        weight = 1
        if len(text) < _SHORT:
            weight = _SAMPLED
            self._short_texts += 1
            if self._short_texts % _SAMPLED:
                return self._count_words(text)
        before = self._memory.read_bytes()
        began = thread_time()
        tokens = self._count_words(text)
        learned = thread_time() - began > _SLOW_SECONDS * len(text) / LONGEST_COUNTED
        grown = most = _BYTES_PER_CHARACTER * len(text)
        if before:
            # Threads that compress or write run during the call as well, so the process may grow by more than this.
            grown = min(max(0, self._memory.read_bytes() - before), most) if learned else 0
        self._grown_bytes += weight * grown
        return tokens


class _ResidentMemory:
    """Reads how much memory this process holds, in two microseconds; only Linux says it that fast."""

    def __init__(self) -> None:
        self._process = 0
        self._file = -1

    def read_bytes(self) -> int:
        """Return the bytes; 0 where the system does not say."""
        try:
            # After a fork the open file is still that of the parent.
            if self._process != os.getpid():
                self._process = os.getpid()
                self._file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
            return int(os.pread(self._file, 64, 0).split()[1]) * _PAGE_BYTES
        except (OSError, AttributeError):
            return 0


def load_fastest_encoder(name: str) -> Encoder:
    """Return the fastest encoder of vocabulary `name` that is installed. All of them count the same."""
    try:
        return GigatokenEncoder(name)
    except ImportError:
        return TiktokenEncoder(name)
    except Exception as error:  # noqa: BLE001 - a release that works differently must cost speed alone
        _log.warning("tokens are counted by tiktoken, as gigatoken cannot be used: %s", describe_error(error))
        return TiktokenEncoder(name)


def _load_gigatoken(name: str) -> Count:
    from gigatoken.gigatoken_rs import BPETokenizer, BytesSource

    # It reads a file only.
    with tempfile.TemporaryDirectory(prefix="elision-") as folder:
        path = Path(folder) / "ranks.tiktoken"
        path.write_bytes(_read_ranks(VOCABULARIES[name]))
        tokenizer = BPETokenizer.from_tiktoken(path, name, None)

    def count(text: str) -> int:
        # Its `encode` holds the interpreter, for 0.1 s where its table of words grows. A batch does not, and given as a
        # source it does not import awkward (0.5 s, 74 MB).
        batch = BytesSource([text.encode("utf-8", "replace")])
        return sum(map(len, tokenizer.encode_batch_list(batch, parallel=False)))

    # The first batch copies the tokenizer: better now than in a request.
    count(PROBE)
    return count


def _read_ranks(vocabulary: Vocabulary) -> bytes:
    packed = files("elision.trajectory").joinpath("vocabularies", vocabulary.file).read_bytes()
    raw = gzip.decompress(packed)
    if hashlib.sha256(raw).hexdigest() != vocabulary.digest:
        raise SpecError(f"the vocabulary {vocabulary.file} is damaged; reinstall elision")
    return raw
