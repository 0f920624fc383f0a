"""What Gemini's generateContent rejects about a request. Errors quoted as the service writes them."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from elision.providers.gemini.messages import get_field, is_response
from elision.providers.shared.json_reading import Json, list_objects, mapping_in, text_in
from elision.testing.request_rules.violation import Rule, Violation, find_doubled_names

#: "" stands for the user.
ROLES: Final = frozenset(("", "user", "model", "function"))
#: Models that want the signature of a call back: https://ai.google.dev/gemini-api/docs/thought-signatures
SIGNING_MODELS: Final = re.compile(r"(?:.*/)?gemini-[3-9]")


def there_are_contents(request: Json) -> Iterator[Violation]:
    """A request without contents asks nothing: "contents is not specified"."""
    if not list_objects(request.get("contents")):
        yield Violation("contents", "contents is not specified")


def roles_are_valid(request: Json) -> Iterator[Violation]:
    """There is no system role among the contents: "Please use a valid role: user, model."."""
    for place, content in list_objects(request.get("contents")):
        role = content.get("role", "")
        if text_in(role) not in ROLES or not isinstance(role, str):
            reason = f"role {role!r} is none of user, model"
            yield Violation(f"contents.{place}.role", reason, str(role))


def contents_have_parts(request: Json) -> Iterator[Violation]:
    """Every content says something: "contents.parts must not be empty", and every part has data: "required oneof field
    'data' must have one initialized field"."""
    for place, content in list_objects(request.get("contents")):
        parts = list_objects(content.get("parts"))
        if not parts:
            reason = "contents.parts must not be empty"
            yield Violation(f"contents.{place}.parts", reason)
        for position, part in parts:
            if not any(part.values()) and part.get("text") is None:
                where = f"contents.{place}.parts.{position}"
                yield Violation(where, "a part without data")


def calls_follow_the_user(request: Json) -> Iterator[Violation]:
    """A model calls functions when it was spoken to: "Please ensure that function call turn comes immediately after a
    user turn or after a function response turn"."""
    before = ""
    for place, content in list_objects(request.get("contents")):
        role = text_in(content.get("role")) or "user"
        if _list_calls(content) and before in ("", "model"):
            reason = "a function call that does not come after a user turn or a function response turn"
            yield Violation(f"contents.{place}", reason)
        before = role


def calls_are_answered(request: Json) -> Iterator[Violation]:
    """Every call has its response in the next content: "Please ensure that the number of function response parts is
    equal to the number of function call parts of the function call turn". Calls at the end wait."""
    contents = list_objects(request.get("contents"))
    for (place, content), (_, following) in itertools.pairwise(contents):
        calls = Counter(_list_calls(content))
        responses = Counter(_list_responses(following))
        for name in (calls - responses).elements():
            reason = f"the call of {name!r} has no function response in the next content"
            yield Violation(f"contents.{place}", reason, name)


def responses_follow_their_call(request: Json) -> Iterator[Violation]:
    """A response answers a call of the content before it: "Please ensure that function response turn comes immediately
    after a function call turn"."""
    calls: Counter[str] = Counter()
    for place, content in list_objects(request.get("contents")):
        for name in (Counter(_list_responses(content)) - calls).elements():
            reason = f"the function response {name!r} does not come immediately after its call"
            yield Violation(f"contents.{place}", reason, name)
        calls = Counter(_list_calls(content))


def calls_keep_their_signature(request: Json) -> Iterator[Violation]:
    """From Gemini 3 on the first call of each step since the user's last words bears the signature that it came with:
    "Function call `…` in the 2. content block is missing a `thought_signature`"."""
    if not SIGNING_MODELS.match(text_in(request.get("model"))):
        return
    contents = list_objects(request.get("contents"))
    first = 0
    for place, content in contents:
        if text_in(content.get("role")) != "model" and not _list_responses(content):
            first = place
    for place, content in contents:
        calls = [part for _, part in list_objects(content.get("parts")) if _get_call(part)]
        if place > first and calls and not get_field(calls[0], "thoughtSignature"):
            name = text_in(_get_call(calls[0]).get("name"))
            yield Violation(f"contents.{place}", f"the call of {name!r} is missing a thought_signature", name)


def functions_are_declared_once(request: Json) -> Iterator[Violation]:
    """A call says which function by its name alone: "Duplicate function declaration found"."""
    names = (
        text_in(function.get("name"))
        for _, tool in list_objects(request.get("tools"))
        for _, function in list_objects(get_field(tool, "functionDeclarations"))
    )
    return find_doubled_names(names, "functions")


RULES: Final[Sequence[Rule]] = (
    there_are_contents,
    roles_are_valid,
    contents_have_parts,
    calls_follow_the_user,
    calls_are_answered,
    responses_follow_their_call,
    calls_keep_their_signature,
    functions_are_declared_once,
)


def _get_call(part: Json) -> Json:
    return mapping_in(get_field(part, "functionCall"))


def _list_calls(content: dict[str, Any]) -> list[str]:
    """Return what each call of a content is told by: its id, or else the name of its function."""
    calls = [_get_call(part) for _, part in list_objects(content.get("parts"))]
    return [text_in(call.get("id")) or text_in(call.get("name")) for call in calls if call]


def _list_responses(content: dict[str, Any]) -> list[str]:
    parts = [part for _, part in list_objects(content.get("parts")) if is_response(part)]
    answers = [mapping_in(get_field(part, "functionResponse")) for part in parts]
    return [text_in(answer.get("id")) or text_in(answer.get("name")) for answer in answers]
