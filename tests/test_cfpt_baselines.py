"""CFPT's learned baselines against numpy, scipy, closed forms and invariances."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import correlate2d
from scipy.special import erf
from torch import nn

from workingpapers.cfpt.baselines import (
    FITS,
    DLinear,
    Forecaster,
    FreTS,
    ITransformer,
    PatchTST,
    RLinear,
    TimesNet,
    dominant_periods,
)

torch.set_num_threads(1)

TINY = {
    DLinear: {"kernel_size": 5},
    RLinear: {},
    FITS: {},
    FreTS: {"embed_size": 3, "hidden_size": 5},
    ITransformer: {"d_model": 6, "n_heads": 2, "d_ff": 5, "dropout": 0.0},
    PatchTST: {
        "patch_len": 4,
        "stride": 3,
        "d_model": 6,
        "n_heads": 3,
        "n_layers": 2,
        "d_ff": 5,
        "dropout": 0.0,
    },
    TimesNet: {"d_model": 4, "d_ff": 3, "top_k": 2, "n_kernels": 2, "dropout": 0.0},
}
MODELS = pytest.mark.parametrize("kind", TINY, ids=lambda kind: kind.__name__)
STANDARDISED = [RLinear, FITS, ITransformer, PatchTST, TimesNet]


def build(kind, *sizes, seed=0, dtype=torch.float64, **options):
    """Build a tiny model from a seed, with what starts at 0 or 1 moved a little."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = kind(*sizes, **{**TINY[kind], **options}).to(dtype)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
            for module in model.modules():
                if isinstance(module, nn.BatchNorm1d):
                    module.running_mean.normal_()
                    module.running_var.uniform_(0.5, 2)
    return model.eval()


