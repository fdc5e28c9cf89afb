"""CreateStream, DeleteStream, DescribeStream(Summary), ListStreams, the retention period and the record distribution."""

from ..api_errors import ApiError, in_use, invalid_argument
from ..requests import streams as requests
from ..requests.fields import StreamRequest
from ..streams.account import Account
from ..streams.shard_filter import filter_shards
from ..streams.stream import DEFAULT_RETENTION_HOURS, Stream
from ..streams.tags import TagSet
from .pages import page_by_name
from .settings import check_unused

MAX_SHARDS_PER_PAGE = 100
MAX_STREAMS_PER_PAGE = 100
MAX_RETENTION_HOURS = 8760


def create_stream(account: Account, request: requests.CreateStream) -> None:
    """Create a stream; it is ACTIVE after the set delay."""
    distribution, mode = request.record_distribution_strategy, request.stream_mode_details.stream_mode
    _check_distribution(request.stream_name, mode, distribution)
    tags = TagSet(request.tags)
    stream = account.create_stream(request.stream_name, request.shard_count)
    stream.tags = tags
    stream.max_record_bytes = request.max_record_size * 1024
    stream.mode = mode
    stream.distribution = distribution or stream.distribution


def delete_stream(account: Account, request: requests.DeleteStream) -> None:
    """Delete a stream. A stream with consumers is deleted only if EnforceConsumerDeletion is set."""
    stream = account.find(request.stream_name, request.stream_arn)
    check_unused(account, stream)
    if stream.consumers.all() and not request.enforce_consumer_deletion:
        raise in_use(f"Stream {stream.name} has registered consumers; EnforceConsumerDeletion is not set.")
    stream.set_busy("DELETING", account.delays.delete_stream)
    account.subscriptions.wake_all()


def describe_stream(account: Account, request: requests.DescribeStream) -> object:
    """Describe a stream and at most 100 of its shards."""
    stream = account.find(request.stream_name, request.stream_arn)
    shards = [s for s in filter_shards(stream, None) if s.id > (request.exclusive_start_shard_id or "")]
    page = shards[: min(request.limit, MAX_SHARDS_PER_PAGE)] if stream.shows_shards else []
    more = len(page) < len(shards) and stream.shows_shards
    described = {**_common(stream), "Shards": [shard.describe() for shard in page], "HasMoreShards": more}
    return {"StreamDescription": described}


def describe_stream_summary(account: Account, request: StreamRequest) -> object:
    """Describe a stream without its shards."""
    stream = account.find(request.stream_name, request.stream_arn)
    counts = {
        "OpenShardCount": len(stream.open_shards),
        "ConsumerCount": len(stream.consumers.all()),
        "QueueCount": len(account.queues.all(stream)),
    }
    largest = {"MaxRecordSizeInKiB": stream.max_record_bytes // 1024}
    strategy = {"RecordDistributionStrategy": stream.distribution} if stream.mode == "ON_DEMAND" else {}
    described = {**_common(stream), **counts, **largest, **strategy}
    return {"StreamDescriptionSummary": described}


def list_streams(account: Account, request: requests.ListStreams) -> object:
    """List the streams by name, page by page."""
    most, after = min(request.limit, MAX_STREAMS_PER_PAGE), request.exclusive_start_stream_name or ""
    streams = account.streams().values()
    found, token = page_by_name(account, "streams", streams, request.next_token, most, after)
    names, summaries = [stream.name for stream in found], [_summary(stream) for stream in found]
    return {"StreamNames": names, "HasMoreStreams": bool(token), "StreamSummaries": summaries, **token}


def increase_stream_retention_period(account: Account, request: requests.ChangeRetention) -> None:
    """Keep records longer from now on."""
    stream, hours = _for_retention(account, request)
    if hours < stream.retention_hours:
        raise _wrong_way(stream, hours, "shorter", "DecreaseRetentionPeriod")
    stream.require_active()
    stream.apply_retention()  # records that are past the shorter period do not come back
    stream.retention_hours = hours


def decrease_stream_retention_period(account: Account, request: requests.ChangeRetention) -> None:
    """Keep records for a shorter time. Older records are removed at once."""
    stream, hours = _for_retention(account, request)
    if hours > stream.retention_hours:
        raise _wrong_way(stream, hours, "longer", "IncreaseRetentionPeriod")
    stream.require_active()
    stream.retention_hours = hours
    stream.apply_retention()


def update_stream_record_distribution_strategy(
    account: Account, request: requests.UpdateStreamRecordDistributionStrategy
) -> None:
    """Let partition keys decide the shard of new records, or not (AUTO).

    The change takes effect at once; the stream's status stays ACTIVE.
    """
    stream = account.find(None, request.stream_arn)
    _check_distribution(stream.name, stream.mode, request.record_distribution_strategy)
    stream.require_active()
    stream.distribution = request.record_distribution_strategy


def _check_distribution(stream: str, mode: str, wanted: str | None) -> None:
    if wanted is not None and mode != "ON_DEMAND":
        raise invalid_argument(f"Stream {stream} is {mode}; the record distribution needs ON_DEMAND.")


def _for_retention(account: Account, request: requests.ChangeRetention) -> tuple[Stream, int]:
    """Return the stream and the requested hours, after checking the service's limits."""
    stream, hours = account.find(request.stream_name, request.stream_arn), request.retention_period_hours
    wanted = f"Requested retention period ({hours} hours) is too"
    if hours < DEFAULT_RETENTION_HOURS:
        raise invalid_argument(f"Minimum allowed retention period is {DEFAULT_RETENTION_HOURS} hours. {wanted} short.")
    if hours > MAX_RETENTION_HOURS:
        raise invalid_argument(f"Maximum allowed retention period is {MAX_RETENTION_HOURS} hours. {wanted} long.")
    return stream, hours


def _wrong_way(stream: Stream, hours: int, than: str, other: str) -> ApiError:
    return invalid_argument(
        f"Requested retention period ({hours} hours) for stream {stream.name} can not be {than} than existing "
        f"retention period ({stream.retention_hours} hours). Use {other} API."
    )


def _summary(stream: Stream) -> dict[str, object]:
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "StreamStatus": stream.status,
        "StreamModeDetails": {"StreamMode": stream.mode},
        "StreamCreationTimestamp": stream.created_ms / 1000,
    }


def _common(stream: Stream) -> dict[str, object]:
    retention = {"RetentionPeriodHours": stream.retention_hours}
    encryption = {"EncryptionType": "NONE"}
    if stream.encryption_key is not None:
        encryption = {"EncryptionType": "KMS", "KeyId": stream.encryption_key}
    monitoring = {"EnhancedMonitoring": [{"ShardLevelMetrics": stream.shard_metrics}]}
    return {**_summary(stream), **retention, **monitoring, **encryption}
