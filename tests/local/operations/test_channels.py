"""Channels are stored and shown; what the API's documentation forbids is refused. Nothing is delivered."""

import pytest

from recordpublisher.local import Delays
from recordpublisher.local.api_errors import ApiError
from recordpublisher.local.operations.table import OPERATIONS
from recordpublisher.local.streams.account import Account

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
BUCKET = {"BucketARN": "arn:aws:s3:::backup", "ExpectedBucketOwner": "123456789012"}
S3 = {"StorageConfiguration": {**BUCKET, "CompressionType": "GZIP"}}
TABLE = {"TableBucketARN": "arn:aws:s3tables:us-east-1:123456789012:bucket/tables", "Namespace": "n", "TableName": "t"}
TABLES = {
    "DeadLetterQueueS3Configuration": BUCKET,
    "S3TablesConfigurationList": [{**TABLE, "CompressionType": "ZSTD"}],
}
SCHEMA = "arn:aws:glue:us-east-1:123456789012:schema/registry/orders"


@pytest.fixture(autouse=True)
def orders(call) -> None:
    call("CreateStream", StreamName="orders", StreamModeDetails={"StreamMode": "ON_DEMAND"})


def request(name="backup", record=None, **fields):
    record = record or {"RecordFormatType": "JSON"}
    destination = {} if "S3TablesDestinationConfiguration" in fields else {"S3DestinationConfiguration": S3}
    return {
        "ChannelName": name,
        "ServiceExecutionRoleARN": "arn:aws:iam::123456789012:role/delivery",
        "StreamConfigurationList": [{"StreamARN": ARN, "RecordConfiguration": record}],
        **destination,
        **fields,
    }


def test_a_channel_is_shown_with_its_defaults(call):
    created = call("CreateChannel", **request())["ChannelDescription"]

    assert created["S3DestinationConfiguration"] == {
        **S3,
        "DataFreshnessInSeconds": 300,
        "DeadLetterQueueS3Configuration": BUCKET,
    }
    assert created["LoggingConfiguration"] == {"CloudWatchLogs": {"Enabled": False}}
    assert created["ChannelARN"] == f"arn:aws:kinesis:us-east-1:000000000000:channel/{created['ChannelId']}"
    assert call("DescribeChannel", ChannelARN=created["ChannelARN"])["ChannelDescription"] == created
    (listed,) = call("ListChannels", StreamFilter=[{"StreamARN": ARN}])["ChannelSummaries"]
    assert (listed["ChannelName"], listed["ChannelDestinationType"]) == ("backup", "S3")


def test_a_channel_to_tables_needs_a_schema(call):
    with pytest.raises(ApiError, match="need a GSRSchemaARN"):
        call("CreateChannel", **request(S3TablesDestinationConfiguration=TABLES))
    record = {"RecordFormatType": "GSR_JSON", "GSRSchemaARN": SCHEMA}
    created = call("CreateChannel", **request(record=record, S3TablesDestinationConfiguration=TABLES))
    assert created["ChannelDescription"]["S3TablesDestinationConfiguration"]["DataFreshnessInSeconds"] == 300


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"S3DestinationConfiguration": None}, "Exactly one of"),
        ({"S3DestinationConfiguration": S3, "S3TablesDestinationConfiguration": TABLES}, "Exactly one of"),
        ({"record": {"RecordFormatType": "GSR_JSON", "GSRSchemaARN": SCHEMA}}, "GSR_JSON is not delivered"),
        (
            {"record": {"RecordFormatType": "STRING"}, "S3TablesDestinationConfiguration": TABLES},
            "STRING is not delivered",
        ),
        ({"S3DestinationConfiguration": {}}, "s3DestinationConfiguration.storageConfiguration"),
        ({"ServiceExecutionRoleARN": "role"}, "serviceExecutionRoleARN"),
    ],
)
def test_a_channel_that_cannot_be_is_refused(call, fields, text):
    with pytest.raises(ApiError, match=text):
        call("CreateChannel", **request(**fields))


def test_only_freshness_and_logging_of_a_channel_change(call):
    arn = call("CreateChannel", **request())["ChannelDescription"]["ChannelARN"]
    logging = {"CloudWatchLogs": {"Enabled": True, "LogGroupName": "/aws/x"}}
    changed = call(
        "UpdateChannel",
        ChannelARN=arn,
        S3DestinationConfiguration={"DataFreshnessInSeconds": 60},
        LoggingConfiguration=logging,
    )["ChannelDescription"]
    assert changed["S3DestinationConfiguration"]["DataFreshnessInSeconds"] == 60
    assert changed["S3DestinationConfiguration"]["StorageConfiguration"] == S3["StorageConfiguration"]
    assert changed["LoggingConfiguration"] == logging
    with pytest.raises(ApiError, match=r"^InvalidArgumentException.* has no S3TablesDestinationConfiguration"):
        call("UpdateChannel", ChannelARN=arn, S3TablesDestinationConfiguration={"DataFreshnessInSeconds": 60})


def test_a_channel_being_created_cannot_be_changed(clock):
    account = Account(clock, "us-east-1", Delays(consumer=100), None)
    stream = account.create_stream("orders", 1)
    channel = account.channels.create("backup", stream, {"StreamConfigurationList": []}, {}, 100)
    body = b'{"ChannelARN":"%b"}' % channel.arn.encode()
    with pytest.raises(ApiError, match="ResourceInUseException"):
        OPERATIONS["UpdateChannel"](account, body)
    clock.advance(100)
    assert b"UPDATING" in OPERATIONS["UpdateChannel"](account, body)


def test_a_stream_with_a_channel_stays(call):
    arn = call("CreateChannel", **request())["ChannelDescription"]["ChannelARN"]
    assert call("DescribeStreamSummary", StreamARN=ARN)["StreamDescriptionSummary"]["ChannelCount"] == 1
    with pytest.raises(ApiError, match="ResourceInUseException"):
        call("DeleteStream", StreamARN=ARN)
    call("TagResource", ResourceARN=arn, Tags={"a": "b"})
    assert call("ListTagsForResource", ResourceARN=arn)["Tags"] == [{"Key": "a", "Value": "b"}]
    call("DeleteChannel", ChannelARN=arn)
    call("DeleteStream", StreamARN=ARN)
