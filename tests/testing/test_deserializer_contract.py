"""Simple deserializers pass the contract, and each kind of broken one fails one of its tests."""

import json
from contextlib import asynccontextmanager

import pytest

import recordpublisher as rp
from recordpublisher.consumer.deserialization import BytesDeserializer
from recordpublisher.testing import DeserializerCase, DeserializerContract

EXPECTED = {b'{"a": 1}': {"a": 1}, b"[2]": [2], b"3": 3}


class JsonContract(DeserializerContract):
    made = rp.Json(int | list | dict)

    @asynccontextmanager
    async def open_case(self):
        yield DeserializerCase(self.made, EXPECTED, bad=[b"{", b"\xff"])


class TestJson(JsonContract):
    """The contract for a deserializer of the library."""


class TestBytes(DeserializerContract):
    """A deserializer may return None, for the bytes themselves."""

    @asynccontextmanager
    async def open_case(self):
        yield DeserializerCase(BytesDeserializer(), {b"a": b"a", b"b": b"b"})


class ThatPrepares(rp.Deserializer):
    """Decodes only batches that it was prepared for."""

    async def prepare(self, batch):
        self.known = list(batch.data)

    def values(self, batch):
        assert list(batch.data) == self.known
        return list(map(json.loads, batch.data))


class TestPrepared(JsonContract):
    """A deserializer may wait for something before each batch."""

    made = ThatPrepares()


class IsGenerator(rp.Deserializer):
    def values(self, batch):
        yield from map(json.loads, batch.data)


class GivesOneTooMany(rp.Deserializer):
    def values(self, batch):
        return [*map(json.loads, batch.data), None]


class TakesEverything(rp.Deserializer):
    def values(self, batch):
        try:
            return list(map(json.loads, batch.data))
        except ValueError:
            return [None] * len(batch)


class CountsOn(rp.Deserializer):
    """Makes the first value different from all others."""

    count = 0

    def values(self, batch):
        self.count += 1
        return list(map(json.loads, batch.data)) if self.count == 1 else [None] * len(batch)


ONE_EACH, AGAIN, BAD = (
    "test_a_batch_gives_one_value_for_each_record",
    "test_records_may_be_deserialized_again_and_alone",
    "test_a_bad_record_raises_for_itself_alone",
)


@pytest.mark.parametrize(
    ("broken", "test", "message"),
    [
        (IsGenerator, ONE_EACH, "`IsGenerator.values` returned generator: it is a plain method that returns a list"),
        (GivesOneTooMany, ONE_EACH, "`GivesOneTooMany.values` returned 4 values for 3 records"),
        (CountsOn, AGAIN, r"of a later batch has the values \[None, None\]"),
        (TakesEverything, BAD, "a bad record must raise an error"),
    ],
)
def test_a_broken_deserializer_is_found(broken, test, message):
    contract = JsonContract()
    contract.made = broken()

    with pytest.raises(AssertionError, match=message):
        getattr(contract, test)()
