"""LAYERS: which layer of the library, the SDK or Python a sample of CPU belongs to.

A sample belongs to the layer of its innermost function whose name starts with one of the prefixes of a layer.
"""

from __future__ import annotations

LAYERS = {
    "decode: JSON and base64 straight into records": ["publishers/kinesis/codec.py"],
    "event frames: splitting, copying, checksum": ["publishers/kinesis/event_subscription.py"],
    "de-aggregation check": ["publishers/aggregation/deaggregation.py", "publishers/aggregation/kpl_format.py"],
    "making the call: routing, signature, error mapping; the SDK": ["botocore/", "aiobotocore/", "publishers/kinesis/"],
    "transport: socket, HTTP parser, body": [
        "aiohttp/",
        "publishers/kinesis/http1.py",
        "publishers/kinesis/http1_response.py",
        "publishers/kinesis/direct_transport.py",
        "asyncio/selector_events.py",
        "asyncio/transports.py",
        "yarl/",
        "multidict/",
    ],
    "time-outs around a read": ["asyncio/timeouts.py", "publishers/clock.py"],
    "publisher: metrics, rate control, batches; freeing records": ["publishers/"],
    "deserializer, event times, watermarks": ["consumer/", "publishers/records.py"],
    "emission: slice, sink, state": [
        "fetcher/pipeline/emitter.py",
        "fetcher/sink.py",
        "publishers/records.py:RecordBatch.slice",
    ],
    "queue, budget, alignment, state": ["fetcher/"],
    "Kinesis sink: checks, shard queues, completion": ["plugins/sinks/kinesis/"],
    "event loop": ["asyncio/"],
}


def layer_of(stack: tuple[str, ...]) -> str:
    """The layer of a sample; of several matching prefixes the longest wins."""
    for name in reversed(stack):
        fitting = [
            (len(start), layer) for layer, starts in LAYERS.items() for start in starts if name.startswith(start)
        ]
        if fitting:
            return max(fitting)[1]
    return "other"


def shares_of(folded: list[tuple[tuple[str, ...], int]]) -> dict[str, float]:
    """Each layer's share of the samples."""
    whole = sum(samples for _, samples in folded)
    shares: dict[str, float] = {}
    for stack, samples in folded:
        layer = layer_of(stack)
        shares[layer] = shares.get(layer, 0) + samples / whole
    return shares
