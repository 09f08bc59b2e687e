"""The claims about InfAlign, and how each of them is measured.

The thresholds were set before the measurement; the two claims about more steps and more calibration
draws were added after a look at two worlds, to find out what held C1 back. Comparisons on the small
transformer are paired, and exact: the seeds are worlds, each with four prompts of its own, and all
responses are listed.

For the scale "paper", put (or link) into the folder ``infalign`` of the data folder: ``policy`` and
``reward_model``, Hugging Face models with their tokenizers, and ``prompts.jsonl`` or
``prompts.jsonl.gz``, such as the file of Anthropic/hh-rlhf or openai/summarize_from_feedback. Its
first runs are a rehearsal: two steps with a tiny model, which are all that a dry run makes. Take
``--jobs 1`` on one GPU.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from workingpapers import infalign
from workingpapers.data.cache import cache_folder
from workingpapers.lab import (
    Claim,
    Estimate,
    Experiment,
    bootstrap_interval,
    mean_interval,
    paired_difference,
    product,
)

SCALES = ("laptop", "paper")
DEVICES = ("cpu", "cuda")

ROWS = [
    ("best", 2, 0.5),
    ("best", 4, 0.1),
    ("best", 4, 0.5),
    ("best", 4, 1.0),
    ("best", 8, 0.5),
    ("best", 16, 0.5),
    ("best", 32, 0.5),
    ("worst", 2, 0.5),
    ("worst", 4, 0.1),
    ("worst", 4, 0.5),
    ("worst", 8, 0.1),
    ("worst", 32, 0.1),
]
TRANSFORMS = ["identity", "log", "exp5", "exp10", "best_exp", "first_order"]
RATES = ["sampling", "best", "worst"]
PROMPTS = range(4)  # of each world
# Method, algorithm and targeted divergence of what is trained.
TRAINED = [
    *((method, "rloo", 0.5) for method in ("raw", "z-scored", "identity", "log")),
    *((method, "rloo", 0.5) for method in ("exp(+10)", "exp(-10)")),
    *(("identity", "rloo", kl) for kl in (0.1, 0.2, 0.3)),
    ("exp(-10)", "rloo", 0.2),
    *(("identity", "exact", kl) for kl in (0.2, 0.3)),
    ("exp(-10)", "exact", 0.2),
    ("exp(+10)", "exact", 0.5),
    ("identity", "ppo", 0.5),
    ("exp(+10)", "ppo", 0.5),
    *((method, "offline", 0.5) for method in ("dpo", "ipo", "distilled")),
]
SOLVED = [
    *((method, "closed form", 0.5) for method in infalign.METHODS),
    *((method, "closed form", 0.5) for method in ("optimal, best", "optimal, worst", "distilled")),
    *((method, "closed form", 0.5) for method in ("base", "best of base")),
]
LONGER = {"method": ["identity", "exp(+10)"], "steps": [300, 600], "num_samples": [100, 1000]}
REHEARSED = [f"Human: What is {a} plus {b}?\n\nAssistant:" for a in range(3) for b in range(3)]
REHEARSAL = {"num_train": 4, "num_test": 3, "num_samples": 6, "num_comparisons": 2}
REHEARSAL |= {"num_tokens": 4, "rollouts_per_prompt": 3, "prompts_per_step": 2, "steps": 2}


def continuum(seed: int, kind: str, n: int, kl: float) -> dict[str, float]:
    """Compare transforms where rewards are continuous; there is nothing random in it."""
    return infalign.continuum_comparison(kind, n, kl)


def scales(seed: int, kl: float) -> dict[str, float]:
    """Align prompts whose rewards differ in scale."""
    return infalign.scale_mismatch(seed, kl=kl)


def hacking(seed: int, bonus: float) -> dict[str, float]:
    """Align with a reward that can be hacked."""
    return infalign.reward_hacking(seed, bonus)


def worlds(seed: int, method: str, algorithm: str, kl: float, device: str) -> dict[str, float]:
    """Align the small transformer of a world; compare with identity CTRL's optimum at its KL."""
    study = infalign.study(seed, device)
    found = infalign.align(study, method, kl, algorithm)
    kl = float(found.kl.mean())
    identity = infalign.align(study, "identity", kl, "closed form") if kl else found
    row = {f"kl_{p}": found.kl[p] for p in PROMPTS}
    for name in RATES:
        row |= {f"{name}_{p}": getattr(found, name)[p] for p in PROMPTS}
        row |= {f"identity_{name}_{p}": getattr(identity, name)[p] for p in PROMPTS}
    return row


