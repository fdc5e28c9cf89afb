"""Draws faults by rules, with a seed, and counts them."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from random import Random

from .kinds import CALLS, ENTRIES, FRAMES, FaultKind, FaultRule

MAX_FAULTS_IN_A_ROW = 2
"""A read succeeds after this many faults in a row, which is fewer than every default number of retries."""
MAX_TAKE_OVERS = 3
"""The most take-overs of one shard in a row. More of them would mean that another job uses the consumer, which is an error (F10)."""
_PART_OF = {"GetShardIterator": "GetRecords", "SubscribeToShard": "events"}
"""The read that an operation is a step of. The success of the operation alone does not end a row of faults."""

_Numbered = list[tuple[int, FaultRule]]


@dataclass(frozen=True, slots=True)
class DrawnFault:
    """A fault to apply now; `seconds` is its delay or jump."""

    kind: FaultKind
    seconds: float = 0.0


class RandomFaults:
    """Owns the random generator. The same seed and the same calls give the same faults."""

    def __init__(self, rules: Sequence[FaultRule] = (), seed: int = 0, max_in_a_row: int = MAX_FAULTS_IN_A_ROW) -> None:
        self.counts: Counter[FaultKind] = Counter()
        self._random = Random(seed)  # noqa: S311 - faults that can be repeated, not secrets
        self._max_in_a_row = max_in_a_row
        self._in_a_row: Counter[Hashable] = Counter()
        self._take_overs: Counter[Hashable] = Counter()
        numbered = list(enumerate(rules))
        self._left = {number: rule.count for number, rule in numbered}
        self._call_rules = {operation: _for_operation(numbered, operation) for operation in CALLS}
        self._frame_rules = [(number, rule) for number, rule in numbered if rule.kind.targets == FRAMES]
        self._entry_rules = [(number, rule) for number, rule in numbered if rule.kind.targets == ENTRIES]

    def for_call(self, operation: str, target: Callable[[], str]) -> DrawnFault | None:
        """Draw the fault of this call, if any. `target` returns the shard or consumer that the call names."""
        rules = self._call_rules.get(operation)
        if not rules:
            return None
        name = target()
        return self._draw_within_limit((_PART_OF.get(operation, operation), name), rules, operation, name)

    def on_success(self, operation: str, target: Callable[[], str]) -> None:
        """End a row of faults, because a call succeeded."""
        if operation not in _PART_OF and self._call_rules.get(operation):
            self._in_a_row[operation, target()] = 0

    def for_frame(self, consumer: str, shard_id: str) -> DrawnFault | None:
        """Draw the fault of the next frame of a subscription, if any."""
        if not self._frame_rules:
            return None
        rules = self._frame_rules
        if self._take_overs[shard_id] >= MAX_TAKE_OVERS:
            rules = [(number, rule) for number, rule in rules if rule.kind is not FaultKind.TAKE_OVER]
        drawn = self._draw_within_limit(("events", shard_id), rules, consumer, shard_id)
        if drawn is None:
            self._in_a_row["events", shard_id] = 0
        else:
            self._take_overs[shard_id] = self._take_overs[shard_id] + 1 if drawn.kind is FaultKind.TAKE_OVER else 0
        return drawn

    def for_entry(self, kind: FaultKind, operation: str) -> bool:
        """Return whether the fault applies to this record of PutRecords, or this handle of an acknowledgement."""
        rules = [(number, rule) for number, rule in self._entry_rules if rule.kind is kind]
        return self._draw(rules, operation) is not None

    def _draw_within_limit(self, goal: Hashable, rules: _Numbered, *places: str) -> DrawnFault | None:
        """Draw, but not after too many faults in a row, except by rules with rate 1."""
        if self._in_a_row[goal] >= self._max_in_a_row:
            rules = [(number, rule) for number, rule in rules if rule.rate >= 1]
        drawn = self._draw(rules, *places)
        self._in_a_row[goal] += drawn is not None
        return drawn

    def _draw(self, rules: _Numbered, *places: str) -> DrawnFault | None:
        for number, rule in rules:
            if rule.applies_to(*places) and self._left[number] > 0 and self._random.random() < rule.rate:
                self._left[number] -= 1
                self.counts[rule.kind] += 1
                return DrawnFault(rule.kind, self._random.random() * rule.max_seconds)
        return None


def _for_operation(numbered: _Numbered, operation: str) -> _Numbered:
    """Return the rules of an operation. A rule that names a shard or a consumer applies to every operation of its kind."""
    return [
        (number, rule)
        for number, rule in numbered
        if operation in rule.kind.targets and (rule.where not in CALLS or rule.where == operation)
    ]
