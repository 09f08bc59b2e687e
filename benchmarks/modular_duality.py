"""The claims about modular duality, and how each of them is measured.

The thresholds were set before the measurement. All comparisons are paired over seeds. In the
comparisons of speed every method has the learning rate, of a grid of powers of 2, that is best on
average over the seeds: the same seeds that it is compared on.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from workingpapers import data
from workingpapers import modular_duality as md
from workingpapers.lab import (
    Claim,
    Estimate,
    Experiment,
    bootstrap_interval,
    linear_fit,
    mean_interval,
    paired_difference,
    paired_ratio,
    product,
    proportion_interval,
)

SCALES = ("laptop", "paper")
DEVICES = ("cpu", "cuda")

DIVERGED = 100.0  # the loss that a run counts with whose loss is infinite, or above it
RATES = [f"loss_{index}" for index in range(7)]  # one a learning rate, in increasing order


def images(name: str) -> md.Images:
    """Load a data set of images by name."""
    return md.digits() if name == "digits" else md.read_cifar10(data.path(name))


def rates(
    seed: int, method: str, width: int, task: str, steps: int, batch: int, device: str
) -> dict[str, float]:
    """Train with seven learning rates and give the final loss of each."""
    examples = md.Teacher() if task == "teacher" else images(task)
    run = md.sweep(method, width, [seed], task=examples, steps=steps, batch=batch, device=device)
    final = np.minimum(run["final_loss"][:, 0], DIVERGED)
    return dict(zip(RATES, final.tolist(), strict=True))


def change(seed: int, width: int, update: str, device: str) -> dict[str, float]:
    """Move the weights by one small step and see how far the outputs move."""
    lr = 0.1 if update == "dual" else 1e-3
    return md.feature_change(seed, width, update=update, lr=lr, device=device)


def erasure(
    seed: int, width: int, update: str, lr: float, task: str, steps: int, batch: int, device: str
) -> dict[str, float]:
    """Train a network with a letter in its weights and look for what is left of it."""
    run = md.weight_erasure(
        seed, width, lr, update, task=images(task), steps=steps, batch=batch, device=device
    )
    return {name: run[name] for name in ("visibility", "move", "accuracy")}


def ranks(seed: int, width: int, device: str) -> dict[str, float]:
    """Measure the stable rank of a gradient and of its dual."""
    return md.stable_ranks(seed, width, device=device)


def gain(seed: int, device: str) -> dict[str, float]:
    """Compare the effect of a change of the weights with its modular norm."""
    return md.well_normedness(seed, device=device)


def costs(seed: int) -> dict[str, float]:
    """Time Newton-Schulz beside what it could be replaced by."""
    return md.cost_ratios(seed, repeats=20)


def plan(scale: str, device: str) -> list[Experiment]:
    """List the experiments of a scale."""
    paper = scale == "paper"
    seeds = 5 if paper else 8
    at = {"device": [device]}
    widths = [2**power for power in (range(6, 13) if paper else range(4, 9))]
    learning = {
        "task": ["cifar10" if paper else "teacher"],
        "steps": [977 if paper else 150],  # 977 batches are 20 epochs
        "batch": [1024 if paper else 64],
        **at,
    }
    carving = {
        "width": [1024] if paper else [128, 256],
        "update": ["dual", "control"],
        "lr": [1 / 8, 1.0],
        "task": ["cifar10" if paper else "digits"],
        "steps": [1001 if paper else 150],
        "batch": [1024 if paper else 256],
        **at,
    }
    sizes = [2**power for power in (range(5, 14) if paper else range(5, 10))]
    methods = ["dual", "adam", "mup", "sgd"]
    momentum = product(method=["dual, momentum"], width=[64, 128], **learning)
    return [
        Experiment(
            "rates", rates, product(method=methods, width=widths, **learning) + momentum, seeds
        ),
        Experiment(
            "change",
            change,
            product(width=[64, 128, 256, 512], update=["dual", "sign"], **at),
            seeds,
        ),
        Experiment("erasure", erasure, product(**carving), seeds=5),
        Experiment("ranks", ranks, product(width=sizes, **at), seeds),
        Experiment("gain", gain, product(**at), seeds=200),
        Experiment("costs", costs, [{}], seeds=5, timed=True),
    ]


def _losses(table: pd.DataFrame, method: str, width: int) -> np.ndarray:
    """Return final losses of shape (seeds, rates)."""
    rows = table[(table["method"] == method) & (table["width"] == width)]
    return rows.sort_values("seed")[RATES].to_numpy()


def _tuned(table: pd.DataFrame, method: str, width: int) -> np.ndarray:
    """Return each seed's loss at the learning rate that is best on average."""
    losses = _losses(table, method, width)
    return losses[:, losses.mean(axis=0).argmin()]


