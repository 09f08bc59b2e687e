"""Drawings that many chapters share, as plotly traces and figures."""

import math
from collections.abc import Collection, Sequence

import plotly.graph_objects as go

from workingpapers.page.style import COLOURS

Pair = tuple[int, int]
Axis = tuple[str, Sequence[float]] | tuple[str, Sequence[float], dict]


def band(x: Sequence, middle: Sequence, low: Sequence, high: Sequence, name: str, colour: str):
    """Return the two traces of a line with an interval around it.

    Parameters
    ----------
    x, middle, low, high : sequence of float, one length
        The line and the ends of its interval.
    name : str
        The line's name in the legend.
    colour : str
        A name in `COLOURS`.
    """
    shade = COLOURS[colour]
    edge = go.Scatter(
        x=[*x, *reversed(x)],
        y=[*high, *reversed(low)],
        fill="toself",
        fillcolor=shade,
        opacity=0.2,
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
    )
    return edge, go.Scatter(x=list(x), y=list(middle), name=name, line={"color": shade})


def matching_graph(
    num_left: int,
    num_right: int,
    pairs: Collection[Pair],
    matching: Collection[Pair],
    left: str = "player",
    right: str = "arm",
) -> go.Figure:
    """Draw a bipartite graph with a matching in it picked out.

    Parameters
    ----------
    num_left, num_right : int
        Numbers of nodes on the two sides.
    pairs : collection of (int, int)
        The edges of the graph: left node, right node, counted from 0.
    matching : collection of (int, int)
        The edges to pick out.
    left, right : str
        What a node of each side is called.
    """
    figure = go.Figure()
    styles = (
        ("allowed", sorted(set(pairs) - set(matching)), COLOURS["grey"], 1),
        ("matched", sorted(matching), COLOURS["vermilion"], 4),
    )
    height = max(num_left, num_right)
    for name, edges, colour, width in styles:
        x = [value for _ in edges for value in (0, 1, None)]
        y = [v for i, k in edges for v in (_place(i, num_left), _place(k, num_right), None)]
        line = {"color": colour, "width": width}
        figure.add_scatter(x=x, y=y, mode="lines", line=line, name=name, hoverinfo="skip")
    for x, count, name, colour in ((0, num_left, left, "blue"), (1, num_right, right, "green")):
        figure.add_scatter(
            x=[x] * count,
            y=[_place(node, count) for node in range(count)],
            mode="markers+text" if height <= 11 else "markers",
            marker={"size": 14, "color": COLOURS[colour]},
            text=[f"{name} {node + 1}" for node in range(count)],
            textposition="middle left" if x == 0 else "middle right",
            showlegend=False,
            hoverinfo="text",
        )
    figure.update_xaxes(visible=False, range=[-0.9, 1.9])
    figure.update_yaxes(visible=False, range=[1.06, -0.06])
    figure.update_layout(height=80 + 36 * height)
    return figure


def _place(node: int, count: int) -> float:
    """Return a node's height: a side's nodes spread evenly over [0, 1]."""
    return (node + 0.5) / count


def category_map(
    codes: Sequence[Sequence[int]], names: Sequence[str], x: Sequence, y: Sequence
) -> go.Heatmap:
    """Return a heat map whose cells are one of a few named kinds, each with its colour.

    Parameters
    ----------
    codes : 2-D sequence of int, shape (len(y), len(x))
        The kind of each cell, a position in ``names``.
    names : sequence of str, at most 7
        What the kinds are called.
    x, y : sequence
        What the columns and rows are called.
    """
    colours = list(COLOURS.values())[: len(names)]
    steps = len(names)
    scale = [[(n + end) / steps, colour] for n, colour in enumerate(colours) for end in (0, 1)]
    bar = {
        "tickvals": list(range(steps)),
        "ticktext": list(names),
        "orientation": "h",
        "y": 1.0,
        "yanchor": "bottom",
        "thickness": 10,
        "len": 0.4,
        "x": 0.2,
    }
    return go.Heatmap(
        z=codes,
        x=x,
        y=y,
        zmin=-0.5,
        zmax=steps - 0.5,
        xgap=2,
        ygap=2,
        colorscale=scale,
        colorbar=bar,
        hovertemplate="%{y}, %{x}<extra></extra>",
    )


def intervals(x: Sequence, low: Sequence, high: Sequence, name: str, colour: str) -> go.Scatter:
    """Return intervals as bars around their middles; an unbounded interval leaves a gap.

    Parameters
    ----------
    x : sequence
        Where each interval stands.
    low, high : sequence of float
        The ends of the intervals, infinite or not.
    name : str
        The name in the legend.
    colour : str
        A name in `COLOURS`.
    """
    bounded = [math.isfinite(b - a) for a, b in zip(low, high, strict=True)]
    ends = list(zip(low, high, bounded, strict=True))
    return go.Scatter(
        x=list(x),
        y=[(a + b) / 2 if known else None for a, b, known in ends],
        error_y={"array": [(b - a) / 2 if known else 0 for a, b, known in ends]},
        mode="markers",
        marker={"color": COLOURS[colour]},
        name=name,
    )


def axes(figure: go.Figure, x: Axis, y: Axis, row: int | None = None, col: int | None = None):
    """Name the two axes of a figure, or of one of its panels, and fix their ranges.

    Parameters
    ----------
    figure : plotly Figure
        Changed in place.
    x, y : (str, sequence of two floats) or (str, sequence of two floats, dict)
        Title with unit, range (powers of ten on a logarithmic axis), and further settings.
    row, col : int, optional
        The panel, counted from 1.

    Returns
    -------
    plotly Figure
        The same figure.
    """
    for update, (title, span, *more) in ((figure.update_xaxes, x), (figure.update_yaxes, y)):
        update(title=title, range=list(span), row=row, col=col, **(more[0] if more else {}))
    return figure
