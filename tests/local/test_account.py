"""The account's tokens, and the rate limits of the service."""

import msgspec
import pytest

from recordpublisher.local import ManualClock, Quotas
from recordpublisher.local.account import Throttle, Tokens
from recordpublisher.local.errors import ApiError

MIB = 1 << 20


class Position(msgspec.Struct, frozen=True, array_like=True, tag="place"):
    shard: str
    counter: int


class Page(msgspec.Struct, frozen=True, array_like=True, tag="page"):
    shard: str
    counter: int


def test_an_opened_token_has_its_content():
    tokens = Tokens()
    assert tokens.open(tokens.make(Position("s", 1 << 60)), Position) == Position("s", 1 << 60)


def test_a_token_of_another_kind_does_not_open():
    tokens = Tokens()
    assert tokens.open(tokens.make(Position("s", 1)), Page) is None


def test_a_token_of_another_endpoint_does_not_open():
    assert Tokens().open(Tokens().make(Position("s", 1)), Position) is None


@pytest.mark.parametrize("token", ["", "=", "garbage", "é", "AAAAAAAA"])
def test_other_text_does_not_open(token: str):
    assert Tokens().open(token, Position) is None


def test_an_iterator_of_the_longest_stream_name_stays_within_512_characters():
    assert len(Tokens().make(Position("s" * 128 + "shardId-000000000000", 1 << 62))) < 400


@pytest.fixture
def throttle(clock: ManualClock) -> Throttle:
    return Throttle(Quotas.service(), clock)


def reads(throttle: Throttle, shard: str = "s") -> bool:
    try:
        throttle.before_read(shard)
    except ApiError as error:
        return error.code != "ProvisionedThroughputExceededException"
    return True


def test_five_reads_a_second_are_allowed_on_each_shard(throttle: Throttle, clock: ManualClock):
    assert [reads(throttle) for _ in range(6)] == [True] * 5 + [False]
    assert reads(throttle, "another")
    clock.advance(200)
    assert [reads(throttle) for _ in range(2)] == [True, False]


def test_a_response_of_10_mib_blocks_the_shard_for_5_s(throttle: Throttle, clock: ManualClock):
    assert reads(throttle)
    throttle.after_read("s", 10 * MIB)
    clock.advance(5000)
    assert not reads(throttle)
    clock.advance(1)
    assert reads(throttle)


def test_two_responses_of_1_mib_are_allowed_in_a_second(throttle: Throttle, clock: ManualClock):
    for _ in range(2):
        assert reads(throttle)
        throttle.after_read("s", MIB)
    assert not reads(throttle)
    clock.advance(1000)
    assert reads(throttle)


def test_a_thousand_written_records_a_second_are_allowed(throttle: Throttle, clock: ManualClock):
    assert sum(throttle.admit_write("s", 1) for _ in range(1100)) == 1000
    clock.advance(100)
    assert sum(throttle.admit_write("s", 1) for _ in range(1100)) == 100


def test_one_written_mib_a_second_is_allowed(throttle: Throttle):
    assert sum(throttle.admit_write("s", 100 * 1024) for _ in range(20)) == 10


def test_a_record_above_the_rate_of_a_second_is_allowed_alone(throttle: Throttle, clock: ManualClock):
    assert throttle.admit_write("s", 3 * MIB)
    assert not throttle.admit_write("s", 1)
    clock.advance(2001)
    assert throttle.admit_write("s", 1)


def test_one_subscribe_call_a_second_is_allowed(throttle: Throttle, clock: ManualClock):
    throttle.before_subscribe("c s")
    with pytest.raises(ApiError, match="LimitExceededException"):
        throttle.before_subscribe("c s")
    clock.advance(1000)
    throttle.before_subscribe("c s")


def test_rates_that_are_not_set_have_no_limit(clock: ManualClock):
    throttle = Throttle(Quotas(), clock)
    assert all(reads(throttle) for _ in range(100))
    throttle.after_read("s", 100 * MIB)
    assert reads(throttle)
    assert all(throttle.admit_write("s", MIB) for _ in range(100))