def _widths(table: pd.DataFrame) -> list[int]:
    return sorted(table.loc[table["method"] == "adam", "width"].unique())


def _drift(table: pd.DataFrame, method: str) -> Estimate:
    """Fit the best log2 learning rate against log2 width; bootstrap over whole seeds."""
    widths = _widths(table)
    losses = np.stack([_losses(table, method, width) for width in widths])
    grid = np.array(md.METHODS[method].log2_lrs)

    def slope(seeds: np.ndarray) -> float:
        means = losses[:, seeds.astype(int)].mean(axis=1)
        best = [md.best_log2_lr(grid, mean) for mean in means]
        return linear_fit(np.log2(widths), best).slope.value

    return bootstrap_interval(np.arange(losses.shape[1]), slope, resamples=2000)


def drift_dual(table: pd.DataFrame) -> Estimate:
    """Slope of the best log2 learning rate in log2 width, dualised SGD."""
    return _drift(table, "dual")


def drift_mup(table: pd.DataFrame) -> Estimate:
    """Slope of the best log2 learning rate in log2 width, Adam in muP."""
    return _drift(table, "mup")


def drift_adam(table: pd.DataFrame) -> Estimate:
    """Slope of the best log2 learning rate in log2 width, Adam."""
    return _drift(table, "adam")


def drift_sgd(table: pd.DataFrame) -> Estimate:
    """Slope of the best log2 learning rate in log2 width, SGD."""
    return _drift(table, "sgd")


def _regret(table: pd.DataFrame, method: str) -> Estimate:
    """Choose the learning rates on one half of the seeds and compare them on the other."""
    widths = _widths(table)
    narrow, wide = _losses(table, method, widths[1]), _losses(table, method, widths[-1])
    first, second = np.array_split(np.arange(len(wide)), 2)
    borrowed, own = np.empty(len(wide)), np.empty(len(wide))
    for chosen, scored in ((first, second), (second, first)):
        borrowed[scored] = wide[scored, narrow[chosen].mean(axis=0).argmin()]
        own[scored] = wide[scored, wide[chosen].mean(axis=0).argmin()]
    return paired_difference(borrowed, own)


def regret_dual(table: pd.DataFrame) -> Estimate:
    """Loss at the largest width with the second width's learning rate, minus with its own."""
    return _regret(table, "dual")


def regret_adam(table: pd.DataFrame) -> Estimate:
    """Loss at the largest width with the second width's learning rate, minus with its own."""
    return _regret(table, "adam")


def _difference(table: pd.DataFrame, one: str, other: str, width: int) -> Estimate:
    return paired_difference(_tuned(table, one, width), _tuned(table, other, width))


def momentum_minus_adam_64(table: pd.DataFrame) -> Estimate:
    """Loss of dualised SGD with momentum minus loss of Adam, width 64."""
    return _difference(table, "dual, momentum", "adam", 64)


def momentum_minus_adam_128(table: pd.DataFrame) -> Estimate:
    """Loss of dualised SGD with momentum minus loss of Adam, width 128."""
    return _difference(table, "dual, momentum", "adam", 128)


