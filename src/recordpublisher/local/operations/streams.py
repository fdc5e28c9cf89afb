"""The operations on streams, shards, consumers, tags, policies and settings."""

from collections.abc import Iterable
from math import inf
from typing import Protocol, TypeVar, get_args

import msgspec

from recordpublisher.publishers.decoding_errors import UNDECODABLE
from recordpublisher.publishers.service_limits import NEXT_TOKEN_SECONDS

from .. import requests
from ..account import Account
from ..errors import ApiError, in_use, invalid_argument, not_found
from ..faults import FaultKind
from ..record_queues import Queue
from ..requests import Request, StreamRequest
from ..shard import Shard, to_ms
from ..stream import DEFAULT_RETENTION_HOURS, Consumer, Stream, TagSet, consumer_not_found, filter_shards, merge, split
from ..stream import update_shard_count as change_shard_count

MAX_DESCRIBED_SHARDS = 100
MAX_STREAMS_PER_PAGE = 100
MAX_RETENTION_HOURS = 8760

MAX_SHARDS_PER_PAGE = 1000

METRICS = tuple(name for name in get_args(requests.ShardMetric) if name != "ALL")


SHARD_LIMIT = 20_000
"""The most shards of provisioned streams in the large regions ("Quotas and limits", July 2025). The limit is shown, and not enforced."""
ON_DEMAND_STREAM_LIMIT = 50


def create_stream(account: Account, request: requests.CreateStream) -> None:
    """Create a stream. It becomes ACTIVE after `Delays.create_stream`."""
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
    check_without_queues(account, stream)
    if stream.consumers.all() and not request.enforce_consumer_deletion:
        raise in_use(f"Stream {stream.name} has registered consumers; EnforceConsumerDeletion is not set.")
    stream.set_busy("DELETING", account.delays.delete_stream)
    account.subscriptions.wake_all()


def describe_stream(account: Account, request: requests.DescribeStream) -> object:
    """Describe a stream and at most 100 of its shards."""
    stream = account.find(request.stream_name, request.stream_arn)
    shards = [s for s in filter_shards(stream, None) if s.id > (request.exclusive_start_shard_id or "")]
    page = shards[: min(request.limit, MAX_DESCRIBED_SHARDS)] if stream.shows_shards else []
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
    """Keep records for a longer time from now on."""
    stream, hours = _for_retention(account, request)
    if hours < stream.retention_hours:
        raise _wrong_way(stream, hours, "shorter", "DecreaseRetentionPeriod")
    stream.require_active()
    # Applied before the change, because records that are past the shorter period must not appear again.
    stream.apply_retention()
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
    """Set whether partition keys decide the shard of new records, or the service does (AUTO).

    The change takes effect at once; the stream's status stays ACTIVE.
    """
    stream = account.find(None, request.stream_arn)
    _check_distribution(stream.name, stream.mode, request.record_distribution_strategy)
    stream.require_active()
    stream.distribution = request.record_distribution_strategy


def _check_distribution(stream: str, mode: str, wanted: str | None) -> None:
    if wanted is not None and mode != "ON_DEMAND":
        raise invalid_argument(
            f"Stream {stream} has the mode {mode}; a record distribution can be set only in the mode ON_DEMAND."
        )


def _for_retention(account: Account, request: requests.ChangeRetention) -> tuple[Stream, int]:
    """Return the stream and the requested hours. Raises: InvalidArgumentException if the hours are outside the service's limits."""
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


