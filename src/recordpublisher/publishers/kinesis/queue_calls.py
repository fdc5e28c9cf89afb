"""The calls about queues. The SDK versions that the constraints allow do not know them, so we sign and send them, to hosts of their own."""

import re

QUEUE_CALLS = {
    "CreateQueue": "control",
    "DescribeQueue": "control",
    "ListQueues": "control",
    "ReceiveQueueRecords": "data",
    "AcknowledgeQueueRecords": "data",
    "UpdateQueueRecordsVisibility": "data",
    "ReceiveDeadLetterQueueRecords": "data",
    "AcknowledgeDeadLetterQueueRecords": "data",
    "UpdateDeadLetterQueueRecordsVisibility": "data",
    "RestoreDeadLetterQueueRecords": "data",
}
"""The calls about queues, and the kind of a queue's host that serves each."""
WITHOUT_HOSTS = ("aws-iso", "aws-iso-b")
"""Partitions in which a queue has no host of its own."""
_REGIONAL = r"https://kinesis(?P<fips>-fips)?\.(?P<rest>.+)"


def queue_url(kinesis_url: str, api: str, queue_arn: str | None, is_fips: bool = False) -> str:
    """Return the URL of a call about a queue, by the rules of botocore 1.44.8, from the URL of the other calls to Kinesis.

    It is the same URL if that is not a host of AWS. `is_fips` says that FIPS is set, which in us-gov does not change
    `kinesis_url`.
    """
    regional = re.fullmatch(_REGIONAL, kinesis_url)
    if regional is None:
        return kinesis_url
    has_host = queue_arn is not None and queue_arn.split(":")[1] not in WITHOUT_HOSTS
    of_queue = f"{queue_arn.rpartition('/')[2]}.{QUEUE_CALLS[api]}-" if queue_arn and has_host else ""
    return f"https://{of_queue}kinesis-queues{'-fips' if is_fips or regional['fips'] else ''}.{regional['rest']}"
