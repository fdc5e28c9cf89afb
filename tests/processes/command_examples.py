"""Runs examples of the commands' help in this process, each against an endpoint of its own, and a DynamoDB simulated by moto.

Stdin has the examples as a JSON list. For each it prints a line: exit code, stdout and stderr as a JSON list.
"""

import json
import os
import shlex
import sys

import boto3

from recordpublisher.local import serve_in_thread

from fakes.kcl.lease_table import lease_item
from processes.command_line import sdk_environment
from processes.commands_in_one_process import run
from servers.moto_server import serve_moto


def run_example(example: str) -> tuple[int, str, str]:
    """Run an example. The stream `orders` has two shards, ten records and the consumer `billing`; `old-orders` has nothing."""
    with serve_in_thread(streams={"orders": 2, "old-orders": 1}) as served:
        stream = served.endpoint.stream("orders")
        served.call(stream.consumers.register, "billing")
        for number in range(10):
            served.call(stream.put, b'{"status":"failed"}', str(number))
        os.environ.update(sdk_environment(served))
        at_once = ["--watch", "0"] if " kcl:" in example else []  # nobody renews a lease here
        return run([*shlex.split(example)[1:], *at_once])


def put_leases(dynamodb: str) -> None:
    """Make the lease table `orders` of the KCL."""
    access = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    client = boto3.client("dynamodb", endpoint_url=dynamodb, **access)
    client.create_table(
        TableName="orders",
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client.put_item(TableName="orders", Item=lease_item("shardId-000000000000"))
    client.close()


if __name__ == "__main__":
    with serve_moto() as moto:
        os.environ["AWS_ENDPOINT_URL_DYNAMODB"] = moto
        put_leases(moto)
        for given in json.load(sys.stdin):
            print(json.dumps(run_example(given)), flush=True)
