"""Explorer, figures and tables, but for what only a browser or a kernel can tell."""

import base64
import json
import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plotly.subplots import make_subplots

from workingpapers import lab, page, project
from workingpapers.page.face import Pool, figure_tree
from workingpapers.page.style import plotly_template


def curve(power=1.0, kind="line"):
    x = np.linspace(0, 1, 50)
    figure = go.Figure(go.Scatter(x=x, y=x**power, mode="lines" if kind == "line" else "markers"))
    figure.update_xaxes(title="x (s)", range=[0, 1])
    figure.update_yaxes(title="y (m)", range=[0, 1])
    return figure


def sentence(power=1.0, kind="line"):
    return f"x to the power {power:g} as a {kind}."


def explorer(figure=curve, controls=None, **changed):
    given = {"title": "Powers", "alt": "A curve.", "reading": sentence} | changed
    grid = {"power": [0.5, 1, 2], "kind": ["line", "dots"]} if controls is None else controls
    return page.Explorer(figure, grid, **given)


def stored(html: str) -> dict:
    text = re.search(r'class="wp-data">(.*?)</script>', html, re.DOTALL).group(1)
    return json.loads(text)


def resolved(node, pool):
    """What the page's script does with references, written again to check the stored form."""
    if isinstance(node, list):
        return [resolved(item, pool) for item in node]
    if isinstance(node, dict):
        if "$" in node:
            return resolved(pool[node["$"]], pool)
        return {key: resolved(value, pool) for key, value in node.items()}
    return node


def test_html_face_holds_every_state_in_the_order_of_the_product():
    data = stored(explorer().html)
    assert len(data["states"]) == len(data["readings"]) == 6
    for place, (power, kind) in enumerate((p, k) for p in (0.5, 1, 2) for k in ("line", "dots")):
        trace = resolved(data["states"][place], data["pool"])["data"][0]
        y = np.frombuffer(base64.b64decode(trace["y"]["bdata"]), trace["y"]["dtype"])
        assert np.allclose(y, np.linspace(0, 1, 50) ** power, atol=1e-7)
        assert trace["mode"] == ("lines" if kind == "line" else "markers")
        assert data["readings"][place] == sentence(power, kind)


def test_arrays_are_stored_as_four_byte_floats_and_shared_parts_once():
    html = explorer().html
    assert html.count('"range":[0.0,1.0]') + html.count('"range":[0,1]') <= 2
    assert '"dtype":"f8"' not in html
    assert "template" not in html


def test_markup_in_texts_is_escaped():
    nasty = '</script><b onload="x">'
    html = explorer(title=nasty, alt=nasty, reading=lambda **_: nasty, caption=nasty).html
    assert "<b onload" not in html
    assert html.count("</script>") == 1
    assert stored(html)["readings"][0] == nasty


@given(
    st.recursive(
        st.one_of(st.integers(-9, 9), st.text(max_size=50), st.booleans(), st.none()),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.text("abcdef", min_size=1, max_size=3), inner, max_size=4)
        ),
        max_leaves=30,
    )
)
def test_pool_gives_back_what_was_put_in(tree):
    pool = Pool()
    assert resolved(pool.add(tree), pool.items) == tree
    assert resolved(pool.add(tree), pool.items) == tree


def raising(power, kind):
    raise KeyError("no such power")


def no_range(power, kind):
    return curve(power).update_yaxes(range=None)


def no_title(power, kind):
    return curve(power).update_xaxes(title=None)


def moving(power, kind):
    return curve(power).update_yaxes(range=[0, power])


def not_finite(power, kind):
    return go.Figure(curve(power)).update_traces(y=[0, np.nan, 1])


