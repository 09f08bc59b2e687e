"""The claims about max-min fair bandits, and how each of them is measured.

The thresholds were set before the measurement, but for the four claims that hold a line against a
rival power: they were added after a first run. All comparisons are paired over seeds.
"""

import time
from collections.abc import Callable

import numpy as np
import pandas as pd

from workingpapers import fair_bandits as fb
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
DEVICES = ("cpu",)

METHODS = {
    "DFE": fb.DFE(),
    "DFE, greedy": fb.DFE(cover="greedy"),
    "DFE, pairwise": fb.DFE(cover="pairwise"),
    "DFE, c = 1.5": fb.DFE(c=1.5),
    "My Fair Bandit": fb.MyFairBandit(),
    "My Fair Bandit, Hoeffding": fb.MyFairBandit(confidence="hoeffding"),
    "auction": fb.LeshemAuction(),
    "explore-then-commit": fb.ExploreThenCommit(),
    "central UCB": fb.CentralizedUCB(),
}
DELTAS = [round(float(delta), 4) for delta in np.geomspace(0.05, 0.4, 10)]
CONSTANTS = [0.05, 0.1, 0.25, 0.5, 1.5, 4.0]


def duel(seed: int, method: str, horizon: int) -> dict[str, float]:
    """Run one method on the instance of ten players."""
    instance = fb.MaxMinInstance(fb.MU10)
    return {"regret": METHODS[method].simulate(instance, horizon, 1, seed).final[0]}


def twenty(seed: int, method: str, horizon: int) -> dict[str, float]:
    """Run one method on twenty players and arms, the same random means for all seeds."""
    instance = fb.random_instance(20, 20, seed=0)
    return {"regret": METHODS[method].simulate(instance, horizon, 1, seed).final[0]}


def hard(
    seed: int, method: str, size: int, extra: int, delta: float, horizon: int
) -> dict[str, float]:
    """Run one method on the hard instance with a = b = size, beside the bounds."""
    instance = fb.hard_instance(size, size, delta, extra)
    return {
        "regret": METHODS[method].simulate(instance, horizon, 1, seed).final[0],
        "upper_bound": fb.upper_bound(instance, horizon),
        "lower_slope": fb.lower_bound_slope(size, size, delta, extra=extra),
    }


def talk(seed: int, horizon: int) -> dict[str, float]:
    """Run DFE with the collision protocol and split its regret."""
    run = fb.DFE(communication="collision").simulate(fb.MaxMinInstance(fb.MU10), horizon, 1, seed)
    spoken = run.comm_regret[0]
    return {"talk": spoken, "exploration": run.final[0] - spoken, "rounds": run.comm_rounds[0]}


def gamble(seed: int, c: float, horizon: int) -> dict[str, float]:
    """Run DFE with a constant c and see whether a fair matching is still plausible."""
    instance = fb.hard_instance(2, 2, 0.2)
    run = fb.DFE(cover="greedy", c=c).simulate(instance, horizon, 1, seed)
    left = np.where(run.eliminated_in[0] < 0, instance.means, -1.0)
    return {"lost": float(fb.bottleneck_matching(left)[0] < instance.gamma_star)}


def speed(seed: int, horizon: int) -> dict[str, float]:
    """Time the event-driven simulation and a plain loop over rounds, one after the other."""
    instance = fb.MaxMinInstance(fb.MU10)
    fast, _ = _timed(lambda: fb.DFE().simulate(instance, horizon, 1, seed))
    exact, same = _timed(lambda: fb.DFE(draws="rounds").simulate(instance, horizon, 1, seed))
    loop, plain = _timed(lambda: fb.simulate_round_by_round(fb.DFE(), instance, horizon, 1, seed))
    drops = (plain.eliminated_in == same.eliminated_in).all()
    regret = np.allclose(plain.final, same.final, rtol=1e-9)
    return {
        "loop_s": loop,
        "ratio": loop / fast,
        "ratio_same_draws": loop / exact,
        "identical": float(drops and regret),
    }


