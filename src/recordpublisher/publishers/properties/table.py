"""The groups of our own properties (C1).

Keys of the FLIP have the FLIP's defaults, keys of the connector have the connector's. Our own keys follow the same spelling.
"""

from __future__ import annotations

from .groups import (
    access,
    discovery_and_state,
    fanout,
    formats,
    job,
    kinesis_sink,
    metrics,
    polling,
    publisher,
    retries,
    sinks,
    values_and_time,
)

GROUPS = (
    access.ACCESS,
    job.JOB,
    publisher.PUBLISHER,
    polling.POLLING,
    fanout.FAN_OUT,
    polling.DYNAMODB_STREAMS,
    discovery_and_state.DISCOVERY_AND_STATE,
    values_and_time.VALUES_AND_TIME,
    formats.FORMATS,
    discovery_and_state.MEMORY,
    retries.RETRIES,
    sinks.SINKS,
    kinesis_sink.KINESIS_SINK,
    metrics.METRICS,
    job.ALARMS,
)
