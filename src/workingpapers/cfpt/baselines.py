"""Seven learned forecasters that CFPT is compared with, each after its own paper.

All are called as ``model(x, future_marks, history_marks)``, CFPT's own signature, and return the
next ``pred_len`` steps of every channel. TimesNet and iTransformer read the time features of the
window if they are built with ``n_time_features``; time features are ignored otherwise, and those
of the future always, since none of the seven has a place for them. As in every torch module, the
initial weights and dropout come from torch's generator: seed that before.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workingpapers.arguments import check_integer, check_nonnegative, check_type
from workingpapers.cfpt.normalisation import check_marks, check_windows, standardise_window

__all__ = [
    "FITS",
    "DLinear",
    "Forecaster",
    "FreTS",
    "ITransformer",
    "PatchTST",
    "RLinear",
    "TimesNet",
    "dominant_periods",
]


class Forecaster(nn.Module):
    """What the baselines share: their sizes, and what happens to a window at the door.

    A subclass defines ``forecast(z, history_marks)``. Where ``standardises`` is true, it sees the
    window with mean 0 and standard deviation 1, and its forecast is taken back to the units of x.

    Parameters
    ----------
    seq_len, pred_len : int
        L and H, the steps of the window and of the forecast, at least 1.
    n_channels : int
        N, at least 1.
    n_time_features : int, default 0
        T, the time features that ``forecast`` reads.

    Raises
    ------
    ValueError
        If a size is not as described.
    """

    standardises = True

    def __init__(self, seq_len: int, pred_len: int, n_channels: int, n_time_features: int = 0):
        super().__init__()
        self.seq_len = check_integer("seq_len", seq_len)
        self.pred_len = check_integer("pred_len", pred_len)
        self.n_channels = check_integer("n_channels", n_channels)
        self.n_time_features = check_integer("n_time_features", n_time_features, low=0)

    def forward(
        self,
        x: Tensor,
        future_marks: Tensor | None = None,
        history_marks: Tensor | None = None,
    ) -> Tensor:
        """Forecast the steps that follow each window.

        Parameters
        ----------
        x : Tensor, shape (windows, L, N)
            Finite, of the dtype of the weights.
        future_marks : Tensor, shape (windows, H, T), optional
            Not looked at: there for the sake of one signature.
        history_marks : Tensor, shape (windows, L, T), optional
            Time features of the window. Needed by models with ``n_time_features`` above 0, and
            not looked at by others.

        Returns
        -------
        Tensor, shape (windows, H, N)

        Raises
        ------
        TypeError, ValueError
            If a tensor that is looked at is not as described.
        """
        marks = self._checked(x, history_marks)
        if not self.standardises:
            return self.forecast(x, marks)
        z, mu, sd = standardise_window(x)
        return self.forecast(z, marks) * sd + mu

    def _checked(self, x: Tensor, history_marks: Tensor | None) -> Tensor | None:
        """Raise unless the inputs fit the model; return the marks if it reads them."""
        check_windows("x", x, self.seq_len, self.n_channels)
        self._check_dtype("x", x)
        if not self.n_time_features:
            return None
        features = self.n_time_features
        check_marks("history_marks", history_marks, len(x), self.seq_len, features)
        self._check_dtype("history_marks", history_marks)
        return history_marks

    def _check_dtype(self, name: str, values: Tensor) -> None:
        dtype = next(self.parameters()).dtype
        if values.dtype != dtype:
            raise TypeError(f"{name} must be {dtype}, as the weights are, got {values.dtype}")


def _check_dropout(dropout: float) -> float:
    """Return a probability below 1; raise ValueError for anything else."""
    if check_nonnegative("dropout", dropout) >= 1:
        raise ValueError(f"dropout must be >= 0 and < 1, got {dropout!r}")
    return float(dropout)


def _check_heads(d_model: int, n_heads: int) -> None:
    """Raise unless the width can be divided among the heads."""
    check_integer("n_heads", n_heads)
    if check_integer("d_model", d_model) % n_heads:
        raise ValueError(f"n_heads must divide d_model, {d_model}, got {n_heads}")


# Linear maps


class DLinear(Forecaster):
    """Two linear maps shared by the channels: one of the trend, one of the rest.

    The trend is a moving average, the ends repeated. No instance normalisation; time features are
    ignored. With its first weights the model forecasts the mean of the window.

    Source: Zeng et al., AAAI 2023, Section 4.

    Parameters
    ----------
    seq_len, pred_len, n_channels : int
        L, H and N, at least 1.
    kernel_size : int, default 25
        Steps of the moving average, odd; the paper's is 25.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """

    standardises = False

    def __init__(self, seq_len: int, pred_len: int, n_channels: int, *, kernel_size: int = 25):
        super().__init__(seq_len, pred_len, n_channels)
        self.kernel_size = check_integer("kernel_size", kernel_size)
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, got {kernel_size}")
        self.trend = nn.Linear(self.seq_len, self.pred_len)
        self.seasonal = nn.Linear(self.seq_len, self.pred_len)
        for linear in (self.trend, self.seasonal):
            nn.init.constant_(linear.weight, 1 / self.seq_len)
            nn.init.zeros_(linear.bias)

    def forecast(self, z: Tensor, marks: Tensor | None = None) -> Tensor:
        """Map trend and rest, and add."""
        x, side = z.mT, self.kernel_size // 2
        trend = F.avg_pool1d(F.pad(x, (side, side), "replicate"), self.kernel_size, stride=1)
        return (self.trend(trend) + self.seasonal(x - trend)).mT


