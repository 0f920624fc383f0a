"""Secrets, replaced by `[redacted: kind]` on the way into summaries, logs and exports.

Raw turns keep them: the store must lose nothing, and the agent may need them. What leaves it, or lives on in other
words, must not carry them along.

Every pattern is linear: a literal or a short bounded piece first, then one possessive run of characters that can
match in one way only. A rule is tried only where one of its `hints` stands in the text, which is a search for a few
letters; so text without secrets costs little.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Final, TypeAlias

from elision.errors import SettingError

#: Whether the text of a match is a secret, not an example of one.
Test: TypeAlias = Callable[[str], bool]
#: Characters of a text that are searched at once.
_PIECE: Final = 256 * 1024
#: Values nested deeper than this in a log line or an export are replaced whole.
_DEEPEST = 64


def always(value: str) -> bool:
    """The form alone says what it is."""
    return True


# What stands where a secret would: masks, references to variables, and words that say what should stand there.
_STAND_IN: Final = re.compile(r"x{3,}|\*{2,}|\.{3,}|[<$%{\[(].*", re.IGNORECASE | re.DOTALL)
_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        """
        a abc access admin an any api auth bar baz change changeme client credential credentials db demo django
        dummy example fake false foo here insecure is key keys me my new nil no none not null old optional or pass
        passphrase passwd password passwords placeholder private public pwd redacted required root sample secret
        secrets some str string test tests the this token tokens true undefined user username value xyz your
        """,
    )
)
_APART: Final = re.compile(r"[-_. /:]+")


def guarded(value: str) -> bool:
    """Whether `value` behind a name like `password` is one, not something that stands in for it."""
    return len(value) >= 4 and not _STAND_IN.fullmatch(value) and not _WORDS.issuperset(_APART.split(value.lower()))


def dense(value: str) -> bool:
    """Whether `value` behind a name like `token` looks drawn at random: 16 characters or more, letters and digits."""
    return len(value) >= 16 and _mixed(value) and _bits(value) >= 3.0 and guarded(value)


def unquoted(value: str) -> bool:
    """Whether an unquoted `value` behind a name like `password` is one: code seldom mixes letters with digits there."""
    return len(value) >= 6 and _mixed(value) and guarded(value)


def _mixed(value: str) -> bool:
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def _bits(value: str) -> float:
    """Entropy in bits a character."""
    total = len(value)
    return -sum(count / total * math.log2(count / total) for count in Counter(value).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One kind of secret.

    hints:   how a match begins, in lower case; the pattern is tried only there.
    pattern: where it has a group named `secret` only that is replaced, else the whole match.
    test:    asked about what would be replaced.
    behind:  what must stand right in front of a match, where the pattern cannot look that far back.
    code:    whether an opening bracket right behind the value tells code, not a secret.
    """

    kind: str
    pattern: re.Pattern[str]
    hints: tuple[str, ...]
    test: Test = always
    behind: re.Pattern[str] | None = None
    code: bool = False

    def fits(self, match: re.Match[str]) -> bool:
        """Whether what `match` would replace is a secret."""
        text, (start, end) = match.string, _span(match)
        if self.behind and not self.behind.search(text[max(0, match.start() - _REACH) : match.start()]):
            return False
        return not (self.code and text[end : end + 1] in _BRACKETS) and self.test(text[start:end])


#: Characters in front of a match that `behind` sees.
_REACH: Final = 16
_BRACKETS: Final = ("(", "[", "{")


def _rule(kind: str, hints: str, pattern: str, test: Test = always, behind: str = "", code: bool = False) -> Rule:
    if behind:
        front = re.compile(f"(?:{behind})$", re.IGNORECASE)
    else:
        front = None
    return Rule(kind=kind, hints=tuple(hints.split()), pattern=re.compile(pattern), test=test, behind=front, code=code)


