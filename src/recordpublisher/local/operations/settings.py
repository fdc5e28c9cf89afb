"""Operations that only store and show settings: a stream's settings, tags, resource policies (without effect), account limits."""

from typing import get_args

import msgspec

from recordpublisher.publishers.undecodable import UNDECODABLE

from ..api_errors import in_use, invalid_argument, not_found
from ..queues.queue import Queue
from ..requests import settings as requests
from ..requests.fields import Request
from ..streams.account import Account
from ..streams.consumers import Consumer
from ..streams.stream import Stream

METRICS = tuple(name for name in get_args(requests.ShardMetric) if name != "ALL")


def start_stream_encryption(account: Account, request: requests.ChangeEncryption) -> None:
    """Store the key id of a stream; nothing is encrypted in memory."""
    if request.encryption_type != "KMS":
        raise invalid_argument(f"EncryptionType {request.encryption_type} cannot be started: only KMS.")
    stream = _active(account, request)
    stream.encryption_key = request.key_id


def stop_stream_encryption(account: Account, request: requests.ChangeEncryption) -> None:
    """Forget the key of a stream."""
    stream = _active(account, request)
    stream.encryption_key = None


def enable_enhanced_monitoring(account: Account, request: requests.ChangeMonitoring) -> object:
    """Add shard metrics; none are collected here."""
    return _change_monitoring(account, request, adds=True)


def disable_enhanced_monitoring(account: Account, request: requests.ChangeMonitoring) -> object:
    """Remove shard metrics."""
    return _change_monitoring(account, request, adds=False)


def update_max_record_size(account: Account, request: requests.UpdateMaxRecordSize) -> None:
    """Allow larger or smaller records, from now on."""
    stream = account.find(arn=request.stream_arn)
    stream.require_active()
    stream.max_record_bytes = request.max_record_size * 1024


def update_stream_mode(account: Account, request: requests.UpdateStreamMode) -> None:
    """Change the capacity mode at once; the shards stay unchanged. PROVISIONED ends AUTO record distribution."""
    mode = request.stream_mode_details.stream_mode
    stream = account.find(arn=request.stream_arn)
    stream.require_active()
    if mode == "PROVISIONED":
        check_unused(account, stream)
    stream.mode = mode
    if mode == "PROVISIONED":
        stream.distribution = "USER_PARTITION_KEY"


def check_unused(account: Account, stream: Stream) -> None:
    """Raise ResourceInUseException if a stream has queues."""
    if queues := account.queues.all(stream):
        raise in_use(f"Stream {stream.name} has queues: {', '.join(each.name for each in queues)}.")


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


def find_resource(account: Account, arn: str) -> Stream | Consumer | Queue:
    """Return the stream, consumer or queue with this ARN. Raises: ResourceNotFoundException if there is none."""
    if ":queue/" in arn:
        return account.queues.find(arn)
    stream = account.find(arn=arn)
    return stream if arn == stream.arn else stream.consumers.find(arn=arn)


def tag_resource(account: Account, request: requests.TagResource) -> None:
    """Add tags to a stream, a consumer or a queue."""
    find_resource(account, request.resource_arn).tags.add(request.tags)


def untag_resource(account: Account, request: requests.UntagResource) -> None:
    """Remove tags from a stream or consumer."""
    find_resource(account, request.resource_arn).tags.remove(request.tag_keys)


def list_tags_for_resource(account: Account, request: requests.ResourceRequest) -> object:
    """List the tags of a stream or consumer."""
    return {"Tags": find_resource(account, request.resource_arn).tags.describe()}


def add_tags_to_stream(account: Account, request: requests.AddTagsToStream) -> None:
    """Add tags to a stream."""
    account.find(request.stream_name, request.stream_arn).tags.add(request.tags)


def remove_tags_from_stream(account: Account, request: requests.RemoveTagsFromStream) -> None:
    """Remove tags from a stream."""
    account.find(request.stream_name, request.stream_arn).tags.remove(request.tag_keys)


def list_tags_for_stream(account: Account, request: requests.ListTagsForStream) -> object:
    """List the tags of a stream by key, page by page."""
    tags = account.find(request.stream_name, request.stream_arn).tags.describe(request.exclusive_start_tag_key or "")
    return {"Tags": tags[: request.limit], "HasMoreTags": len(tags) > request.limit}


def put_resource_policy(account: Account, request: requests.PutResourcePolicy) -> None:
    """Store the policy of a stream or consumer."""
    try:
        msgspec.json.decode(request.policy, type=dict[str, object])
    except UNDECODABLE as error:
        raise invalid_argument(f"The policy is not a JSON object: {error}") from error
    find_resource(account, request.resource_arn).policy = request.policy


def get_resource_policy(account: Account, request: requests.ResourceRequest) -> object:
    """Show the policy of a stream or consumer, or an empty one (recorded from AWS by LocalStack's tests, August 2025)."""
    return {"Policy": find_resource(account, request.resource_arn).policy or "{}"}


def delete_resource_policy(account: Account, request: requests.ResourceRequest) -> None:
    """Remove the policy of a stream or consumer."""
    resource = find_resource(account, request.resource_arn)
    if resource.policy is None:
        raise not_found(f"No resource policy found for resource ARN {request.resource_arn}.")
    resource.policy = None


SHARD_LIMIT = 20_000
"""Shards of provisioned streams in the large regions ("Quotas and limits", July 2025). The limit is shown and not enforced."""
ON_DEMAND_STREAM_LIMIT = 50


def describe_limits(account: Account, request: Request) -> object:
    """Show how many shards and on-demand streams there are, and their limits."""
    streams = account.streams().values()
    return {
        "ShardLimit": SHARD_LIMIT,
        "OpenShardCount": sum(len(stream.open_shards) for stream in streams if stream.mode == "PROVISIONED"),
        "OnDemandStreamCount": sum(stream.mode == "ON_DEMAND" for stream in streams),
        "OnDemandStreamCountLimit": ON_DEMAND_STREAM_LIMIT,
    }
