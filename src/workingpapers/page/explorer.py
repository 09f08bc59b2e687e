"""The Explorer: one object that is a widget with a kernel and a live page without one."""

import html
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real

import ipywidgets
import numpy as np
import plotly.graph_objects as go

from workingpapers.page.face import figure_tree, html_face
from workingpapers.page.style import plotly_template

MOST_STATES = 400
MOST_BYTES = 1_000_000


class Explorer:
    """A figure that the reader moves: with a kernel, and in the plain HTML without one.

    Displayed, it is one bundle of two faces. With a kernel: ipywidgets beside a plotly
    FigureWidget, recomputed at any value between the ends of each grid. Without: the states of
    the whole grid, stored in the page and moved by native inputs.

    Parameters
    ----------
    figure : callable
        ``figure(**values)`` returns a plotly Figure. Its axes carry titles and fixed ranges,
        the same in every state, so that a change is seen and not rescaled away.
    controls : mapping of str to sequence
        The grid of each control: increasing numbers (a slider), or texts (a choice).
    title : str
        What the figure shows.
    alt : str
        What it looks like, for a reader who does not see it.
    reading : callable
        ``reading(**values)`` returns one sentence about the present state.
    labels : mapping of str to str, optional
        What a control is called on the page, with its unit; its name by default.
    start : mapping, optional
        The value at which a control starts; the first of its grid by default.
    caption : str, optional
        What to conclude.

    Raises
    ------
    ValueError
        For an empty or unordered grid, more than 400 states, more than 1 MB, a figure function
        that raises, an axis without title or fixed range, numbers that are not finite.
    TypeError
        If ``figure`` does not return a plotly Figure or ``reading`` not a str.
    """

    def __init__(
        self,
        figure: Callable[..., go.Figure],
        controls: Mapping[str, Sequence],
        *,
        title: str,
        alt: str,
        reading: Callable[..., str],
        labels: Mapping[str, str] | None = None,
        start: Mapping | None = None,
        caption: str = "",
    ) -> None:
        self._figure, self._reading = figure, reading
        self.title, self.alt, self.caption = _text("title", title), _text("alt", alt), caption
        self.controls = {name: _grid(name, values) for name, values in controls.items()}
        self.labels = dict.fromkeys(self.controls) | dict(labels or {})
        self.labels = {name: label or name for name, label in self.labels.items()}
        self.start = {name: grid[0] for name, grid in self.controls.items()} | dict(start or {})
        self._check_controls()
        names = list(self.controls)
        self.states = [
            dict(zip(names, values, strict=True))
            for values in itertools.product(*self.controls.values())
        ]
        self.html = self._html()

    def _check_controls(self) -> None:
        if not self.controls:
            raise ValueError("controls is empty: give at least one control and its grid")
        for given, what in ((self.labels, "labels"), (self.start, "start")):
            if unknown := set(given) - set(self.controls):
                raise ValueError(
                    f"{what} names {sorted(unknown)}, the controls are {list(self.controls)}"
                )
        for name, value in self.start.items():
            if value not in self.controls[name]:
                raise ValueError(f"start of {name!r} must be in its grid, got {value!r}")
        count = math.prod(len(grid) for grid in self.controls.values())
        if count > MOST_STATES:
            raise ValueError(f"the grid has {count} states, at most {MOST_STATES} are allowed")

    def figure(self, **values) -> go.Figure:
        """Return the figure at ``values``, on the grid or off it, with its errors named."""
        figure = _named("figure", self._figure, values)
        if not isinstance(figure, go.Figure):
            raise TypeError(
                f"figure({_call(values)}) must return a plotly Figure, got {type(figure).__name__}"
            )
        return figure

    def reading(self, **values) -> str:
        """Return the sentence about the state at ``values``."""
        return _text(f"reading({_call(values)})", _named("reading", self._reading, values))

    def _trees(self) -> list[dict]:
        """Return the figure of every state, written down before the next one is drawn."""
        ranges: dict[str, tuple] = {}
        trees = []
        for state in self.states:
            figure = self.figure(**state)
            _check_axes(figure, state, ranges)
            trees.append(_named("figure", lambda figure=figure, **_: figure_tree(figure), state))
        return trees

    def _html(self) -> str:
        controls = [
            {
                "name": name,
                "label": self.labels[name],
                "kind": "select" if isinstance(grid[0], str) else "range",
                "texts": _texts(grid),
                "start": grid.index(self.start[name]),
            }
            for name, grid in self.controls.items()
        ]
        readings = [self.reading(**state) for state in self.states]
        page = html_face(self._trees(), readings, controls, self.title, self.alt, self.caption)
        if len(page.encode()) > MOST_BYTES:
            raise ValueError(
                f"the widget takes {len(page.encode()):,} bytes, at most {MOST_BYTES:,} are "
                "allowed: draw fewer points or states"
            )
        return page

    def widget(self) -> ipywidgets.VBox:
        """Return the live face; it needs a kernel to be moved."""
        return _LiveFace(self).box

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        live = self.widget()._repr_mimebundle_()
        return {**live, "text/html": self.html, "text/plain": f"Explorer: {self.title}"}