def normal(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def arrays(model):
    return {name: values.detach().numpy() for name, values in model.state_dict().items()}


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


# What numpy makes of the same weights


def standardised(x):
    mu = x.mean(axis=1, keepdims=True)
    sd = np.sqrt(((x - mu) ** 2).mean(axis=1, keepdims=True) + 1e-5)
    return (x - mu) / sd, mu, sd


def dft(n, bins=None):
    """Return the first rows of the matrix of the DFT of n steps."""
    k = np.arange(n // 2 + 1 if bins is None else bins)
    return np.exp(-2j * np.pi * np.outer(k, np.arange(n)) / n)


def inverse_dft(n, bins):
    """Return C and S with x = C @ real + S @ imag for a half spectrum of that many bins."""
    angles = 2 * np.pi * np.outer(np.arange(n), np.arange(bins)) / n
    k = np.arange(bins)
    twice = np.where((k == 0) | (2 * k == n), 1, 2) / n
    return np.cos(angles) * twice, -np.sin(angles) * twice


def as_complex(pairs):
    return pairs[..., 0] + 1j * pairs[..., 1]


def gelu(x):
    return x * (1 + erf(x / np.sqrt(2))) / 2


def layer_norm(x, weight, bias):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * weight + bias


def attend(tokens, w, prefix, heads):
    """Multi-head attention of one set of tokens, (tokens, width)."""
    packed = tokens @ w[f"{prefix}.in_proj_weight"].T + w[f"{prefix}.in_proj_bias"]
    parts = []
    for q, k, v in zip(*(np.split(p, heads, axis=1) for p in np.split(packed, 3, 1)), strict=True):
        scores = np.exp(q @ k.T / np.sqrt(q.shape[1]))
        parts.append(scores / scores.sum(axis=1, keepdims=True) @ v)
    joined = np.concatenate(parts, axis=1)
    return joined @ w[f"{prefix}.out_proj.weight"].T + w[f"{prefix}.out_proj.bias"]


def linear(x, w, prefix):
    return x @ w[f"{prefix}.weight"].T + w[f"{prefix}.bias"]


@pytest.mark.parametrize("kernel_size", [1, 3, 25])
def test_dlinear_is_two_matrices_after_a_moving_average(kernel_size):
    model, x = build(DLinear, 11, 5, 2, kernel_size=kernel_size), normal(3, 11, 2).numpy()
    w, side = arrays(model), kernel_size // 2
    rows = [np.clip(np.arange(t - side, t + side + 1), 0, 10) for t in range(11)]
    trend = np.stack([x[:, row].mean(axis=1) for row in rows], axis=1)
    wanted = np.stack(
        [
            linear(trend[:, :, n], w, "trend") + linear((x - trend)[:, :, n], w, "seasonal")
            for n in range(2)
        ],
        axis=-1,
    )
    np.testing.assert_allclose(model(torch.from_numpy(x)).detach(), wanted, atol=1e-12)


@pytest.mark.parametrize("affine", [True, False])
def test_rlinear_is_a_matrix_between_an_affine_map_and_its_inverse(affine):
    model, x = build(RLinear, 9, 4, 3, affine=affine), normal(2, 9, 3).numpy()
    w = arrays(model)
    z, mu, sd = standardised(x)
    gain, offset = (w["gain"], w["offset"]) if affine else (1, 0)
    y = np.einsum("hl,bln->bhn", w["linear.weight"], z * gain + offset)
    y = (y + w["linear.bias"][:, None] - offset) / gain * sd + mu
    np.testing.assert_allclose(model(torch.from_numpy(x)).detach(), y, atol=1e-8)


@pytest.mark.parametrize(
    "seq_len, pred_len, cutoff", [(12, 12, 4), (12, 7, 7), (11, 6, 3), (9, 30, 5), (8, 1, 1)]
)
def test_fits_is_explicit_dft_matrices(seq_len, pred_len, cutoff):
    model = build(FITS, seq_len, pred_len, 2, cutoff=cutoff)
    x, w, total = normal(3, seq_len, 2).numpy(), arrays(model), seq_len + pred_len
    z, mu, sd = standardised(x)
    spectrum = np.einsum("kl,bln->bkn", dft(seq_len, cutoff), z)
    weight, bias = (as_complex(w[f"interpolation.{p}"]) for p in ("weight", "bias"))
    longer = np.einsum("jk,bkn->bjn", weight, spectrum) + bias[:, None]
    cosines, sines = inverse_dft(total, longer.shape[1])
    y = cosines @ longer.real + sines @ longer.imag
    wanted = y[:, seq_len:] * total / seq_len * sd + mu
    np.testing.assert_allclose(model(torch.from_numpy(x)).detach(), wanted, atol=1e-10)


@pytest.mark.parametrize("seq_len, n_channels", [(6, 4), (7, 3), (5, 1)])
def test_frets_is_complex_neurons_between_dft_matrices(seq_len, n_channels):
    model = build(FreTS, seq_len, 3, n_channels, sparsity_threshold=0.05)
    x, w = normal(2, seq_len, n_channels).numpy(), arrays(model)

    def learner(h, name):  # along the last axis but one
        n = h.shape[-2]
        spectrum = dft(n) @ h / np.sqrt(n)
        weight, bias = (as_complex(w[f"{name}.linear.{p}"]) for p in ("weight", "bias"))
        z = spectrum @ weight.T + bias
        real, imag = (np.maximum(np.maximum(part, 0) - 0.05, 0) for part in (z.real, z.imag))
        cosines, sines = inverse_dft(n, n // 2 + 1)
        return (cosines @ real + sines @ imag) * np.sqrt(n)

    embedded = x[..., None] * w["embedding"]  # (windows, steps, channels, D)
    learned = learner(embedded, "across_channels").swapaxes(1, 2)
    features = learner(learned, "along_time") + embedded.swapaxes(1, 2)
    hidden = linear(features.reshape(2, n_channels, -1), w, "head.0")
    wanted = linear(np.where(hidden > 0, hidden, 0.01 * hidden), w, "head.2").swapaxes(1, 2)
    np.testing.assert_allclose(model(torch.from_numpy(x)).detach(), wanted, atol=1e-10)


@pytest.mark.parametrize("n_time_features", [0, 2])
def test_itransformer_is_attention_among_channels(n_time_features):
    model = build(ITransformer, 9, 4, 3, n_time_features=n_time_features)
    x, marks, w = normal(2, 9, 3).numpy(), normal(2, 9, 2, seed=1).numpy(), arrays(model)
    z, mu, sd = standardised(x)
    series = np.concatenate([z, marks], axis=2) if n_time_features else z
    forecasts = []
    for window in series:
        tokens = linear(window.T, w, "embedding")
        for i in range(2):
            layer = f"encoder.{i}"
            tokens = tokens + attend(tokens, w, f"{layer}.self_attn", heads=2)
            tokens = layer_norm(tokens, w[f"{layer}.norm1.weight"], w[f"{layer}.norm1.bias"])
            mapped = gelu(linear(tokens, w, f"{layer}.linear1"))
            tokens = tokens + linear(mapped, w, f"{layer}.linear2")
            tokens = layer_norm(tokens, w[f"{layer}.norm2.weight"], w[f"{layer}.norm2.bias"])
        tokens = layer_norm(tokens, w["encoder.2.weight"], w["encoder.2.bias"])
        forecasts.append(linear(tokens, w, "head")[:3].T)
    y = model(torch.from_numpy(x), None, torch.from_numpy(marks))
    np.testing.assert_allclose(y.detach(), np.stack(forecasts) * sd + mu, atol=1e-10)


@pytest.mark.parametrize("seq_len", [4, 11, 13])
def test_patchtst_is_attention_among_patches(seq_len):
    model = build(PatchTST, seq_len, 5, 2)
    x, w = normal(3, seq_len, 2).numpy(), arrays(model)
    z, mu, sd = standardised(x)
    starts = range(0, seq_len + 3 - 4 + 1, 3)

    def batch_norm(tokens, name):
        mean, variance = w[f"{name}.running_mean"], w[f"{name}.running_var"]
        return (tokens - mean) / np.sqrt(variance + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def one(series):
        padded = np.concatenate([series, np.repeat(series[-1], 3)])
        patches = np.stack([padded[s : s + 4] for s in starts])
        tokens = linear(patches, w, "embedding") + w["positions"]
        for i in range(2):
            layer = f"encoder.{i}"
            tokens = tokens + attend(tokens, w, f"{layer}.attention", heads=3)
            tokens = batch_norm(tokens, f"{layer}.attention_norm")
            mapped = gelu(linear(tokens, w, f"{layer}.feed_forward.0"))
            tokens = tokens + linear(mapped, w, f"{layer}.feed_forward.3")
            tokens = batch_norm(tokens, f"{layer}.feed_forward_norm")
        return linear(tokens.ravel(), w, "head")

    wanted = np.stack([[one(series) for series in window.T] for window in z]).swapaxes(1, 2)
    y = model(torch.from_numpy(x)).detach()
    np.testing.assert_allclose(y, wanted * sd + mu, atol=1e-10)
    assert starts[-1] + 4 >= seq_len  # the last step is in a patch


@pytest.mark.parametrize("n_time_features", [0, 2])
def test_timesnet_is_convolutions_of_folded_series(n_time_features):
    model = build(TimesNet, 11, 6, 2, n_time_features=n_time_features)
    x, marks, w = normal(2, 11, 2).numpy(), normal(2, 11, 2, seed=1).numpy(), arrays(model)
    z, mu, sd = standardised(x)

    def inception(image, name):
        out = 0
        for i in range(2):
            kernel, bias = w[f"{name}.kernels.{i}.weight"], w[f"{name}.kernels.{i}.bias"]
            maps = [
                sum(correlate2d(c, k, mode="same") for c, k in zip(image, filters, strict=True))
                for filters in kernel
            ]
            out = out + np.stack(maps) + bias[:, None, None]
        return out / 2

    def block(h, name):
        amplitudes = np.abs(np.fft.rfft(h, axis=1)).mean(axis=2)
        order = np.argsort(-amplitudes.mean(axis=0)[1:])[:2] + 1
        shares = np.exp(amplitudes[:, order])
        shares /= shares.sum(axis=1, keepdims=True)
        out = h.copy()
        for b, series in enumerate(h):
            for f, share in zip(order, shares[b], strict=True):
                period = 17 // f
                rows = -(-17 // period)
                image = np.zeros((4, rows * period))
                image[:, :17] = series.T
                hidden = gelu(inception(image.reshape(4, rows, period), f"{name}.convolutions.0"))
                view = inception(hidden, f"{name}.convolutions.2").reshape(4, -1)[:, :17]
                out[b] += share * view.T
        return out

    ring = np.concatenate([z[:, -1:], z, z[:, :1]], axis=1)
    taps = np.stack([ring[:, i : i + 11] for i in range(3)], axis=-1)
    embedded = np.einsum("blnk,dnk->bld", taps, w["values.weight"])
    embedded = embedded + (marks @ w["marks.weight"].T if n_time_features else 0)
    angles = np.arange(11)[:, None] * np.array([1, 0.01])  # 10000 ** -(0, 2) / 4
    embedded += np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(11, 4)
    h = linear(embedded.swapaxes(1, 2), w, "lengthen").swapaxes(1, 2)
    for i in range(2):
        h = layer_norm(block(h, f"blocks.{i}"), w["norm.weight"], w["norm.bias"])
    wanted = linear(h, w, "head")[:, 11:] * sd + mu
    y = model(torch.from_numpy(x), None, torch.from_numpy(marks)).detach()
    np.testing.assert_allclose(y, wanted, atol=1e-5)  # positions are stored in float32


# Closed forms


@pytest.mark.parametrize("seq_len, kernel_size", [(96, 25), (7, 25), (12, 3)])
def test_dlinear_first_forecasts_the_mean_of_the_window(seq_len, kernel_size):
    x = normal(4, seq_len, 3)
    y = DLinear(seq_len, 10, 3, kernel_size=kernel_size).double()(x)
    torch.testing.assert_close(y, x.mean(dim=1, keepdim=True).expand(4, 10, 3))


@pytest.mark.parametrize("kind", [RLinear, FITS], ids=lambda kind: kind.__name__)
def test_linear_models_are_affine_in_the_standardised_window(kind):
    # a window that is standardised by hand moves through an affine map: f(mean) = mean of f
    model = build(kind, 16, 8, 1, **({"cutoff": 6} if kind is FITS else {}))
    windows = torch.from_numpy(standardised(normal(2, 16, 1).numpy())[0])
    both = torch.cat([windows, windows.mean(dim=0, keepdim=True)])
    y = model.forecast(both)
    torch.testing.assert_close(y[2], (y[0] + y[1]) / 2)


@pytest.mark.parametrize("seq_len, pred_len, cycles", [(96, 96, 4), (24, 12, 2), (30, 45, 4)])
def test_fits_fitted_by_least_squares_extends_a_low_sinusoid_exactly(seq_len, pred_len, cycles):
    # whole cycles in the window and in window + forecast: no bin leaks into another
    rng, total = np.random.default_rng(0), seq_len + pred_len
    model = FITS(seq_len, pred_len, 1, cutoff=cycles + 3).double()

    def waves(n):
        phase, size = rng.uniform(0, 2 * np.pi, (n, 1)), rng.uniform(1, 3, (n, 1))
        return size * np.cos(2 * np.pi * cycles * np.arange(total) / seq_len + phase)

    known = waves(50)
    z, mu, sd = (part[..., 0] for part in standardised(known[:, :seq_len, None]))
    inputs = z @ dft(seq_len, cycles + 3).T
    bins = len(model.interpolation.weight)
    targets = (known - mu) / sd @ dft(total, bins).T * seq_len / total
    weight = np.linalg.lstsq(inputs, targets, rcond=1e-8)[0].T
    with torch.no_grad():
        model.interpolation.weight.copy_(torch.view_as_real(torch.from_numpy(weight.copy())))
        model.interpolation.bias.zero_()
    unseen = torch.from_numpy(waves(20))[..., None]
    torch.testing.assert_close(
        model(unseen[:, :seq_len]), unseen[:, seq_len:], atol=1e-9, rtol=0, check_stride=False
    )


def test_fits_keeps_no_bins_that_are_not_there():
    assert FITS(96, 96, 1).cutoff == 20  # (96 // 24 + 1) * 2 + 10
    assert FITS(8, 4, 1).cutoff == 5
    full = FITS(96, 96, 1, cutoff=49)
    assert len(full.interpolation.weight) == 97  # and not 49 * 2 = 98


def test_dominant_periods_are_those_of_the_sinusoids():
    t = torch.arange(96, dtype=torch.float64)[:, None]
    assert dominant_periods(torch.sin(2 * torch.pi * t / 24)[None], 1)[0] == [24]
    parts = 3 * torch.sin(2 * torch.pi * t / 12) + 2 * torch.cos(2 * torch.pi * t / 24) + t**0 * 9
    quieter = parts + torch.cos(2 * torch.pi * t / 8)
    periods, amplitudes = dominant_periods(torch.stack([quieter, 2 * quieter]), 3)
    assert periods == [12, 24, 8]
    # a sinusoid of amplitude a has a coefficient of size a steps / 2
    wanted = 48 * torch.tensor([[3, 2, 1], [6, 4, 2]], dtype=torch.float64)
    torch.testing.assert_close(amplitudes, wanted)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), steps=st.integers(2, 60))
def test_dominant_periods_find_any_frequency_of_the_grid(data, steps):
    f = data.draw(st.integers(1, steps // 2))
    wave = torch.cos(2 * torch.pi * f * torch.arange(steps, dtype=torch.float64) / steps)
    assert dominant_periods(wave[None, :, None] + 5, 1)[0] == [steps // f]


def test_parameters_are_as_many_as_the_formulas_say():
    length, horizon, n = 96, 96, 8
    linear_map = length * horizon + horizon
    assert count(DLinear(length, horizon, n)) == 2 * linear_map
    assert count(RLinear(length, horizon, n)) == linear_map + 2 * n
    assert count(RLinear(length, horizon, n, affine=False)) == linear_map
    assert count(FITS(length, horizon, n)) == 2 * (20 * 40 + 40)
    d, hidden = 16, 64
    head = length * d * hidden + hidden + hidden * horizon + horizon
    assert count(FreTS(length, horizon, n)) == d + 2 * 2 * (d * d + d) + head
    d, ff = 64, 128
    encoder = 4 * (d * d + d) + (d * ff + ff) + (ff * d + d) + 4 * d
    wanted = length * d + d + 2 * encoder + 2 * d + d * horizon + horizon
    assert count(ITransformer(length, horizon, n)) == wanted
    assert count(ITransformer(length, horizon, n, n_time_features=5)) == wanted
    d, ff, patches = 32, 64, (96 - 16) // 8 + 2
    encoder = 4 * (d * d + d) + (d * ff + ff) + (ff * d + d) + 4 * d
    wanted = (16 * d + d) + patches * d + 3 * encoder + patches * d * horizon + horizon
    assert count(PatchTST(length, horizon, n)) == wanted
    d, squares = 16, 1 + 9 + 25
    block = 2 * squares * d * d + 3 * 2 * d
    wanted = 3 * n * d + length * 192 + 192 + 2 * block + 2 * d + d * n + n
    assert count(TimesNet(length, horizon, n)) == wanted
    assert count(TimesNet(length, horizon, n, n_time_features=2)) == wanted + 2 * d


# Invariances


@pytest.mark.parametrize("kind", STANDARDISED, ids=lambda kind: kind.__name__)
def test_scale_and_shift_of_a_window_go_through(kind):
    model, x = build(kind, 12, 7, 3), 3 * normal(4, 12, 3)
    scale, shift = torch.tensor([0.5, 2, 10]), torch.tensor([-3, 0, 7])
    torch.testing.assert_close(
        model(scale * x + shift), scale * model(x) + shift, atol=1e-3, rtol=1e-3
    )


def test_scale_and_shift_go_through_dlinear_as_it_starts():
    model, x = DLinear(12, 7, 3).double(), normal(4, 12, 3)
    torch.testing.assert_close(model(3 * x + 2), 3 * model(x) + 2)
    moved = build(DLinear, 12, 7, 3)
    assert not torch.allclose(moved(3 * x + 2), 3 * moved(x) + 2, atol=1e-2)


@pytest.mark.parametrize(
    "kind", [DLinear, FITS, ITransformer, PatchTST], ids=lambda kind: kind.__name__
)
@pytest.mark.parametrize("training", [False, True])
def test_permuted_channels_give_the_permuted_forecast(kind, training):
    model, x = build(kind, 12, 7, 5).train(training), normal(3, 12, 5)
    order = [3, 0, 4, 1, 2]
    torch.testing.assert_close(model(x[..., order]), model(x)[..., order])


@pytest.mark.parametrize("kind", [RLinear, FreTS, TimesNet], ids=lambda kind: kind.__name__)
def test_channels_have_places_of_their_own_elsewhere(kind):
    model, x = build(kind, 12, 7, 5), normal(3, 12, 5)
    order = [3, 0, 4, 1, 2]
    assert not torch.allclose(model(x[..., order]), model(x)[..., order], atol=1e-3)


@pytest.mark.parametrize("kind", [DLinear, RLinear, FITS, PatchTST], ids=lambda kind: kind.__name__)
def test_a_channel_is_forecast_from_itself_alone(kind):
    model, x = build(kind, 12, 7, 3), normal(2, 12, 3)
    changed = x.clone()
    changed[..., 1] = 100
    torch.testing.assert_close(model(changed)[..., [0, 2]], model(x)[..., [0, 2]])
    assert not torch.allclose(model(changed)[..., 1], model(x)[..., 1])


@MODELS
def test_windows_are_forecast_one_by_one(kind):
    model, x = build(kind, 12, 7, 3), normal(4, 12, 3)
    if kind is TimesNet:  # its periods are the batch's: equal windows agree, different ones may not
        x = x[:1].expand(4, 12, 3)
    alone = torch.cat([model(x[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(model(x), alone)


def test_a_loud_window_sets_the_periods_of_timesnet():
    model, t = build(TimesNet, 24, 24, 1, top_k=1), torch.arange(24, dtype=torch.float64)
    x = torch.stack([torch.sin(2 * torch.pi * t / 24), torch.sin(2 * torch.pi * t / 3)])[..., None]
    assert not torch.allclose(model(x)[0], model(x[:1])[0], atol=1e-4)


def test_time_features_of_itransformer_are_a_set():
    model, x = build(ITransformer, 12, 7, 2, n_time_features=3), normal(4, 12, 2)
    marks = normal(4, 12, 3, seed=1)
    torch.testing.assert_close(model(x, None, marks), model(x, None, marks[..., [2, 0, 1]]))
    assert not torch.allclose(model(x, None, marks), model(x, None, 2 * marks), atol=1e-3)


def test_timesnet_reads_the_time_features_of_the_window_alone():
    model, x = build(TimesNet, 12, 7, 2, n_time_features=3), normal(4, 12, 2)
    marks, future = normal(4, 12, 3, seed=1), normal(4, 7, 3, seed=2)
    torch.testing.assert_close(model(x, future, marks), model(x, None, marks))
    assert not torch.allclose(model(x, None, marks), model(x, None, 2 * marks), atol=1e-3)


@MODELS
def test_time_features_are_not_looked_at_unless_asked_for(kind):
    model, x = build(kind, 12, 7, 2), normal(4, 12, 2)
    nonsense = torch.full((1, 1, 1), torch.nan)
    torch.testing.assert_close(model(x, nonsense, nonsense), model(x))


# Training, sizes, types


@MODELS
def test_gradients_reach_every_parameter(kind):
    options = {"n_time_features": 2} if kind in (ITransformer, TimesNet) else {}
    model, x = build(kind, 12, 7, 3, **options).train(), normal(4, 12, 3)
    loss = ((model(x, None, normal(4, 12, 2)) - normal(4, 7, 3, seed=2)) ** 2).sum()
    loss.backward()
    sizes = {name: float(p.grad.abs().max()) for name, p in model.named_parameters()}
    assert all(np.isfinite(size) for size in sizes.values())
    # the mean that BatchNorm takes off in training takes a bias just before it along
    biases = ("attention.out_proj.bias", "feed_forward.3.bias")
    dead = {f"encoder.{i}.{bias}" for i in range(2) for bias in biases}
    wanted = dead if kind is PatchTST else set()
    assert {name for name, size in sizes.items() if size < 1e-8} == wanted


def test_only_the_imaginary_parts_of_the_first_and_the_last_bin_are_dead_in_fits():
    model, x = build(FITS, 12, 12, 2, cutoff=7), normal(4, 12, 2)
    (model(x) ** 2).sum().backward()
    dead = (model.interpolation.bias.grad.abs() < 1e-12).nonzero().tolist()
    assert dead == [[0, 1], [12, 1]]


@MODELS
def test_training_fits_a_few_windows(kind):
    model, x, y = build(kind, 12, 7, 2).train(), normal(6, 12, 2), normal(6, 7, 2, seed=1)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.02), []
    for _ in range(60):
        optimizer.zero_grad()
        losses.append(nn.functional.mse_loss(model(x), y))
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.6 * losses[0]


@MODELS
@pytest.mark.parametrize("sizes", [(1, 5, 1, 1), (1, 7, 3, 2), (2, 13, 40, 3), (3, 6, 5, 1)])
@pytest.mark.parametrize("training", [False, True])
def test_odd_and_tiny_sizes(kind, sizes, training):
    windows, seq_len, pred_len, channels = sizes
    model = build(kind, seq_len, pred_len, channels, dtype=torch.float32).train(training)
    y = model(normal(windows, seq_len, channels, dtype=torch.float32))
    assert y.shape == (windows, pred_len, channels)
    assert y.dtype == torch.float32
    assert torch.isfinite(y).all()


SMALLEST = {PatchTST: {"patch_len": 1, "stride": 1}, TimesNet: {"top_k": 1}}


@MODELS
@pytest.mark.parametrize("training", [False, True])
def test_one_step_of_one_channel_forecasts_one_step(kind, training):
    model = build(kind, 1, 1, 1, **SMALLEST.get(kind, {})).train(training)
    assert torch.isfinite(model(torch.ones(1, 1, 1, dtype=torch.float64))).all()


@MODELS
@settings(max_examples=15, deadline=None)
@given(st.integers(1, 3), st.integers(4, 30), st.integers(1, 30), st.integers(1, 4), st.booleans())
def test_any_size_gives_the_horizon(kind, windows, seq_len, pred_len, channels, constant):
    model, x = build(kind, seq_len, pred_len, channels), normal(windows, seq_len, channels)
    y = model(torch.full_like(x, 3) if constant else x)
    assert y.shape == (windows, pred_len, channels)
    assert torch.isfinite(y).all()


@MODELS
def test_the_same_seed_gives_the_same_model(kind):
    first, again, other = (build(kind, 12, 7, 2, seed=seed).state_dict() for seed in (5, 5, 6))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


@MODELS
def test_layers_of_one_kind_start_differently(kind):
    torch.manual_seed(0)
    matrices = [p for p in kind(12, 12, 3, **TINY[kind]).parameters() if p.ndim > 1]
    pairs = [(a, b) for i, a in enumerate(matrices) for b in matrices[:i] if a.shape == b.shape]
    assert kind is DLinear or not any(torch.equal(a, b) for a, b in pairs)


@MODELS
def test_models_are_copied_saved_and_run_without_gradients(kind):
    model, x = build(kind, 12, 7, 3), normal(4, 12, 3)
    other = build(kind, 12, 7, 3, seed=1)
    other.load_state_dict(model.state_dict())
    wanted = model(x).detach()
    with torch.no_grad():  # where torch's encoder layer takes another path
        for twin in (model, other, copy.deepcopy(model)):
            torch.testing.assert_close(twin(x), wanted)


@pytest.mark.parametrize("kind", [ITransformer, PatchTST, TimesNet], ids=lambda k: k.__name__)
def test_dropout_is_for_training_alone(kind):
    model, x = build(kind, 12, 7, 3, dropout=0.5), normal(4, 12, 3)
    torch.testing.assert_close(model(x), model(x))
    assert not torch.allclose(model.train()(x), model(x), atol=1e-3)


# Bad input

BAD_OPTIONS = [
    (DLinear, {"kernel_size": 4}, "kernel_size must be odd"),
    (DLinear, {"kernel_size": 0}, "kernel_size"),
    (FITS, {"cutoff": 0}, "cutoff"),
    (FITS, {"cutoff": 8}, "cutoff"),
    (FreTS, {"embed_size": 0}, "embed_size"),
    (FreTS, {"hidden_size": 2.5}, "hidden_size"),
    (FreTS, {"sparsity_threshold": -1}, "sparsity_threshold"),
    (FreTS, {"sparsity_threshold": float("nan")}, "sparsity_threshold"),
    (ITransformer, {"n_time_features": -1}, "n_time_features"),
    (ITransformer, {"n_heads": 4}, "n_heads must divide d_model, 6"),
    (ITransformer, {"n_heads": 0}, "n_heads"),
    (ITransformer, {"n_layers": 0}, "n_layers"),
    (ITransformer, {"d_ff": 0}, "d_ff"),
    (ITransformer, {"dropout": 1}, "dropout"),
    (ITransformer, {"dropout": -0.1}, "dropout"),
    (PatchTST, {"patch_len": 13}, "patch_len"),
    (PatchTST, {"stride": 5}, "stride"),
    (PatchTST, {"n_heads": 4}, "n_heads"),
    (PatchTST, {"n_layers": True}, "n_layers"),
    (PatchTST, {"d_ff": 0}, "d_ff"),
    (PatchTST, {"dropout": float("inf")}, "dropout"),
    (TimesNet, {"d_model": 0}, "d_model"),
    (TimesNet, {"d_ff": 0}, "d_ff"),
    (TimesNet, {"n_layers": 0}, "n_layers"),
    (TimesNet, {"top_k": 10}, "top_k"),
    (TimesNet, {"n_kernels": 0}, "n_kernels"),
    (TimesNet, {"dropout": "0.1"}, "dropout"),
]


@pytest.mark.parametrize("kind, options, message", BAD_OPTIONS)
def test_bad_options_are_named(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(12, 7, 3, **{**TINY[kind], **options})


def test_affine_must_be_a_truth_value():
    with pytest.raises(TypeError, match="affine must be a bool"):
        RLinear(12, 7, 3, affine="no")


@MODELS
@pytest.mark.parametrize("place, name", [(0, "seq_len"), (1, "pred_len"), (2, "n_channels")])
@pytest.mark.parametrize("size", [0, -1, 2.0, None, True])
def test_bad_sizes_are_named(kind, place, name, size):
    sizes = [12, 7, 3]
    sizes[place] = size
    with pytest.raises(ValueError, match=name):
        kind(*sizes, **TINY[kind])


BAD_WINDOWS = {
    "an array": (np.zeros((2, 12, 3)), TypeError, "x must be a torch.Tensor"),
    "integers": (torch.zeros(2, 12, 3, dtype=torch.int64), TypeError, "x must be"),
    "another dtype": (torch.zeros(2, 12, 3), TypeError, "x must be torch.float64"),
    "one window": (torch.zeros(12, 3).double(), ValueError, "x must have shape"),
    "no window": (torch.zeros(0, 12, 3).double(), ValueError, "x must have shape"),
    "too short": (torch.zeros(2, 11, 3).double(), ValueError, "x must have shape"),
    "transposed": (torch.zeros(2, 3, 12).double(), ValueError, "x must have shape"),
}


@MODELS
@pytest.mark.parametrize("case", BAD_WINDOWS)
def test_bad_windows_are_named(kind, case):
    x, error, message = BAD_WINDOWS[case]
    with pytest.raises(error, match=message):
        build(kind, 12, 7, 3)(x)


@MODELS
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_values_that_are_not_finite_are_named_with_their_channel(kind, value):
    x = normal(2, 12, 3)
    x[1, 5, 2] = value
    with pytest.raises(ValueError, match=r"x must be finite.*channel 2"):
        build(kind, 12, 7, 3)(x)


BAD_MARKS = {
    "none": (None, TypeError, "must be a torch.Tensor"),
    "another dtype": (torch.zeros(2, 12, 2), TypeError, "must be torch.float64"),
    "of the future": (torch.zeros(2, 7, 2).double(), ValueError, "must have shape"),
    "too many": (torch.zeros(2, 12, 3).double(), ValueError, "must have shape"),
    "of fewer windows": (torch.zeros(1, 12, 2).double(), ValueError, "window"),
    "NaN": (torch.full((2, 12, 2), torch.nan).double(), ValueError, "must be finite"),
}


@pytest.mark.parametrize("kind", [ITransformer, TimesNet], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("case", BAD_MARKS)
def test_bad_marks_are_named(kind, case):
    marks, error, message = BAD_MARKS[case]
    model = build(kind, 12, 7, 3, n_time_features=2)
    with pytest.raises(error, match=f"history_marks {message}|history_marks.*{message}"):
        model(normal(2, 12, 3), None, marks)


@pytest.mark.parametrize(
    "x, k, message",
    [
        (torch.zeros(12, 3), 1, "x must be a tensor of shape"),
        (np.zeros((1, 12, 3)), 1, "x must be a tensor of shape"),
        (torch.zeros(1, 12, 3), 7, "k must be"),
        (torch.zeros(1, 12, 3), 0, "k must be"),
    ],
)
def test_bad_series_have_no_periods(x, k, message):
    with pytest.raises(ValueError, match=message):
        dominant_periods(x, k)


def test_all_are_forecasters():
    assert all(issubclass(kind, Forecaster) for kind in TINY)
