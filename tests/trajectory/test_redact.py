"""Secrets go, everything else stays, in linear time."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import SettingError
from elision.trajectory import redact
from elision.trajectory.redact import DEFAULT, KINDS, NO_REDACTION, RULES, Redaction, format_mark
from tests.work import assert_linear

LETTERS = "Zq7Wm2Xc9Vb4Nn8Kk1Jj6Hh3Gg5Ff0Dd"
HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n"

#: Kind -> texts that hold one secret of it, and the part that must be gone. Put together here, so that no scanner
#: takes this file for a leak.
SECRETS: dict[str, list[tuple[str, str]]] = {
    "private-key": [
        (f"-----BEGIN {name}PRIVATE KEY-----\n{BODY}-----END {name}PRIVATE KEY-----", BODY.split()[1])
        for name in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ")
    ]
    + [
        (f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES,0A1B\n\n{BODY}", "BKcwggSj"),
        (json.dumps({"key": f"-----BEGIN PRIVATE KEY-----\n{BODY}-----END PRIVATE KEY-----\n"}), "BKcwggSj"),
    ],
    "anthropic-key": [("key sk-" + f"ant-api03-{LETTERS}_x-9", LETTERS)],
    "openrouter-key": [("sk-" + f"or-v1-{HEX}", HEX)],
    "openai-key": [("sk-" + f"proj-{LETTERS}_A-b", LETTERS), ("use sk-" + LETTERS + "now", LETTERS)],
    "aws-key": [("AKI" + "AIOSFODNN7EXAMPLQ is it", "IOSFODNN7"), ("ASI" + "AIOSFODNN7EXAMPLQ", "IOSFODNN7")],
    "github-token": [("gh" + f"{kind}_{LETTERS}abcd", LETTERS) for kind in "pousr"]
    + [("github" + f"_pat_{LETTERS}", LETTERS)],
    "gitlab-token": [("glp" + f"at-{LETTERS}", LETTERS)],
    "slack-token": [("xox" + f"b-123456789012-{LETTERS}", LETTERS), ("xap" + f"p-1-A1-{LETTERS}", LETTERS)],
    "slack-webhook": [("https://hooks.slack.com/services/T00/B00/" + LETTERS, LETTERS)],
    "google-key": [("AIz" + f"a{LETTERS}abc", LETTERS)],
    "google-token": [("ya" + f"29.a0{LETTERS}", LETTERS), ("GOC" + f"SPX-{LETTERS}", LETTERS)],
    "huggingface-token": [("h" + f"f_{LETTERS}ab", LETTERS)],
    "groq-key": [("gs" + f"k_{LETTERS}abcd", LETTERS)],
    "xai-key": [("xa" + f"i-{LETTERS}{LETTERS}", LETTERS)],
    "stripe-key": [("sk" + f"_live_{LETTERS}", LETTERS), ("whs" + f"ec_{LETTERS}", LETTERS)],
    "sendgrid-key": [("SG" + f".{LETTERS[:22]}.{LETTERS}abc", LETTERS)],
    "npm-token": [("np" + f"m_{LETTERS}abcd", LETTERS)],
    "pypi-token": [("pyp" + f"i-AgE{LETTERS}{LETTERS}", LETTERS)],
    "digitalocean-token": [("do" + f"p_v1_{HEX}", HEX)],
    "telegram-token": [("bot 123456789:" + f"AA{LETTERS}a", LETTERS)],
    "jwt": [("ey" + f"J{LETTERS}.eyJ{LETTERS}.{LETTERS}", LETTERS)],
    "azure-key": [("AccountName=a;AccountKey=" + LETTERS * 2 + "==;End", LETTERS)],
    "bearer-token": [("curl -H 'X: Bearer " + LETTERS + "'", LETTERS)],
    "url-password": [
        ("postgresql://agent:hunter2@db.local:5432/app", "hunter2"),
        ("redis://:s3cr-t@cache/0", "s3cr-t"),
    ],
    "password": [
        ("PASSWORD=hunter22", "hunter22"),
        ("password: 'correct-horse'", "correct-horse"),
        ('{"db_password": "hunter!"}', "hunter!"),
        (json.dumps(json.dumps({"passwd": "hunter!"})), "hunter!"),
        ("mysql --password hunter22 -h db", "hunter22"),
        ("curl -u admin:letmein! https://x", "letmein!"),
    ],
    "secret-value": [
        (f"api_key = '{LETTERS}'", LETTERS),
        (f'"X-Api-Key": "{LETTERS}"', LETTERS),
        (f"Authorization: Token {LETTERS}", LETTERS),
        (f"https://api.local/v1?access_token={LETTERS}&page=2", LETTERS),
        (f"AWS_SECRET_ACCESS_KEY={LETTERS}+/8", LETTERS),
        (f"deploy --api-key {LETTERS}", LETTERS),
    ],
}

#: What only looks like a secret.
HARMLESS = (
    "def login(password: str, token: str | None = None) -> Token:",
    "password = os.environ['PASSWORD']; token=get_token(user_1)",
    "max_tokens=4096, input_tokens: 12345678901234567890",
    "git commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
    "sk-learn, task-runner, risk-free and ask-me",
    "https://host:8080/a@b and ssh://git@github.com/x/y.git",
    "PASSWORD=$DB_PASSWORD password='your-password-here' token: <token> secret=***",
    "primary_key=True, sort_key: created_at_1234567890_desc",
    "if '-----BEGIN PRIVATE KEY-----' in text: raise ValueError('no keys')",
    "tokenizer = AutoTokenizer.from_pretrained('gpt2'); signature: sha256",
    "docker run -u 1000:staff9; python -u script.py",
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_goes(kind: str) -> None:
    """Each secret is replaced by its kind, wherever it stands, and nothing of it is left."""
    for text, part in SECRETS[kind]:
        for whole in (text, f"before\n{text}\nafter", f"x {text} y"):
            clean, hits = DEFAULT.redact_and_count(whole)
            assert hits == 1, whole
            assert format_mark(kind) in clean
            assert part not in clean


def test_what_stands_around_a_secret_stays() -> None:
    """The name, the user and the host stay: what was configured can still be told."""
    assert (
        DEFAULT.redact_text("a postgresql://agent:hunter2@db/app z")
        == "a postgresql://agent:[redacted: url-password]@db/app z"
    )
    assert DEFAULT.redact_text('{"password": "hunter!", "n": 1}') == '{"password": "[redacted: password]", "n": 1}'


@pytest.mark.parametrize("text", HARMLESS)
def test_code_and_examples_stay(text: str) -> None:
    """Types, calls, variables, ids and stand-ins are left alone."""
    assert DEFAULT.redact_text(text) == text


def test_json_stays_json() -> None:
    """Arguments of a call can be decoded after redaction as before."""
    arguments = {"command": f"export API_KEY={LETTERS} && psql postgres://a:hunter2@db", "password": 'p"w1\\d%x'}
    decoded = json.loads(DEFAULT.redact_text(json.dumps(arguments)))
    assert set(decoded) == set(arguments)
    assert LETTERS not in decoded["command"]


_PIECES = st.sampled_from(
    [text for texts in SECRETS.values() for text, _ in texts] + [hint for rule in RULES for hint in rule.hints]
)
_TEXTS = st.lists(st.one_of(st.text(max_size=8), _PIECES, st.sampled_from([" ", "\n", '"', "=", ": ", "_", "-"]))).map(
    "".join
)


@given(_TEXTS)
def test_twice_is_once(text: str) -> None:
    """Redacting again finds nothing, whatever stands side by side."""
    clean, _ = DEFAULT.redact_and_count(text)
    assert DEFAULT.redact_and_count(clean) == (clean, 0)


_NAMES = [
    "pass",
    "PASSWD",
    "pwd",
    "secret_key",
    "Token",
    "\u212aey_id",
    "signature",
    "bearer ",
    "Basic\t",
    "--",
    "://u:",
]
_SIGNS = [" ", "\t", "=", ":", ":=", "=>", '"', "\\'", "\\", "@h", "\n", "é", "\u0130", "ſ", "\ud800"]
_BEGINNINGS = st.sampled_from([*_NAMES, *_SIGNS, "x9" * 9, "Ab3" * 12, "SG.", "hf_", "AKIA"])


@given(st.lists(st.one_of(_BEGINNINGS, _PIECES), max_size=10).map("".join))
def test_no_beginning_of_a_secret_is_overlooked(text: str) -> None:
    """What the quick search passes over holds no secret: all rules tried everywhere find the same."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(redact, "_BEGINNINGS", ("",))
        redact._compile_beginnings.cache_clear()
        everywhere = DEFAULT.redact_and_count(text)
    redact._compile_beginnings.cache_clear()
    assert DEFAULT.redact_and_count(text) == everywhere