class _LiveFace:
    """ipywidgets controls beside a FigureWidget that follows them."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self.inputs = {
            name: _input(grid, explorer.labels[name], explorer.start[name])
            for name, grid in explorer.controls.items()
        }
        self.plot = go.FigureWidget(explorer.figure(**explorer.start))
        self.plot.update_layout(template=plotly_template("light"), paper_bgcolor="white")
        self.reading = ipywidgets.HTML(html.escape(explorer.reading(**explorer.start)))
        reset = ipywidgets.Button(description="Reset", tooltip="Back to the start")
        reset.on_click(self._reset)
        for control in self.inputs.values():
            control.observe(self._update, "value")
        title = ipywidgets.HTML(f"<b>{html.escape(explorer.title)}</b>")
        words = ipywidgets.HTML(
            f"{html.escape(explorer.caption)} <details><summary>What the figure looks like"
            f"</summary>{html.escape(explorer.alt)}</details>"
        )
        self.box = ipywidgets.VBox(
            [title, *self.inputs.values(), reset, self.plot, self.reading, words],
            layout={"width": "100%"},
        )

    def _reset(self, _button) -> None:
        for name, value in self.explorer.start.items():
            self.inputs[name].value = value

    def _update(self, _change) -> None:
        values = {name: control.value for name, control in self.inputs.items()}
        try:
            new, sentence = self.explorer.figure(**values), self.explorer.reading(**values)
        except (TypeError, ValueError) as error:
            self.reading.value = html.escape(f"No figure at these values: {error}")
            return
        with self.plot.batch_update():
            self._redraw(new)
        self.reading.value = html.escape(sentence)

    def _redraw(self, new: go.Figure) -> None:
        old = self.plot.data
        if [trace.type for trace in old] == [trace.type for trace in new.data]:
            for trace, fresh in zip(old, new.data, strict=True):
                _replace(trace, fresh.to_plotly_json(), kept={"type", "uid"})
        else:
            self.plot.data = ()
            self.plot.add_traces(new.data)
        layout = new.layout.to_plotly_json()
        layout.pop("template", None)
        _replace(self.plot.layout, layout, kept={"template", "paper_bgcolor"})


def _replace(node, fresh: Mapping, kept: set[str]) -> None:
    """Give a part of a figure the properties ``fresh``, and take away its others but ``kept``."""
    stale = set(node.to_plotly_json()) - set(fresh) - kept
    node.update({**dict.fromkeys(stale), **fresh}, overwrite=True)


def _input(grid: Sequence, label: str, start) -> ipywidgets.Widget:
    """Return the ipywidget of a grid: continuous between the ends of a grid of numbers."""
    common = {
        "description": label,
        "value": start,
        "style": {"description_width": "initial"},
        "layout": {"width": "min(100%, 36rem)"},
    }
    if isinstance(grid[0], str):
        return ipywidgets.Dropdown(options=list(grid), **common)
    if all(isinstance(value, Integral) for value in grid):
        return ipywidgets.IntSlider(min=grid[0], max=grid[-1], **common)
    if len(grid) > 2 and grid[0] > 0 and np.allclose(np.diff(np.log(grid), 2), 0):
        low, high = math.log10(grid[0]), math.log10(grid[-1])
        return ipywidgets.FloatLogSlider(min=low, max=high, step=(high - low) / 200, **common)
    step = (grid[-1] - grid[0]) / 200 or 1
    return ipywidgets.FloatSlider(
        min=grid[0], max=grid[-1], step=step, readout_format=".4g", **common
    )


def _grid(name: str, values: Sequence) -> list:
    """Check one control's grid and return it as a list of plain Python values."""
    grid = [value.item() if isinstance(value, np.generic) else value for value in values]
    if not grid:
        raise ValueError(f"controls[{name!r}] is an empty grid: give at least one value")
    if all(isinstance(value, str) for value in grid):
        if len(set(grid)) < len(grid):
            raise ValueError(f"controls[{name!r}] repeats a choice: {grid}")
        return grid
    if not all(isinstance(v, Real) and not isinstance(v, bool) and math.isfinite(v) for v in grid):
        raise ValueError(f"controls[{name!r}] must be all finite numbers or all texts, got {grid}")
    if any(later <= earlier for earlier, later in itertools.pairwise(grid)):
        raise ValueError(f"controls[{name!r}] must increase, got {grid}")
    return grid


