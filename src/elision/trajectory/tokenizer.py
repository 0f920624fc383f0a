"""How a family of models counts tokens, beside our own count: what is known before a provider reported any usage.

Providers bill 1.0 to 1.6 tokens for one that we count (o200k) of what a model reads. What a model wrote is billed again
as it was reported, one for one. `prices.toml` has the families; `elision audit --calibrate` fits them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from elision.errors import PriceError


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """The scale of one family.

    models: beginnings of the bare names of its models, lower case, with dashes for dots.
    tokens_per_counted: billed tokens for a token that we count, of what the model reads.
    output_sent_again: whether all of the reported output is a part of the next prompt. Where it is not, since it holds
    reasoning that stays with the provider, the text of the answer is counted. Sealed reasoning is always sent again.
    """

    name: str
    models: tuple[str, ...] = ()
    tokens_per_counted: float = 1.0
    output_sent_again: bool = False
    source: str = ""
    dated: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.tokens_per_counted) and 0.25 <= self.tokens_per_counted <= 4):
            raise PriceError(
                f"tokenizer {self.name}: tokens_per_counted is {self.tokens_per_counted!r}; "
                "give a number from 0.25 to 4"
            )

    def measure_fit(self, model: str) -> int:
        """Return how many characters of a bare model name are those of the family; 0 for another family."""
        return max((len(start) for start in self.models if model.startswith(start)), default=0)


#: Of a model whose family is not known, and of price lists that stand for no model: a token is a token of ours.
OURS: Final = Tokenizer(name="o200k")
