"""Finds how far a query is, so that a query with a new checkpoint can continue there.

It reads the old query's checkpoint, and the claims (what its tasks have read).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from recordpublisher.fetcher.checkpoints.shard_starts import last_seen_ms
from recordpublisher.fetcher.shards.read_state import latest
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.positions import PositionType
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import stream_of

from .options.spark_options import SparkOptions
from .source.claims import claim_store, claims_elsewhere_error, load_batch_claims
from .source.offset import BatchOffset


def read_positions(spark: Any, checkpoint: str, options: Mapping[str, object]) -> str:
    """Return the positions at which a query has stopped, as the `startingPosition` for a query with a new checkpoint.

    The new query then reads exactly the records that the old query has not written. Stop the old query first, preferably by a run with
    `trigger(availableNow=True)`. The old query must read exactly one stream.

    - `spark`: the session, which reads the checkpoint.
    - `checkpoint`: the `checkpointLocation` of the old query.
    - `options`: the old query's options. They say where its claims (what its tasks have read) are stored.

    Raises:

    - StateError if the checkpoint has no batch of this stream, if its last batch has not ended, or if the claims are lost.
    - ConfigurationError if an option is invalid, or if the query reads several streams.
    - OutageError or StoreUnavailableError if the claims cannot be read now.
    """
    parsed = SparkOptions.parse(Properties(options))
    if len(parsed.streams) > 1:
        reason = "positions by shard are those of one stream; give the new query a time before the old one stopped"
        raise ConfigurationError("streams", ",".join(parsed.streams), "one stream", reason=reason)
    offset = _last_offset(spark, checkpoint, parsed)
    store = claim_store(parsed)
    claims = load_batch_claims(store, offset)
    if claims.missing and not claims.has_token:
        raise claims_elsewhere_error(store, offset)
    # A shard whose task has no claim was not read by the sink.
    ends = {
        entry.shard.shard_id: claims.shards[key].end if key in claims.shards else entry.state
        for key, entry in offset.shards.items()
    }
    return json.dumps({shard_id: position_to_json(state) for shard_id, state in sorted(ends.items())})


def position_to_json(state: ShardState) -> dict[str, object]:
    """Return the position of a shard as plain values, for the JSON object that `startingPosition` accepts."""
    if state.ended:
        # The time until which the shard was open: its children have no older record, and were not read before.
        open_ms = latest(state.arrival_ms, state.seen_ms)
        return {"iteratorType": "SHARD_END", **({"seenMs": open_ms} if open_ms else {})}
    # Without this time a quiet shard, whose last record is past retention, would count as one that has lost records; and a shard without a
    # record would not be checked for records that have come and gone since then.
    seen = {"seenMs": seen_ms} if (seen_ms := last_seen_ms(state)) else {}
    at = state.starting_position(use_continuation=False)
    if at.type is PositionType.AT_TIMESTAMP:
        return {"iteratorType": at.type.value, "iteratorPosition": str(at.timestamp_ms), **seen}
    if state.position is None:
        given = {} if at.sequence_number is None else {"iteratorPosition": at.sequence_number}
        return {"iteratorType": at.type.value, **given, **seen}
    position = state.position
    part = {"subSequenceNumber": position.sub_sequence, "isLast": False} if position.is_inside_aggregate else {}
    after = PositionType.AFTER_SEQUENCE_NUMBER.value
    return {"iteratorType": after, "iteratorPosition": position.sequence, **part, **seen}


def _last_offset(spark: Any, checkpoint: str, options: SparkOptions) -> BatchOffset:
    """Return the offset of the checkpoint's last batch.

    Raises: StateError if the checkpoint has no batch with exactly one source of these streams, or if its last batch has not ended.
    """
    offsets, commits = (_files(spark, f"{checkpoint.rstrip('/')}/{log}") for log in ("offsets", "commits"))
    last = max(offsets, default=None)
    if last is None:
        raise StateError(f"{checkpoint} has no batch: is it the checkpointLocation of a query that has run?")
    if last not in commits:
        raise StateError(
            f"batch {last} of {checkpoint} has not ended, so it is not known whether its rows are in the sink. Start the query once more "
            f"with its old code and trigger(availableNow=True). If it cannot start, remove the file {last} from the folder 'offsets' of "
            "the checkpoint: the rows of the batch may then be written twice"
        )
    sources = [line for line in offsets[last].splitlines() if '"plan"' in line and '"shards"' in line]
    found = [BatchOffset.from_json(line) for line in sources]
    ours = [offset for offset in found if {stream_of(key) for key in offset.shards} == options.stream_names]
    if len(ours) != 1:
        streams = ", ".join(sorted({stream_of(key) for offset in found for key in offset.shards})) or "none"
        raise StateError(
            f"batch {last} of {checkpoint} has {len(ours)} sources that read {', '.join(options.streams)}, but must have exactly one. It "
            f"has positions of the streams: {streams}. Give the options of the query to which the checkpoint belongs"
        )
    return ours[0]


def _files(spark: Any, folder: str) -> dict[int, str]:
    """Return the content of each file in a folder of a checkpoint, by the batch number that is its name."""
    rows = spark.read.text(folder, wholetext=True).selectExpr("_metadata.file_name AS name", "value").collect()
    return {int(row["name"]): row["value"] for row in rows if row["name"].isdecimal()}
