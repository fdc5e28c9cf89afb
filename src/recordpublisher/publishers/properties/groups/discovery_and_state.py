"""Declares the properties of shard discovery and assignment, state and memory."""

from ..property_types import PropertyGroup

DISCOVERY_AND_STATE = PropertyGroup("Discovery and state")
STATE_ENDPOINT = DISCOVERY_AND_STATE.text(
    "flink.state.endpoint", "Another endpoint of S3 or DynamoDB than the region's."
)
DISCOVERY_INTERVAL = DISCOVERY_AND_STATE.integer(
    "flink.shard.discovery.intervalmillis",
    "Interval of shard discovery; -1 never.",
    10_000,
    minimum=1,
    also=(-1,),
    unit="ms",
)
SHARD_ASSIGNER = DISCOVERY_AND_STATE.text(
    "flink.shard.assigner",
    "Which subtask reads which shard: UNIFORM, by its hash range, or a plugin's name.",
    "UNIFORM",
)
SHARD_ASSIGNMENT = DISCOVERY_AND_STATE.choice(
    "flink.shard.assignment",
    "STATIC: a fixed number of subtasks shares the shards. ELASTIC: processes with the same flink.state.uri (in a "
    "database: and flink.job.name) do; any may join, leave or fail.",
    "STATIC",
    ("STATIC", "ELASTIC"),
)
LEASE_DURATION = DISCOVERY_AND_STATE.integer(
    "flink.lease.duration",
    "ELASTIC: others take the shards of a process whose heartbeat stood still for this long.",
    20_000,
    minimum=2_000,
    unit="ms",
)
ACCEPTS_LOSS = {"FAIL": False, "CONTINUE": True}
"""Whether a job with this value of `flink.state.dataloss` continues without the records that are past retention (S5)."""
ON_DATA_LOSS = DISCOVERY_AND_STATE.choice(
    "flink.state.dataloss",
    "When records passed retention unread: FAIL and name the gap, or CONTINUE and count it.",
    "FAIL",
    tuple(ACCEPTS_LOSS),
)
STATE_URI = DISCOVERY_AND_STATE.text(
    "flink.state.uri", "Where checkpoints are kept: a path or a registered store's URI."
)
CHECKPOINT_INTERVAL = DISCOVERY_AND_STATE.integer(
    "flink.state.checkpoint.interval",
    "Interval of checkpoints, if a state store is set; -1 only on stop.",
    10_000,
    minimum=1,
    also=(-1,),
    unit="ms",
)

MEMORY = PropertyGroup("Memory")
SUBTASK_BYTES = MEMORY.integer(
    "flink.subtask.queue.bytes",
    "Memory budget of everything queued in a subtask.",
    128 * 2**20,
    minimum=2**16,
    unit="bytes",
)
SHARD_BYTES = MEMORY.integer(
    "flink.shard.queue.bytes", "Memory budget of one shard's queue.", 16 * 2**20, minimum=2**10, unit="bytes"
)
SHARD_RECORDS = MEMORY.integer(
    "flink.shard.queue.records", "Records in one shard's queue.", 50_000, minimum=1, unit="records"
)
