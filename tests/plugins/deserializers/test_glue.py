"""Records of the AWS Glue Schema Registry: bytes of the Java serialiser, with schemas that moto has."""

import json
import zlib
from uuid import UUID, uuid4

import boto3
import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.host.build_from_properties import build_deserializer
from recordpublisher.plugins.host.manager import load_registry

from fakes.batches import batch
from iam.policy_front import serve_policy
from iam.simulated_aws import load_policies
from servers.moto_server import serve_moto

FIELDS = [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}]
WRITTEN_BY_JAVA = {
    "0300b7b4a7f09c964e4aa687fb5de9ef0c630206746561": {"id": 1, "item": "tea"},
    "0305b7b4a7f09c964e4aa687fb5de9ef0c63789c63622b494d040002ae0143": {"id": 1, "item": "tea"},
}
"""Written by software.amazon.glue:schema-registry-serde 1.1.19, plain and with ZLIB; the bytes 2 to 17 are the schema version's id."""
TEA = bytes.fromhex("0206746561")


def schema(*fields):
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


def framed(version, payload, compression=0):
    return bytes([3, compression]) + UUID(version).bytes + payload


@pytest.fixture(scope="module")
def moto():
    with serve_moto() as url:
        yield url


@pytest.fixture(scope="module")
def register(moto):
    """Registers a schema and returns its version's id."""
    registry = {"RegistryName": uuid4().hex}
    glue = boto3.client(
        "glue", endpoint_url=moto, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s"
    )
    glue.create_registry(**registry)

    def create(definition, data_format="AVRO"):
        given = {"DataFormat": data_format, "Compatibility": "NONE", "SchemaDefinition": definition}
        return glue.create_schema(RegistryId=registry, SchemaName=uuid4().hex, **given)["SchemaVersionId"]

    yield create
    glue.close()


@pytest.fixture(scope="module")
def orders(register):
    """The id of the schema of orders."""
    return register(schema(*FIELDS))


@pytest.fixture(scope="module")
def properties(moto):
    return {
        "flink.deserializer": "glue",
        "flink.deserializer.glue.endpoint": moto,
        "flink.deserializer.decompressed.max.bytes": 1_000,
        "aws.region": "us-east-1",
        "aws.credentials.provider.basic.accesskeyid": "a",
        "aws.credentials.provider.basic.secretkey": "s",
    }


@pytest.fixture(scope="module")
def made(properties):
    """A deserialiser for several tests: each new one loads the SDK's model of Glue, for half a second."""
    return deserializer(properties)


def deserializer(properties, **more):
    return build_deserializer(load_registry(), rp.Properties({**properties, **more}))


async def values(made, *payloads):
    await made.prepare(batch(*payloads))
    return made.values(batch(*payloads))


@pytest.mark.slow
@pytest.mark.parametrize(("written", "value"), WRITTEN_BY_JAVA.items(), ids=["plain", "zlib"])
async def test_bytes_of_the_java_serialiser_are_read(made, orders, written, value):
    data = bytes.fromhex(written)

    assert await values(made, data[:2] + UUID(orders).bytes + data[18:]) == [value]


async def test_json_of_the_java_serialiser_is_read(made, register):
    data = bytes.fromhex("0300b7b4a7f09c964e4aa687fb5de9ef0c637b226964223a317d")
    version = register('{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}', "JSON")

    assert await values(made, data[:2] + UUID(version).bytes + data[18:]) == [{"id": 1}]


async def test_each_record_is_read_by_the_schema_that_wrote_it(made, orders, register):
    old = register(schema(FIELDS[0]))

    found = await values(made, framed(old, TEA[:1]), framed(orders, TEA))

    assert found == [{"id": 1}, {"id": 1, "item": "tea"}]


async def test_a_schema_of_the_properties_is_the_one_that_records_have(properties, orders):
    mine = schema(FIELDS[0], {"name": "note", "type": "string", "default": "none"})
    made = deserializer(properties, **{"flink.deserializer.avro.schema": mine})

    assert await values(made, framed(orders, TEA)) == [{"id": 1, "note": "none"}]


async def test_a_schema_is_fetched_once_and_needs_the_policy_of_the_page(properties, moto, orders):
    record = framed(orders, TEA)
    with serve_policy({"glue": moto}, load_policies().policy("glue")) as front:
        made = deserializer(properties, **{"flink.deserializer.glue.endpoint": front.url})
        await made.prepare(batch(record))

    assert front.called == {"glue:GetSchemaVersion"}
    assert await values(made, record, record) == [{"id": 1, "item": "tea"}] * 2  # the front is gone


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "does not begin with the header"),
        (b"\x03\x00" + bytes(15), "does not begin with the header"),
        (b"\x02" + bytes(17), "does not begin with the header"),
        (b"\x03\x01" + bytes(16), "does not begin with the header"),
        (framed(str(UUID(int=7)), b""), "00000000-0000-0000-0000-000000000007 is not in the registry"),
    ],
)
async def test_a_record_without_a_known_schema_is_a_bad_record(made, data, message):
    with pytest.raises(ValueError, match=message):
        await values(made, data)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"plain", "not compressed as its header says"),
        (zlib.compress(TEA)[:-3], "ends too early"),
        (zlib.compress(bytes(1_001)), "more than 1000 bytes"),
        (zlib.compress(TEA[:-1]), "does not fit the Avro schema"),
    ],
    ids=["plain", "cut", "large", "short"],
)
async def test_a_payload_that_is_not_as_its_header_says_is_a_bad_record(made, orders, payload, message):
    with pytest.raises(ValueError, match=message):
        await values(made, framed(orders, payload, compression=5))


async def test_protobuf_of_the_java_serialiser_is_read(made, register):
    version = register('syntax = "proto3"; message Order { int64 id = 1; string item = 2; }', "PROTOBUF")

    [order] = await values(made, framed(version, bytes.fromhex("0008011203746561"), compression=0))

    assert (order.id, order.item) == (1, "tea")


async def test_a_definition_that_is_not_protobuf_makes_bad_records(made, register):
    version = register("message Order {", "PROTOBUF")

    with pytest.raises(ValueError, match=r"the schema version .* cannot be used: .*schema\.proto"):
        await values(made, framed(version, b"\0"))


async def test_without_the_right_the_error_names_it(properties, moto):
    with serve_policy({"glue": moto}, {"Statement": []}) as front:
        made = deserializer(properties, **{"flink.deserializer.glue.endpoint": front.url})
        with pytest.raises(rp.FatalKinesisError, match="glue:GetSchemaVersion"):
            await made.prepare(batch(framed(str(uuid4()), TEA)))


def test_another_compression_is_refused(properties):
    with pytest.raises(rp.ConfigurationError, match=r"flink\.deserializer\.compression.*the header of each record"):
        deserializer(properties, **{"flink.deserializer.compression": "GZIP"})


@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
async def test_a_job_skips_records_of_unknown_schemas(properties, orders, publisher):
    good = framed(orders, TEA)
    with serve_in_thread(streams={"orders": 1}) as served:
        served.stream("orders").put(good, framed(str(uuid4()), TEA), good)
        given = {
            **properties,
            **served.properties(),
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.stream.recordpublisher": publisher,
            "flink.stream.efo.consumername": "billing",
            "flink.deserializer.error": "SKIP",
        }
        sink = rp.MemorySink()
        async with rp.DataFetcher("orders", given, sink=sink) as fetcher:
            await fetcher.run_bounded(max_time=60, max_records=2)

    assert [record.value for record in sink.records] == [{"id": 1, "item": "tea"}] * 2
