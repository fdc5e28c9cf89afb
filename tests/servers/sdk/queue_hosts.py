"""Where today's SDK sends the calls about queues in every region, as JSON: [base URL of Kinesis, call, ARN or null, whether FIPS, URL]."""

import json
from itertools import product

from botocore.endpoint_provider import EndpointProvider
from botocore.loaders import Loader

CALLS = {"ListQueues": "control", "DescribeQueue": "control", "ReceiveQueueRecords": "data"}
KINDS = ({}, {"UseFIPS": True}, {"UseDualStack": True}, {"UseFIPS": True, "UseDualStack": True})


def main() -> None:
    """Print one list for each region, kind of endpoint and call."""
    loader = Loader()
    partitions = loader.load_data("partitions")
    provider = EndpointProvider(loader.load_service_model("kinesis", "endpoint-rule-set-1"), partitions)
    regions = [(each["id"], region) for each in partitions["partitions"] for region in each["regions"]]
    rows = []
    for (partition, region), kind, (api, operation_type) in product(regions, KINDS, CALLS.items()):
        arn = None if api == "ListQueues" else f"arn:{partition}:kinesis:{region}:123456789012:queue/0a1b2c"
        of_queue = {"ResourceType": "queue", "OperationType": operation_type, **({"QueueARN": arn} if arn else {})}
        urls = [provider.resolve_endpoint(Region=region, **kind, **more).url for more in ({}, of_queue)]
        rows.append([urls[0], api, arn, "UseFIPS" in kind, urls[1]])
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