class RLinear(Forecaster):
    """One linear map shared by the channels, between reversible instance normalisation.

    Time features are ignored.

    Source: Li et al., "Revisiting Long-term Time Series Forecasting", 2023; Kim et al., ICLR 2022.

    Parameters
    ----------
    seq_len, pred_len, n_channels : int
        L, H and N, at least 1.
    affine : bool, default True
        Whether each channel is also scaled and shifted before the map, by learnable amounts that
        are taken back after it, as in the papers.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """

    def __init__(self, seq_len: int, pred_len: int, n_channels: int, affine: bool = True):
        super().__init__(seq_len, pred_len, n_channels)
        check_type("affine", affine, bool)
        self.linear = nn.Linear(self.seq_len, self.pred_len)
        self.gain = nn.Parameter(torch.ones(self.n_channels)) if affine else 1.0
        self.offset = nn.Parameter(torch.zeros(self.n_channels)) if affine else 0.0

    def forecast(self, z: Tensor, marks: Tensor | None = None) -> Tensor:
        """Scale and shift, map, and take the scale and the shift back."""
        y = self.linear((z * self.gain + self.offset).mT).mT
        return (y - self.offset) / (self.gain + 1e-10)  # RevIN's guard against a gain of 0


# In the frequency domain


class ComplexLinear(nn.Module):
    """An affine map of complex vectors, its parameters stored as pairs of real numbers.

    Pairs follow ``module.to(dtype)``, which leaves complex parameters as they are. The map starts
    as a real one, ``nn.Linear``'s.
    """

    def __init__(self, n_in: int, n_out: int):
        super().__init__()
        real = nn.Linear(n_in, n_out)
        self.weight = nn.Parameter(F.pad(real.weight.detach()[..., None], (0, 1)))
        self.bias = nn.Parameter(F.pad(real.bias.detach()[..., None], (0, 1)))

    def forward(self, z: Tensor) -> Tensor:
        """Map (..., n_in) to (..., n_out), both complex."""
        return F.linear(z, torch.view_as_complex(self.weight), torch.view_as_complex(self.bias))