def heavy(power, kind):
    return curve(power).update_traces(y=np.random.default_rng(int(power * 2)).random(200_000))


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"controls": {}}, ValueError, "controls is empty"),
        ({"controls": {"power": []}}, ValueError, "'power'.*empty grid"),
        ({"controls": {"power": [2, 1], "kind": ["line"]}}, ValueError, "must increase"),
        ({"controls": {"power": [1, np.nan], "kind": ["line"]}}, ValueError, "finite"),
        ({"controls": {"power": [1, "a"], "kind": ["line"]}}, ValueError, "all texts"),
        ({"controls": {"power": [1], "kind": ["a", "a"]}}, ValueError, "repeats"),
        ({"controls": {"power": range(1, 402)}}, ValueError, "401 states, at most 400"),
        ({"figure": raising}, ValueError, r"figure\(power=0.5, kind='line'\) raised KeyError"),
        ({"figure": lambda power, kind: None}, TypeError, "must return a plotly Figure, got None"),
        ({"figure": no_range}, ValueError, "yaxis .* no fixed range"),
        ({"figure": no_title}, ValueError, "xaxis .* no title"),
        ({"figure": moving}, ValueError, "another range"),
        ({"figure": not_finite}, ValueError, "finite"),
        ({"figure": heavy}, ValueError, "at most 1,000,000 are allowed"),
        ({"title": " "}, ValueError, "title is empty"),
        ({"alt": None}, TypeError, "alt must be a str"),
        ({"reading": lambda **_: 3}, TypeError, "reading.* must be a str"),
        ({"labels": {"gamma": "γ"}}, ValueError, "labels names"),
        ({"start": {"power": 0.7}}, ValueError, "start of 'power' must be in its grid"),
    ],
)
def test_bad_input_is_told_when_the_explorer_is_made(changes, error, told):
    with pytest.raises(error, match=told):
        explorer(**changes)


def test_numpy_grids_and_starts_are_taken():
    made = explorer(
        controls={"power": np.array([1.0, 2.0]), "kind": ["line"]}, start={"power": 2.0}
    )
    assert stored(made.html)["controls"][0]["start"] == 1
    assert 'status" aria-live="polite">x to the power 2' in made.html


def test_bundle_has_both_faces():
    bundle = explorer()._repr_mimebundle_()
    assert set(bundle) == {
        "application/vnd.jupyter.widget-view+json",
        "text/html",
        "text/plain",
    }
    assert "run all cells from the top to bring it to life" in bundle["text/html"]


def test_live_face_recomputes_on_the_grid_and_off_it():
    box = explorer().widget()
    _title, power, kind, reset, plot, reading, _words = box.children
    power.value = 1.37
    assert np.allclose(plot.data[0].y, np.linspace(0, 1, 50) ** 1.37)
    assert "1.37" in reading.value
    kind.value = "dots"
    assert plot.data[0].mode == "markers"
    reset.click()
    assert (power.value, kind.value) == (0.5, "line")
    assert np.allclose(plot.data[0].y, np.linspace(0, 1, 50) ** 0.5)


def test_live_face_takes_a_change_in_the_kind_of_traces():
    def bars_or_line(power, kind):
        figure = curve(power)
        if kind == "dots":
            figure = go.Figure(go.Bar(x=[0, 1], y=[1, power])).update_layout(figure.layout)
            figure.add_annotation(text="bars", x=0.5, y=0.5)
        return figure

    _title, _power, kind, _reset, plot, _reading, _words = explorer(bars_or_line).widget().children
    kind.value = "dots"
    assert [trace.type for trace in plot.data] == ["bar"]
    assert len(plot.layout.annotations) == 1
    kind.value = "line"
    assert [trace.type for trace in plot.data] == ["scatter"]
    assert len(plot.layout.annotations) == 0


def test_live_face_says_where_no_figure_can_be_had():
    def picky(power, kind):
        if power not in (0.5, 1, 2):
            raise RuntimeError("only stored powers")
        return curve(power, kind)

    _title, power, *_rest, reading, _words = explorer(picky).widget().children
    power.value = 0.9
    assert "only stored powers" in reading.value


@pytest.mark.parametrize(
    ("grid", "kind"),
    [
        ([1, 2, 5], "IntSlider"),
        ([0.1, 0.2, 0.7], "FloatSlider"),
        ([0.1, 1.0, 10.0], "FloatLogSlider"),
        ([0.25], "FloatSlider"),
    ],
)
def test_live_input_fits_the_grid(grid, kind):
    made = explorer(controls={"power": grid, "kind": ["line"]}).widget().children[1]
    assert type(made).__name__ == kind


def test_show_of_a_plotly_figure_stands_on_its_own():
    shown = page.show(curve(), title="A line", alt="It rises.", caption="Up.")
    bundle = shown._repr_mimebundle_()
    assert "cdn" not in bundle["text/html"]
    assert "<figcaption>Up.</figcaption>" in bundle["text/html"]
    assert len(stored(bundle["text/html"])["states"]) == 1


def test_show_of_a_matplotlib_figure_is_an_image_with_words_and_is_closed():
    page.use_style()
    with plt.rc_context():
        figure, axes = plt.subplots()
        axes.plot([0, 1], [0, 1])
        first = page.show(figure, title="T", alt="It rises.", caption="Up.")._repr_mimebundle_()
    assert 'alt="It rises."' in first["text/html"]
    assert not plt.fignum_exists(figure.number)


