"""A process of another environment that reads a stream with async-kinesis and keeps its checkpoints in DynamoDB:

    KINESIS_URL DYNAMODB_URL STREAM NAME COUNT

It prints COUNT records, a line each, and closes the consumer when no more come.
"""

import asyncio
import sys

from kinesis import Consumer
from kinesis.dynamodb import DynamoDBCheckPointer
from kinesis.processors import StringProcessor


async def consume(kinesis_url: str, dynamodb_url: str, stream: str, name: str, count: int) -> None:
    checkpointer = DynamoDBCheckPointer(
        name, endpoint_url=dynamodb_url, region_name="us-east-1", heartbeat_frequency=1, session_timeout=5
    )
    async with Consumer(
        stream,
        endpoint_url=kinesis_url,
        region_name="us-east-1",
        checkpointer=checkpointer,
        processor=StringProcessor(),
        iterator_type="TRIM_HORIZON",
        sleep_time_no_records=0.3,
    ) as consumer:
        found = 0
        while found < count:
            async for record in consumer:
                print(record, flush=True)
                found += 1  # the iteration ends when the stream is quiet: only then the last records count as handled


asyncio.run(consume(*sys.argv[1:5], int(sys.argv[5])))
