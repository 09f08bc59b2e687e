"""Showing a figure that does not move, with the words that belong to it."""

import base64
import html
import io

import matplotlib.pyplot as plt
import plotly.graph_objects as go
from matplotlib.figure import Figure as MatplotlibFigure

from workingpapers.page.face import figure_tree, html_face


class Shown:
    """A figure with its alternative text and caption, as a notebook displays it."""

    def __init__(self, bundle: dict) -> None:
        self._bundle = bundle

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return self._bundle


def show(figure: go.Figure | MatplotlibFigure, *, title: str, alt: str, caption: str) -> Shown:
    """Return a figure to display, with no asset from outside the page.

    Parameters
    ----------
    figure : plotly Figure or matplotlib Figure
        A matplotlib figure is drawn as SVG and closed.
    title, alt, caption : str
        What is seen; what it looks like, for who does not see it; what to conclude.

    Raises
    ------
    TypeError
        If ``figure`` is neither kind.
    ValueError
        If a text is empty or a number of the figure is not finite.
    """
    for name, text in (("title", title), ("alt", alt), ("caption", caption)):
        if not text.strip():
            raise ValueError(f"{name} is empty: say it in a sentence")
    if isinstance(figure, go.Figure):
        tree = figure_tree(figure)
        page = html_face([tree], [""], [], title, alt, caption)
        return Shown(
            {
                "application/vnd.plotly.v1+json": tree,
                "text/html": page,
                "text/plain": f"Figure: {title}",
            }
        )
    if isinstance(figure, MatplotlibFigure):
        return Shown({"text/html": _drawing(figure, title, alt, caption), "text/plain": title})
    raise TypeError(f"figure must be a plotly or matplotlib Figure, got {type(figure).__name__}")


def _drawing(figure: MatplotlibFigure, title: str, alt: str, caption: str) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    source = base64.b64encode(buffer.getvalue()).decode()
    return (
        f'<figure class="wp-drawing"><p class="wp-title">{html.escape(title)}</p>'
        f'<img alt="{html.escape(alt)}" src="data:image/svg+xml;base64,{source}">'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )
