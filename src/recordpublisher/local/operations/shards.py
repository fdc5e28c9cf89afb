"""ListShards, SplitShard, MergeShards and UpdateShardCount."""

from math import inf

import msgspec

from ..api_errors import ApiError, invalid_argument, not_found
from ..faults.kinds import FaultKind
from ..requests import streams as requests
from ..requests.fields import StreamRequest
from ..streams.account import Account
from ..streams.resharding import merge, split
from ..streams.resharding import update_shard_count as change_shard_count
from ..streams.shard import Shard
from ..streams.shard_filter import filter_shards
from ..streams.shard_iterator import to_ms
from ..streams.stream import Stream
from .pages import check_age

MAX_SHARDS_PER_PAGE = 1000


class ShardPage(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """The request of a paged ListShards, and where its next page begins."""

    stream: str
    stream_created_ms: int
    issued_ms: int
    after: str
    shard_filter: requests.ShardFilter | None


def list_shards(account: Account, request: requests.ListShards) -> object:
    """List the shards that the filter keeps, at most MaxResults of them."""
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
        response["NextToken"] = account.tokens.seal(
            msgspec.structs.replace(page, after=found[-1].id, issued_ms=account.clock.now_ms())
        )
    return response


def _as_of(account: Account) -> float:
    """Return the time that the listing shows (epoch ms): infinity, or an old time if a fault wants it."""
    stale = account.faults.take(FaultKind.STALE)
    return inf if stale is None else account.clock.now_ms() - stale.seconds * 1000


def _kept(account: Account, shards: list[Shard]) -> list[Shard]:
    """Return the shards of the listing: all of them, unless a fault makes the listing incomplete."""
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
    """Return the page of the request itself, or the page that its token continues."""
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
    check_age(account, page.issued_ms)
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
    """Return the shard. The service's message for a missing shard differs here from the one when reading."""
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
