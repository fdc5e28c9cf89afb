"""The stored form of a claim: small, and refused when it is something else."""

from __future__ import annotations

import json
import random
import zlib

import pytest

from recordpublisher.fetcher.pipeline.retention_gaps import ShardObservation
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.spark.source.claims import ReadClaim, ShardRead
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition

DYNAMODB_ITEM = 400_000
TIP_SEEN_MS = 1_800_000_000_000, 1_800_000_000_001


def claim_of(shards: int) -> ReadClaim:
    digits = random.Random(7)

    def number() -> str:
        return str(49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898 + digits.getrandbits(150))

    def state() -> ShardState:
        return ShardState(StartingPosition.trim_horizon(), SequenceNumber(number()), watermark=digits.getrandbits(40))

    return ReadClaim(
        {
            f"flights/shardId-{n:012}": ShardRead(
                state(),
                state(),
                9,
                900,
                (number(), -1),
                (number(), -1),
                ShardObservation(True, TIP_SEEN_MS, behind_ms=0),
            )
            for n in range(shards)
        },
        began_ms=1_800_000_000_000,
    )


def test_a_claim_survives_its_stored_form():
    assert ReadClaim.from_bytes(claim_of(3).to_bytes()) == claim_of(3)


def test_a_claim_of_two_thousand_shards_fits_into_an_item_of_dynamodb():
    assert len(claim_of(2000).to_bytes()) < DYNAMODB_ITEM


def test_a_claim_that_is_not_compressed_is_read():
    assert ReadClaim.from_bytes(zlib.decompress(claim_of(2).to_bytes())) == claim_of(2)


@pytest.mark.parametrize("stored", [b"", b"other", b"{}", json.dumps({"v": 3}).encode(), claim_of(2).to_bytes()[:-9]])
def test_other_content_is_an_error_that_shows_it(stored):
    with pytest.raises(StateError, match="a claim"):
        ReadClaim.from_bytes(stored)
