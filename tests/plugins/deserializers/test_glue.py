"""The deserializer for the AWS Glue Schema Registry: records, schema versions, and Protobuf."""

import asyncio
import json
import zlib
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import boto3
import pytest
from botocore.exceptions import ClientError, NoCredentialsError

import recordpublisher as rp
from recordpublisher import ConfigurationError, Properties, RetriesExhaustedError
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.deserializers import glue
from recordpublisher.plugins.deserializers.glue import GlueSchemas, message_decoder
from recordpublisher.plugins.host.build_from_properties import build_deserializer
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.publishers.kinesis.sdk.aws_service import AwsService
from recordpublisher.testing import run_virtual

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
    """A deserializer for several tests: each new one loads the SDK's model of Glue, for half a second."""
    return deserializer(properties)


def deserializer(properties, **more):
    return build_deserializer(load_registry(), rp.Properties({**properties, **more}))


async def values(made, *payloads):
    await made.prepare(batch(*payloads))
    return made.values(batch(*payloads))


@pytest.mark.slow
@pytest.mark.parametrize(("written", "value"), WRITTEN_BY_JAVA.items(), ids=["plain", "zlib"])
async def test_bytes_of_the_java_serializer_are_read(made, orders, written, value):
    data = bytes.fromhex(written)

    assert await values(made, data[:2] + UUID(orders).bytes + data[18:]) == [value]


async def test_json_of_the_java_serializer_is_read(made, register):
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


async def test_protobuf_of_the_java_serializer_is_read(made, register):
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


IDS = [UUID(int=number).bytes for number in range(1, 6)]


