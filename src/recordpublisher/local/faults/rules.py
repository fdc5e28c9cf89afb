"""FaultRule: which fault, where, how often; and the text form of rules for the command line."""

import re
from dataclasses import dataclass
from math import inf

from recordpublisher.publishers.errors import ConfigurationError

from .kinds import DEFAULT_SECONDS, FaultKind

VALID = "KIND[@WHERE][=RATE][*COUNT][~SECONDS], separated by commas, for example throttle@GetRecords=0.1,cut=0.05 or all=0.02"
_RULE = re.compile(
    r"(?P<kind>[a-z-]+)(@(?P<where>[\w.-]+))?(=(?P<rate>\d+(\.\d+)?))?(\*(?P<count>\d+))?(~(?P<seconds>\d+(\.\d+)?))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class FaultRule:
    """One kind of fault and its rate.

    `where` is an operation, a shard id or a consumer's name, None for all. `rate` is the share of calls or frames that fail (0 to 1),
    `count` the largest number of faults, `seconds` the longest delay or jump (None: the kind's default). Below a rate of 1 nothing fails
    more than twice in a row, so that the default number of retries is enough.
    """

    kind: FaultKind
    where: str | None = None
    rate: float = 1.0
    count: float = inf
    seconds: float | None = None

    @property
    def max_seconds(self) -> float:
        """The longest delay or jump."""
        return DEFAULT_SECONDS.get(self.kind, 0.0) if self.seconds is None else self.seconds

    def applies_to(self, *places: str) -> bool:
        """Whether the rule applies to one of these names."""
        return self.where is None or self.where in places


def parse_rules(text: str, option: str = "faults") -> tuple[FaultRule, ...]:
    """Parse rules; `all` stands for every kind. Raises: ConfigurationError that names `option`."""
    return tuple(rule for part in text.split(",") if part.strip() for rule in _parse_rule(part.strip(), option))


def _parse_rule(text: str, option: str) -> list[FaultRule]:
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
