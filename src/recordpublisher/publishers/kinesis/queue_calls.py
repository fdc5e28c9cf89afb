"""The calls about queues, which the SDKs that the constraints allow do not know: signed and sent by us, to hosts of their own."""

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
"""And which host of a queue serves each."""
WITHOUT_HOSTS = ("aws-iso", "aws-iso-b")
"""Partitions in which a queue has no host of its own."""
_REGIONAL = r"https://kinesis(?P<fips>-fips)?\.(?P<rest>.+)"


def queue_url(kinesis_url: str, api: str, queue_arn: str | None, is_fips: bool = False) -> str:
    """Where a call goes, by the rules of botocore 1.44.8, where the others go to `kinesis_url`: to the same, if that is not of AWS.

    `is_fips`: FIPS is set, which in us-gov does not change `kinesis_url`.
    """
    regional = re.fullmatch(_REGIONAL, kinesis_url)
    if regional is None:
        return kinesis_url
    has_host = queue_arn is not None and queue_arn.split(":")[1] not in WITHOUT_HOSTS
    of_queue = f"{queue_arn.rpartition('/')[2]}.{QUEUE_CALLS[api]}-" if queue_arn and has_host else ""
    return f"https://{of_queue}kinesis-queues{'-fips' if is_fips or regional['fips'] else ''}.{regional['rest']}"
