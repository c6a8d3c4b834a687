"""What all pictures share: colors for light and dark pages, and the frame of a document."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

STYLE = """
    text { font: 13px system-ui, sans-serif; fill: #1f2933; }
    .title { font-weight: 600; font-size: 15px; }
    .zone { fill: none; stroke: #9aa5b1; stroke-dasharray: 4 3; }
    .box { fill: #e4e7eb; stroke: #7b8794; }
    .line { stroke: #7b8794; fill: none; }
    .arrow { stroke: #1f2933; stroke-width: 1.5; }
    .head { fill: #1f2933; }
    .local { stroke: #0f8a7e; stroke-width: 2.5; }
    .cross { stroke: #d64545; stroke-width: 2.5; stroke-dasharray: 7 4; }
    .head-local { fill: #0f8a7e; }
    .head-cross { fill: #d64545; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e4e7eb; }
      .box { fill: #323f4b; }
      .arrow { stroke: #cbd2d9; }
      .head { fill: #cbd2d9; }
    }
"""


def document(described: str, width: int, height: int, elements: Iterable[str]) -> str:
    """Return an SVG document.

    Args:
        described: What it shows, for readers who do not see it.
        width: In pixels.
        height: In pixels.
        elements: Its lines.
    """
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    label = quoteattr(described)
    opened = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label={label}>'
    return "\n".join([opened, f"  <style>{STYLE}  </style>", *elements, "</svg>", ""])


def text(x: float, y: float, content: str, *, anchor: str = "middle", kind: str = "") -> str:
    """Return a line of text."""
    style = f' class="{kind}"' if kind else ""
    return f'  <text{style} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(content)}</text>'
