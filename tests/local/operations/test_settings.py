import pytest

from recordpublisher.local import Delays
from recordpublisher.local.account import Account
from recordpublisher.local.dispatcher import OPERATIONS
from recordpublisher.local.errors import ApiError

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"


@pytest.fixture(autouse=True)
def orders(call):
    call("CreateStream", StreamName="orders", ShardCount=2)


def summary(call):
    return call("DescribeStreamSummary", StreamName="orders")["StreamDescriptionSummary"]


def test_encryption_is_shown_until_it_is_stopped(call):
    call("StartStreamEncryption", StreamName="orders", EncryptionType="KMS", KeyId="alias/aws/kinesis")
    assert (summary(call)["EncryptionType"], summary(call)["KeyId"]) == ("KMS", "alias/aws/kinesis")
    call("StopStreamEncryption", StreamName="orders", EncryptionType="KMS", KeyId="alias/aws/kinesis")
    assert (summary(call)["EncryptionType"], summary(call).get("KeyId")) == ("NONE", None)
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        call("StartStreamEncryption", StreamName="orders", EncryptionType="NONE", KeyId="alias/aws/kinesis")


def test_metrics_of_shards_before_and_after(call):
    call("EnableEnhancedMonitoring", StreamName="orders", ShardLevelMetrics=["IncomingBytes"])
    more = call("EnableEnhancedMonitoring", StreamName="orders", ShardLevelMetrics=["ALL"])
    assert more["CurrentShardLevelMetrics"] == ["IncomingBytes"]
    assert len(more["DesiredShardLevelMetrics"]) == 7
    less = call("DisableEnhancedMonitoring", StreamARN=ARN, ShardLevelMetrics=["IncomingBytes", "OutgoingBytes"])
    assert summary(call)["EnhancedMonitoring"] == [{"ShardLevelMetrics": less["DesiredShardLevelMetrics"]}]
    assert len(less["DesiredShardLevelMetrics"]) == 5
    call("DisableEnhancedMonitoring", StreamName="orders", ShardLevelMetrics=["ALL"])
    assert summary(call)["EnhancedMonitoring"] == [{"ShardLevelMetrics": []}]


def test_the_largest_record_follows_its_setting(call):
    large = "A" * (4 << 20)  # 3 MiB as base64
    with pytest.raises(ApiError, match="ValidationException"):
        call("PutRecord", StreamName="orders", Data=large, PartitionKey="k")
    call("UpdateMaxRecordSize", StreamARN=ARN, MaxRecordSizeInKiB=4096)
    assert call("PutRecord", StreamName="orders", Data=large, PartitionKey="k")["ShardId"]
    assert summary(call)["MaxRecordSizeInKiB"] == 4096


def test_a_provisioned_stream_has_no_auto_distribution(call):
    call("UpdateStreamMode", StreamARN=ARN, StreamModeDetails={"StreamMode": "ON_DEMAND"})
    call("UpdateStreamRecordDistributionStrategy", StreamARN=ARN, RecordDistributionStrategy="AUTO")
    assert summary(call)["RecordDistributionStrategy"] == "AUTO"
    call("UpdateStreamMode", StreamARN=ARN, StreamModeDetails={"StreamMode": "PROVISIONED"})
    assert (summary(call)["StreamModeDetails"], summary(call)["OpenShardCount"]) == ({"StreamMode": "PROVISIONED"}, 2)
    with pytest.raises(ApiError, match="ValidationException"):
        call("PutRecord", StreamName="orders", Data="YQ==")


def test_settings_change_only_while_the_stream_is_active(clock):
    account = Account(clock, "us-east-1", Delays(create_stream=1000), None)
    account.create_stream("young", 1)
    with pytest.raises(ApiError, match="ResourceInUseException"):
        OPERATIONS["StartStreamEncryption"](account, b'{"StreamName":"young","EncryptionType":"KMS","KeyId":"k"}')


def test_limits_of_the_account(call):
    call("CreateStream", StreamName="demand", StreamModeDetails={"StreamMode": "ON_DEMAND"})
    limits = call("DescribeLimits")
    assert (limits["OpenShardCount"], limits["OnDemandStreamCount"]) == (2, 1)


def test_the_limit_of_consumers_is_an_option(clock):
    stream = Account(clock, "us-east-1", Delays(), None, consumer_limit=50).create_stream("orders", 1)
    for number in range(50):
        stream.consumers.register(f"c{number}")
    with pytest.raises(ApiError, match="already has 50 consumers"):
        stream.consumers.register("one more")