def _text(name: str, value) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, got {type(value).__name__}")
    if not value.strip():
        raise ValueError(f"{name} is empty: say it in a sentence")
    return value


def _texts(grid: Sequence) -> list[str]:
    """Return the values of a grid as a reader sees them: short, but never two alike."""
    if isinstance(grid[0], str):
        return list(grid)
    if all(isinstance(value, Integral) for value in grid):
        return [str(value) for value in grid]
    short = [f"{value:.4g}" for value in grid]
    return short if len(set(short)) == len(grid) else [f"{value:.15g}" for value in grid]


def _named(name: str, function: Callable, values: Mapping):
    """Call a function of the state; an error in it says at which state."""
    try:
        return function(**values)
    except Exception as error:
        told = f"{name}({_call(values)}) raised {type(error).__name__}: {error}"
        raise ValueError(told) from error


def _call(values: Mapping) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _axes(figure: go.Figure) -> dict[str, dict]:
    layout = figure.layout.to_plotly_json()
    used = set()
    for trace in figure.data:
        if "xaxis" not in trace:  # a map, a pie, a surface: no axes of this kind
            continue
        for letter in "xy":  # a trace says "x2" for the layout's "xaxis2"
            name = getattr(trace, f"{letter}axis", None) or letter
            used.add(name.replace(letter, f"{letter}axis"))
    return {axis: layout.get(axis, {}) for axis in sorted(used)}


def _check_axes(figure: go.Figure, state: Mapping, ranges: dict[str, tuple]) -> None:
    """Refuse axes that are nameless, or that move while a control moves.

    ``ranges`` holds the range of each axis in the first state that has it.
    """
    for name, axis in _axes(figure).items():
        where = f"{name} of figure({_call(state)})"
        if axis.get("visible", True) and not axis.get("title", {}).get("text"):
            raise ValueError(f"{where} has no title (with its unit)")
        if axis.get("type") == "category" or axis.get("matches"):
            continue
        span = axis.get("range")
        if span is None or any(end is None for end in span):
            raise ValueError(f"{where} has no fixed range")
        if ranges.setdefault(name, tuple(span)) != tuple(span):
            raise ValueError(
                f"{where} has another range than the first state: axes stay fixed while a "
                "control moves"
            )