def patience(seed: int, method: str, steps: int, num_samples: int, device: str) -> dict[str, float]:
    """Train for 0.5 nats with more steps, and with rewards that are calibrated on more answers."""
    study = infalign.study(seed, device, num_samples)
    found = infalign.align(study, method, 0.5, "rloo", steps=steps)
    return {f"{name}_{p}": getattr(found, name)[p] for name in ("kl", "best") for p in PROMPTS}


def costs(seed: int) -> dict[str, float]:
    """Time fast ways beside plain ones."""
    return infalign.cost_ratios(seed, repeats=2)


def language_model(seed: int, models: str, method: str, kl: float, device: str) -> dict[str, float]:
    """Align the language model of the data folder, or rehearse that with a tiny one."""
    if models == "tiny":
        with tempfile.TemporaryDirectory() as folder:
            infalign.write_rehearsal(folder, REHEARSED)
            return _aligned(Path(folder), method, kl, device, seed, REHEARSAL)
    return _aligned(cache_folder() / "infalign", method, kl, device, seed, {})


def _aligned(
    folder: Path, method: str, kl: float, device: str, seed: int, sizes: dict[str, int]
) -> dict[str, float]:
    names = "prompts.jsonl", "prompts.jsonl.gz"
    file = next((folder / name for name in names if (folder / name).is_file()), folder / names[0])
    prompts = infalign.read_prompts(infalign.locked(file))
    assistant = infalign.load_assistant(folder / "policy", folder / "reward_model", device=device)
    return infalign.align_language_model(assistant, prompts, method, kl, seed=seed, **sizes)


def plan(scale: str, device: str) -> list[Experiment]:
    """List the experiments of a scale."""
    at = {"device": [device]}
    if scale == "paper":
        rehearsal = product(models=["tiny"], method=["identity", "raw"], kl=[0.5], **at)
        full = product(models=["given"], method=_paper_methods(), kl=[0.1, 0.5, 1.0], **at)
        return [Experiment("language_model", language_model, rehearsal + full, seeds=3)]
    columns = ("method", "algorithm", "kl")
    cases = [dict(zip(columns, case, strict=True), device=device) for case in TRAINED + SOLVED]
    rows = [dict(zip(("kind", "n", "kl"), row, strict=True)) for row in ROWS]
    return [
        Experiment("continuum", continuum, rows, seeds=1),
        Experiment("scales", scales, product(kl=[0.5]), seeds=20),
        Experiment("hacking", hacking, product(bonus=[2.0, 5.0, 20.0]), seeds=20),
        Experiment("worlds", worlds, cases, seeds=3),
        Experiment("patience", patience, product(**LONGER, **at), seeds=3),
        Experiment("costs", costs, [{}], seeds=5, timed=True),
    ]


def _paper_methods() -> list[str]:
    return [name for name in infalign.METHODS if not name.startswith("first order")]


# Part A


def _exact(value: float, n: int) -> Estimate:
    return Estimate(float(value), float(value), float(value), n)


def _at(table: pd.DataFrame, kind: str, n: int, kl: float) -> pd.Series:
    rows = table[(table["kind"] == kind) & (table["n"] == n) & (table["kl"] == kl)]
    return rows.iloc[0]


def optimum_margin(table: pd.DataFrame) -> Estimate:
    """Win rate of the coupled optimum minus that of a transform, the least of all rows."""
    gaps = table["optimal"].to_numpy()[:, None] - table[TRANSFORMS].to_numpy()
    return _exact(gaps.min(), gaps.size)


def exp_loss(table: pd.DataFrame) -> Estimate:
    """Win rate that exp(10) loses to the optimum, best of 4 at KL 0.5."""
    row = _at(table, "best", 4, 0.5)
    return _exact(row["optimal"] - row["exp10"], 1)


def identity_loss(table: pd.DataFrame) -> Estimate:
    """Win rate that the identity loses to the optimum, best of 4 at KL 0.5."""
    row = _at(table, "best", 4, 0.5)
    return _exact(row["optimal"] - row["identity"], 1)


def log_for_best(table: pd.DataFrame) -> Estimate:
    """Win rate of log minus identity, the most of all rows for the best of N."""
    gaps = (table["log"] - table["identity"])[table["kind"] == "best"]
    return _exact(gaps.max(), len(gaps))