_EDGE = r"(?<![A-Za-z0-9_])"
_PASSWORDS = r"(?i:pass(?:word|wd|phrase)|pwd|secret(?:[_-]?key)?)"
_TOKENS = r"(?i:key|token|secret|credentials?|signature|authorization)(?i:[_-]id)?"
#: In front of `key`, which alone may be any key.
_KEYS = r"(?:api|access|auth|private|signing|encryption|account|session|master|service|secret)[_-]?"
#: What stands between a name and its value: `=`, `:`, `=>`, `:=`, with quotes of JSON, also escaped ones.
_IS = r"(?:\\?[\"'])?[ \t]{0,4}(?::=|=>|=(?!=)|:(?!:))[ \t]{0,4}"
_SCHEME = r"(?:(?i:token|bearer|basic)[ \t]{1,4})?"
_VALUE = rf"(?:\\?[\"'])?{_SCHEME}(?P<secret>[A-Za-z0-9._~+/-]{{16,}}+={{0,2}})"
_TOKEN_HINTS = "token secret credential signature authorization"
_BARE = r"[^\s\"'`,;(){}\[\]<>\\&|]"

#: The built-in rules, the most telling first: what one replaced no later one sees.
RULES: Final[tuple[Rule, ...]] = (
    _rule(
        "private-key",
        "-----begin",
        r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        r"(?=(?:\s|\\{1,4}[rn]|[A-Za-z-]{1,20}: [^\n\\]{0,100}){0,12}+[A-Za-z0-9+/=]{16})"
        r"(?:[A-Za-z0-9+/=:,.\s\\]|-(?!----))*+(?:-----END [A-Z0-9 ]{0,40}-----)?",
    ),
    _rule("anthropic-key", "sk-ant-", _EDGE + r"sk-ant-[A-Za-z0-9_-]{20,}+"),
    _rule("openrouter-key", "sk-or-", _EDGE + r"sk-or-[A-Za-z0-9-]{32,}+"),
    _rule("openai-key", "sk-", _EDGE + r"sk-(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,}+|[A-Za-z0-9]{32,}+)"),
    _rule("aws-key", "akia asia", _EDGE + r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _rule("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", _EDGE + r"gh[pousr]_[A-Za-z0-9]{36,}+"),
    _rule("github-token", "github_pat_", _EDGE + r"github_pat_\w{22,}+"),
    _rule("gitlab-token", "glpat-", _EDGE + r"glpat-[\w-]{20,}+"),
    _rule("slack-token", "xox xapp-", _EDGE + r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,}+"),
    _rule("slack-webhook", "hooks.slack", r"hooks\.slack\.com/(?:services|workflows)/(?P<secret>[A-Za-z0-9/_-]{20,}+)"),
    _rule("google-key", "aiza", _EDGE + r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _rule("google-token", "ya29. gocspx-", _EDGE + r"(?:ya29\.|GOCSPX-)[A-Za-z0-9_-]{20,}+"),
    _rule("huggingface-token", "hf_", _EDGE + r"hf_[A-Za-z0-9]{30,}+"),
    _rule("groq-key", "gsk_", _EDGE + r"gsk_[A-Za-z0-9]{32,}+"),
    _rule("xai-key", "xai-", _EDGE + r"xai-[A-Za-z0-9]{40,}+"),
    _rule("stripe-key", "sk_ rk_ whsec_", _EDGE + r"(?:[sr]k_(?:live|test)|whsec)_[A-Za-z0-9]{16,}+"),
    _rule("sendgrid-key", "sg.", _EDGE + r"SG\.[\w-]{16,64}\.[\w-]{16,}+"),
    _rule("npm-token", "npm_", _EDGE + r"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    _rule("pypi-token", "pypi-age", _EDGE + r"pypi-AgE[\w-]{50,}+"),
    _rule("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", _EDGE + r"do[opr]_v1_[0-9a-f]{64}(?![0-9a-f])"),
    _rule("telegram-token", ":aa", r":AA[\w-]{33}(?![\w-])", behind=r"(?<!\d)\d{8,10}"),
    _rule("jwt", "eyj", _EDGE + r"eyJ[\w-]{10,1000}+\.eyJ[\w-]{10,8000}+\.[\w-]{10,}+"),
    _rule("azure-key", "accountkey=", r"(?i:AccountKey=)(?P<secret>[A-Za-z0-9+/]{40,}+={0,2})"),
    _rule(
        "bearer-token",
        "bearer basic",
        r"(?i:bearer|basic)[ \t]{1,4}(?P<secret>[A-Za-z0-9._~+/-]{16,}+={0,2})",
        dense,
    ),
    _rule(
        "url-password",
        "://",
        r"://[^\s:/@\"'<>\[\]]{0,80}:(?P<secret>[^\s/@\"'<>\[\]]{3,200})@(?=[A-Za-z0-9_-])",
        guarded,
    ),
    _rule("password", "pass pwd secret", _PASSWORDS + _IS + r"[\"'](?P<secret>[^\s\"'\\\[]{4,200}+)(?=[\"'])", guarded),
    _rule(
        "password",
        "pass pwd secret",
        _PASSWORDS + _IS + r"\\[\"'](?P<secret>[^\s\"'\\\[]{4,200}+)(?=\\[\"'])",
        guarded,
    ),
    _rule("password", "pass pwd secret", _PASSWORDS + _IS + f"(?P<secret>{_BARE}{{6,200}}+)", unquoted, code=True),
    _rule(
        "password", "pass", _PASSWORDS + rf"[ \t]{{1,4}}[\"']?(?P<secret>(?!-){_BARE}{{4,200}}+)", unquoted, behind="--"
    ),
    _rule(
        "password",
        "curl",
        r"curl\s[^\n]{0,300}?(?<=\s)-(?:u|-user)[ =]{0,2}[\"']?[\w.@-]{1,80}"
        r":(?P<secret>[^\s\"'`:@/\\\[\]]{4,200}+)(?![:/@])",
        guarded,
    ),
    _rule("secret-value", _TOKEN_HINTS, _TOKENS + _IS + _VALUE, dense, code=True),
    _rule("secret-value", "key", _TOKENS + _IS + _VALUE, dense, behind=_KEYS, code=True),
    _rule("secret-value", f"key {_TOKEN_HINTS}", _TOKENS + r"[ \t]{1,4}" + _VALUE, dense, behind=r"--[\w-]{0,12}"),
)

#: Every built-in kind, in the order of the rules.
KINDS: Final = tuple(dict.fromkeys(rule.kind for rule in RULES))


@dataclass(frozen=True, kw_only=True)
class Redaction:
    """What is redacted: the built-in rules but those `without`, and patterns of one's own.

    without: kinds to leave alone (`KINDS` lists them).
    extra:   (kind, regular expression) pairs; where an expression has a group named `secret`, only that is replaced.
             They are tried everywhere and are not checked for running time.

    Raises SettingError for an unknown kind and for an expression that does not compile.
    """

    without: frozenset[str] = frozenset()
    extra: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        unknown = sorted(self.without - set(KINDS))
        if unknown:
            raise SettingError(f"redaction: no kind {', '.join(map(repr, unknown))}; there are: {', '.join(KINDS)}")
        _ = self.own

    @cached_property
    def own(self) -> tuple[tuple[str, re.Pattern[str]], ...]:
        """The patterns of one's own, compiled."""
        return tuple((kind, _compiled(kind, text)) for kind, text in self.extra)

    @cached_property
    def table(self) -> Mapping[str, tuple[Rule, ...]]:
        """By hint: the rules that may match where it stands, in order."""
        rules = [rule for rule in RULES if rule.kind not in self.without]
        hints = {hint for rule in rules for hint in rule.hints}
        # Of "sk-" and "sk-ant-" only the shorter is searched for.
        stems = [hint for hint in hints if not any(hint != other and hint.startswith(other) for other in hints)]
        return {
            stem: tuple(rule for rule in rules if any(hint.startswith(stem) for hint in rule.hints))
            for stem in sorted(stems)
        }

    @cached_property
    def finder(self) -> re.Pattern[str]:
        """Where any hint stands in a text in lower case."""
        return re.compile(_any_of(self.table) or r"(?!)")

    def text(self, text: str) -> str:
        """`text` without secrets. Redacting it again changes nothing."""
        return self.counted(text)[0]

    def counted(self, text: str) -> tuple[str, int]:
        """`text` without secrets, and how many were replaced."""
        total = 0
        for kind, pattern in self.own:
            text, hits = _cut(text, [(match, kind) for match in pattern.finditer(text) if match.end() > match.start()])
            total += hits
        hits = 1
        while hits:
            # Again until none is left: a mark is an edge, and the word behind it may begin at one.
            text, hits = _cut(text, list(self._matches(text)))
            total += hits
        return text, total

    def _matches(self, text: str) -> Iterator[tuple[re.Match[str], str]]:
        """Secrets by the built-in rules with their kinds, in order, without overlaps."""
        done = 0
        for start, hint in self._hints(text):
            if start >= done:
                found = self._secret(text, start, hint)
            else:
                found = None
            if found:
                done = found[0].end()
                yield found

    def _hints(self, text: str) -> Iterator[tuple[int, str]]:
        """Where hints stand, and which. Piece by piece: a call of C over all of a large text would let no other thread
        run meanwhile."""
        longest = max(map(len, self.table), default=0)
        for first in range(0, len(text), _PIECE):
            for place in self.finder.finditer(_lowered(text[first : first + _PIECE + longest])):
                if place.start() < _PIECE:
                    yield first + place.start(), place[0]

    def _secret(self, text: str, start: int, hint: str) -> tuple[re.Match[str], str] | None:
        for rule in self.table[hint]:
            match = rule.pattern.match(text, start)
            if match and rule.fits(match):
                return match, rule.kind
        return None

    def found(self, text: str) -> bool:
        """Whether `text` holds a secret."""
        return self.counted(text)[1] > 0

    def tree(self, value: Any, depth: int = 0) -> Any:
        """A JSON-like value with every string in it redacted; values under telling keys also for their key."""
        if isinstance(value, str):
            return self.text(value)
        if depth >= _DEEPEST:
            return mark("too-deep")
        if isinstance(value, Mapping):
            return {key: self._member(str(key), inner, depth + 1) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.tree(inner, depth + 1) for inner in value]
        return value

    def _member(self, key: str, value: Any, depth: int) -> Any:
        if not isinstance(value, str):
            return self.tree(value, depth)
        clean = self.text(value)
        front = f'{key}="'
        named = self.text(f'{front}{clean}"')
        if named.startswith(front):
            return named[len(front) : -1]
        return clean


#: Leaves everything as it is.
NOTHING: Final = Redaction(without=frozenset(KINDS))
#: What is in force where nobody says otherwise.
DEFAULT: Final = Redaction()


def mark(kind: str) -> str:
    """What stands in place of a secret."""
    return f"[redacted: {kind}]"


def _compiled(kind: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise SettingError(f"redaction: the expression of {kind!r} does not compile: {error}: {text}") from error


def _any_of(words: Iterable[str]) -> str:
    """A pattern for any of `words`, by first letter: more than twice as fast as one flat list of them."""
    groups = groupby(sorted(words), key=lambda word: word[0])
    return "|".join(
        f"{re.escape(first)}(?:{'|'.join(re.escape(word[1:]) for word in group)})" for first, group in groups
    )


def _lowered(text: str) -> str:
    """`text` in lower case, every character where it was: U+0130 is the one that would become two."""
    return text.replace("\u0130", "i").lower()


def _cut(text: str, matches: list[tuple[re.Match[str], str]]) -> tuple[str, int]:
    """`text` with each match, or what it names `secret`, replaced; and how many there were."""
    pieces: list[str] = []
    done = 0
    for match, kind in matches:
        start, end = _span(match)
        pieces += (text[done:start], mark(kind))
        done = end
    return ("".join((*pieces, text[done:])) if pieces else text), len(matches)


def _span(match: re.Match[str]) -> tuple[int, int]:
    return match.span("secret" if "secret" in match.re.groupindex else 0)