def _timed(run: Callable) -> tuple[float, object]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def plan(scale: str, device: str) -> list[Experiment]:
    """List the experiments of a scale; all of them run on the processor."""
    paper = scale == "paper"
    seeds, decades = (100, range(5, 12)) if paper else (10, range(5, 10))
    fixed = {"method": ["DFE"], "extra": [0], "delta": [0.2]}
    methods = list(METHODS)
    experiments = [
        Experiment(
            "duel", duel, product(method=methods, horizon=[10**6]), seeds=100 if paper else 20
        ),
        Experiment(
            "horizons",
            hard,
            product(**fixed, size=[3], horizon=[10**decade for decade in decades]),
            seeds=seeds,
        ),
        Experiment(
            "sizes", hard, product(**fixed, size=[2, 3, 4, 6, 8], horizon=[10**7]), seeds=seeds
        ),
        Experiment(
            "arms",
            hard,
            product(
                method=["DFE"],
                extra=[2, 4, 8, 16, 32, 64],
                delta=[0.2],
                size=[1],
                horizon=[10**7],
            ),
            seeds=seeds,
        ),
        Experiment(
            "gaps",
            hard,
            product(
                method=["DFE", "DFE, greedy", "explore-then-commit"],
                extra=[0],
                delta=DELTAS,
                size=[3],
                horizon=[10**8],
            ),
            seeds=seeds,
        ),
        Experiment(
            "covers",
            hard,
            product(
                method=["DFE", "DFE, greedy"], extra=[0], delta=[0.2], size=[6], horizon=[10**7]
            ),
            seeds=seeds,
        ),
        Experiment("talk", talk, product(horizon=[10**5, 10**6, 10**7, 10**9]), seeds=seeds),
        Experiment(
            "constants",
            gamble,
            product(c=CONSTANTS, horizon=[10**5]),
            seeds=3000 if paper else 300,
        ),
        Experiment("speed", speed, product(horizon=[10**6]), seeds=3, timed=True),
    ]
    if paper:
        names = [name for name in methods if name != "central UCB"]
        cases = product(method=names, horizon=[10**9])
        slow = {"My Fair Bandit", "My Fair Bandit, Hoeffding"}  # cost grows with the horizon
        cases = [case for case in cases if case["method"] not in slow]
        experiments.append(Experiment("twenty", twenty, cases, seeds=seeds))
    return experiments


def _runs(table: pd.DataFrame, by: str, **where) -> pd.DataFrame:
    """Return regrets as a table: a row a seed, a column a value of ``by``."""
    for name, value in where.items():
        table = table[table[name] == value]
    return table.pivot(index="seed", columns=by, values="regret")


def _over_seeds(runs: pd.DataFrame, statistic: Callable[[np.ndarray], float]) -> Estimate:
    """Bootstrap a statistic of the mean curve by drawing whole seeds."""
    curves = runs.to_numpy()

    def of_seeds(seeds: np.ndarray) -> float:
        return statistic(curves[seeds.astype(int)].mean(axis=0))

    return bootstrap_interval(np.arange(len(curves)), of_seeds, resamples=2000)


def _r_squared(runs: pd.DataFrame, x: np.ndarray) -> Estimate:
    return _over_seeds(runs, lambda curve: linear_fit(x, curve).r_squared)


def _line_against(runs: pd.DataFrame, x: np.ndarray, rival: np.ndarray) -> Estimate:
    """Divide the misfit of a line in a rival by the misfit of a line in x."""

    def left(curve: np.ndarray, x: np.ndarray) -> float:
        return 1 - linear_fit(x, curve).r_squared

    return _over_seeds(runs, lambda curve: left(curve, rival) / left(curve, x))


def _exponent(table: pd.DataFrame, method: str) -> Estimate:
    runs = _runs(table, "delta", method=method)
    x = np.log(1 / runs.columns.to_numpy())
    return _over_seeds(runs, lambda curve: linear_fit(x, np.log(curve)).slope.value)