def log_for_worst(table: pd.DataFrame) -> Estimate:
    """Win rate of log minus identity, the least of all rows for the worst of N."""
    gaps = (table["log"] - table["identity"])[table["kind"] == "worst"]
    return _exact(gaps.min(), len(gaps))


def exponent_growth(table: pd.DataFrame) -> Estimate:
    """Factor of the best exponent when N doubles, the least of N = 2..32 at KL 0.5."""
    rows = table[
        (table["kind"] == "best") & (table["kl"] == 0.5) & (table["n"].isin([2, 4, 8, 16]))
    ]
    exponents = rows.sort_values("n")["best_t"].to_numpy()
    return _exact((exponents[1:] / exponents[:-1]).min(), len(exponents) - 1)


def virial_small(table: pd.DataFrame) -> Estimate:
    """Absolute error of the virial identity, the most for N up to 4."""
    rows = table[table["n"] <= 4]
    return _exact(rows["virial"].max(), len(rows))


def virial_large(table: pd.DataFrame) -> Estimate:
    """Absolute error of the virial identity, the most of all rows."""
    return _exact(table["virial"].max(), len(table))


# Part B


def difference(one: str, other: str, text: str, **where: float) -> Callable[..., Estimate]:
    """Make the measure: one column minus another, in the rows with some values."""

    def measure(table: pd.DataFrame) -> Estimate:
        rows = table
        for column, value in where.items():
            rows = rows[rows[column] == value]
        return paired_difference(rows[one].to_numpy(), rows[other].to_numpy())

    return _described(measure, text)


def _described(measure: Callable[..., Estimate], text: str) -> Callable[..., Estimate]:
    measure.__doc__ = text
    return measure


def mass_left(table: pd.DataFrame) -> Estimate:
    """Mass of the calibrated policy on hacked responses, bonus 20."""
    return mean_interval(table.loc[table["bonus"] == 20.0, "calibrated_mass"].to_numpy())


# Part C: tables (worlds, prompts)


def _cells(
    table: pd.DataFrame, name: str, method: str, algorithm: str = "rloo", kl: float = 0.5
) -> np.ndarray:
    rows = table[
        (table["method"] == method) & (table["algorithm"] == algorithm) & (table["kl"] == kl)
    ]
    return rows.sort_values("seed")[[f"{name}_{p}" for p in PROMPTS]].to_numpy()


def _by_prompt(gaps: np.ndarray) -> Estimate:
    """Mean with its bootstrap interval over worlds and prompts."""
    return bootstrap_interval(gaps.flatten())


def _by_world(gaps: np.ndarray) -> Estimate:
    """Mean over worlds: where the four prompts, whose rewards differ in scale, belong together."""
    return mean_interval(gaps.mean(1))


def exp_for_best(table: pd.DataFrame) -> Estimate:
    """Best-of-4 win rate of exp(10) minus identity, both trained for KL 0.5."""
    return _by_prompt(_cells(table, "best", "exp(+10)") - _cells(table, "best", "identity"))


def exp_kl(table: pd.DataFrame) -> Estimate:
    """KL of exp(10) minus identity, both trained for KL 0.5."""
    return _by_world(_cells(table, "kl", "exp(+10)") - _cells(table, "kl", "identity"))


def exp_for_best_ppo(table: pd.DataFrame) -> Estimate:
    """Best-of-4 win rate of exp(10) minus identity, both trained by PPO for KL 0.5."""
    one, other = (_cells(table, "best", name, "ppo") for name in ("exp(+10)", "identity"))
    return _by_prompt(one - other)


def exp_over_curve(table: pd.DataFrame) -> Estimate:
    """Best-of-4 win rate of trained exp(10) minus the optimum of identity at the same KL."""
    return _by_prompt(
        _cells(table, "best", "exp(+10)") - _cells(table, "identity_best", "exp(+10)")
    )


def lead(steps: int, num_samples: int) -> Callable[..., Estimate]:
    """Make the measure: what exp(10) is ahead with so many steps and calibration draws."""

    def measure(table: pd.DataFrame) -> Estimate:
        rows = table[(table["steps"] == steps) & (table["num_samples"] == num_samples)]
        best = [
            rows[rows["method"] == name].sort_values("seed")[[f"best_{p}" for p in PROMPTS]]
            for name in ("exp(+10)", "identity")
        ]
        return _by_prompt(best[0].to_numpy() - best[1].to_numpy())

    text = "Best-of-4 win rate of exp(10) minus identity"
    return _described(measure, f"{text}: {steps} steps, K = {num_samples}.")


