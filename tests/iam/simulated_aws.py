"""The services of a job behind a policy, and the table of policies that docs/reference/iam-policies.md is made from."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from uuid import uuid4

import boto3

from recordpublisher.local import Delays, LocalKinesisThread, serve_in_thread

from iam.policy_front import PolicyFront, serve_policy
from processes.command_line import ROOT

FRONT, RUN = "FRONT", "RUN"
"""In properties: the URL of the front, and a name that each run has of its own."""
KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "s", "region_name": "us-east-1"}


def load_policies() -> ModuleType:
    """The module docs/iam_policies.py."""
    spec: Any = importlib.util.spec_from_file_location("iam_policies", ROOT / "docs/iam_policies.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def serve_aws(
    moto: str, policy: dict[str, Any], properties: dict[str, Any]
) -> Iterator[tuple[PolicyFront, LocalKinesisThread, dict[str, Any]]]:
    """The front, the embedded endpoint behind it, and a job's properties; other services than Kinesis are at the URL `moto`."""
    with serve_in_thread(streams={"orders": 2, "copies": 1}, delays=Delays(consumer=0)) as served:
        hosts = {"kinesis": served.url, **dict.fromkeys(("dynamodb", "dynamodbstreams", "s3", "sts"), moto)}
        with serve_policy(hosts, policy) as front:
            given = {
                **served.properties(),
                "aws.endpoint": front.url,
                "flink.state.endpoint": front.url,
                "flink.stream.initpos": "TRIM_HORIZON",
                "flink.shard.getrecords.intervalmillis": 200,
                **properties,
            }
            if given.get("flink.stream.efo.registration") == "NONE":
                given["flink.stream.efo.consumerarn.orders"] = _register(served)
            run = uuid4().hex
            yield front, served, {k: str(v).replace(FRONT, front.url).replace(RUN, run) for k, v in given.items()}


def _register(served: LocalKinesisThread) -> str:
    kinesis = boto3.client("kinesis", endpoint_url=served.url, **KEYS)
    arn = kinesis.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]["StreamARN"]
    consumer = kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="billing")["Consumer"]["ConsumerARN"]
    kinesis.close()
    return str(consumer)
