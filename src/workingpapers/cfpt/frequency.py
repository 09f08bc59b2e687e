"""The frequency branch: two bands of a window's spectrum that modulate each other."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from workingpapers.arguments import check_integer, check_nonnegative
from workingpapers.cfpt.normalisation import check_windows

__all__ = [
    "AffineCoupling",
    "CrossFrequencyInteraction",
    "Modulation",
    "SelfModulation",
    "split_bands",
]

MAX_LOG_SCALE = 5.0
INITIAL_GAIN = 0.1

Block = Literal["coupling", "self"] | None


def split_bands(x: Tensor, cutoff_ratio: float = 0.5) -> tuple[Tensor, Tensor]:
    """Split windows into a low and a high band of their spectrum, Section 3.2 of the paper.

    With K = L // 2 + 1 bins, the lower ``floor(cutoff_ratio * K)`` make the low band.

    Parameters
    ----------
    x : Tensor, shape (..., L)
        Real and finite, time last.
    cutoff_ratio : float, default 0.5
        In [0, 1].

    Returns
    -------
    low, high : Tensor of complex, shape (..., K)
        Spectra (unnormalised ``rfft``) that are zero outside of their band; they add up to the
        spectrum of ``x``.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError(f"x must be a real floating-point torch.Tensor, got {x!r}")
    if x.ndim < 1 or not x.numel() or not torch.isfinite(x).all():
        raise ValueError(f"x must be finite and not empty, got shape {tuple(x.shape)}")
    spectrum = torch.fft.rfft(x)
    low = _low_bins(spectrum.shape[-1], _check_cutoff(cutoff_ratio)).to(x.device)
    return spectrum * low, spectrum * ~low


def _check_cutoff(cutoff_ratio: float) -> float:
    ratio = check_nonnegative("cutoff_ratio", cutoff_ratio)
    if ratio > 1:
        raise ValueError(f"cutoff_ratio must be in [0, 1], got {cutoff_ratio!r}")
    return ratio


def _low_bins(bins: int, cutoff_ratio: float) -> Tensor:
    return torch.arange(bins) < math.floor(cutoff_ratio * bins)