def _ratio(table: pd.DataFrame, one: str, other: str, **where) -> Estimate:
    runs = _runs(table, "method", **where)
    return paired_ratio(runs[one], runs[other])


def mfb_over_dfe(table: pd.DataFrame) -> Estimate:
    """Regret of My Fair Bandit over regret of DFE, T = 1e6."""
    return _ratio(table, "My Fair Bandit", "DFE")


def auction_over_dfe(table: pd.DataFrame) -> Estimate:
    """Regret of the auction over regret of DFE, T = 1e6."""
    return _ratio(table, "auction", "DFE")


def affine_in_log_horizon(table: pd.DataFrame) -> Estimate:
    """R² of a line through R(T) against ln T."""
    runs = _runs(table, "horizon")
    return _r_squared(runs, np.log(runs.columns.to_numpy()))


def log_against_log_squared(table: pd.DataFrame) -> Estimate:
    """Misfit (1 - R²) of a line in (ln T)² over that of a line in ln T."""
    runs = _runs(table, "horizon")
    x = np.log(runs.columns.to_numpy())
    return _line_against(runs, x, x**2)


def slope_over_lower_bound(table: pd.DataFrame) -> Estimate:
    """Slope of R(T) against ln T, over the lower bound's slope."""
    runs = _runs(table, "horizon")
    x, lower = np.log(runs.columns.to_numpy()), table["lower_slope"].iloc[0]
    return _over_seeds(runs, lambda curve: linear_fit(x, curve).slope.value / lower)


def affine_in_pairs(table: pd.DataFrame) -> Estimate:
    """R² of a line through R against the number ab of hard pairs."""
    runs = _runs(table, "size")
    return _r_squared(runs, runs.columns.to_numpy() ** 2)


def pairs_against_cube(table: pd.DataFrame) -> Estimate:
    """Misfit (1 - R²) of a line in (ab)^1.5, about N³, over that of a line in ab."""
    runs = _runs(table, "size")
    x = runs.columns.to_numpy() ** 2.0
    return _line_against(runs, x, x**1.5)


def affine_in_free_arms(table: pd.DataFrame) -> Estimate:
    """R² of a line through R against K - N."""
    runs = _runs(table, "extra")
    return _r_squared(runs, runs.columns.to_numpy())


def free_arms_against_power(table: pd.DataFrame) -> Estimate:
    """Misfit (1 - R²) of a line in (K - N)^1.5 over that of a line in K - N."""
    runs = _runs(table, "extra")
    x = runs.columns.to_numpy(dtype=float)
    return _line_against(runs, x, x**1.5)


def affine_in_inverse_gap(table: pd.DataFrame) -> Estimate:
    """R² of a line through R against 1/Δ."""
    runs = _runs(table, "delta", method="DFE")
    return _r_squared(runs, 1 / runs.columns.to_numpy())


def gap_against_square(table: pd.DataFrame) -> Estimate:
    """Misfit (1 - R²) of a line in 1/Δ² over that of a line in 1/Δ."""
    runs = _runs(table, "delta", method="DFE")
    x = 1 / runs.columns.to_numpy()
    return _line_against(runs, x, x**2)


def dfe_exponent(table: pd.DataFrame) -> Estimate:
    """Exponent of 1/Δ in the regret of DFE."""
    return _exponent(table, "DFE")


def commit_exponent(table: pd.DataFrame) -> Estimate:
    """Exponent of 1/Δ in the regret of explore-then-commit."""
    return _exponent(table, "explore-then-commit")


def commit_over_dfe_small(table: pd.DataFrame) -> Estimate:
    """Regret of explore-then-commit over regret of DFE at Δ = 0.05."""
    return _ratio(table, "explore-then-commit", "DFE", delta=DELTAS[0])


def commit_over_dfe_large(table: pd.DataFrame) -> Estimate:
    """Regret of explore-then-commit over regret of DFE at Δ = 0.4."""
    return _ratio(table, "explore-then-commit", "DFE", delta=DELTAS[-1])