def calibration_gain(table: pd.DataFrame) -> Estimate:
    """Win rate of the identity minus the raw reward, both trained for KL 0.5."""
    return _by_world(_cells(table, "sampling", "identity") - _cells(table, "sampling", "raw"))


def _worst_gain(table: pd.DataFrame, algorithm: str, kls: tuple[float, ...]) -> Estimate:
    """Worst-of-4 win rate of exp(-10), minus the identity's at the same KL by interpolation.

    The curve starts at the base policy and goes on straight beyond the last divergence, where it is
    concave, so that too much is subtracted.
    """
    kl, worst = (_cells(table, name, "exp(-10)", algorithm, 0.2) for name in ("kl", "worst"))
    curve = {
        name: np.stack([_cells(table, name, "identity", algorithm, target) for target in kls])
        for name in ("kl", "worst")
    }
    gaps = np.empty(kl.shape)
    for place in np.ndindex(kl.shape):
        x = np.append(0.0, curve["kl"][:, *place])
        y = np.append(0.5, curve["worst"][:, *place])
        slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
        beyond = max(kl[place] - x[-1], 0.0) * slope
        gaps[place] = worst[place] - np.interp(kl[place], x, y) - beyond
    return _by_prompt(gaps)


def exp_for_worst(table: pd.DataFrame) -> Estimate:
    """Worst-of-4 win rate of exp(-10) for KL 0.2, minus the trained identity's at its KL."""
    return _worst_gain(table, "rloo", (0.1, 0.2, 0.3, 0.5))


def exp_for_worst_exact(table: pd.DataFrame) -> Estimate:
    """Win rate of C3, with exact gradients: worst of 4, exp(-10) minus identity at its KL."""
    return _worst_gain(table, "exact", (0.2, 0.3))


def price(table: pd.DataFrame) -> Estimate:
    """Win rate of the identity minus exp(10), without decoding, both trained for KL 0.5."""
    return _by_prompt(_cells(table, "sampling", "identity") - _cells(table, "sampling", "exp(+10)"))


def distilled_flat(table: pd.DataFrame) -> Estimate:
    """Best-of-4 win rate minus plain win rate of the distilled policy."""
    return _by_prompt(
        _cells(table, "best", "distilled", "offline")
        - _cells(table, "sampling", "distilled", "offline")
    )


def exp_over_distilled(table: pd.DataFrame) -> Estimate:
    """Best-of-4 win rate of exp(10) minus that of the distilled policy."""
    return _by_prompt(
        _cells(table, "best", "exp(+10)") - _cells(table, "best", "distilled", "offline")
    )


def none_beats_identity(table: pd.DataFrame) -> Estimate:
    """Plain win rate of identity's optimum minus a trained policy's at its KL, the least."""
    gaps = [
        _cells(table, "identity_sampling", *case) - _cells(table, "sampling", *case)
        for case in TRAINED
    ]
    return _by_world(min(gaps, key=np.mean))


def ipo_behind(table: pd.DataFrame) -> Estimate:
    """Plain win rate of identity's optimum minus that of trained IPO at its KL."""
    case = ("ipo", "offline")
    return _by_world(_cells(table, "identity_sampling", *case) - _cells(table, "sampling", *case))


def _off_continuum(table: pd.DataFrame, kind: str) -> Estimate:
    found = _cells(table, kind, f"optimal, {kind}", "closed form")
    expected = infalign.continuum_comparison(kind, 4, 0.5)["optimal"]
    return _by_world(found - expected)


def optimum_best(table: pd.DataFrame) -> Estimate:
    """Best-of-4 win rate of the coupled optimum of the worlds, minus the continuum's."""
    return _off_continuum(table, "best")


def optimum_worst(table: pd.DataFrame) -> Estimate:
    """Worst-of-4 win rate of the coupled optimum of the worlds, minus the continuum's."""
    return _off_continuum(table, "worst")


def cost(column: str, text: str) -> Callable[..., Estimate]:
    """Make the measure: mean of a ratio of seconds."""
    return _described(lambda table: mean_interval(table[column]), text)


# Scale "paper"


def given(one: str, other: str, rate: str) -> Callable[..., Estimate]:
    """Make the measure: win rate of one method minus another, over divergences and seeds."""

    def measure(table: pd.DataFrame) -> Estimate:
        rows = table[table["models"] == "given"].sort_values(["kl", "seed"])
        rates = [rows.loc[rows["method"] == name, rate].to_numpy() for name in (one, other)]
        return paired_difference(*rates)

    return _described(measure, f"Win rate ({rate}) of {one} minus {other}.")


