"""The kernel-free face: figures written down once as HTML that a small script brings to life.

Figures of neighbouring states are mostly the same. Every figure is therefore stored as a
tree whose larger parts stand once in a shared pool and are referred to as ``{"$": number}``.
"""

import base64
import html
import json
import re
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

ASLEEP = (
    "This figure is asleep. In a notebook, run all cells from the top to bring it to life; "
    "on a page of the book it lives by JavaScript."
)
_POOLED_FROM = 32  # characters; a reference costs about ten


class Pool:
    """Distinct parts of figures, each kept once."""

    def __init__(self) -> None:
        self.items: list = []
        self._places: dict[str, int] = {}

    def add(self, node):
        """Return ``node`` with its larger parts replaced by references into the pool."""
        if isinstance(node, dict):
            if "$" in node:
                raise ValueError("a figure must not use the key '$': it stands for a reference")
            node = {key: self.add(value) for key, value in node.items()}
        elif isinstance(node, list) and any(isinstance(item, dict | list) for item in node):
            node = [self.add(item) for item in node]
        text = json.dumps(node, separators=(",", ":"))
        if len(text) < _POOLED_FROM:
            return node
        place = self._places.setdefault(text, len(self.items))
        if place == len(self.items):
            self.items.append(node)
        return {"$": place}


def figure_tree(figure: go.Figure) -> dict:
    """Return a figure as plain JSON, with arrays of four-byte floats and without its template.

    An array keeps its eight-byte floats where four bytes would show. The template is left to the
    page, which knows whether it is light or dark.

    Raises
    ------
    ValueError
        If a number of the figure is NaN or infinite, or the figure holds what JSON cannot.
    """
    tree = figure.to_dict()
    tree["layout"].pop("template", None)
    if tree.pop("frames", None):
        raise ValueError("a figure must not have frames: give the states as controls")
    tree = _compact(tree)
    try:
        json.dumps(tree)
    except TypeError as error:
        raise ValueError(f"a figure must be plain JSON: {error}") from error
    return tree


def _compact(node):
    if isinstance(node, dict):
        if "bdata" in node:
            return _float32(node)
        return {key: _compact(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_compact(item) for item in node]
    if isinstance(node, np.ndarray):
        return _compact(node.tolist())
    if isinstance(node, float | np.floating):
        if not np.isfinite(node):
            raise ValueError(
                f"a figure's numbers must be finite, got {node} (use None for a gap in a line)"
            )
        return float(f"{node:.15g}")  # 0.1 + 0.2 as 0.3
    return node.item() if isinstance(node, np.generic) else node


def _float32(typed: dict) -> dict:
    """Return plotly's typed array ``{"dtype", "bdata"}`` with floats of four bytes, if they do."""
    values = np.frombuffer(base64.b64decode(typed["bdata"]), dtype=typed["dtype"])
    if values.dtype.kind != "f":
        return dict(typed)
    if not np.isfinite(values).all():
        raise ValueError("a figure's numbers must be finite, got NaN or inf in an array")
    with np.errstate(over="ignore", under="ignore"):
        short = values.astype("<f4")
    # On a linear axis the error is seen against the span, on a logarithmic one against the value.
    seen = np.minimum(np.ptp(values) if values.size else 0, np.abs(values))
    if (np.abs(short - values) > 1e-6 * seen).any():
        return dict(typed)
    return {**typed, "dtype": "f4", "bdata": base64.b64encode(short.tobytes()).decode()}


def html_face(
    trees: Sequence[dict],
    readings: Sequence[str],
    controls: Sequence[dict],
    title: str,
    alt: str,
    caption: str = "",
) -> str:
    """Return the HTML of a figure, or of a grid of figures with its controls.

    Parameters
    ----------
    trees : sequence of dict
        What `figure_tree` gives, one a state, in the order of `itertools.product` over the
        controls.
    readings : sequence of str
        One sentence a state; empty strings for a plain figure.
    controls : sequence of dict
        ``name``, ``label``, ``kind`` ("range" or "select"), ``texts`` (the grid as the reader sees
        it) and ``start`` (a position in the grid); empty for a plain figure.
    title, alt, caption : str
        What the figure shows; what it looks like, for who does not see it; what to conclude.
    """
    pool = Pool()
    data = {
        "states": [pool.add(tree) for tree in trees],
        "readings": list(readings) if any(readings) else [],
        "controls": list(controls),
        "pool": pool.items,
    }
    # A "<" inside a script element could end it.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    name = "wp-" + (re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "figure")
    start = _start(controls)
    lines = [
        f'<figure class="wp-figure" id="{name}" aria-label="{html.escape(title)}">',
        f'<p class="wp-title">{html.escape(title)}</p>',
        '<div class="wp-controls"></div>',
        f'<div class="wp-plot" role="img" aria-label="{html.escape(alt)}">',
        f'<p class="wp-asleep">{html.escape(ASLEEP)}</p></div>',
    ]
    if any(readings):
        reading = html.escape(readings[start])
        lines.append(f'<p class="wp-reading" role="status" aria-live="polite">{reading}</p>')
    if caption:
        lines.append(f"<figcaption>{html.escape(caption)}</figcaption>")
    lines += [f'<script type="application/json" class="wp-data">{text}</script>', "</figure>"]
    return "\n".join(lines)


def _start(controls: Sequence[dict]) -> int:
    """Return the position, in the product's order, of the state that the controls start at."""
    place = 0
    for control in controls:
        place = place * len(control["texts"]) + control["start"]
    return place