@pytest.mark.parametrize("field", ["title", "alt", "caption"])
def test_show_asks_for_words(field):
    words = {"title": "a", "alt": "b", "caption": "c"} | {field: " "}
    with pytest.raises(ValueError, match=f"{field} is empty"):
        page.show(curve(), **words)


def test_show_refuses_other_things():
    with pytest.raises(TypeError, match="plotly or matplotlib"):
        page.show([1, 2], title="a", alt="b", caption="c")


def test_table_aligns_numbers_and_escapes_texts():
    frame = pd.DataFrame({"name": ["<i>a</i>"], "x": ["1,200"], "ratio": ["1.5 [1.2, 1.9]"]})
    html = page.table(frame, caption="A & B")._repr_mimebundle_()["text/html"]
    assert "&lt;i&gt;a" in html
    assert html.count('class="wp-number"') == 2
    assert "A &amp; B" in html
    with pytest.raises(ValueError, match="frame is empty"):
        page.table(frame.iloc[:0], caption="none")


def luminance(colour: str) -> float:
    """Relative luminance by the definition of WCAG 2."""
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("theme", "paper"), [("light", "#ffffff"), ("dark", "#121212")])
def test_ink_is_readable_on_both_themes(theme, paper):
    assert contrast(plotly_template(theme).layout.font.color, paper) > 7


@pytest.mark.parametrize("name", ["blue", "vermilion", "green"])
@pytest.mark.parametrize("paper", ["#ffffff", "#121212"])
def test_main_colours_stand_out_on_both_themes(name, paper):
    assert contrast(page.COLOURS[name], paper) >= 3


def test_unknown_theme_is_refused():
    with pytest.raises(ValueError, match="'light' or 'dark'"):
        plotly_template("sepia")


def test_band_goes_around_its_line():
    edge, line = page.band([0, 1], [1, 2], [0, 1], [2, 3], "n", "blue")
    assert list(edge.x) == [0, 1, 1, 0]
    assert list(edge.y) == [2, 3, 1, 0]
    assert line.name == "n"


def test_matching_graph_draws_each_pair_once():
    figure = page.matching_graph(2, 3, {(0, 0), (0, 2), (1, 1)}, {(1, 1)})
    allowed, matched = figure.data[:2]
    assert len(allowed.x) == 6
    assert len(matched.x) == 3
    assert figure_tree(figure)["data"][0]["name"] == "allowed"


def drawn_y(html: str):
    """The y of the first trace of the first state, as a browser reads it."""
    data = stored(html)
    y = resolved(data["states"][0], data["pool"])["data"][0]["y"]
    return np.frombuffer(base64.b64decode(y["bdata"]), y["dtype"]) if "bdata" in y else y


@pytest.mark.parametrize(
    "y",
    [
        1e6 + np.linspace(0, 1, 50),
        np.array([1e39, 2e39, 5e39]),
        np.array([1e-50, 1e-49, 1e-48]),
        np.array([1577836800.5, 1577836801.5, 1577836802.5]),
        [1577836800.5, 1577836801.5, 1577836802.5],
        np.array([0.1, 0.1 + 1e-9]),
        np.array([]),
        np.array([3.0]),
    ],
    ids=str,
)
def test_numbers_keep_what_can_be_seen_of_them(y):
    def drawn(power, kind):
        return curve().update_traces(x=list(range(len(y))), y=y)

    span = max(np.ptp(y) if len(y) else 0, 1e-300)
    shown = np.asarray(drawn_y(explorer(drawn).html), dtype=float)
    assert np.max(np.abs(shown - np.asarray(y)) / span, initial=0) <= 1e-6


def test_a_figure_that_is_changed_in_place_is_written_down_in_time():
    figure = curve()

    def same_object(power, kind):
        return figure.update_traces(y=[0, power, power])

    data = stored(explorer(same_object).html)
    states = [resolved(state, data["pool"])["data"][0]["y"] for state in data["states"]]
    assert states[0] != states[-1]


@pytest.mark.parametrize(
    "trace",
    [
        go.Scatterpolar(r=[1, 2], theta=[0, 90]),
        go.Pie(values=[1, 2]),
        go.Sankey(link={"source": [0], "target": [1], "value": [1]}),
        go.Surface(z=[[1, 2], [3, 4]]),
        go.Indicator(value=3),
    ],
    ids=lambda trace: trace.type,
)
def test_traces_without_cartesian_axes_need_none(trace):
    assert explorer(lambda power, kind: go.Figure(trace)).html