def dual_minus_sgd_64(table: pd.DataFrame) -> Estimate:
    """Loss of dualised SGD minus loss of SGD, width 64."""
    return _difference(table, "dual", "sgd", 64)


def dual_minus_sgd_128(table: pd.DataFrame) -> Estimate:
    """Loss of dualised SGD minus loss of SGD, width 128."""
    return _difference(table, "dual", "sgd", 128)


def dual_minus_adam_64(table: pd.DataFrame) -> Estimate:
    """Loss of dualised SGD without momentum minus loss of Adam, width 64."""
    return _difference(table, "dual", "adam", 64)


def _wins(table: pd.DataFrame, one: str, other: str) -> Estimate:
    """Return the smaller share of seeds won, of the widths 64 and 128: a count, no estimate."""
    shares = [np.mean(_tuned(table, one, w) < _tuned(table, other, w)) for w in (64, 128)]
    lowest = float(min(shares))
    return Estimate(lowest, lowest, lowest, len(_tuned(table, one, 64)))


def momentum_wins(table: pd.DataFrame) -> Estimate:
    """Share of these seeds on which dualised SGD with momentum beats Adam, at the worse width."""
    return _wins(table, "dual, momentum", "adam")


def dual_wins(table: pd.DataFrame) -> Estimate:
    """Share of these seeds on which plain dualised SGD beats plain SGD, at the worse width."""
    return _wins(table, "dual", "sgd")


def _changes(table: pd.DataFrame, update: str, column: str = "mean") -> np.ndarray:
    """Return changes of shape (seeds, widths)."""
    rows = table[table["update"] == update]
    return rows.pivot(index="seed", columns="width", values=column).to_numpy()


def change_spread(table: pd.DataFrame) -> Estimate:
    """Largest over smallest output change of a dualised step over the widths, minus 1."""
    curves = _changes(table, "dual")

    def spread(seeds: np.ndarray) -> float:
        mean = curves[seeds.astype(int)].mean(axis=0)
        return mean.max() / mean.min() - 1

    return bootstrap_interval(np.arange(len(curves)), spread, resamples=2000)


def change_bound(table: pd.DataFrame) -> Estimate:
    """Largest output change of any example and width over the learning rate."""
    return mean_interval(_changes(table, "dual", "max").max(axis=1))


def sign_growth(table: pd.DataFrame) -> Estimate:
    """Factor by which the output change of a sign step grows when the width doubles."""
    logs = np.log2(_changes(table, "sign"))
    slopes = [linear_fit(np.arange(len(curve)), curve).slope.value for curve in logs]
    return mean_interval(2 ** np.array(slopes))


def _erased(table: pd.DataFrame, column: str, update: str, keep: Callable) -> Estimate:
    """Take the worst width of each seed at learning rate 1."""
    rows = table[(table["update"] == update) & (table["lr"] == 1.0)]
    return mean_interval(keep(rows.pivot(index="seed", columns="width", values=column), axis=1))


def visibility_dual(table: pd.DataFrame) -> Estimate:
    """Visibility of the letter after dualised training at learning rate 1, at the worse width."""
    return _erased(table, "visibility", "dual", np.max)


def visibility_control(table: pd.DataFrame) -> Estimate:
    """Visibility of the letter after the control's training at rate 1, at the worse width."""
    return _erased(table, "visibility", "control", np.min)


def accuracy_both(table: pd.DataFrame) -> Estimate:
    """Training accuracy at learning rate 1, the lowest over method and width."""
    rows = table[table["lr"] == 1.0]
    return mean_interval(rows.groupby("seed")["accuracy"].min())


def move_ratio(table: pd.DataFrame) -> Estimate:
    """Relative move of the middle matrix, dualised over control, at learning rate 1."""
    rows = table[table["lr"] == 1.0].pivot(index=["seed", "width"], columns="update", values="move")
    means = rows.groupby("seed").mean()
    return paired_ratio(means["dual"], means["control"])


