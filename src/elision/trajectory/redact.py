"""Secrets, replaced by `[redacted: kind]` on the way into summaries, logs and exports.

Raw turns keep them: the store must lose nothing, and the agent may need them. What leaves it, or lives on in other
words, must not carry them along.

Every pattern is linear: a literal or a short bounded piece first, then one possessive run of characters that can
match in one way only. A rule is tried only where one of its `hints` is in the text, which is a search for a few
letters; so text without secrets costs little.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby
from typing import Any, Final, TypeAlias

from elision.errors import SettingError
from elision.trajectory.foreign_text import PIECE

#: Whether the text of a match is a secret, not an example of one.
SecretTest: TypeAlias = Callable[[str], bool]
#: Values nested deeper than this in a log line or an export are replaced whole.
_DEEPEST = 64


def accept_any(value: str) -> bool:
    """The form alone says what it is."""
    return True


# What is written in place of a secret: masks, references to variables, and words that name what belongs there.
_PLACEHOLDER: Final = re.compile(r"x{3,}|\*{2,}|\.{3,}|[<$%{\[(].*", re.IGNORECASE | re.DOTALL)
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


def is_no_placeholder(value: str) -> bool:
    """Return whether `value` after a name like `password` is one, not a placeholder for it."""
    return len(value) >= 4 and not _PLACEHOLDER.fullmatch(value) and not _WORDS.issuperset(_APART.split(value.lower()))


def is_random(value: str) -> bool:
    """Return whether `value` after a name like `token` looks random: 16 characters or more, letters and digits."""
    if len(value) < 16 or not _has_letters_and_digits(value):
        return False
    shares = [count / len(value) for count in Counter(value).values()]
    bits_per_character = -sum(share * math.log2(share) for share in shares)
    return bits_per_character >= 3.0 and is_no_placeholder(value)


def is_mixed_password(value: str) -> bool:
    """Return whether an unquoted `value` after a name like `password` is one: code seldom mixes letters and digits."""
    return len(value) >= 6 and _has_letters_and_digits(value) and is_no_placeholder(value)


def _has_letters_and_digits(value: str) -> bool:
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRule:
    """One kind of secret.

    hints:   how a match begins, in lower case; the pattern is tried only there.
    pattern: where it has a group named `secret` only that is replaced, else the whole match.
    is_secret: whether what would be replaced is a secret.
    preceded_by: what must come right before a match, where the pattern cannot look that far back.
    rejects_code: whether an opening bracket right after the value means code, not a secret.
    """

    kind: str
    pattern: re.Pattern[str]
    hints: tuple[str, ...]
    is_secret: SecretTest = accept_any
    preceded_by: re.Pattern[str] | None = None
    rejects_code: bool = False

    def matches_secret(self, match: re.Match[str]) -> bool:
        """Whether what `match` would replace is a secret."""
        text, (start, end) = match.string, _find_span(match)
        if self.preceded_by and not self.preceded_by.search(text[max(0, match.start() - _REACH) : match.start()]):
            return False
        return not (self.rejects_code and text[end : end + 1] in _BRACKETS) and self.is_secret(text[start:end])


#: Characters before a match that `preceded_by` sees.
_REACH: Final = 16
_BRACKETS: Final = ("(", "[", "{")


def _make_rule(
    kind: str, hints: str, pattern: str, test: SecretTest = accept_any, after: str = "", code: bool = False
) -> SecretRule:
    if after:
        front = re.compile(f"(?:{after})$", re.IGNORECASE)
    else:
        front = None
    return SecretRule(
        kind=kind,
        hints=tuple(hints.split()),
        pattern=re.compile(pattern),
        is_secret=test,
        preceded_by=front,
        rejects_code=code,
    )


_EDGE = r"(?<![A-Za-z0-9_])"
_PASSWORDS = r"(?i:pass(?:word|wd|phrase)|pwd|secret(?:[_-]?key)?)"
_TOKENS = r"(?i:key|token|secret|credentials?|signature|authorization)(?i:[_-]id)?"
#: In front of `key`, which alone may be any key.
_KEYS = r"(?:api|access|auth|private|signing|encryption|account|session|master|service|secret)[_-]?"
#: What separates a name and its value: `=`, `:`, `=>`, `:=`, with quotes of JSON, also escaped ones.
_IS = r"(?:\\?[\"'])?[ \t]{0,4}(?::=|=>|=(?!=)|:(?!:))[ \t]{0,4}"
_SCHEME = r"(?:(?i:token|bearer|basic)[ \t]{1,4})?"
_VALUE = rf"(?:\\?[\"'])?{_SCHEME}(?P<secret>[A-Za-z0-9._~+/-]{{16,}}+={{0,2}})"
_TOKEN_HINTS = "token secret credential signature authorization"
_BARE = r"[^\s\"'`,;(){}\[\]<>\\&|]"

#: The built-in rules, the most specific first: what one replaced no later one sees.
RULES: Final[tuple[SecretRule, ...]] = (
    _make_rule(
        "private-key",
        "-----begin",
        r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        r"(?=(?:\s|\\{1,4}[rn]|[A-Za-z-]{1,20}: [^\n\\]{0,100}){0,12}+[A-Za-z0-9+/=]{16})"
        r"(?:[A-Za-z0-9+/=:,.\s\\]|-(?!----))*+(?:-----END [A-Z0-9 ]{0,40}-----)?",
    ),
    _make_rule("anthropic-key", "sk-ant-", _EDGE + r"sk-ant-[A-Za-z0-9_-]{20,}+"),
    _make_rule("openrouter-key", "sk-or-", _EDGE + r"sk-or-[A-Za-z0-9-]{32,}+"),
    _make_rule(
        "openai-key", "sk-", _EDGE + r"sk-(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,}+|[A-Za-z0-9]{32,}+)"
    ),
    _make_rule("aws-key", "akia asia", _EDGE + r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _make_rule("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", _EDGE + r"gh[pousr]_[A-Za-z0-9]{36,}+"),
    _make_rule("github-token", "github_pat_", _EDGE + r"github_pat_\w{22,}+"),
    _make_rule("gitlab-token", "glpat-", _EDGE + r"glpat-[\w-]{20,}+"),
    _make_rule("slack-token", "xox xapp-", _EDGE + r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,}+"),
    _make_rule(
        "slack-webhook", "hooks.slack", r"hooks\.slack\.com/(?:services|workflows)/(?P<secret>[A-Za-z0-9/_-]{20,}+)"
    ),
    _make_rule("google-key", "aiza", _EDGE + r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _make_rule("google-token", "ya29. gocspx-", _EDGE + r"(?:ya29\.|GOCSPX-)[A-Za-z0-9_-]{20,}+"),
    _make_rule("huggingface-token", "hf_", _EDGE + r"hf_[A-Za-z0-9]{30,}+"),
    _make_rule("groq-key", "gsk_", _EDGE + r"gsk_[A-Za-z0-9]{32,}+"),
    _make_rule("xai-key", "xai-", _EDGE + r"xai-[A-Za-z0-9]{40,}+"),
    _make_rule("stripe-key", "sk_ rk_ whsec_", _EDGE + r"(?:[sr]k_(?:live|test)|whsec)_[A-Za-z0-9]{16,}+"),
    _make_rule("sendgrid-key", "sg.", _EDGE + r"SG\.[\w-]{16,64}\.[\w-]{16,}+"),
    _make_rule("npm-token", "npm_", _EDGE + r"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    _make_rule("pypi-token", "pypi-age", _EDGE + r"pypi-AgE[\w-]{50,}+"),
    _make_rule("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", _EDGE + r"do[opr]_v1_[0-9a-f]{64}(?![0-9a-f])"),
    _make_rule("telegram-token", ":aa", r":AA[\w-]{33}(?![\w-])", after=r"(?<!\d)\d{8,10}"),
    _make_rule("jwt", "eyj", _EDGE + r"eyJ[\w-]{10,1000}+\.eyJ[\w-]{10,8000}+\.[\w-]{10,}+"),
    _make_rule("azure-key", "accountkey=", r"(?i:AccountKey=)(?P<secret>[A-Za-z0-9+/]{40,}+={0,2})"),
    _make_rule(
        "bearer-token",
        "bearer basic",
        r"(?i:bearer|basic)[ \t]{1,4}(?P<secret>[A-Za-z0-9._~+/-]{16,}+={0,2})",
        is_random,
    ),
    _make_rule(
        "url-password",
        "://",
        r"://[^\s:/@\"'<>\[\]]{0,80}:(?P<secret>[^\s/@\"'<>\[\]]{3,200})@(?=[A-Za-z0-9_-])",
        is_no_placeholder,
    ),
    _make_rule(
        "password",
        "pass pwd secret",
        _PASSWORDS + _IS + r"[\"'](?P<secret>[^\s\"'\\\[]{4,200}+)(?=[\"'])",
        is_no_placeholder,
    ),
    _make_rule(
        "password",
        "pass pwd secret",
        _PASSWORDS + _IS + r"\\[\"'](?P<secret>[^\s\"'\\\[]{4,200}+)(?=\\[\"'])",
        is_no_placeholder,
    ),
    _make_rule(
        "password", "pass pwd secret", _PASSWORDS + _IS + f"(?P<secret>{_BARE}{{6,200}}+)", is_mixed_password, code=True
    ),
    _make_rule(
        "password",
        "pass",
        _PASSWORDS + rf"[ \t]{{1,4}}[\"']?(?P<secret>(?!-){_BARE}{{4,200}}+)",
        is_mixed_password,
        after="--",
    ),
    _make_rule(
        "password",
        "curl",
        r"curl\s[^\n]{0,300}?(?<=\s)-(?:u|-user)[ =]{0,2}[\"']?[\w.@-]{1,80}"
        r":(?P<secret>[^\s\"'`:@/\\\[\]]{4,200}+)(?![:/@])",
        is_no_placeholder,
    ),
    _make_rule("secret-value", _TOKEN_HINTS, _TOKENS + _IS + _VALUE, is_random, code=True),
    _make_rule("secret-value", "key", _TOKENS + _IS + _VALUE, is_random, after=_KEYS, code=True),
    _make_rule(
        "secret-value", f"key {_TOKEN_HINTS}", _TOKENS + r"[ \t]{1,4}" + _VALUE, is_random, after=r"--[\w-]{0,12}"
    ),
)

#: What every match of a rule begins with, its first letters and what must follow them: RE2 finds in one quick search
#: that most texts have none of it. For texts in lower case, with "?" for every character beyond ASCII.
_BEGINNINGS: Final = (
    r"-----begin ",
    r"sk-[a-z0-9_-]{16}",
    r"a[ks]ia[a-z0-9]{16}",
    r"gh[pousr]_[a-z0-9]{36}|github_pat_|glpat-",
    r"xox[abeoprs]-|xapp-|hooks\.slack",
    r"aiza[a-z0-9_-]{35}|ya29\.|gocspx-",
    r"hf_[a-z0-9]{30}|gsk_[a-z0-9]{32}|xai-[a-z0-9]{40}",
    r"[sr]k_(?:live|test)_|whsec_|sg\.[a-z0-9_?-]{16}",
    r"npm_[a-z0-9]{36}|pypi-age|do[opr]_v1_",
    r":aa[a-z0-9_?-]{33}|eyj|accountkey=|curl",
    r"(?:bearer|basic)[ \t]{1,4}[a-z0-9._~+/-]{16}",
    r"://[^/@]{0,80}:[^/@]{3,200}@",
    r"(?:pass(?:word|wd|phrase)|pwd|secret(?:[_-]?key)?)(?:\\?[\"'])?[ \t]{0,4}[:= \t]",
    r"(?:key|token|secret|credentials?|signature|authorization)(?:[_-]id)?(?:\\?[\"'])?[ \t]{0,4}[:= \t][=>]?[ \t]{0,4}"
    r"(?:\\?[\"'])?(?:(?:token|bearer|basic)[ \t]{1,4})?[a-z0-9._~+/-]{16}",
)
#: Characters in which what `_BEGINNINGS` matches ends.
_BEGINNING_CHARS: Final = 512

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
        _ = self.own_patterns

    @cached_property
    def own_patterns(self) -> tuple[tuple[str, re.Pattern[str]], ...]:
        """The patterns of one's own, compiled."""
        return tuple((kind, _compile_pattern(kind, text)) for kind, text in self.extra)

    @cached_property
    def rules_by_hint(self) -> Mapping[str, tuple[SecretRule, ...]]:
        """By hint: the rules that may match there, in order."""
        rules = [rule for rule in RULES if rule.kind not in self.without]
        hints = {hint for rule in rules for hint in rule.hints}
        # Of "sk-" and "sk-ant-" only the shorter is searched for.
        stems = [hint for hint in hints if not any(hint != other and hint.startswith(other) for other in hints)]
        return {
            stem: tuple(rule for rule in rules if any(hint.startswith(stem) for hint in rule.hints))
            for stem in sorted(stems)
        }

    @cached_property
    def hint_pattern(self) -> re.Pattern[str]:
        """Matches any hint in a text in lower case."""
        # By first letter: more than twice as fast as one flat list of them.
        groups = groupby(self.rules_by_hint, key=lambda hint: hint[0])
        alternatives = [
            f"{re.escape(first)}(?:{'|'.join(re.escape(hint[1:]) for hint in group)})" for first, group in groups
        ]
        return re.compile("|".join(alternatives) or r"(?!)")

    def redact_text(self, text: str) -> str:
        """`text` without secrets. Redacting it again changes nothing."""
        return self.redact_and_count(text)[0]

    def redact_and_count(self, text: str) -> tuple[str, int]:
        """`text` without secrets, and how many were replaced."""
        total = 0
        for kind, pattern in self.own_patterns:
            text, hits = _replace_matches(
                text, [(match, kind) for match in pattern.finditer(text) if match.end() > match.start()]
            )
            total += hits
        hits = 1
        while hits:
            # Again until none is left: a mark is an edge, and the word after it may begin at one.
            text, hits = _replace_matches(text, list(self._find_matches(text)))
            total += hits
        return text, total

    def _find_matches(self, text: str) -> Iterator[tuple[re.Match[str], str]]:
        """Secrets by the built-in rules with their kinds, in order, without overlaps."""
        done = 0
        for start, hint in self._find_hints(text):
            if start < done:
                continue
            for rule in self.rules_by_hint[hint]:
                match = rule.pattern.match(text, start)
                if match and rule.matches_secret(match):
                    done = match.end()
                    yield match, rule.kind
                    break

    def _find_hints(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the places of hints, and the hints.

        The text is searched piece by piece: during one search over all of a large text no other thread could run.
        """
        for first in range(0, len(text), PIECE):
            # Every character stays where it was: U+0130 is the one that would become two.
            piece = text[first : first + PIECE + _BEGINNING_CHARS].replace("\u0130", "i").lower()
            if not _compile_beginnings().search(piece.encode("ascii", "replace")):
                continue
            for place in self.hint_pattern.finditer(piece):
                if place.start() < PIECE:
                    yield first + place.start(), place[0]

    def has_secret(self, text: str) -> bool:
        """Whether `text` holds a secret."""
        return self.redact_and_count(text)[1] > 0

    def redact_tree(self, value: Any, depth: int = 0) -> Any:
        """Return a JSON-like value with every string redacted; a value under `password` or the like is replaced too."""
        if isinstance(value, str):
            return self.redact_text(value)
        if depth >= _DEEPEST:
            return format_mark("too-deep")
        if isinstance(value, Mapping):
            return {key: self._redact_member(str(key), inner, depth + 1) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.redact_tree(inner, depth + 1) for inner in value]
        return value

    def _redact_member(self, key: str, value: Any, depth: int) -> Any:
        if not isinstance(value, str):
            return self.redact_tree(value, depth)
        clean = self.redact_text(value)
        front = f'{key}="'
        named = self.redact_text(f'{front}{clean}"')
        if named.startswith(front):
            return named[len(front) : -1]
        return clean


#: Leaves everything as it is.
NO_REDACTION: Final = Redaction(without=frozenset(KINDS))
#: The default.
DEFAULT: Final = Redaction()


def format_mark(kind: str) -> str:
    """Return the text that replaces a secret."""
    return f"[redacted: {kind}]"


@cache
def _compile_beginnings() -> Any:
    import re2  # 50 ms, and not every user of the rules redacts

    return re2.compile("|".join(_BEGINNINGS).encode())


def _compile_pattern(kind: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise SettingError(
            f"redaction: the expression of {kind!r} does not compile ({error}); correct {text!r}"
        ) from error


def _replace_matches(text: str, matches: list[tuple[re.Match[str], str]]) -> tuple[str, int]:
    """`text` with each match, or what it names `secret`, replaced; and how many there were."""
    pieces: list[str] = []
    done = 0
    for match, kind in matches:
        start, end = _find_span(match)
        pieces += (text[done:start], format_mark(kind))
        done = end
    return ("".join((*pieces, text[done:])) if pieces else text), len(matches)


def _find_span(match: re.Match[str]) -> tuple[int, int]:
    return match.span("secret" if "secret" in match.re.groupindex else 0)
