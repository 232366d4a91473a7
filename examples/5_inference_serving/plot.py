"""A plot of latencies by percentile, as SVG without any package."""

from __future__ import annotations

import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 30, 50
COLOURS = ("#b04a2f", "#2f6db0", "#3d8a4f", "#7a5aa0")


def tail_latency(curves: dict[str, list[float]]) -> str:
    """Draws a curve for each name: its latencies in milliseconds in ascending order, on a logarithmic axis."""
    values = [value for latencies in curves.values() for value in latencies]
    low = 10 ** math.floor(math.log10(max(min(values), 1e-3)))
    high = max(10 ** math.ceil(math.log10(max(values))), low * 10)

    def across(share: float) -> float:
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def up(value: float) -> float:
        share = math.log10(max(value, low) / low) / math.log10(high / low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for percent in (0, 25, 50, 75, 100):
        x = across(percent / 100)
        lines.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        lines.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{percent} %</text>')
    decade = low
    while decade <= high * 1.001:
        for factor in (1, 2, 5):
            value = decade * factor
            if value <= high * 1.001:
                y = up(value)
                lines.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
                lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
        decade *= 10
    middle = (TOP + HEIGHT - BOTTOM) / 2
    lines.append(f'<text x="18" y="{middle}" text-anchor="middle" transform="rotate(-90 18 {middle})">latency in ms</text>')
    centre = across(0.5)
    lines.append(f'<text x="{centre}" y="{HEIGHT - 12}" text-anchor="middle">share of requests that took no longer</text>')
    for index, (name, latencies) in enumerate(curves.items()):
        colour = COLOURS[index % len(COLOURS)]
        ordered = sorted(latencies)
        points = [(across((rank + 1) / len(ordered)), up(value)) for rank, value in enumerate(ordered)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        x, y = LEFT + 12, TOP + 18 + 18 * index
        lines.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        lines.append(f'<path d="M{x} {y - 4}h20" stroke="{colour}" stroke-width="2"/>')
        lines.append(f'<text x="{x + 26}" y="{y}">{escape(name)}</text>')
    lines.append("</svg>")
    return "\n".join(lines) + "\n"
