"""SplitShard, MergeShards and UpdateShardCount."""

from .. import requests
from ..streams.account import Account
from ..streams.resharding import merge, split
from ..streams.resharding import update_shard_count as recount
from ..streams.stream import Stream


def split_shard(account: Account, request: requests.SplitShard) -> object:
    """Split a shard in two."""
    stream = _changeable(account, request)
    split(stream, stream.shard(request.shard_to_split), int(request.new_starting_hash_key))
    stream.set_busy("UPDATING", account.delays.reshard)
    return {}


def merge_shards(account: Account, request: requests.MergeShards) -> object:
    """Merge two neighbours."""
    stream = _changeable(account, request)
    merge(stream, stream.shard(request.shard_to_merge), stream.shard(request.adjacent_shard_to_merge))
    stream.set_busy("UPDATING", account.delays.reshard)
    return {}


def update_shard_count(account: Account, request: requests.UpdateShardCount) -> object:
    """Re-count the shards uniformly."""
    stream = _changeable(account, request)
    before = len(stream.open_shards)
    recount(stream, request.target_shard_count)
    stream.set_busy("UPDATING", account.delays.reshard)
    counts = {"CurrentShardCount": before, "TargetShardCount": request.target_shard_count}
    return {"StreamName": stream.name, "StreamARN": stream.arn, **counts}


def _changeable(account: Account, request: requests.StreamRequest) -> Stream:
    stream = account.find(request.stream_name, request.stream_arn)
    stream.require_active()
    return stream
