"""The house style: one palette, one plotly template (light and dark), one matplotlib style."""

import matplotlib as mpl
import plotly.graph_objects as go
import plotly.io
from cycler import cycler

# Okabe and Ito's palette, which stays apart under the common kinds of colour blindness
# (Wong, Nature Methods 8, 441, 2011), in the order of contrast with white and with black.
COLOURS = {
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "grey": "#7A7A7A",
}
SEQUENTIAL = "Cividis"  # even in lightness, and the same to a colour-blind eye

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_INK = {"light": ("#1f2328", "#dfe3e8", "#8a939e"), "dark": ("#e6e6e6", "#3a4048", "#8a939e")}


def plotly_template(theme: str = "light") -> go.layout.Template:
    """Return the plotly template of the house for a page's ``theme``.

    Parameters
    ----------
    theme : {"light", "dark"}
        Which page the figure stands on. Both have transparent backgrounds.

    Raises
    ------
    ValueError
        If the theme is neither of the two.
    """
    if theme not in _INK:
        raise ValueError(f"theme must be 'light' or 'dark', got {theme!r}")
    ink, grid, line = _INK[theme]
    axis = {
        "gridcolor": grid,
        "linecolor": line,
        "zerolinecolor": grid,
        "showline": True,
        "ticks": "outside",
        "tickcolor": line,
        "automargin": True,
        "title": {"standoff": 8},
    }
    return go.layout.Template(
        layout={
            "font": {"family": _FONT, "size": 14, "color": ink},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "colorway": list(COLOURS.values()),
            "colorscale": {"sequential": SEQUENTIAL},
            "xaxis": axis,
            "yaxis": axis,
            "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
            "margin": {"l": 56, "r": 16, "t": 56, "b": 48},
            "height": 420,
            "hoverlabel": {"font": {"family": _FONT}},
        }
    )


MATPLOTLIB = {
    "figure.figsize": (7.2, 3.8),
    "figure.dpi": 110,
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "working papers",  # the same figure gives the same file
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.titlelocation": "left",
    "axes.prop_cycle": cycler(color=list(COLOURS.values())),
    "grid.color": "#dfe3e8",
    "legend.frameon": False,
    "lines.linewidth": 2,
}


def use_style() -> None:
    """Make the house style the default of plotly and matplotlib in this process."""
    plotly.io.templates["workingpapers"] = plotly_template("light")
    plotly.io.templates.default = "workingpapers"
    mpl.rcParams.update(MATPLOTLIB)
