"""Creates what the cases need, asks them, and deletes it: a program for an environment with today's boto3.

`python observe.py check|clean --prefix NAME --region REGION [--profile P] [--endpoint URL]`; `check` prints one JSON object on stdout.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from typing import Any

import boto3
from botocore.config import Config
from cases import CASES, Kinesis, Made, observed

OWNER, EXPIRES = "recordpublisher-check", "recordpublisher-expires"
HOUR = 3600


def main(arguments: argparse.Namespace) -> None:
    """Check or clean, and print what was called to stderr."""
    calls: Counter[str] = Counter()
    kinesis = client(arguments, calls)
    try:
        if arguments.task == "clean":
            clean(kinesis, arguments.prefix, arguments.all)
        else:
            print(json.dumps(check(kinesis, arguments.prefix, arguments.poll_seconds)))
    finally:
        print(f"calls: {', '.join(f'{name} {count}' for name, count in sorted(calls.items()))}", file=sys.stderr)


def client(arguments: argparse.Namespace, calls: Counter[str]) -> Kinesis:
    keys: dict[str, Any] = {"profile_name": arguments.profile}
    if arguments.endpoint is not None:
        keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    session = boto3.Session(region_name=arguments.region, **keys)
    config = Config(retries={"total_max_attempts": 5, "mode": "standard"}, parameter_validation=False)
    kinesis = session.client("kinesis", endpoint_url=arguments.endpoint, config=config)
    kinesis.meta.events.register("before-call.kinesis.*", lambda model, **_: calls.update([model.name]))
    return kinesis


def check(kinesis: Kinesis, prefix: str, poll_seconds: float) -> dict[str, object]:
    """Ask every case, and delete what was made, whatever happens."""
    made = Made(kinesis, prefix, poll_seconds)
    try:
        create(made)
        return {name: observed(ask, made) for name, ask in CASES.items()}
    finally:
        clean(kinesis, prefix, everything=True)


def create(made: Made) -> None:
    kinesis, tags = made.kinesis, {OWNER: "yes", EXPIRES: str(int(time.time()) + HOUR)}
    kinesis.create_stream(StreamName=made.provisioned, ShardCount=1, Tags=tags)
    kinesis.create_stream(StreamName=made.on_demand, StreamModeDetails={"StreamMode": "ON_DEMAND"}, Tags=tags)
    for stream in (made.provisioned, made.on_demand):
        made.eventually(lambda stream=stream: made.status(stream), "ACTIVE")
    by_name = {"StreamARN": made.arns[made.provisioned], "ConsumerName": made.consumer_name}
    made.arns["consumer"] = kinesis.register_stream_consumer(**by_name)["Consumer"]["ConsumerARN"]
    made.eventually(
        lambda: kinesis.describe_stream_consumer(**by_name)["ConsumerDescription"]["ConsumerStatus"], "ACTIVE"
    )
    queue = kinesis.create_queue(
        QueueName=made.queue_name,
        StreamConfigurationList=[{"StreamARN": made.arns[made.on_demand]}],
        QueueAttributes={"DeadLetterConfiguration": {"TargetType": "BUILT_IN", "MaxReceiveCount": 2}},
        Tags=tags,
    )["QueueDescription"]["QueueARN"]
    made.arns["queue"] = queue
    made.eventually(lambda: kinesis.describe_queue(QueueARN=queue)["QueueDescription"]["QueueStatus"], "ACTIVE")


def clean(kinesis: Kinesis, prefix: str, everything: bool) -> None:
    """Delete queues, then streams that have the prefix and our tag: those past their hour, or `everything`."""
    for page in kinesis.get_paginator("list_queues").paginate():
        for each in page["QueueSummaries"]:
            if each["QueueName"].startswith(prefix) and is_ours(kinesis, each["QueueARN"], everything):
                kinesis.delete_queue(QueueARN=each["QueueARN"])
                print(f"deleted the queue {each['QueueName']}", file=sys.stderr)
                wait_until_gone(kinesis, each["QueueARN"])
    for page in kinesis.get_paginator("list_streams").paginate():
        for each in page["StreamSummaries"]:
            if each["StreamName"].startswith(prefix) and is_ours(kinesis, each["StreamARN"], everything):
                kinesis.delete_stream(StreamARN=each["StreamARN"], EnforceConsumerDeletion=True)
                print(f"deleted the stream {each['StreamName']}", file=sys.stderr)


def is_ours(kinesis: Kinesis, arn: str, everything: bool) -> bool:
    """Whether a check has made it, and its hour is over."""
    tags = {tag["Key"]: tag["Value"] for tag in kinesis.list_tags_for_resource(ResourceARN=arn)["Tags"]}
    return OWNER in tags and (everything or float(tags.get(EXPIRES, 0)) < time.time())


def wait_until_gone(kinesis: Kinesis, queue: str) -> None:
    """The stream of a queue can be deleted only after the queue."""
    for _ in range(100):
        try:
            kinesis.describe_queue(QueueARN=queue)
        except kinesis.exceptions.ResourceNotFoundException:
            return
        time.sleep(0.2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=("check", "clean"))
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--region", required=True)
    parser.add_argument("--profile")
    parser.add_argument("--endpoint")
    parser.add_argument("--all", action="store_true", help="clean: also what is not past its hour")
    parser.add_argument("--poll-seconds", type=float, default=2.0)
    main(parser.parse_args())
