import msgspec
import pytest

from recordpublisher.local.streams.account import Tokens


class Position(msgspec.Struct, frozen=True, array_like=True, tag="place"):
    shard: str
    counter: int


class Page(msgspec.Struct, frozen=True, array_like=True, tag="page"):
    shard: str
    counter: int


def test_an_opened_token_has_its_content():
    tokens = Tokens()
    assert tokens.open(tokens.seal(Position("s", 1 << 60)), Position) == Position("s", 1 << 60)


def test_a_token_of_another_kind_does_not_open():
    tokens = Tokens()
    assert tokens.open(tokens.seal(Position("s", 1)), Page) is None


def test_a_token_of_another_endpoint_does_not_open():
    assert Tokens().open(Tokens().seal(Position("s", 1)), Position) is None


@pytest.mark.parametrize("token", ["", "=", "garbage", "é", "AAAAAAAA"])
def test_other_text_does_not_open(token: str):
    assert Tokens().open(token, Position) is None


def test_an_iterator_of_the_longest_stream_name_stays_within_512_characters():
    assert len(Tokens().seal(Position("s" * 128 + "shardId-000000000000", 1 << 62))) < 400
