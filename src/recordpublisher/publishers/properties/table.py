"""Every property, declared once (C1): the index, and Flink's keys that mean nothing here.

The FLIP's keys have the FLIP's defaults, the connector's have the connector's, and ours follow the same spelling.
"""

from __future__ import annotations

from .access import *  # noqa: F403
from .job import *  # noqa: F403  # noqa: F403
from .kinesis_sink import *  # noqa: F403
from .properties import declare_ignored
from .publishers import *  # noqa: F403
from .retries import *  # noqa: F403
from .subtask import *  # noqa: F403

declare_ignored(
    {
        "flink.stream.efo.http-client.max-concurrency": "subscriptions have a pool of their own without a limit (F1)",
        "flink.stream.efo.http-client.read-timeout": "see flink.shard.subscribetoshard.inactivity.timeout (F5)",
        "flink.watermark.sync.queue.capacity": "queues are bounded by flink.shard.queue.records and flink.shard.queue.bytes (P6)",
        "aws.credentials.provider.custom.class": "it names a Java class",
        "aws.credentials.provider.role.provider": "the role is assumed with the SDK's own chain of credentials",
        "aws.clientconfig.": "it names properties of the Java SDK",
        "aws.http-client.": "it sets the Java SDK's HTTP client",
        "aws.trust.all.certificates": "certificates are always checked",
    }
)
