"""Payloads that are cut out decode to the same as the whole body does, or to the same kind of error."""

import base64
import json
from operator import attrgetter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordpublisher.publishers.kinesis import codec
from recordpublisher.publishers.kinesis.codec import ReadBody, decode_json, simd_decode

from servers.event_frames import wire_record

DECODER = msgspec.json.Decoder(ReadBody)
DECODE = simd_decode or base64.b64decode
COMPACT = (",", ":")


@pytest.fixture(autouse=True)
def _small_payloads_are_cut_out(monkeypatch):
    monkeypatch.setattr(codec, "LARGE_PAYLOAD_BYTES", 1)


def outcome(decode):
    try:
        return decode()
    except msgspec.DecodeError:
        return "malformed"


def apart(body):
    return outcome(lambda: decode_json(DECODER, attrgetter("Records"), body, DECODE))


def whole(body):
    return outcome(lambda: DECODER.decode(body))


TEXT = st.text(max_size=8) | st.sampled_from(['"Data":"', '\\"Data":"AAAA', ',"Data":"QUJD"', "\\", '"', "\\u0041"])
PAYLOAD = st.binary(max_size=30).map(lambda data: base64.b64encode(data).decode()) | st.text(
    'AZaz09+/=-_ \\"\n', max_size=9
)
NESTED = st.none() | st.dictionaries(TEXT | st.just("Data"), TEXT | PAYLOAD, max_size=2)
RECORD = st.fixed_dictionaries(
    {"SequenceNumber": st.just("1")},
    optional={"Data": PAYLOAD, "PartitionKey": TEXT, "Other": NESTED, 'a"Data': PAYLOAD},
)


@st.composite
def bodies(draw):
    """Bodies as the service sends them, and others: spaces, escapes, other orders of keys, missing, doubled and nested payloads, cuts."""
    separators = draw(st.sampled_from([COMPACT, (", ", ": "), (",", " :")]))
    texts = []
    for record in draw(st.lists(RECORD, max_size=5)):
        items = draw(st.permutations(list(record.items())))
        items += draw(st.sampled_from([[], items[:1]]))  # a name twice
        pairs = [
            json.dumps({name: value}, separators=separators, ensure_ascii=draw(st.booleans())) for name, value in items
        ]
        texts.append("{" + separators[0].join(pair[1:-1] for pair in pairs) + "}")
    text = (
        '{"MillisBehindLatest":3,"Records":[' + ",".join(texts) + '],"Data":' + draw(st.sampled_from(['""', "1"])) + "}"
    )
    if draw(st.booleans()):
        text = text.replace("/", "\\/")
    body = text.encode("utf-8", "surrogatepass")
    return body[: draw(st.integers(0, len(body)))] if draw(st.integers(0, 5)) == 0 else body


@settings(max_examples=300, deadline=None)
@given(bodies())
def test_any_body_decodes_the_same_apart(body):
    assert apart(body) == whole(body)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5))
def test_the_usual_body_is_decoded_apart(payloads):
    records = [wire_record(data, str(number)) for number, data in enumerate(payloads)]
    body = json.dumps({"Records": records, "MillisBehindLatest": 3}, separators=COMPACT).encode()
    cut = []

    def decode(payload, validate):
        cut.append(payload)
        return DECODE(payload, validate=validate)

    decoded = decode_json(DECODER, attrgetter("Records"), body, decode)
    assert [record.data for record in decoded.Records] == payloads
    assert decoded == DECODER.decode(body)
    assert len(cut) == (len(payloads) if payloads[0] else 0), "chosen by the size of the first payload"


@pytest.mark.parametrize(
    "payload", ["AB==", "A===", "AAAA=", "AAAAA", "AAAA====", "=AAA", "AA=A", "A A=", "AAA\\u003d", "AA\\/A"]
)
def test_odd_base64_is_judged_as_by_the_decoder(payload):
    body = b'{"Records":[{"Data":"%s","SequenceNumber":"1"}]}' % payload.encode()
    assert apart(body) == whole(body)


def test_small_payloads_and_a_missing_library_leave_all_to_the_decoder(monkeypatch):
    def unexpected(*_, **__):
        raise AssertionError("cut out")

    body = json.dumps({"Records": [wire_record(b"x" * 1_000, "1")]}, separators=COMPACT).encode()
    assert decode_json(DECODER, attrgetter("Records"), body, None) == DECODER.decode(body)
    monkeypatch.setattr(codec, "LARGE_PAYLOAD_BYTES", 2_700)
    assert decode_json(DECODER, attrgetter("Records"), body, unexpected) == DECODER.decode(body)
