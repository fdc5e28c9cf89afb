"""StreamTransports: one transport for each region and role."""

import pytest

from recordpublisher.publishers.kinesis.fast_path.direct_transport import DirectTransport
from recordpublisher.publishers.kinesis.stream_transports import StreamTransports
from recordpublisher.publishers.properties.properties import Properties

EU, US = (f"arn:aws:kinesis:{region}:123456789012:stream/orders" for region in ("eu-west-1", "us-east-1"))
KEYS = {
    "aws.credentials.provider.basic.accesskeyid": "a",
    "aws.credentials.provider.basic.secretkey": "s",
    "aws.http.client": "SDK",
}


@pytest.fixture
def transports():
    return lambda *streams, **more: StreamTransports(Properties(KEYS | more), streams)


def test_streams_of_one_region_share_a_transport(transports):
    given = transports(EU, "clicks", f"mine={EU}-2", **{"aws.region": "eu-west-1"})
    assert given.of(EU) is given.of(None) is given.of(f"{EU}-2")


def test_an_arn_decides_the_region(transports):
    given = transports(EU, US, **{"aws.region": "eu-central-1"})
    assert [given.of(arn)._region for arn in (EU, US, None)] == ["eu-west-1", "us-east-1", "eu-central-1"]


def test_an_arn_that_was_not_given_at_first_has_a_transport_too(transports):
    given = transports("clicks", **{"aws.region": "eu-west-1"})
    assert given.of(US)._region == "us-east-1"


def test_with_one_endpoint_for_all_there_is_one_transport(transports):
    given = transports(EU, US, **{"aws.endpoint": "http://127.0.0.1:1"})
    assert given.of(EU) is given.of(US)


def test_a_region_with_an_endpoint_of_its_own_has_a_transport_of_its_own(transports):
    endpoints = {"aws.endpoint": "http://127.0.0.1:1", "aws.endpoint.us-east-1": "http://127.0.0.1:2"}
    given = transports(EU, US, **endpoints)
    assert [given.of(arn)._endpoint for arn in (EU, US)] == ["http://127.0.0.1:1", "http://127.0.0.1:2"]


def test_what_needs_no_sdk_gets_a_transport_without_it():
    own = StreamTransports(Properties(KEYS | {"aws.http.client": "OWN", "aws.region": "eu-west-1"}), [EU])

    assert isinstance(own.of(EU), DirectTransport)