@pytest.mark.parametrize(
    ("figure", "told"),
    [
        (go.Figure(go.Scatter(customdata=[{"$": 0}])), "key '\\$'"),
        (go.Figure(frames=[go.Frame(name="a")]), "frames"),
        (curve().update_layout(meta={"when": 1 + 2j}), "plain JSON"),
    ],
)
def test_what_the_page_cannot_hold_is_refused(figure, told):
    with pytest.raises(ValueError, match=told):
        page.show(figure, title="a", alt="b", caption="c")


@pytest.mark.parametrize(
    ("grid", "texts"),
    [
        ([1, 12345, 1234567], ["1", "12345", "1234567"]),
        ([0.05, 0.123456], ["0.05", "0.1235"]),
        ([1.00001, 1.00002], ["1.00001", "1.00002"]),
    ],
)
def test_values_of_a_grid_are_shown_short_but_never_two_alike(grid, texts):
    made = explorer(controls={"power": grid, "kind": ["line"]})
    assert stored(made.html)["controls"][0]["texts"] == texts


def test_a_reading_that_raises_is_named():
    def failing(power, kind):
        return 1 / 0

    with pytest.raises(ValueError, match=r"reading\(power=0.5, kind='line'\) raised ZeroDivision"):
        explorer(reading=failing)


def test_live_face_forgets_what_the_next_figure_does_not_have():
    def painted(power, kind):
        figure = curve(power)
        if kind == "line":
            figure.update_traces(marker={"color": "red", "size": 20}, fill="tozeroy", text=["p"])
            figure.update_layout(height=600, barmode="stack")
        return figure

    _title, _power, kind, _reset, plot, *_rest = explorer(painted).widget().children
    kind.value = "dots"
    bare = curve(0.5)
    assert plot.data[0].fill is None and plot.data[0].text is None
    assert plot.data[0].marker.to_plotly_json() == bare.data[0].marker.to_plotly_json()
    assert plot.layout.height is None and plot.layout.barmode is None


def test_live_face_escapes_and_says_all_that_the_page_says():
    nasty = "a<b and p <q> & x"
    made = explorer(title=nasty, alt=nasty, caption=nasty, reading=lambda **_: nasty)
    title, *_rest, reading, words = made.widget().children
    for part in (title.value, reading.value, words.value):
        assert "a&lt;b and p &lt;q&gt; &amp; x" in part


def test_live_face_survives_any_error_off_the_grid():
    def picky(power, kind):
        if power not in (0.5, 1, 2):
            raise KeyError(power)
        return sentence(power, kind)

    _title, power, *_rest, reading, _words = explorer(reading=picky).widget().children
    power.value = 0.9
    assert "No figure at these values" in reading.value


def test_intervals_leave_a_gap_where_a_bound_is_infinite():
    drawn = page.intervals([1, 2], [0.2, -np.inf], [0.6, np.inf], "n", "blue")
    assert list(drawn.y) == [pytest.approx(0.4), None]
    assert list(drawn.error_y.array) == [pytest.approx(0.2), 0]
    assert figure_tree(go.Figure(drawn))


def test_category_map_gives_each_kind_its_own_colour():
    drawn = page.category_map([[0, 1], [2, 0]], ["a", "b", "c"], [1, 2], [1, 2])
    assert (drawn.zmin, drawn.zmax) == (-0.5, 2.5)
    steps = [colour for _place, colour in drawn.colorscale]
    assert steps[::2] == steps[1::2] == list(page.COLOURS.values())[:3]
    assert list(drawn.colorbar.ticktext) == ["a", "b", "c"]


def test_axes_names_and_fixes_one_panel_and_leaves_the_other():
    figure = make_subplots(1, 2)
    page.axes(figure, ("x (s)", [0, 1]), ("y", [0, 6], {"type": "log"}), 1, 2)
    assert figure.layout.xaxis2.title.text == "x (s)"
    assert (figure.layout.yaxis2.range, figure.layout.yaxis2.type) == ((0, 6), "log")
    assert figure.layout.xaxis.title.text is None


def test_claims_table_says_what_was_measured_and_the_verdict():
    stored_results = lab.read_results(project.results("fair_bandits"))
    html = page.claims_table(stored_results)._repr_mimebundle_()["text/html"]
    assert html.count("<tr>") == len(stored_results.claims) + 1
    for claim in stored_results.claims:
        assert f"{claim['value']:.4g} [{claim['low']:.4g}, {claim['high']:.4g}]" in html
    verdicts = [claim["holds"] for claim in stored_results.claims]
    assert html.count("<td>holds</td>") == sum(verdicts)
    assert html.count("<td>does not hold</td>") == len(verdicts) - sum(verdicts)