OURS = "Not in the paper: our check."
NEAR = "Exponential transforms are nearly optimal (analysis of win rate against KL)."
GAIN = "Up to 3-8% more inference-time win rate than alignment baselines (abstract)."
SIGN = "A positive exponent for best of N, a negative one for worst of N (experiments)."
CALIBRATED = "Calibration alone is a strong baseline for the standard win rate (experiments)."
HACKED = "Calibration makes the reward more robust to hacking (experiments)."
THEOREM = "For plain sampling, RLHF on the calibrated reward is optimal (theorem)."
GROWS = "The best exponent grows with N (analysis of win rate against KL)."

LAPTOP = [
    Claim(
        "A1",
        "At equal KL the coupled optimum is at least as good as every transform.",
        "The optimal transform is the coupled one (characterisation theorem).",
        "continuum",
        optimum_margin,
        at_least=-5e-4,
    ),
    Claim(
        "A2, exp",
        "exp(10) loses at most 0.002 to the optimum (best of 4, KL 0.5).",
        NEAR,
        "continuum",
        exp_loss,
        at_most=0.002,
    ),
    Claim(
        "A2, identity",
        "The identity loses at least 0.07 (best of 4, KL 0.5).",
        NEAR,
        "continuum",
        identity_loss,
        at_least=0.07,
    ),
    Claim(
        "A3, best",
        "Best-of-M distillation loses to the identity for the best of N.",
        OURS,
        "continuum",
        log_for_best,
        at_most=0.0,
    ),
    Claim(
        "A3, worst",
        "And beats it for the worst of N.",
        OURS,
        "continuum",
        log_for_worst,
        at_least=0.0,
    ),
    Claim(
        "A4",
        "The best exponent more than doubles when N does, from 2 to 16.",
        GROWS,
        "continuum",
        exponent_growth,
        at_least=2.0,
    ),
    Claim(
        "A5, small N",
        "The virial identities hold to 1e-5 for N up to 4.",
        OURS,
        "continuum",
        virial_small,
        at_most=1e-5,
    ),
    Claim(
        "A5",
        "And to 1e-4 for N up to 32.",
        OURS,
        "continuum",
        virial_large,
        at_most=1e-4,
    ),
    Claim(
        "B1, raw",
        "Where scales differ, calibration wins at least 0.05 more than the raw reward.",
        CALIBRATED,
        "scales",
        difference("calibrated", "raw", "Win rate of the calibrated minus the raw reward."),
        at_least=0.05,
    ),
    Claim(
        "B1, z-scored",
        "It wins more than standardised rewards, too.",
        CALIBRATED,
        "scales",
        difference("calibrated", "z_scored", "Win rate of calibrated minus z-scored rewards."),
        at_least=0.0,
    ),
    Claim(
        "B2",
        "With a spurious bonus of 5, calibration keeps at least 0.05 more true win rate.",
        HACKED,
        "hacking",
        difference("calibrated", "raw", "True win rate, calibrated minus raw.", bonus=5.0),
        at_least=0.05,
    ),
    Claim(
        "B2, mass",
        "With a bonus of 20, it puts at least 0.1 less mass on hacked responses.",
        HACKED,
        "hacking",
        difference(
            "raw_mass", "calibrated_mass", "Mass on hacks, raw minus calibrated.", bonus=20.0
        ),
        at_least=0.1,
    ),
    Claim(
        "B2, not abolished",
        "It still doubles the mass that hacked responses have under the base.",
        OURS,
        "hacking",
        mass_left,
        at_least=0.1,
    ),
    Claim(
        "B2, exp",
        "exp(10) is less robust: with a bonus of 5 it loses at least 0.05 to the identity.",
        OURS,
        "hacking",
        difference("calibrated", "exp10", "True win rate, identity minus exp(10).", bonus=5.0),
        at_least=0.05,
    ),
    Claim(
        "C1",
        "Trained for KL 0.5, exp(10) wins at least 0.02 more than the identity with best of 4.",
        GAIN,
        "worlds",
        exp_for_best,
        at_least=0.02,
    ),
    Claim(
        "C1, KL",
        "And it spends less KL.",
        OURS,
        "worlds",
        exp_kl,
        at_most=0.0,
    ),
    Claim(
        "C1, PPO",
        "With PPO it wins at least 0.02 more, too.",
        GAIN,
        "worlds",
        exp_for_best_ppo,
        at_least=0.02,
    ),
    Claim(
        "C1, equal KL",
        "At equal KL, trained exp(10) wins at least 0.02 more than the identity's exact optimum.",
        GAIN,
        "worlds",
        exp_over_curve,
        at_least=0.02,
    ),
    Claim(
        "C1, 600 steps",
        "With twice the steps, exp(10) wins at least 0.02 more than the identity, best of 4.",
        GAIN,
        "patience",
        lead(600, 100),
        at_least=0.02,
    ),
    Claim(
        "C1, K = 1000",
        "So it does with twice the steps and ten times the calibration draws.",
        GAIN,
        "patience",
        lead(600, 1000),
        at_least=0.02,
    ),
    Claim(
        "C2",
        "Trained for KL 0.5, calibration alone wins at least 0.05 more than the raw reward.",
        CALIBRATED,
        "worlds",
        calibration_gain,
        at_least=0.05,
    ),
    Claim(
        "C3",
        "Trained for KL 0.2, exp(-10) wins at least 0.02 more than the identity at equal KL with "
        "worst of 4.",
        SIGN,
        "worlds",
        exp_for_worst,
        at_least=0.02,
    ),
    Claim(
        "C3, exact",
        "So it does with exact gradients.",
        SIGN,
        "worlds",
        exp_for_worst_exact,
        at_least=0.02,
    ),
    Claim(
        "C4",
        "The price: without decoding, exp(10) wins less than the identity.",
        OURS,
        "worlds",
        price,
        at_least=0.0,
    ),
    Claim(
        "distilled, flat",
        "A policy distilled from the best of 3 gains nothing from best of 4, within 0.04.",
        OURS,
        "worlds",
        distilled_flat,
        at_least=-0.04,
        at_most=0.04,
    ),
    Claim(
        "distilled, behind",
        "With best of 4, exp(10) wins at least 0.05 more than the distilled policy.",
        GAIN,
        "worlds",
        exp_over_distilled,
        at_least=0.05,
    ),
    Claim(
        "sampling",
        "Without decoding, no trained policy beats the identity's optimum at its KL.",
        THEOREM,
        "worlds",
        none_beats_identity,
        at_least=0.0,
    ),
    Claim(
        "IPO",
        "IPO comes within 0.02 of the identity's optimum, which is its own.",
        THEOREM,
        "worlds",
        ipo_behind,
        at_most=0.02,
    ),
    Claim(
        "optimum, best",
        "On 1024 responses the coupled optimum is that of the continuum within 0.01, best of 4.",
        OURS,
        "worlds",
        optimum_best,
        at_least=-0.01,
        at_most=0.01,
    ),
    Claim(
        "optimum, worst",
        "So it is for the worst of 4.",
        OURS,
        "worlds",
        optimum_worst,
        at_least=-0.01,
        at_most=0.01,
    ),
    Claim(
        "cost, prefixes",
        "Sharing prefixes makes the exact gradient at least 2 times as fast.",
        OURS,
        "costs",
        cost("prefixes", "Seconds of reading all responses over seconds with shared prefixes."),
        at_least=2.0,
    ),
    Claim(
        "cost, formula",
        "The best-of-N formula is at least 10,000 times as fast as all tuples (5 of 12).",
        OURS,
        "costs",
        cost("formula", "Seconds of a sum over all tuples over seconds of the formula."),
        at_least=1e4,
    ),
    Claim(
        "cost, lookup",
        "Looking rewards up among 1000 is at least 5 times as fast as comparing with each.",
        OURS,
        "costs",
        cost("lookup", "Seconds of all comparisons over seconds of the calibrator."),
        at_least=5.0,
    ),
]

PAPER = [
    Claim(
        "calibration",
        "Calibration alone wins more than the raw reward without decoding.",
        CALIBRATED,
        "language_model",
        given("identity", "raw", "sampling"),
        at_least=0.0,
    ),
    *(
        Claim(
            f"{method}, {rate}",
            f"{method} wins more than {other} ({rate}).",
            GAIN,
            "language_model",
            given(method, other, rate),
            at_least=0.0,
        )
        for method, rate in (
            ("exp(+10)", "best_4"),
            ("exp(+10)", "best_32"),
            ("exp(-10)", "worst_4"),
        )
        for other in ("identity",)
    ),
]

CLAIMS = {"laptop": LAPTOP, "paper": PAPER}
