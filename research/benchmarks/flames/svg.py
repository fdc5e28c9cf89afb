"""A flame graph as a small SVG: outermost calls at the top, width is CPU; hovering shows the whole name and the share."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

WIDTH, ROW, LETTER = 1200, 17, 6.3
LEAST, DEEPEST = 0.003, 48
"""Smaller shares and deeper calls are omitted: they would not be readable."""
COLOURS = {
    "publishers/": "#8ecfc9",
    "consumer/": "#a8d8a0",
    "fetcher/": "#f2d16b",
    "queues/": "#d7c26b",
    "plugins/": "#f0b27a",
    "local/": "#f5b7b1",
    "testing/": "#f5cba7",
    "cli/": "#a9cce3",
    "demo/": "#c5b5e3",
    "asyncio/": "#d5d8dc",
    "aiohttp/": "#aed6f1",
    "aiobotocore/": "#d7bde2",
    "botocore/": "#d7bde2",
}
OTHER = "#ebedef"


@dataclass
class Call:
    """One function with one call path."""

    samples: int = 0
    inner: dict[str, Call] = field(default_factory=dict)


def tree_of(folded: list[tuple[tuple[str, ...], int]]) -> Call:
    root = Call()
    for stack, samples in folded:
        call = root
        call.samples += samples
        for name in stack:
            call = call.inner.setdefault(name, Call())
            call.samples += samples
    return root


def flame_graph(title: str, folded: list[tuple[tuple[str, ...], int]]) -> str:
    """The SVG's text."""
    root = tree_of(folded)
    boxes: list[str] = []
    depth = _draw(root, 0.0, 1, root.samples, boxes)
    height = (depth + 2) * ROW
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="10">'
        f'<rect width="100%" height="100%" fill="white"/><text x="4" y="12">{escape(title)}, {root.samples} samples</text>'
    )
    return "\n".join([head, *boxes, "</svg>\n"])


def _draw(call: Call, left: float, row: int, whole: int, boxes: list[str]) -> int:
    """Add the boxes of everything inside `call`; returns the deepest row."""
    deepest = row
    for name, inner in call.inner.items():
        share = inner.samples / whole
        if share >= LEAST and row <= DEEPEST:
            boxes.append(_box(name, left, row, share))
            deepest = max(deepest, _draw(inner, left, row + 1, whole, boxes))
        left += share * WIDTH
    return deepest


def _box(name: str, left: float, row: int, share: float) -> str:
    width, top = share * WIDTH, row * ROW
    colour = next((colour for start, colour in COLOURS.items() if name.startswith(start)), OTHER)
    letters = int((width - 4) / LETTER)
    shown = name.rpartition(":")[2] if len(name) > letters else name
    text = f'<text x="{left + 2:.1f}" y="{top + 12}">{escape(shown[:letters])}</text>' if letters > 3 else ""
    return (
        f'<g><title>{escape(name)} {share:.1%}</title><rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{ROW - 1}" '
        f'fill="{colour}"/>{text}</g>'
    )