def below_upper_bound(*tables: pd.DataFrame) -> Estimate:
    """Share of the runs of DFE with structured cover whose regret is below the upper bound."""
    runs = pd.concat(tables).query("method == 'DFE'")
    within = runs["regret"] <= runs["upper_bound"]
    return proportion_interval(int(within.sum()), len(within))


def _talk_share(table: pd.DataFrame, horizon: int) -> Estimate:
    runs = table[table["horizon"] == horizon]
    return paired_ratio(runs["talk"], runs["exploration"])


def talk_share_early(table: pd.DataFrame) -> Estimate:
    """Regret of communication over regret of exploration, T = 1e5."""
    return _talk_share(table, 10**5)


def talk_share_late(table: pd.DataFrame) -> Estimate:
    """Regret of communication over regret of exploration, T = 1e7."""
    return _talk_share(table, 10**7)


def lost_at_four(table: pd.DataFrame) -> Estimate:
    """Share of runs with c = 4 that lose every fair matching."""
    lost = table.loc[table["c"] == 4.0, "lost"]
    return proportion_interval(int(lost.sum()), len(lost))


def lost_small_minus_large(table: pd.DataFrame) -> Estimate:
    """Share of runs that lose every fair matching at c = 0.05, minus at c = 0.25."""
    runs = table.pivot(index="seed", columns="c", values="lost")
    return paired_difference(runs[0.05], runs[0.25])


def structured_over_greedy(table: pd.DataFrame) -> Estimate:
    """Regret with the structured cover over regret with the greedy cover."""
    return _ratio(table, "DFE", "DFE, greedy")


def loop_over_events(table: pd.DataFrame) -> Estimate:
    """Seconds of a plain loop over rounds, over seconds of the event-driven simulation."""
    return mean_interval(table["ratio"])


def identical_runs(table: pd.DataFrame) -> Estimate:
    """Share of seeds on which loop and fast simulation, fed the same draws, agree."""
    return mean_interval(table["identical"])


