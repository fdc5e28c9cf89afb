"""Chance: draws faults by rules, with a seed, and counts them."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from random import Random

from .kinds import HITS, OF_FRAMES, FaultKind
from .rules import FaultRule

MOST_IN_A_ROW = 2
"""So often at most a read is hit before one gets through: below every default budget of retries."""
MOST_TAKE_OVERS = 3
"""In a row, of one shard: more of them are another job, which is an error by right (F10)."""
_SERVES = {"GetShardIterator": "GetRecords", "SubscribeToShard": "events"}
"""What an operation is a step towards: getting through it alone does not count."""

_Numbered = list[tuple[int, FaultRule]]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A fault that strikes now; `seconds` is how long or how far."""

    kind: FaultKind
    seconds: float = 0.0


class Chance:
    """Owns the dice. The same seed and the same calls make the same faults."""

    def __init__(self, rules: Sequence[FaultRule] = (), seed: int = 0, most_in_a_row: int = MOST_IN_A_ROW) -> None:
        self.counts: Counter[FaultKind] = Counter()
        self._random = Random(seed)  # noqa: S311 - faults that can be repeated, not secrets
        self._most_in_a_row = most_in_a_row
        self._in_a_row: Counter[Hashable] = Counter()
        self._take_overs: Counter[Hashable] = Counter()
        numbered = list(enumerate(rules))
        self._left = {number: rule.count for number, rule in numbered}
        self._of_calls = {operation: _for_operation(numbered, operation) for operation in _ALL_OPERATIONS}
        self._of_frames = [(number, rule) for number, rule in numbered if rule.kind in OF_FRAMES]
        self._of_entries = [(number, rule) for number, rule in numbered if rule.kind is FaultKind.PARTIAL]

    def for_call(self, operation: str, target: Callable[[], str]) -> Drawn | None:
        """What befalls this call; `target` says which shard or consumer it is about."""
        rules = self._of_calls.get(operation)
        if not rules:
            return None
        name = target()
        return self._in_moderation((_SERVES.get(operation, operation), name), rules, operation, name)

    def answered(self, operation: str, target: Callable[[], str]) -> None:
        """A call was answered well: that is what a row of faults ends with."""
        if operation not in _SERVES and self._of_calls.get(operation):
            self._in_a_row[operation, target()] = 0

    def for_frame(self, consumer: str, shard_id: str) -> Drawn | None:
        """What befalls the next frame of a subscription."""
        if not self._of_frames:
            return None
        rules = self._of_frames
        if self._take_overs[shard_id] >= MOST_TAKE_OVERS:
            rules = [(number, rule) for number, rule in rules if rule.kind is not FaultKind.TAKE_OVER]
        drawn = self._in_moderation(("events", shard_id), rules, consumer, shard_id)
        if drawn is None:
            self._in_a_row["events", shard_id] = 0
        else:
            self._take_overs[shard_id] = self._take_overs[shard_id] + 1 if drawn.kind is FaultKind.TAKE_OVER else 0
        return drawn

    def for_entry(self) -> bool:
        """Whether this record of PutRecords is refused."""
        return self._draw(self._of_entries) is not None

    def _in_moderation(self, goal: Hashable, rules: _Numbered, *places: str) -> Drawn | None:
        """Draw, but let what was hit too often in a row get through, unless a rule says that it always strikes."""
        if self._in_a_row[goal] >= self._most_in_a_row:
            rules = [(number, rule) for number, rule in rules if rule.rate >= 1]
        drawn = self._draw(rules, *places)
        self._in_a_row[goal] += drawn is not None
        return drawn

    def _draw(self, rules: _Numbered, *places: str) -> Drawn | None:
        for number, rule in rules:
            if rule.is_for(*places) and self._left[number] > 0 and self._random.random() < rule.rate:
                self._left[number] -= 1
                self.counts[rule.kind] += 1
                return Drawn(rule.kind, self._random.random() * rule.longest)
        return None


_ALL_OPERATIONS = frozenset(operation for operations in HITS.values() for operation in operations)


def _for_operation(numbered: _Numbered, operation: str) -> _Numbered:
    """The rules that may strike an operation; one that names a shard or a consumer may strike all that its kind befalls."""
    return [
        (number, rule)
        for number, rule in numbered
        if operation in HITS.get(rule.kind, ()) and (rule.where not in _ALL_OPERATIONS or rule.where == operation)
    ]
