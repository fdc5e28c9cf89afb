"""FaultRule: what goes wrong, where, how often; and rules as one writes them on a command line."""

import re
from dataclasses import dataclass
from math import inf

from recordpublisher.publishers.errors import ConfigurationError

from .kinds import SECONDS, FaultKind

VALID = "KIND[@WHERE][=RATE][*COUNT][~SECONDS], separated by commas, for example throttle@GetRecords=0.1,cut=0.05 or all=0.02"
_RULE = re.compile(
    r"(?P<kind>[a-z-]+)(@(?P<where>[\w.-]+))?(=(?P<rate>\d+(\.\d+)?))?(\*(?P<count>\d+))?(~(?P<seconds>\d+(\.\d+)?))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class FaultRule:
    """One kind of fault with its odds.

    `where` is an operation, a shard id or a consumer's name, None every place that the kind can befall. `rate` is the share of calls or
    frames that are hit (0 to 1), `count` how often at most, `seconds` how long or how far at most (None: the kind's own). Below a rate of 1
    nothing is hit more than twice in a row, so that what keeps to default budgets of retries gets through.
    """

    kind: FaultKind
    where: str | None = None
    rate: float = 1.0
    count: float = inf
    seconds: float | None = None

    @property
    def longest(self) -> float:
        """Seconds at most."""
        return SECONDS.get(self.kind, 0.0) if self.seconds is None else self.seconds

    def is_for(self, *places: str) -> bool:
        """Whether one of these names is where the rule strikes."""
        return self.where is None or self.where in places


def rules_of(text: str, option: str = "faults") -> tuple[FaultRule, ...]:
    """Rules as text, `all` meaning every kind. Raises: ConfigurationError that names `option`."""
    return tuple(rule for part in text.split(",") if part.strip() for rule in _rules_of(part.strip(), option))


def _rules_of(text: str, option: str) -> list[FaultRule]:
    found = _RULE.fullmatch(text)
    names = (
        list(FaultKind)
        if found and found["kind"] == "all"
        else [kind for kind in FaultKind if found and kind == found["kind"]]
    )
    if found is None or not names or not 0 <= float(found["rate"] or 1) <= 1:
        raise ConfigurationError(option, text, VALID, reason=f"kinds: all, {', '.join(FaultKind)}")
    rate, count = float(found["rate"] or 1), int(found["count"]) if found["count"] else inf
    seconds = float(found["seconds"]) if found["seconds"] else None
    return [FaultRule(kind, found["where"], rate, count, seconds) for kind in names]