class FITS(Forecaster):
    """Interpolate the low end of the spectrum: a complex linear map shared by the channels.

    The map takes the lowest bins of a window of L steps to those of window and forecast together,
    L + H steps. A longer series has larger coefficients: hence the factor (L + H) / L. Time
    features are ignored.

    Source: Xu et al., ICLR 2024.

    Parameters
    ----------
    seq_len, pred_len, n_channels : int
        L, H and N, at least 1.
    cutoff : int, optional
        Bins of the window's spectrum that are kept, 1..L // 2 + 1. By default the second harmonic
        of a period of 24 and some room, ``2 * (L // 24 + 1) + 10``, as in the authors' scripts, or
        all bins if there are fewer.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """

    def __init__(
        self,
        seq_len: int,
        pred_len: int,
        n_channels: int,
        *,
        cutoff: int | None = None,
    ):
        super().__init__(seq_len, pred_len, n_channels)
        bins = self.seq_len // 2 + 1
        if cutoff is None:
            cutoff = min(2 * (self.seq_len // 24 + 1) + 10, bins)
        self.cutoff = check_integer("cutoff", cutoff, high=bins)
        total = self.seq_len + self.pred_len
        # The longer spectrum ends a little earlier than the ratio says if all bins are kept.
        out_bins = min(self.cutoff * total // self.seq_len, total // 2 + 1)
        self.interpolation = ComplexLinear(self.cutoff, out_bins)

    def forecast(self, z: Tensor, marks: Tensor | None = None) -> Tensor:
        """Go to the spectrum, interpolate it, come back, and cut off the window."""
        total = self.seq_len + self.pred_len
        low = torch.fft.rfft(z.mT)[..., : self.cutoff]
        extended = torch.fft.irfft(self.interpolation(low), n=total) * (total / self.seq_len)
        return extended[..., self.seq_len :].mT


class FrequencyMLP(nn.Module):
    """A layer of complex neurons on the spectrum along one axis of (..., D).

    Real and imaginary parts pass a ReLU, and then lose ``sparsity_threshold`` each: small
    coefficients become zero.
    """

    def __init__(self, embed_size: int, sparsity_threshold: float):
        super().__init__()
        self.linear = ComplexLinear(embed_size, embed_size)
        for parameter in self.linear.parameters():
            nn.init.normal_(parameter, std=0.02)
        self.sparsity_threshold = sparsity_threshold

    def forward(self, x: Tensor, dim: int) -> Tensor:
        """Map a real tensor to one of the same shape; the spectrum is taken along ``dim``."""
        z = self.linear(torch.fft.rfft(x, dim=dim, norm="ortho"))
        parts = F.softshrink(F.relu(torch.view_as_real(z)), self.sparsity_threshold)
        return torch.fft.irfft(torch.view_as_complex(parts), n=x.shape[dim], dim=dim, norm="ortho")


class FreTS(Forecaster):
    """MLPs in the frequency domain: first across the channels, then along time.

    Every value becomes a vector, the value times a learnable one. No instance normalisation; time
    features are ignored.

    Source: Yi et al., NeurIPS 2023, Section 3. The step from the embedding around both MLPs and
    the LeakyReLU in the head are those of the authors' code. Its complex layers multiply by the
    diagonals of their matrices only; here they are the paper's full matrices.

    Parameters
    ----------
    seq_len, pred_len, n_channels : int
        L, H and N, at least 1.
    embed_size : int, default 16
        D, length of the vector of a value; the paper's is 128.
    hidden_size : int, default 64
        Hidden width of the head; the paper's is 256.
    sparsity_threshold : float, default 0.01
        What real and imaginary parts lose, at least 0; the paper's is 0.01.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """

    standardises = False

    def __init__(
        self,
        seq_len: int,
        pred_len: int,
        n_channels: int,
        *,
        embed_size: int = 16,
        hidden_size: int = 64,
        sparsity_threshold: float = 0.01,
    ):
        super().__init__(seq_len, pred_len, n_channels)
        check_integer("embed_size", embed_size)
        check_integer("hidden_size", hidden_size)
        threshold = check_nonnegative("sparsity_threshold", sparsity_threshold)
        self.embedding = nn.Parameter(torch.randn(embed_size))
        self.across_channels = FrequencyMLP(embed_size, threshold)
        self.along_time = FrequencyMLP(embed_size, threshold)
        self.head = nn.Sequential(
            nn.Linear(self.seq_len * embed_size, hidden_size),
            nn.LeakyReLU(),
            nn.Linear(hidden_size, self.pred_len),
        )

    def forecast(self, z: Tensor, marks: Tensor | None = None) -> Tensor:
        """Embed, learn in both spectra, add the embedding, and map each channel to its future."""
        embedded = z.mT[..., None] * self.embedding  # (windows, channels, steps, D)
        learned = self.along_time(self.across_channels(embedded, dim=1), dim=2)
        return self.head((learned + embedded).flatten(2)).mT


# Transformers


class ITransformer(Forecaster):
    """A transformer whose tokens are channels: each one's whole window is embedded at once.

    There are no positions: permuted channels give the permuted forecast. Time features of the
    window are tokens beside the channels if ``n_time_features`` is above 0.

    Source: Liu et al., ICLR 2024, Section 3.

    Parameters
    ----------
    seq_len, pred_len, n_channels : int
        L, H and N, at least 1.
    n_time_features : int, default 0
        T; above 0, ``history_marks`` of shape (windows, L, T) are read.
    d_model : int, default 64
        Width of a token; the paper's 256 on ETTh1, 512 on the larger sets.
    n_heads : int, default 4
        A divisor of ``d_model``; the paper's are 8.
    n_layers : int, default 2
        Encoder layers; the paper's 2 to 4.
    d_ff : int, default 128
        Hidden width of the feed-forward networks; the paper's is ``d_model``.
    dropout : float, default 0.1
        At least 0 and below 1; the paper's is 0.1.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """

    def __init__(
        self,
        seq_len: int,
        pred_len: int,
        n_channels: int,
        *,
        n_time_features: int = 0,
        d_model: int = 64,
        n_heads: int = 4,
        n_layers: int = 2,
        d_ff: int = 128,
        dropout: float = 0.1,
    ):
        super().__init__(seq_len, pred_len, n_channels, n_time_features)
        _check_heads(d_model, n_heads)
        check_integer("n_layers", n_layers)
        check_integer("d_ff", d_ff)
        dropout = _check_dropout(dropout)
        self.embedding = nn.Linear(self.seq_len, d_model)
        self.dropout = nn.Dropout(dropout)
        layers = [
            nn.TransformerEncoderLayer(
                d_model, n_heads, d_ff, dropout, activation="gelu", batch_first=True
            )
            for _ in range(n_layers)
        ]
        self.encoder = nn.Sequential(*layers, nn.LayerNorm(d_model))
        self.head = nn.Linear(d_model, self.pred_len)

    def forecast(self, z: Tensor, marks: Tensor | None = None) -> Tensor:
        """Let channels and time features attend to each other; read the channels' futures."""
        series = z if marks is None else torch.cat([z, marks], dim=-1)
        tokens = self.encoder(self.dropout(self.embedding(series.mT)))
        return self.head(tokens[:, : self.n_channels]).mT


class PatchEncoderLayer(nn.Module):
    """An encoder layer normalised over the batch, which PatchTST prefers to LayerNorm."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int, dropout: float):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.attention_norm = nn.BatchNorm1d(d_model)
        self.feed_forward = nn.Sequential(
            nn.Linear(d_model, d_ff), nn.GELU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model)
        )
        self.feed_forward_norm = nn.BatchNorm1d(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (series, patches, d_model) to the same shape."""
        mixed, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        tokens = self.attention_norm((tokens + self.dropout(mixed)).mT).mT
        mapped = self.feed_forward(tokens)
        return self.feed_forward_norm((tokens + self.dropout(mapped)).mT).mT


class PatchTST(Forecaster):
    """A transformer whose tokens are patches of one channel; the channels share all weights.

    The window is lengthened by repeating its last value ``stride`` times, so that patches cover
    all of it. Time features are ignored.

    Source: Nie et al., ICLR 2023, Section 3, supervised. The authors' code also adds each layer's
    attention scores to the next one's, which the paper does not: left out.

    Parameters
    ----------
    seq_len, pred_len, n_channels : int
        L, H and N, at least 1.
    patch_len : int, default 16
        Steps of a patch, 1..L; the paper's is 16.
    stride : int, default 8
        Steps from patch to patch, 1..``patch_len``; the paper's is 8.
    d_model : int, default 32
        Width of a token; the paper's is 128, on ETTh1 16.
    n_heads : int, default 4
        A divisor of ``d_model``; the paper's are 16, on ETTh1 4.
    n_layers : int, default 3
        Encoder layers; the paper's are 3.
    d_ff : int, default 64
        Hidden width of the feed-forward networks; the paper's is 256, on ETTh1 128.
    dropout : float, default 0.2
        At least 0 and below 1; the paper's is 0.2, on ETTh1 0.3.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """

    def __init__(
        self,
        seq_len: int,
        pred_len: int,
        n_channels: int,
        *,
        patch_len: int = 16,
        stride: int = 8,
        d_model: int = 32,
        n_heads: int = 4,
        n_layers: int = 3,
        d_ff: int = 64,
        dropout: float = 0.2,
    ):
        super().__init__(seq_len, pred_len, n_channels)
        self.patch_len = check_integer("patch_len", patch_len, high=self.seq_len)
        self.stride = check_integer("stride", stride, high=self.patch_len)
        _check_heads(d_model, n_heads)
        check_integer("n_layers", n_layers)
        check_integer("d_ff", d_ff)
        dropout = _check_dropout(dropout)
        n_patches = (self.seq_len - self.patch_len) // self.stride + 2
        self.embedding = nn.Linear(self.patch_len, d_model)
        self.positions = nn.Parameter(torch.empty(n_patches, d_model).uniform_(-0.02, 0.02))
        self.dropout = nn.Dropout(dropout)
        layers = [PatchEncoderLayer(d_model, n_heads, d_ff, dropout) for _ in range(n_layers)]
        self.encoder = nn.Sequential(*layers)
        self.head = nn.Linear(n_patches * d_model, self.pred_len)

    def forecast(self, z: Tensor, marks: Tensor | None = None) -> Tensor:
        """Cut each channel into patches, encode them, and map all of them to the future."""
        padded = F.pad(z.mT, (0, self.stride), "replicate").flatten(0, 1)
        patches = padded.unfold(-1, self.patch_len, self.stride)  # (windows * channels, patches, .)
        tokens = self.encoder(self.dropout(self.embedding(patches) + self.positions))
        return self.head(tokens.flatten(1)).unflatten(0, (len(z), self.n_channels)).mT


# Folded into two dimensions


def dominant_periods(x: Tensor, k: int) -> tuple[list[int], Tensor]:
    """Find the periods with the largest amplitudes (TimesNet, Equation 1).

    Parameters
    ----------
    x : Tensor, shape (windows, steps, channels)
        Amplitudes are averaged over channels, and over windows for the choice of the periods.
    k : int
        Number of periods, 1..steps // 2.

    Returns
    -------
    periods : list of int
        ``steps // f``, rounded as in the authors' code, for the k frequencies f >= 1 of largest
        amplitude, the largest first. Two high frequencies can share a period.
    amplitudes : Tensor, shape (windows, k)
        Of these frequencies, in each window.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    if not isinstance(x, Tensor) or x.ndim != 3:
        raise ValueError("x must be a tensor of shape (windows, steps, channels)")
    steps = x.shape[1]
    check_integer("k", k, high=steps // 2)
    amplitudes = torch.fft.rfft(x, dim=1).abs().mean(dim=-1)
    frequencies = amplitudes.detach().mean(dim=0)[1:].topk(k).indices + 1
    return [steps // f for f in frequencies.tolist()], amplitudes[:, frequencies]


class Inception(nn.Module):
    """The mean of convolutions with square kernels of 1, 3, 5, ... steps, "same" padding.

    A mean of convolutions is one convolution with the mean of the kernels, each in the middle of
    a square as large as the largest: with the paper's six kernels in less than half the time.
    """

    def __init__(self, n_in: int, n_out: int, n_kernels: int):
        super().__init__()
        self.kernels = nn.ModuleList(nn.Conv2d(n_in, n_out, 2 * i + 1) for i in range(n_kernels))
        for kernel in self.kernels:
            nn.init.kaiming_normal_(kernel.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(kernel.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (windows, n_in, rows, columns) to (windows, n_out, rows, columns)."""
        largest = len(self.kernels) - 1
        weight = sum(F.pad(k.weight, 4 * [largest - i]) for i, k in enumerate(self.kernels))
        bias = sum(kernel.bias for kernel in self.kernels)
        count = len(self.kernels)
        return F.conv2d(x, weight / count, bias / count, padding=largest)


class TimesBlock(nn.Module):
    """Fold a series by each of its main periods, convolve, unfold, and add by amplitude."""

    def __init__(self, d_model: int, d_ff: int, top_k: int, n_kernels: int):
        super().__init__()
        self.top_k = top_k
        self.convolutions = nn.Sequential(
            Inception(d_model, d_ff, n_kernels), nn.GELU(), Inception(d_ff, d_model, n_kernels)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (windows, steps, d_model) to the same shape."""
        periods, amplitudes = dominant_periods(x, self.top_k)
        views = torch.stack([self._along(x, period) for period in periods], dim=-1)
        return x + (views * amplitudes.softmax(dim=-1)[:, None, None]).sum(dim=-1)

    def _along(self, x: Tensor, period: int) -> Tensor:
        """Convolve the image with a period a row; the last row is filled with zeros."""
        steps = x.shape[1]
        image = F.pad(x.mT, (0, -steps % period)).unflatten(-1, (-1, period))
        return self.convolutions(image).flatten(2)[..., :steps].mT


class TimesNet(Forecaster):
    """Two-dimensional convolutions on a series folded by the periods found in its spectrum.

    The periods are common to a batch, chosen by its mean amplitudes: a window's forecast depends
    a little on the windows beside it. Time features of the window enter its embedding if
    ``n_time_features`` is above 0.

    Source: Wu et al., ICLR 2023, Section 3.

    Parameters
    ----------
    seq_len, pred_len, n_channels : int
        L, H and N, at least 1.
    n_time_features : int, default 0
        T; above 0, ``history_marks`` of shape (windows, L, T) are read.
    d_model : int, default 16
        Width of the embedding of a step; the paper's is 32 to 512 by the number of channels, on
        ETTh1 16.
    d_ff : int, default 16
        Channels between the two convolutions; the paper's is 32 to 512, on ETTh1 32.
    n_layers : int, default 2
        Blocks; the paper's are 2.
    top_k : int, default 3
        Periods a block, 1..(L + H) // 2; the paper's are 5.
    n_kernels : int, default 3
        Kernels of 1, 3, ..., ``2 * n_kernels - 1`` steps square; the paper's are 6.
    dropout : float, default 0.1
        At least 0 and below 1; the paper's is 0.1.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """

    def __init__(
        self,
        seq_len: int,
        pred_len: int,
        n_channels: int,
        *,
        n_time_features: int = 0,
        d_model: int = 16,
        d_ff: int = 16,
        n_layers: int = 2,
        top_k: int = 3,
        n_kernels: int = 3,
        dropout: float = 0.1,
    ):
        super().__init__(seq_len, pred_len, n_channels, n_time_features)
        for name, value in (("d_model", d_model), ("d_ff", d_ff), ("n_layers", n_layers)):
            check_integer(name, value)
        total = self.seq_len + self.pred_len
        check_integer("top_k", top_k, high=total // 2)
        check_integer("n_kernels", n_kernels)
        self.dropout = nn.Dropout(_check_dropout(dropout))
        self.register_buffer("positions", _sinusoids(self.seq_len, d_model), persistent=False)
        self.values = nn.Conv1d(
            self.n_channels, d_model, 3, padding=1, padding_mode="circular", bias=False
        )
        nn.init.kaiming_normal_(self.values.weight, nonlinearity="leaky_relu")
        if self.n_time_features:
            self.marks = nn.Linear(self.n_time_features, d_model, bias=False)
        self.lengthen = nn.Linear(self.seq_len, total)
        self.blocks = nn.ModuleList(
            TimesBlock(d_model, d_ff, top_k, n_kernels) for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(d_model)  # one for all blocks, as in the authors' code
        self.head = nn.Linear(d_model, self.n_channels)

    def forecast(self, z: Tensor, marks: Tensor | None = None) -> Tensor:
        """Embed the window, lengthen it by the forecast, and work on both with the blocks."""
        embedded = self.values(z.mT).mT + self.positions
        if marks is not None:
            embedded = embedded + self.marks(marks)
        hidden = self.lengthen(self.dropout(embedded).mT).mT
        for block in self.blocks:
            hidden = self.norm(block(hidden))
        return self.head(hidden[:, self.seq_len :])


def _sinusoids(steps: int, width: int) -> Tensor:
    """Position encodings of the first transformer: sines and cosines in turns."""
    column = torch.arange(width, dtype=torch.float64)
    rates = torch.exp(-math.log(10000) * (column - column % 2) / width)
    angles = torch.arange(steps, dtype=torch.float64)[:, None] * rates
    return torch.where(column % 2 == 0, angles.sin(), angles.cos()).to(torch.get_default_dtype())
