"""Draws how records flow through the layers, and what flows back. `make docs` writes docs/images/data-flow.svg.

Every class is named by its import path, so that the script fails after a rename instead of drawing a wrong name.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from importlib import import_module
from pathlib import Path

PICTURE = Path(__file__).parent / "images" / "data-flow.svg"
WIDTH, BOX_LEFT, BOX_WIDTH, BOX_HEIGHT, GAP = 960, 20, 600, 92, 46
DOWN, UP = "#1f6f8b", "#b3541e"


@dataclass(frozen=True, slots=True)
class Layer:
    """A box: its text, what it passes to the next layer below it, and what it gets back."""

    name: str
    folder: str
    colour: str
    duty: str
    classes: tuple[str, ...]
    passes_on: str
    gets_back: str


LAYERS = (
    Layer(
        "Kinesis Data Streams", "", "#eceff1", "shards: ordered records, kept for a day to a year", (),
        "bytes: responses of GetRecords, events of SubscribeToShard", "signed calls",
    ),
    Layer(
        "publishers", "publishers/", "#d7ecea", "one shard: bytes to batches; de-aggregation, retries, consumers",
        (
            "publishers.polling.publisher:PollingRecordPublisher",
            "publishers.fanout.publisher:FanOutRecordPublisher",
            "publishers.kinesis.client:KinesisClient",
        ),
        "RecordBatch: columns of records, with the position after it", "the position to continue from, the read budget",
    ),
    Layer(
        "consumer", "consumer/", "#dcefd8", "one shard: values, event times, watermarks",
        ("consumer.shard_consumer:ShardConsumer", "consumer.watermark_strategies:WatermarkStrategy"),
        "RecordBatch with values, event times and watermarks", "back-pressure: returns when the next read may start",
    ),
    Layer(
        "fetcher", "fetcher/", "#faf0cf", "many shards: order, event-time alignment, exact state, checkpoints",
        (
            "fetcher.shards.shard_table:ShardTable",
            "fetcher.watermarks:Alignment",
            "fetcher.pipeline.emitter:Emitter",
        ),
        "write(batch), watermark(ms), flush(checkpoint)", "write returned: the position moves",
    ),
    Layer(
        "sinks and Spark", "plugins/", "#f6e0cc", "sinks write records; plugins, stores, jobs",
        ("plugins.sinks.sql.sink:SqlSink", "plugins.sinks.kinesis.kinesis_sink:KinesisSink", "plugins.spark.data_source:KinesisSource"),
        "", "",
    ),
)  # fmt: skip


def class_name(path: str) -> str:
    """The name of the class at `module:class`. Raises: AttributeError, ImportError where it no longer exists."""
    module, _, name = path.partition(":")
    return str(getattr(import_module(f"recordpublisher.{module}"), name).__name__)


def drawing() -> str:
    """The SVG's text."""
    height = len(LAYERS) * (BOX_HEIGHT + GAP) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        *(arrow_head(colour) for colour in (DOWN, UP)),
    ]
    for index, layer in enumerate(LAYERS):
        top = 10 + index * (BOX_HEIGHT + GAP)
        parts += box(layer, top)
        if index + 1 < len(LAYERS):
            parts += arrows(layer, top + BOX_HEIGHT)
    return "\n".join([*parts, "</svg>\n"])


def arrow_head(colour: str) -> str:
    """The end of an arrow."""
    return (
        f'<marker id="{colour[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker>'
    )


def text(x: float, y: float, words: str, **style: str) -> str:
    """One line of text."""
    attributes = " ".join(f'{key.replace("_", "-")}="{value}"' for key, value in style.items())
    return f'<text x="{x}" y="{y}" {attributes}>{escape(words)}</text>'


def box(layer: Layer, top: int) -> list[str]:
    """One layer: its name, duty and most important classes."""
    return [
        f'<rect x="{BOX_LEFT}" y="{top}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" fill="{layer.colour}" stroke="#90a4ae"/>',
        text(BOX_LEFT + 14, top + 26, layer.name, font_size="16", font_weight="bold"),
        text(BOX_LEFT + BOX_WIDTH - 14, top + 26, layer.folder, font_family="monospace", text_anchor="end", fill="#546e7a"),
        text(BOX_LEFT + 14, top + 50, layer.duty),
        text(BOX_LEFT + 14, top + 76, "  ·  ".join(class_name(path) for path in layer.classes), font_family="monospace", font_size="12"),
    ]  # fmt: skip


def arrows(layer: Layer, top: int) -> list[str]:
    """The arrows to the next layer and back, with their texts."""
    left, right, bottom = BOX_LEFT + 60, BOX_LEFT + BOX_WIDTH - 60, top + GAP
    line = '<line x1="{x}" y1="{a}" x2="{x}" y2="{b}" stroke="{c}" stroke-width="2" marker-end="url(#{m})"/>'
    return [
        line.format(x=left, a=top + 3, b=bottom - 3, c=DOWN, m=DOWN[1:]),
        text(left + 10, top + 27, layer.passes_on, fill=DOWN),
        line.format(x=right + 40, a=bottom - 3, b=top + 3, c=UP, m=UP[1:]),
        text(right + 50, top + 27, layer.gets_back, fill=UP),
    ]


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")