class Modulation(nn.Module):
    """Scale and shift one band by what another one says: ``h * exp(gain * s(g)) + t(g)``.

    The exponent is clipped to [-5, 5]; s and t are networks of one hidden layer of width
    ``2 * size`` with layer normalisation.

    Parameters
    ----------
    size : int
        Numbers that describe a band, at least 1.

    Raises
    ------
    ValueError
        If ``size`` is not as described.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        size = check_integer("size", size)
        self.scale, self.shift = _network(size), _network(size)
        self.gain = nn.Parameter(torch.tensor(INITIAL_GAIN))

    def log_scale(self, reads: Tensor) -> Tensor:
        """Logarithm of the factor, of the shape of ``reads`` (..., size)."""
        return (self.gain * self.scale(reads)).clamp(-MAX_LOG_SCALE, MAX_LOG_SCALE)

    def forward(self, h: Tensor, reads: Tensor) -> Tensor:
        """Modulate ``h`` by ``reads``, both of shape (..., size)."""
        return h * self.log_scale(reads).exp() + self.shift(reads)

    def undo(self, h: Tensor, reads: Tensor) -> Tensor:
        """Invert the modulation, given the same ``reads``."""
        return (h - self.shift(reads)) * (-self.log_scale(reads)).exp()


def _network(size: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(size, 2 * size), nn.LayerNorm(2 * size), nn.ReLU(), nn.Linear(2 * size, size)
    )


class AffineCoupling(nn.Module):
    """The bands modulate each other, first the low and then the high one, as in RealNVP.

    Parameters
    ----------
    d_model : int
        Numbers that describe both bands together, even.

    Raises
    ------
    ValueError
        If ``d_model`` is not as described.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        size = _check_even(d_model) // 2
        self.low, self.high = Modulation(size), Modulation(size)

    def forward(self, h_low: Tensor, h_high: Tensor) -> tuple[Tensor, Tensor]:
        """Return the new bands, each of shape (..., d_model / 2)."""
        h_low = self.low(h_low, h_high)
        return h_low, self.high(h_high, h_low)

    def inverse(self, h_low: Tensor, h_high: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bands that ``forward`` makes these of."""
        h_high = self.high.undo(h_high, h_low)
        return self.low.undo(h_low, h_high), h_high

    def log_det(self, h_low: Tensor, h_high: Tensor) -> Tensor:
        """Logarithm of the absolute determinant of ``forward``'s derivative, of shape (...)."""
        new_low = self.low(h_low, h_high)
        return (self.low.log_scale(h_high) + self.high.log_scale(new_low)).sum(-1)


class SelfModulation(nn.Module):
    """Like `AffineCoupling`, of the same size, but each band reads itself: no interaction.

    The paper has no such control.

    Parameters
    ----------
    d_model : int
        As of `AffineCoupling`.

    Raises
    ------
    ValueError
        If ``d_model`` is not as described.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        size = _check_even(d_model) // 2
        self.low, self.high = Modulation(size), Modulation(size)

    def forward(self, h_low: Tensor, h_high: Tensor) -> tuple[Tensor, Tensor]:
        """Return the new bands, each of shape (..., d_model / 2)."""
        return self.low(h_low, h_low), self.high(h_high, h_high)


BLOCKS: dict[str, type[nn.Module]] = {"coupling": AffineCoupling, "self": SelfModulation}


def _check_even(d_model: int) -> int:
    if check_integer("d_model", d_model, low=2) % 2:
        raise ValueError(f"d_model must be even, got {d_model}")
    return int(d_model)


class CrossFrequencyInteraction(nn.Module):
    """Forecast from the spectrum of the window alone, Section 3.2 of the paper.

    Normalise, split the spectrum into two bands, embed each, let the embeddings modulate each
    other, predict the spectrum of the horizon, and go back to time. All channels share weights.

    Parameters
    ----------
    seq_len, pred_len : int
        Steps of the window and of the horizon, at least 1. Both may be odd.
    d_model : int, default 256
        Numbers that describe both bands together, even.
    n_layers : int, default 3
        Coupling layers, at least 0; with none the branch is an affine map of the normalised window.
    cutoff_ratio : float, default 0.5
        Share of the bins that make the low band, in [0, 1].
    block : {"coupling", "self", None}, default "coupling"
        `AffineCoupling`, `SelfModulation`, or no layers at all (E = 0).
    band_split : bool, default True
        Whether each half of the embedding sees only its band; if not, both see the full spectrum.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """

    def __init__(
        self,
        seq_len: int,
        pred_len: int,
        d_model: int = 256,
        n_layers: int = 3,
        cutoff_ratio: float = 0.5,
        block: Block = "coupling",
        band_split: bool = True,
    ) -> None:
        super().__init__()
        self.seq_len = check_integer("seq_len", seq_len)
        self.pred_len = check_integer("pred_len", pred_len)
        size = _check_even(d_model) // 2
        bins, out_bins = seq_len // 2 + 1, pred_len // 2 + 1
        low = _low_bins(bins, _check_cutoff(cutoff_ratio)).float().repeat(2)
        full = torch.ones_like(low)
        self.register_buffer("low_band", low if band_split else full, persistent=False)
        self.register_buffer("high_band", 1 - low if band_split else full, persistent=False)
        self.embed_low, self.embed_high = nn.Linear(2 * bins, size), nn.Linear(2 * bins, size)
        self.layers = nn.ModuleList(_layers(block, d_model, n_layers))
        self.predict_low = nn.Linear(size, 2 * out_bins)
        self.predict_high = nn.Linear(size, 2 * out_bins)

    def normalised(self, z: Tensor) -> Tensor:
        """Forecast (B, pred_len, N), still normalised, from normalised windows (B, seq_len, N)."""
        spectrum = torch.fft.rfft(z.transpose(1, 2))
        parts = torch.cat([spectrum.real, spectrum.imag], dim=-1)
        h_low = self.embed_low(parts * self.low_band)
        h_high = self.embed_high(parts * self.high_band)
        for layer in self.layers:
            h_low, h_high = layer(h_low, h_high)
        real, imag = (self.predict_low(h_low) + self.predict_high(h_high)).chunk(2, dim=-1)
        return torch.fft.irfft(torch.complex(real, imag), n=self.pred_len).transpose(1, 2)

    def forward(
        self, z: Tensor, future_marks: Tensor | None = None, history_marks: Tensor | None = None
    ) -> Tensor:
        """Forecast normalised windows.

        Parameters
        ----------
        z : Tensor, shape (batch, seq_len, channels)
            Normalised windows (see `standardise_window`), at least one channel.
        future_marks, history_marks : Tensor, optional
            Not read.

        Returns
        -------
        Tensor, shape (batch, pred_len, channels)
            The forecast, still normalised.

        Raises
        ------
        TypeError, ValueError
            If ``z`` is not as described.
        """
        check_windows("z", z, self.seq_len, z.shape[-1] if isinstance(z, Tensor) else 0)
        return self.normalised(z)


def _layers(block: Block, d_model: int, n_layers: int) -> list[nn.Module]:
    n_layers = check_integer("n_layers", n_layers, low=0)
    if block is None:
        return []
    if not isinstance(block, str) or block not in BLOCKS:
        raise ValueError(f"block must be one of {tuple(BLOCKS)} or None, got {block!r}")
    return [BLOCKS[block](d_model) for _ in range(n_layers)]
