"""The contract of a deserializer: tests that it must pass. Subclass `DeserializerContract`, provide a case, and run pytest.

class TestPairs(DeserializerContract):
    @asynccontextmanager
    async def open_case(self):
        yield DeserializerCase(Pairs(properties), {b"id=7": {"id": "7"}, b"id=8": {"id": "8"}}, bad=[b"id"])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recordpublisher.consumer.deserialization import Deserializer, PreparedDeserializer
from recordpublisher.publishers.safe_text import repr_of

from .contract import Contract, on_case
from .records import batch_of


@dataclass(frozen=True, slots=True)
class DeserializerCase:
    """A deserializer with payloads, and with the values that it must return for them.

    - `expected`: the value of each payload. At least two payloads are needed.
    - `bad`: payloads that have no value.
    """

    deserializer: Deserializer[Any]
    expected: Mapping[bytes, Any]
    bad: Sequence[bytes] = ()

    async def values(self, *payloads: bytes) -> list[Any]:
        """Return the values of a batch with these payloads. Raises: AssertionError if there is not one value for each payload."""
        batch = replace(batch_of(*payloads), decoded=None, event_times=None, watermarks=None)
        if isinstance(self.deserializer, PreparedDeserializer):
            await self.deserializer.prepare(batch)
        values = self.deserializer.values(batch)
        if values is None:
            return list(payloads)
        name = f"`{type(self.deserializer).__name__}.values`"
        assert isinstance(values, Sequence), (
            f"{name} returned {type(values).__name__}: it is a plain method that returns a list with one value for each record"
        )
        assert len(values) == len(payloads), f"{name} returned {len(values)} values for {len(payloads)} records"
        return list(values)


class DeserializerContract(Contract[DeserializerCase]):
    """The tests of a deserializer. Implement `open_case`."""

    @on_case
    async def test_a_batch_gives_one_value_for_each_record(self, case: DeserializerCase) -> None:
        """Check that a batch gives one value for each record, in the order of the records."""
        assert len(case.expected) > 1, "the case needs two payloads or more"
        assert await case.values(*case.expected) == list(case.expected.values())

    @on_case
    async def test_records_may_be_deserialized_again_and_alone(self, case: DeserializerCase) -> None:
        """Check that a value depends only on its record. After an error, a job calls `values` again for each record alone."""
        for payload, value in reversed(list(case.expected.items())):
            values = await case.values(payload, payload)
            assert values == [value, value], (
                f"the payload {payload!r:.100} of a later batch has the values {repr_of(values, 200)}, expected {value!r:.100} twice"
            )

    @on_case
    async def test_a_bad_record_raises_for_itself_alone(self, case: DeserializerCase) -> None:
        """Check that `values` raises an error for a bad record. Any exception will do.

        The other records, in this batch and in later ones, must still have their values.
        """
        for bad in case.bad:
            assert await _raises(case, bad), f"the payload {bad!r:.100} has a value: a bad record must raise an error"
            assert await _raises(case, *case.expected, bad), (
                f"a batch with the payload {bad!r:.100} must raise an error"
            )
            assert await case.values(*case.expected) == list(case.expected.values())


async def _raises(case: DeserializerCase, *payloads: bytes) -> bool:
    try:
        await case.values(*payloads)
    except AssertionError:
        raise
    except Exception:
        return True
    return False
