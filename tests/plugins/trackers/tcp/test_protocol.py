"""Frames are decoded as they were encoded, however the bytes are split."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.plugins.trackers.tcp.protocol import (
    AuthResponse,
    FrameError,
    MessageReader,
    ServerProof,
    encode_frame,
    is_authentic,
    is_proven,
    new_challenge,
    sign_challenge,
    sign_response,
)

ENCODER = msgspec.msgpack.Encoder()


@given(st.lists(st.binary(max_size=300), max_size=20), st.data())
def test_frames_are_found_however_the_bytes_are_split(messages, data):
    stream = b"".join(encode_frame(ENCODER, message) for message in messages)
    splits = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=30)))
    reader, found = MessageReader(1_000), []
    for start, stop in zip([0, *splits], [*splits, len(stream)], strict=True):
        reader.feed(memoryview(stream)[start:stop])
        while (frame := reader.next_frame()) is not None:
            found.append(msgspec.msgpack.decode(frame))

    assert found == messages


def test_a_frame_at_the_limit_is_read_and_a_longer_one_rejected():
    reader = MessageReader(10)
    reader.feed((10).to_bytes(4, "big") + b"x" * 10)
    assert reader.next_frame() == b"x" * 10
    reader.feed((11).to_bytes(4, "big"))

    with pytest.raises(FrameError):
        reader.next_frame()


@pytest.fixture
def handshake():
    challenge = new_challenge()
    response = sign_challenge("token", challenge)
    return challenge, response, sign_response("token", challenge, response)


def test_each_side_proves_the_token_to_the_other(handshake):
    challenge, response, proof = handshake

    assert is_authentic(response, "token", challenge)
    assert is_proven(proof, "token", challenge, response)


def test_another_token_proves_nothing(handshake):
    challenge, response, proof = handshake

    assert not is_authentic(response, "other", challenge)
    assert not is_proven(proof, "other", challenge, response)


def test_a_proof_of_one_side_is_none_of_the_other(handshake):
    challenge, response, proof = handshake

    assert not is_proven(ServerProof(response.mac), "token", challenge, response)
    assert not is_authentic(AuthResponse(response.version, proof.mac, response.nonce), "token", challenge)


def test_a_proof_is_worth_nothing_in_another_handshake_of_either_side(handshake):
    challenge, response, proof = handshake
    later = sign_challenge("token", challenge)

    assert not is_authentic(response, "token", new_challenge())
    assert not is_proven(proof, "token", challenge, later), "the client's nonce is new"
    assert not is_proven(proof, "token", new_challenge(), response), "the server's nonce is new"


@pytest.mark.parametrize("mac", [b"", b"x", b"x" * 32, b"x" * 200])
def test_a_proof_of_any_length_is_compared(handshake, mac):
    challenge, response, _ = handshake

    assert not is_authentic(AuthResponse(response.version, mac, response.nonce), "token", challenge)
    assert not is_proven(ServerProof(mac), "token", challenge, response)


def test_a_token_of_bytes_that_are_no_text_proves_itself():
    """The variable may hold any bytes; Python shows them as lone surrogates."""
    token = b"\xff\xfe".decode("utf-8", "surrogateescape")
    challenge = new_challenge()

    assert is_authentic(sign_challenge(token, challenge), token, challenge)