OURS = "Not in the paper: our check."
CLAIMS = [
    Claim(
        "beats My Fair Bandit",
        "DFE has at most a third of the regret of My Fair Bandit (ten players, T = 1e6).",
        "DFE is lowest in the numerical comparison (abstract and experiments).",
        "duel",
        mfb_over_dfe,
        at_least=3.0,
    ),
    Claim(
        "beats the auction",
        "The auction method has at least 1.3 times the regret of DFE (ten players, T = 1e6).",
        "DFE is lowest in the numerical comparison (abstract and experiments).",
        "duel",
        auction_over_dfe,
        at_least=1.3,
    ),
    Claim(
        "log T",
        "The regret grows like log T.",
        "O((N² + K) log T / Δ) (abstract, upper bound).",
        "horizons",
        affine_in_log_horizon,
        at_least=0.95,
    ),
    Claim(
        "log T, not its square",
        "A line in log T fits the regret better than a line in its square.",
        "O((N² + K) log T / Δ) (abstract, upper bound).",
        "horizons",
        log_against_log_squared,
        at_least=1.0,
    ),
    Claim(
        "above the lower bound",
        "The slope in ln T is at least that of the lower bound.",
        "Ω(max{N², K} log T / Δ) (abstract, lower bound).",
        "horizons",
        slope_over_lower_bound,
        at_least=1.0,
    ),
    Claim(
        "N²",
        "On the hard instance the regret is affine in the number of hard pairs, about N²/4.",
        "O((N² + K) log T / Δ) (abstract, upper bound).",
        "sizes",
        affine_in_pairs,
        at_least=0.98,
    ),
    Claim(
        "N², not N³",
        "A line in the number of hard pairs fits better than a line in its power 1.5.",
        "O((N² + K) log T / Δ) (abstract, upper bound).",
        "sizes",
        pairs_against_cube,
        at_least=1.0,
    ),
    Claim(
        "K",
        "The regret is affine in the number of free arms, K - N.",
        "O((N² + K) log T / Δ) (abstract, upper bound).",
        "arms",
        affine_in_free_arms,
        at_least=0.99,
    ),
    Claim(
        "K, not a higher power",
        "A line in K - N fits better than a line in its power 1.5.",
        "O((N² + K) log T / Δ) (abstract, upper bound).",
        "arms",
        free_arms_against_power,
        at_least=1.0,
    ),
    Claim(
        "1/Δ",
        "The regret is affine in 1/Δ.",
        "O((N² + K) log T / Δ) (abstract, upper bound).",
        "gaps",
        affine_in_inverse_gap,
        at_least=0.98,
    ),
    Claim(
        "1/Δ, not its square",
        "A line in 1/Δ fits the regret better than a line in its square.",
        "O((N² + K) log T / Δ) (abstract, upper bound).",
        "gaps",
        gap_against_square,
        at_least=1.0,
    ),
    Claim(
        "1/Δ, exponent",
        "The regret grows with an exponent of 1/Δ between 0.65 and 1.35.",
        "Exponent 1 (abstract, upper bound).",
        "gaps",
        dfe_exponent,
        at_least=0.65,
        at_most=1.35,
    ),
    Claim(
        "commit, exponent",
        "Explore-then-commit grows like 1/Δ².",
        OURS,
        "gaps",
        commit_exponent,
        at_least=1.9,
        at_most=2.1,
    ),
    Claim(
        "small gap",
        "At Δ = 0.05 DFE beats explore-then-commit, which is told Δ.",
        OURS,
        "gaps",
        commit_over_dfe_small,
        at_least=1.0,
    ),
    Claim(
        "large gap",
        "At Δ = 0.4 explore-then-commit beats DFE.",
        OURS,
        "gaps",
        commit_over_dfe_large,
        at_most=1.0,
    ),
    Claim(
        "below the upper bound",
        "Runs stay below the upper bound with its explicit constant.",
        "O((N² + K) log T / Δ) (abstract); the constant is ours.",
        ("horizons", "sizes", "arms", "gaps"),
        below_upper_bound,
        at_least=0.95,
    ),
    Claim(
        "talk, T = 1e5",
        "Communication by collisions costs at most 0.35 of exploration at T = 1e5.",
        "Few communications, by doubling (method); the experiments count them as free.",
        "talk",
        talk_share_early,
        at_most=0.35,
    ),
    Claim(
        "talk, T = 1e7",
        "Communication by collisions costs at most 0.2 of exploration at T = 1e7.",
        "Few communications, by doubling (method); the experiments count them as free.",
        "talk",
        talk_share_late,
        at_most=0.2,
    ),
    Claim(
        "c = 4 is safe",
        "With c = 4 at most 2% of the runs lose every fair matching.",
        OURS,
        "constants",
        lost_at_four,
        at_most=0.02,
    ),
    Claim(
        "small c is risky",
        "With c = 0.05 more runs lose every fair matching than with c = 0.25.",
        OURS,
        "constants",
        lost_small_minus_large,
        at_least=0.1,
    ),
    Claim(
        "cover, ten players",
        "On the ten-player instance the greedy cover is better than the structured one.",
        "Not in the paper: our ablation.",
        "duel",
        structured_over_greedy,
        at_least=1.0,
    ),
    Claim(
        "cover, hard instance",
        "On the hard instance with a = b = 6 the structured cover is better than the greedy one.",
        "Not in the paper: our ablation.",
        "covers",
        structured_over_greedy,
        at_most=1.0,
    ),
    Claim(
        "speed",
        "The event-driven simulation is at least 50 times as fast as a loop over rounds (T = 1e6).",
        OURS,
        "speed",
        loop_over_events,
        at_least=50.0,
    ),
    Claim(
        "same numbers",
        "Fed the same draws, loop and fast simulation drop the same pairs and have one regret.",
        OURS,
        "speed",
        identical_runs,
        at_least=1.0,
    ),
]