@given(_TEXTS)
def test_no_rule_no_change(text: str) -> None:
    """With every kind switched off a text stays as it is."""
    assert NO_REDACTION.redact_and_count(text) == (text, 0)


@given(st.text(), st.text(), st.sampled_from([text for texts in SECRETS.values() for text, _ in texts]))
def test_other_lines_stay(before: str, after: str, secret: str) -> None:
    """What is on other lines is as it was, where it holds no secret itself."""
    before, after = before.replace("-", ""), after.replace("-", "")
    if NO_REDACTION.redact_text(before) == DEFAULT.redact_text(before) and DEFAULT.redact_text(after) == after:
        clean = DEFAULT.redact_text(f"{before}\n[{secret}]\n({after}")
        assert clean.startswith(f"{before}\n[")
        assert clean.endswith(f"\n({after}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_can_be_switched_off(kind: str) -> None:
    """A kind left out is not looked for under its name."""
    some = Redaction(without=frozenset({kind}))
    assert all(format_mark(kind) not in some.redact_text(text) for text, _ in SECRETS[kind])


def test_own_patterns() -> None:
    """Patterns of one's own are replaced under their own kind, whole or by their group `secret`."""
    own = Redaction(extra=(("ticket", r"TICKET-\d+"), ("pin", r"pin (?P<secret>\d{4})")))
    assert own.redact_text("see TICKET-4711, pin 1234") == "see [redacted: ticket], pin [redacted: pin]"


def test_mistakes_in_settings_are_named() -> None:
    """An unknown kind and a broken expression are errors that say what is wrong."""
    with pytest.raises(SettingError, match="no kind 'jwtt'; there are: private-key"):
        Redaction(without=frozenset({"jwtt"}))
    with pytest.raises(SettingError, match="'pin' does not compile"):
        Redaction(extra=(("pin", "("),))


def test_trees() -> None:
    """In log lines and exports every string is redacted, and a value also for the key it stands under."""
    tree = {
        "a": [f"Bearer {LETTERS}", 3, None],
        "password": "correct-horse",
        "api_key": LETTERS,
        "n": {"text": "plain"},
    }
    assert DEFAULT.redact_tree(tree) == {
        "a": ["Bearer [redacted: bearer-token]", 3, None],
        "password": "[redacted: password]",
        "api_key": "[redacted: secret-value]",
        "n": {"text": "plain"},
    }


def test_a_tree_without_end_is_cut() -> None:
    """Nesting that nobody writes by hand is replaced, not followed until the stack ends."""
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert "[redacted: too-deep]" in json.dumps(DEFAULT.redact_tree(deep))


HOSTILE = (
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\n" + "a: " * 30,
    "-----BEGIN RSA PRIVATE KEY-----\nAAAAAAAAAAAAAAAAAAAA\n",
    "eyJaaaaaaaaaaaa-",
    "eyJaaaaaaaaaaaa.eyJ",
    "token=",
    "token=a",
    "password=",
    'password="',
    "pwd=a1",
    "://a:",
    "://" + "a" * 70,
    "sk-ant-",
    "sk-",
    "Bearer a",
    "SG.aaaaaaaaaaaaaaaa.",
    "1234567890:AA",
    "curl -u a:b",
    "curl ",
    "--api-key ",
    "key",
    "\\\\\\\\",
    "a",
    "\u0130",
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    """Sixteen times the text are not quadratically more work."""
    assert_linear(lambda size: DEFAULT.redact_text(piece * (size // len(piece)) + " end"), 4_000)


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_found_wherever_a_piece_ends(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large text is searched in pieces: one that stands across two of them is a secret all the same."""
    monkeypatch.setattr("elision.trajectory.redact.PIECE", 64)
    for text, secret in SECRETS[kind]:
        for ahead in range(0, 140, 7):
            clean = DEFAULT.redact_text("." * ahead + " " + text)
            assert secret not in clean
            assert format_mark(kind) in clean