def rank_of_gradient(table: pd.DataFrame) -> Estimate:
    """Stable rank of the middle gradient, the largest over the widths."""
    return mean_interval(table.groupby("seed")["gradient"].max())


def rank_of_dual(table: pd.DataFrame) -> Estimate:
    """Stable rank of the dual over the width, the smallest over widths up to 128."""
    narrow = table[table["width"] <= 128]
    return mean_interval((narrow["dual"] / narrow["width"]).groupby(narrow["seed"]).min())


def within_norm(table: pd.DataFrame) -> Estimate:
    """Share of draws in which the output moves by no more than the modular norm."""
    return proportion_interval(int((table["gain"] <= 1).sum()), len(table))


def small_side(table: pd.DataFrame) -> Estimate:
    """Seconds on the large Gram matrix over seconds on the small one, 1024 x 64."""
    return mean_interval(table["small_side"])


def batched_slices(table: pd.DataFrame) -> Estimate:
    """Seconds of a loop over nine 16 x 16 slices over seconds of one batch."""
    return mean_interval(table["batched_slices"])


def svd_slices(table: pd.DataFrame) -> Estimate:
    """Seconds of 25 SVDs of 64 x 64 slices over seconds of one batch of Newton-Schulz."""
    return mean_interval(table["svd_slices"])


def step_cost(table: pd.DataFrame) -> Estimate:
    """Seconds of a dualised step over seconds of its gradient, width 256, batch 256."""
    return mean_interval(table["step"])