class ShardPage(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """The content of a NextToken of ListShards: the stream and filter of the listing, and the shard after which the next page begins."""

    stream: str
    stream_created_ms: int
    issued_ms: int
    after: str
    shard_filter: requests.ShardFilter | None


def list_shards(account: Account, request: requests.ListShards) -> object:
    """Return one page of the shards that the filter keeps, with at most MaxResults shards."""
    page = _page(account, request)
    stream = account.find(page.stream)
    chosen = page.shard_filter
    kind, shard_id, timestamp = (chosen.type, chosen.shard_id, chosen.timestamp) if chosen else (None, None, None)
    timestamp_ms = None if timestamp is None else to_ms(timestamp)
    shards = [s for s in filter_shards(stream, kind, shard_id, timestamp_ms) if s.id > page.after]
    as_of = _as_of(account)
    shards = [shard for shard in shards if shard.epoch <= as_of or not shard.parents]
    shards = _kept(account, shards)
    found = shards[: min(request.max_results, MAX_SHARDS_PER_PAGE)]
    response: dict[str, object] = {"Shards": [shard.describe(as_of) for shard in found]}
    if len(found) < len(shards):
        response["NextToken"] = account.tokens.make(
            msgspec.structs.replace(page, after=found[-1].id, issued_ms=account.clock.now_ms())
        )
    return response


def _as_of(account: Account) -> float:
    """Return the time for which a listing is made (epoch ms): infinity for now, or an earlier time if a fault makes the listing stale."""
    stale = account.faults.take(FaultKind.STALE)
    return inf if stale is None else account.clock.now_ms() - stale.seconds * 1000


def _kept(account: Account, shards: list[Shard]) -> list[Shard]:
    """Return the shards that a listing shows: all of `shards`, unless a fault makes the listing incomplete."""
    if account.faults.take(FaultKind.INCOMPLETE) is None:
        return shards
    number = account.faults.counts[FaultKind.INCOMPLETE] - 1
    match number % 3:
        case 0:
            return [shard for shard in shards if not (shard.is_open and shard.parents)]
        case 1:
            return [shard for shard in shards if shard.is_open]
    return [shard for place, shard in enumerate(shards, number // 3) if place % 3]


def _page(account: Account, request: requests.ListShards) -> ShardPage:
    """Return what page a request asks for: the first one of a listing, or the page that its NextToken continues with."""
    if request.next_token is None:
        stream = account.find_usable(request.stream_name, request.stream_arn)
        after = request.exclusive_start_shard_id or ""
        return ShardPage(stream.name, stream.created_ms, account.clock.now_ms(), after, request.shard_filter)
    own = (request.stream_name, request.exclusive_start_shard_id, request.stream_creation_timestamp)
    if any(field is not None for field in own) or request.shard_filter is not None:
        raise invalid_argument("NextToken and StreamName cannot be provided together.")
    return _continued(account, request.next_token)


def _continued(account: Account, token: str) -> ShardPage:
    page = account.tokens.open(token, ShardPage)
    if page is None or account.find(page.stream).created_ms != page.stream_created_ms:
        raise invalid_argument("NextToken is invalid.")
    check_token_age(account, page.issued_ms)
    return page


def split_shard(account: Account, request: requests.SplitShard) -> None:
    """Split a shard in two."""
    stream = _find_active(account, request)
    split(stream, _named(stream, request.shard_to_split), int(request.new_starting_hash_key))
    stream.set_busy("UPDATING", account.delays.reshard)


def merge_shards(account: Account, request: requests.MergeShards) -> None:
    """Merge two adjacent shards."""
    stream = _find_active(account, request)
    merge(stream, _named(stream, request.shard_to_merge), _named(stream, request.adjacent_shard_to_merge))
    stream.set_busy("UPDATING", account.delays.reshard)


def update_shard_count(account: Account, request: requests.UpdateShardCount) -> object:
    """Change the number of shards, with uniform hash ranges."""
    stream = _find_active(account, request)
    before = len(stream.open_shards)
    change_shard_count(stream, request.target_shard_count)
    stream.set_busy("UPDATING", account.delays.reshard)
    counts = {"CurrentShardCount": before, "TargetShardCount": request.target_shard_count}
    return {"StreamName": stream.name, "StreamARN": stream.arn, **counts}


def _named(stream: Stream, shard_id: str) -> Shard:
    """Return the shard with this id. If it is missing, the error has another message than for reads, as in the service."""
    try:
        return stream.shard(shard_id)
    except ApiError as error:
        text = f"Could not find shard {shard_id} in stream {stream.name} under account {stream.account_id}."
        raise not_found(text) from error


def _find_active(account: Account, request: StreamRequest) -> Stream:
    stream = account.find(request.stream_name, request.stream_arn)
    stream.require_active()
    if stream.mode == "ON_DEMAND":
        mode = f"Stream {stream.name} under account {stream.account_id} is in On-Demand mode."
        raise ApiError("ValidationException", f"Request is invalid. {mode}")
    return stream


def register_stream_consumer(account: Account, request: requests.RegisterStreamConsumer) -> object:
    """Register a consumer. It becomes ACTIVE after `Delays.consumer`."""
    stream = account.find_usable(arn=request.stream_arn)
    consumer = stream.consumers.register(request.consumer_name, request.tags, len(account.queues.all(stream)))
    return {"Consumer": consumer.describe(account.clock.now_ms())}


def describe_stream_consumer(account: Account, request: requests.ConsumerRequest) -> object:
    """Describe a consumer, which is named by its ARN, or by its stream and name."""
    stream, consumer = find_consumer(account, request)
    described = consumer.describe(account.clock.now_ms())
    return {"ConsumerDescription": {**described, "StreamARN": stream.arn}}


def list_stream_consumers(account: Account, request: requests.ListStreamConsumers) -> object:
    """List a stream's consumers by name, page by page."""
    stream = account.find_usable(arn=request.stream_arn)
    consumers, listing = stream.consumers.all(), f"consumers of {stream.name}"
    found, token = page_by_name(account, listing, consumers, request.next_token, request.max_results)
    return {"Consumers": [consumer.describe(account.clock.now_ms()) for consumer in found], **token}


def deregister_stream_consumer(account: Account, request: requests.ConsumerRequest) -> None:
    """Begin to remove a consumer. Its subscriptions end at once."""
    stream, consumer = find_consumer(account, request)
    stream.consumers.deregister(consumer)
    account.subscriptions.wake_all()


def find_consumer(account: Account, request: requests.ConsumerRequest) -> tuple[Stream, Consumer]:
    """Return the consumer that the request names, and its stream."""
    arn = request.consumer_arn
    if arn is None and (request.stream_arn is None or request.consumer_name is None):
        raise invalid_argument("Either ConsumerARN or both StreamARN and ConsumerName must be given.")
    if arn is not None and "/consumer/" not in arn:
        raise consumer_not_found(arn)
    stream = account.find_usable(arn=arn or request.stream_arn)
    return stream, stream.consumers.find(name=request.consumer_name, arn=arn)


def start_stream_encryption(account: Account, request: requests.ChangeEncryption) -> None:
    """Store the key id of a stream. The endpoint does not encrypt records."""
    if request.encryption_type != "KMS":
        raise invalid_argument(f"EncryptionType {request.encryption_type} cannot be started: only KMS.")
    stream = _active(account, request)
    stream.encryption_key = request.key_id


def stop_stream_encryption(account: Account, request: requests.ChangeEncryption) -> None:
    """Remove the key id of a stream."""
    stream = _active(account, request)
    stream.encryption_key = None


def enable_enhanced_monitoring(account: Account, request: requests.ChangeMonitoring) -> object:
    """Add shard metrics to the stream's settings. The embedded endpoint stores the setting, but produces no such metrics."""
    return _change_monitoring(account, request, adds=True)


def disable_enhanced_monitoring(account: Account, request: requests.ChangeMonitoring) -> object:
    """Remove shard metrics from the stream's settings. The embedded endpoint produces no such metrics."""
    return _change_monitoring(account, request, adds=False)


def update_max_record_size(account: Account, request: requests.UpdateMaxRecordSize) -> None:
    """Change the largest size of a record from now on."""
    stream = account.find(arn=request.stream_arn)
    stream.require_active()
    stream.max_record_bytes = request.max_record_size * 1024


def update_stream_mode(account: Account, request: requests.UpdateStreamMode) -> None:
    """Change the capacity mode at once; the shards stay unchanged. PROVISIONED ends AUTO record distribution."""
    mode = request.stream_mode_details.stream_mode
    stream = account.find(arn=request.stream_arn)
    stream.require_active()
    if mode == "PROVISIONED":
        check_without_queues(account, stream)
    stream.mode = mode
    if mode == "PROVISIONED":
        stream.distribution = "USER_PARTITION_KEY"


def check_without_queues(account: Account, stream: Stream) -> None:
    """Raise ResourceInUseException if a stream still has queues."""
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
    """Remove tags from a stream, a consumer or a queue."""
    find_resource(account, request.resource_arn).tags.remove(request.tag_keys)


def list_tags_for_resource(account: Account, request: requests.ResourceRequest) -> object:
    """List the tags of a stream, a consumer or a queue."""
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
    """Show the policy of a stream or consumer, or an empty policy if there is none.

    AWS returns an empty policy too, as LocalStack's tests have recorded (August 2025).
    """
    return {"Policy": find_resource(account, request.resource_arn).policy or "{}"}


def delete_resource_policy(account: Account, request: requests.ResourceRequest) -> None:
    """Remove the policy of a stream or consumer."""
    resource = find_resource(account, request.resource_arn)
    if resource.policy is None:
        raise not_found(f"No resource policy found for resource ARN {request.resource_arn}.")
    resource.policy = None


def describe_limits(account: Account, request: Request) -> object:
    """Show how many shards and on-demand streams there are, and their limits."""
    streams = account.streams().values()
    return {
        "ShardLimit": SHARD_LIMIT,
        "OpenShardCount": sum(len(stream.open_shards) for stream in streams if stream.mode == "PROVISIONED"),
        "OnDemandStreamCount": sum(stream.mode == "ON_DEMAND" for stream in streams),
        "OnDemandStreamCountLimit": ON_DEMAND_STREAM_LIMIT,
    }


class Named(Protocol):
    """An item of a listing that is ordered by name."""

    name: str


T = TypeVar("T", bound=Named)


class Page(msgspec.Struct, frozen=True, array_like=True, tag="n"):
    """A page of a listing: the listing, the name after which the page begins, and when the previous page was sent."""

    listing: str
    after: str
    issued_ms: int


def page_by_name(
    account: Account, listing: str, items: Iterable[T], token: str | None, most: int, after: str = ""
) -> tuple[list[T], dict[str, str]]:
    """Return the items of one page, and the field NextToken if there are more. The first page begins after the name `after`.

    - `listing`: a text that identifies the listing. The token of another listing is refused.
    - `most`: the largest number of items.
    """
    if token is not None:
        page = account.tokens.open(token, Page)
        if page is None or page.listing != listing:
            raise invalid_argument("NextToken is invalid.")
        check_token_age(account, page.issued_ms)
        after = page.after
    left = sorted((each for each in items if each.name > after), key=lambda each: each.name)
    if len(left) <= most:
        return left, {}
    next_page = Page(listing, left[most - 1].name, account.clock.now_ms())
    return left[:most], {"NextToken": account.tokens.make(next_page)}


def check_token_age(account: Account, issued_ms: int) -> None:
    """Raise ExpiredNextTokenException if a token is too old."""
    if account.clock.now_ms() - issued_ms >= NEXT_TOKEN_SECONDS * 1000:
        raise ApiError("ExpiredNextTokenException", f"NextToken expired: it is older than {NEXT_TOKEN_SECONDS:.0f} s.")