def error(code, status=400):
    response = {"Error": {"Code": code, "Message": "words"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "GetSchemaVersion")


class Registry:
    """A client of Glue: each call takes a second, and fails as long as there are errors."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.asked = []

    @asynccontextmanager
    async def open(self):
        yield self

    async def get_schema_version(self, SchemaVersionId):  # noqa: N803
        await asyncio.sleep(1)
        self.asked.append(UUID(SchemaVersionId).bytes)
        if self.errors:
            raise self.errors.pop(0)
        return {"DataFormat": "AVRO", "SchemaDefinition": "definition"}


def schemas(registry):
    async def decoder_for(data_format, definition):
        return lambda payload: (definition, payload)

    properties = Properties({"aws.region": "us-east-1"})
    return GlueSchemas(AwsService("glue", properties, None, open_client=registry.open), decoder_for)


class Batch:
    """Whatever may be referred to weakly."""


def test_a_throttled_fetch_is_tried_again():
    registry = Registry(error("ThrottlingException"), error("InternalServiceException", 500))
    made = schemas(registry)

    run_virtual(made.fetch(IDS[:1], Batch()))

    assert made.decoder(IDS[0])(b"x") == ("definition", b"x")
    assert registry.asked == IDS[:1] * 3


def test_a_registry_that_does_not_recover_ends_the_job():
    with pytest.raises(RetriesExhaustedError, match="GetSchemaVersion failed 11 times in a row"):
        run_virtual(schemas(Registry(*[error("InternalServiceException", 500)] * 99)).fetch(IDS[:1], Batch()))


def test_throttling_is_waited_for_and_ends_no_job():
    """Whoever may put records can use up the account's calls, by naming versions without end."""
    registry = Registry(*[error("ThrottlingException")] * 99)
    made = schemas(registry)

    run_virtual(made.fetch(IDS[:1], Batch()))

    assert made.decoder(IDS[0])(b"x") == ("definition", b"x")


def test_a_job_without_credentials_fails_and_takes_no_record_for_a_bad_one():
    with pytest.raises(ConfigurationError, match="credentials"):
        run_virtual(schemas(Registry(NoCredentialsError())).fetch(IDS[:1], Batch()))


def test_shards_that_need_one_schema_at_once_fetch_it_once():
    registry = Registry()
    made = schemas(registry)

    async def two_shards():
        await asyncio.gather(made.fetch(IDS[:2], Batch()), made.fetch(IDS[1:3], Batch()))

    run_virtual(two_shards())

    assert sorted(registry.asked) == IDS[:3]


def test_the_oldest_schemas_are_forgotten(monkeypatch):
    monkeypatch.setattr(glue, "MAX_SCHEMAS", 2)
    registry = Registry()
    made = schemas(registry)

    async def fetch():
        for each in (IDS[:2], IDS[2:3], IDS[1:2], IDS[:1]):
            await made.fetch(each, Batch())

    run_virtual(fetch())

    assert registry.asked == [*IDS[:3], IDS[0]]


def test_all_schemas_of_one_batch_are_kept(monkeypatch):
    monkeypatch.setattr(glue, "MAX_SCHEMAS", 2)
    made = schemas(Registry())

    run_virtual(made.fetch(IDS, Batch()))

    assert [made.decoder(each)(b"") for each in IDS] == [("definition", b"")] * 5


def test_the_schemas_of_a_batch_that_may_not_be_decoded_yet_are_kept_while_others_are_fetched(monkeypatch):
    monkeypatch.setattr(glue, "MAX_SCHEMAS", 1)
    made = schemas(Registry())
    batches = [Batch()]

    async def fetch():
        await made.fetch(IDS[:1], batches[0])
        await made.fetch(IDS[1:3], Batch())

    run_virtual(fetch())
    assert made.decoder(IDS[0])
    batches.clear()
    run_virtual(made.fetch(IDS[3:], Batch()))
    with pytest.raises(KeyError):
        made.decoder(IDS[0])


def test_a_shard_does_not_wait_for_the_versions_that_another_one_names():
    async def job():
        made = schemas(Registry())
        many = asyncio.ensure_future(made.fetch([UUID(int=number).bytes for number in range(100, 150)], Batch()))
        await asyncio.sleep(0.5)
        await made.fetch(IDS[:1], Batch())
        seconds = asyncio.get_running_loop().time()
        await many
        return seconds

    assert run_virtual(job()) == 1.5


def test_a_version_that_the_registry_did_not_have_is_asked_for_again_after_a_minute():
    """The answer may be older than the version: records that name it would be bad for as long as the process lives."""
    registry = Registry(error("EntityNotFoundException"))
    made = schemas(registry)

    async def job():
        await made.fetch(IDS[:1], Batch())
        await asyncio.sleep(30)
        await made.fetch(IDS[:1], Batch())
        with pytest.raises(ValueError, match="not in the registry"):
            made.decoder(IDS[0])(b"x")
        await asyncio.sleep(31)
        await made.fetch(IDS[:1], Batch())
        return made.decoder(IDS[0])(b"x")

    assert run_virtual(job()) == ("definition", b"x")
    assert registry.asked == IDS[:1] * 2


def test_after_many_versions_that_do_not_exist_the_registry_is_asked_slowly(caplog):
    async def job():
        unknown = Registry(*[error("EntityNotFoundException")] * 200)
        made = schemas(unknown)
        ids = [UUID(int=number).bytes for number in range(1, 151)]
        await made.fetch(ids, Batch())
        return asyncio.get_running_loop().time()

    assert run_virtual(job()) == 150 + 49  # a second for each call, and a pause before each above the limit
    assert "records name 101 schema versions that the registry does not have" in caplog.text


ORDERS = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1;
  string item = 2;
  google.protobuf.Timestamp at = 3;
  message Zone { string name = 1; }
  Zone zone = 4;
  map<string, int32> counts = 5;
  enum Kind { NONE = 0; }
  message Area { string name = 1; message Deep { int32 z = 1; } }
}
message Customer { string name = 1; }
message Zebra { message Apple { int32 a = 1; } }
"""
WRITTEN_BY_JAVA_GLUE_PROTOBUF = {
    "000a03746561": ("shop.Customer", {"name": "tea"}),
    "0108011203746561": ("shop.Order", {"id": 1, "item": "tea"}),
    "020a03746561": ("shop.Order.Area", {"name": "tea"}),
    "030807": ("shop.Order.Area.Deep", {"z": 7}),
    "050a03746561": ("shop.Order.Zone", {"name": "tea"}),
    "06": ("shop.Zebra", {}),
    "070807": ("shop.Zebra.Apple", {"a": 7}),
}
"""Written by software.amazon.glue:schema-registry-serde 1.1.19, without the header."""


@pytest.fixture(scope="module")
def decode():
    return message_decoder(ORDERS)


@pytest.mark.parametrize(
    ("written", "expected"),
    WRITTEN_BY_JAVA_GLUE_PROTOBUF.items(),
    ids=[n for n, _ in WRITTEN_BY_JAVA_GLUE_PROTOBUF.values()],
)
def test_messages_of_the_java_serializer_are_read(decode, written, expected):
    message = decode(bytes.fromhex(written))

    assert message.DESCRIPTOR.full_name == expected[0]
    assert {field.name: value for field, value in message.ListFields()} == expected[1]


def test_an_index_of_two_bytes_is_read():
    messages = "\n".join(f"message M{number:03} {{ int32 a = 1; }}" for number in range(200))

    found = message_decoder(f'syntax = "proto3";\n{messages}')(b"\x96\x01\x08\x07")

    assert (found.DESCRIPTOR.full_name, found.a) == ("M150", 7)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "does not begin with the index"),
        (b"\x80", "does not begin with the index"),
        (b"\xff" * 10, "does not begin with the index"),
        (b"\x08", "names message 8 .from 0., but the number of messages in its schema is 8"),
        (b"\x01\x08", "is not a message shop.Order"),
    ],
)
def test_other_bytes_are_a_bad_record(decode, payload, message):
    with pytest.raises(ValueError, match=message):
        decode(payload)


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("message Order {", "^schema.proto:1:16: Reached end of input"),
        ('syntax = "proto3"; import "other.proto";', "other.proto"),
        ('syntax = "proto3"; import "../../etc/passwd";', "passwd"),
    ],
)
def test_a_definition_that_cannot_be_compiled_names_the_reason(definition, message):
    with pytest.raises(ValueError, match=message):
        message_decoder(definition)


def test_without_the_extra_the_job_ends_and_names_it(monkeypatch):
    monkeypatch.setattr(glue, "find_spec", lambda name: None)

    with pytest.raises(rp.ConfigurationError, match=r"pip install .*\[glue\]"):
        message_decoder(ORDERS)
