"""Every declared property, imported from its group (C1), and Flink's keys that have no effect here.

Keys of the FLIP have the FLIP's defaults, keys of the connector have the connector's. Our own keys follow the same spelling.
"""

from __future__ import annotations

from .access import *  # noqa: F403
from .job import *  # noqa: F403
from .kinesis_sink import *  # noqa: F403
from .map_sink import *  # noqa: F403
from .metrics import *  # noqa: F403
from .properties import declare_ignored
from .publishers import *  # noqa: F403
from .retries import *  # noqa: F403
from .subtask import *  # noqa: F403

declare_ignored(
    {
        "flink.stream.efo.http-client.max-concurrency": "the connections of subscriptions have no limit (F1)",
        "flink.stream.efo.http-client.read-timeout": "see flink.shard.subscribetoshard.inactivity.timeout (F5)",
        "flink.watermark.sync.queue.capacity": "queues are bounded by flink.shard.queue.records and flink.shard.queue.bytes (P6)",
        "aws.credentials.provider.custom.class": "it names a Java class",
        "aws.credentials.provider.role.provider": "the role is assumed with the SDK's own chain of credentials",
        "aws.clientconfig.": "it names properties of the Java SDK",
        "aws.http-client.": "it sets the Java SDK's HTTP client",
        "aws.trust.all.certificates": "certificates are always checked",
    }
)
