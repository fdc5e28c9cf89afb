"""Settings of a stream that are stored and shown: encryption, metrics of shards, record size, capacity mode, warm throughput."""

from typing import get_args

from ..api_errors import invalid_argument
from ..requests import settings as requests
from ..streams.account import Account
from ..streams.stream import Stream

METRICS = tuple(name for name in get_args(requests.ShardMetric) if name != "ALL")


def start_encryption(account: Account, request: requests.StartStreamEncryption) -> None:
    """Name the key of a stream; nothing is encrypted in memory."""
    if request.encryption_type != "KMS":
        raise invalid_argument(f"EncryptionType {request.encryption_type} cannot be started: only KMS.")
    stream = _active(account, request)
    stream.encryption_key = request.key_id


def stop_encryption(account: Account, request: requests.StopStreamEncryption) -> None:
    """Forget the key of a stream."""
    stream = _active(account, request)
    stream.encryption_key = None


def enable_monitoring(account: Account, request: requests.EnableEnhancedMonitoring) -> object:
    """Add metrics of shards; none are collected here."""
    return _change_monitoring(account, request, adds=True)


def disable_monitoring(account: Account, request: requests.DisableEnhancedMonitoring) -> object:
    """Remove metrics of shards."""
    return _change_monitoring(account, request, adds=False)


def update_max_record_size(account: Account, request: requests.UpdateMaxRecordSize) -> None:
    """Allow larger or smaller records, from now on."""
    stream = account.find(arn=request.stream_arn)
    stream.require_active()
    stream.max_record_bytes = request.max_record_size * 1024


def update_stream_mode(account: Account, request: requests.UpdateStreamMode) -> None:
    """Change the capacity mode: at once, and the shards stay as they are. PROVISIONED ends AUTO record distribution."""
    mode = request.stream_mode_details.stream_mode
    stream = account.find(arn=request.stream_arn)
    _check_warm_throughput(stream, mode, request.warm_throughput)
    stream.require_active()
    stream.mode = mode
    stream.warm_throughput = request.warm_throughput
    if mode == "PROVISIONED":
        stream.distribution = "USER_PARTITION_KEY"


def update_warm_throughput(account: Account, request: requests.UpdateStreamWarmThroughput) -> object:
    """Change the warm throughput of an on-demand stream, at once."""
    stream = account.find(request.stream_name, request.stream_arn)
    _check_warm_throughput(stream, stream.mode, request.warm_throughput)
    stream.require_active()
    stream.warm_throughput = request.warm_throughput
    return {"StreamARN": stream.arn, "StreamName": stream.name, **describe_warm_throughput(stream)}


def describe_warm_throughput(stream: Stream) -> dict[str, object]:
    """Return the field of a stream's description, none where it is not set."""
    if stream.warm_throughput is None:
        return {}
    return {"WarmThroughput": {"TargetMiBps": stream.warm_throughput, "CurrentMiBps": stream.warm_throughput}}


def _active(account: Account, request: requests.ChangeEncryption) -> Stream:
    stream = account.find(request.stream_name, request.stream_arn)
    stream.require_active()
    return stream


def _change_monitoring(account: Account, request: requests.ChangeMonitoring, *, adds: bool) -> object:
    stream = account.find(request.stream_name, request.stream_arn)
    stream.require_active()
    before = stream.shard_metrics
    named = METRICS if "ALL" in request.shard_level_metrics else request.shard_level_metrics
    stream.shard_metrics = [
        name for name in METRICS if (name in before or name in named if adds else name in before and name not in named)
    ]
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "CurrentShardLevelMetrics": before,
        "DesiredShardLevelMetrics": stream.shard_metrics,
    }


def _check_warm_throughput(stream: Stream, mode: str, wanted: int | None) -> None:
    if wanted is not None and mode != "ON_DEMAND":
        raise invalid_argument(f"Stream {stream.name} is {mode}; warm throughput needs ON_DEMAND.")
