"""The live face with a real kernel, driven by the messages that a front end sends."""

import pytest
from jupyter_client.manager import start_new_kernel

SETUP = """
import numpy as np, plotly.graph_objects as go
from workingpapers import page

def figure(power):
    x = np.linspace(0, 1, 11)
    drawn = go.Figure(go.Scatter(x=x, y=x ** power))
    drawn.update_xaxes(title="x (s)", range=[0, 1])
    return drawn.update_yaxes(title="y (m)", range=[0, 1])

explorer = page.Explorer(
    figure, {"power": [1.0, 2.0, 4.0, 5.5]}, title="Powers", alt="A curve.",
    reading=lambda power: f"The power is {power:g}.")
box = explorer.widget()
print(box.children[1].model_id, box.children[3].model_id)
"""


def run(client, code: str) -> str:
    told = []
    reply = client.execute_interactive(
        code,
        timeout=120,
        output_hook=lambda m: told.append(m["content"].get("text", "")),
    )
    assert reply["content"]["status"] == "ok", reply["content"]
    return "".join(told)


@pytest.fixture(scope="module")
def kernel():
    manager, client = start_new_kernel(kernel_name="python3", startup_timeout=120)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def move(client, model: str, value: float):
    """Send what JupyterLab sends when a reader moves a slider."""
    data = {"method": "update", "state": {"value": value}, "buffer_paths": []}
    message = client.session.msg("comm_msg", {"comm_id": model, "data": data})
    client.shell_channel.send(message)


@pytest.mark.filterwarnings("ignore")
def test_moving_the_slider_changes_the_figure_off_the_grid_too(kernel):
    slider, _plot = run(kernel, SETUP).split()
    for value in (3.21, 5.5, 1.0):
        move(kernel, slider, value)
        told = run(kernel, "print(box.children[1].value, box.children[3].data[0].y[5])")
        shown, y = map(float, told.split())
        assert shown == pytest.approx(value)
        assert y == pytest.approx(0.5**value)
        assert f"{value:g}" in run(kernel, "print(box.children[4].value)")


@pytest.mark.filterwarnings("ignore")
def test_the_front_end_is_sent_the_new_data(kernel):
    slider, plot = run(kernel, SETUP).split()
    move(kernel, slider, 2.75)
    sent = set()
    while plot not in sent:
        message = kernel.get_iopub_msg(timeout=60)
        if message["msg_type"] == "comm_msg":
            sent.add(message["content"]["comm_id"])
    assert plot in sent