TRANSFER = (
    "The drift of Adam's best learning rate is gone with dualisation (ICML version, CIFAR-10)."
)
FAST = "Duality maps give fast training (abstract; the experiments behind it are others')."
ERASED = "A watermark in the weights is erased with dualisation and stays without (Section 6.5)."
RANK = "Gradients have a low stable rank, dualised ones a high one (Section 6.5)."
NORMED = "A well-normed module moves its output by at most the modular norm (Definition 5)."
OURS = "Not in the paper: our check."
CLAIMS = [
    Claim(
        "transfer, dual",
        "The best learning rate of dualised SGD changes by less than 2^0.2 when the width doubles.",
        TRANSFER,
        "rates",
        drift_dual,
        at_least=-0.2,
        at_most=0.2,
    ),
    Claim(
        "transfer, muP",
        "The best learning rate of Adam in muP changes by less than 2^0.2 when the width doubles.",
        "The scale of the duality map is that of muP (Section 5).",
        "rates",
        drift_mup,
        at_least=-0.2,
        at_most=0.2,
    ),
    Claim(
        "drift, Adam",
        "The best learning rate of Adam in the standard parametrisation falls with the width.",
        TRANSFER,
        "rates",
        drift_adam,
        at_most=-0.3,
    ),
    Claim(
        "drift, SGD",
        "So does that of SGD in the standard parametrisation.",
        OURS,
        "rates",
        drift_sgd,
        at_most=-0.2,
    ),
    Claim(
        "regret, dual",
        "At the largest width dualised SGD loses at most 0.03 with the second narrowest's rate.",
        TRANSFER,
        "rates",
        regret_dual,
        at_most=0.03,
    ),
    Claim(
        "regret, Adam",
        "At the largest width Adam loses at least 0.08 with the second narrowest's rate.",
        TRANSFER,
        "rates",
        regret_adam,
        at_least=0.08,
    ),
    Claim(
        "speed, width 64",
        "With momentum, dualised SGD ends below Adam at width 64.",
        FAST,
        "rates",
        momentum_minus_adam_64,
        at_most=0.0,
    ),
    Claim(
        "speed, width 128",
        "With momentum, dualised SGD ends below Adam at width 128.",
        FAST,
        "rates",
        momentum_minus_adam_128,
        at_most=0.0,
    ),
    Claim(
        "wins over Adam",
        "With momentum, dualised SGD beats Adam on at least 7/8 of the seeds at both widths.",
        FAST,
        "rates",
        momentum_wins,
        at_least=7 / 8,
    ),
    Claim(
        "speed, plain, width 64",
        "Without momentum, dualised SGD ends below SGD at width 64.",
        FAST,
        "rates",
        dual_minus_sgd_64,
        at_most=0.0,
    ),
    Claim(
        "speed, plain, width 128",
        "Without momentum, dualised SGD ends below SGD at width 128.",
        FAST,
        "rates",
        dual_minus_sgd_128,
        at_most=0.0,
    ),
    Claim(
        "wins over SGD",
        "Without momentum, dualised SGD beats SGD on at least 7/8 of the seeds at both widths.",
        FAST,
        "rates",
        dual_wins,
        at_least=7 / 8,
    ),
    Claim(
        "no momentum, no win",
        "Without momentum, dualised SGD does not beat Adam at width 64.",
        OURS,
        "rates",
        dual_minus_adam_64,
        at_least=0.0,
        note="At scale laptop the two are level: the interval contains 0.",
    ),
    Claim(
        "change, widths",
        "At the start, a dualised step moves the outputs equally far at all widths, within 15%.",
        NORMED,
        "change",
        change_spread,
        at_most=0.15,
    ),
    Claim(
        "change, bound",
        "At the start, the largest output change of a dualised step is, in the mean over seeds, "
        "at most the learning rate.",
        NORMED,
        "change",
        change_bound,
        at_most=1.0,
    ),
    Claim(
        "change, sign",
        "At the start, the effect of a sign step doubles when the width does.",
        OURS,
        "change",
        sign_growth,
        at_least=1.8,
        at_most=2.2,
    ),
    Claim(
        "erased",
        "At learning rate 1 dualised training erases the watermark.",
        ERASED,
        "erasure",
        visibility_dual,
        at_most=0.1,
    ),
    Claim(
        "not erased",
        "At learning rate 1 updates of the same spectral norm leave the watermark visible.",
        ERASED,
        "erasure",
        visibility_control,
        at_least=0.6,
    ),
    Claim(
        "move",
        "Dualised training moves the matrix more than 5 times as far.",
        ERASED,
        "erasure",
        move_ratio,
        at_least=5.0,
    ),
    Claim(
        "accuracy",
        "At learning rate 1 both fit more than 99% of the examples.",
        OURS,
        "erasure",
        accuracy_both,
        at_least=0.99,
        note="The rate is constant, so the last steps still move: 98 to 100% at scale laptop.",
    ),
    Claim(
        "rank, gradient",
        "The stable rank of gradients is below 3 at all widths.",
        RANK,
        "ranks",
        rank_of_gradient,
        at_most=3.0,
    ),
    Claim(
        "rank, dual",
        "The stable rank of dualised gradients is above 0.8 times the width up to 128.",
        RANK,
        "ranks",
        rank_of_dual,
        at_least=0.8,
        note="At width 128 it is near 0.8 times the width, and seeds fall on both sides.",
    ),
    Claim(
        "well-normed",
        "At the initial weights, at least 95% of the changes drawn move the output by at most "
        "their modular norm.",
        NORMED,
        "gain",
        within_norm,
        at_least=0.95,
    ),
    Claim(
        "cost, small side",
        "Iterating on the small side is at least 10 times as fast (1024 x 64).",
        OURS,
        "costs",
        small_side,
        at_least=10.0,
    ),
    Claim(
        "cost, batch",
        "One batch of nine 16 x 16 slices is at least 2.5 times as fast as a loop.",
        OURS,
        "costs",
        batched_slices,
        at_least=2.5,
    ),
    Claim(
        "cost, SVD",
        "One batch of 25 slices of 64 x 64 is at least 1.5 times as fast as 25 SVDs.",
        OURS,
        "costs",
        svd_slices,
        at_least=1.5,
    ),
    Claim(
        "cost, step",
        "A dualised step costs less than 8 times its gradient (width 256, batch 256).",
        OURS,
        "costs",
        step_cost,
        at_most=8.0,
    ),
]
