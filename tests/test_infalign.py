"""The exact half of InfAlign against brute force, closed forms, scipy and the paper's claims."""

import functools
import itertools
import math
import re
import time
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad, solve_bvp
from scipy.optimize import minimize
from scipy.special import softmax
from scipy.stats import binom, chisquare, kstest

from workingpapers.infalign import (
    BestOfN,
    Density,
    Exponential,
    FirstOrder,
    Identity,
    Log,
    Optimal,
    Procedure,
    RewardCalibrator,
    Sampling,
    Transform,
    WorstOfN,
    best_exponent,
    beta_for_kl,
    calibrated_reward,
    continuum_beta_for_kl,
    continuum_curve,
    continuum_win_rate,
    ctrl_policy,
    density,
    distilled_density,
    distilled_kl,
    distilled_policy,
    distilled_win_rate,
    dkw_band,
    fixed_point_iteration,
    identity_kl,
    identity_win_rate,
    infalign_objective,
    inference_win_rate,
    ipo_policy,
    kl_divergence,
    optimal_beta_for_kl,
    optimal_curve,
    optimal_density,
    procedure_of,
    rlhf_policy,
    solve_infalign,
    standardized_reward,
    stationary_solutions,
    virial_win_rate,
    win_rate,
    win_rate_gradient,
)

PROCEDURES = [Sampling(), *(kind(n) for kind in (BestOfN, WorstOfN) for n in (1, 2, 3, 4, 32))]
NAMES = [f"{procedure.name}" for procedure in PROCEDURES]
FALSE_ALARM = 1e-6
MANY = 1000  # equal atoms that stand for the continuum

seeds = st.integers(0, 2**32 - 1)
procedures = st.one_of(
    st.just(Sampling()), st.integers(1, 40).map(BestOfN), st.integers(1, 40).map(WorstOfN)
)


def world(seed, size=6, levels=None):
    """Return a policy, a base and rewards, with ties if there are fewer levels than responses."""
    rng = np.random.default_rng(seed)
    policy, base = rng.dirichlet(np.ones(size), 2)
    rewards = rng.normal(size=size) if levels is None else rng.integers(0, levels, size) / 2
    return policy, base, rewards


def equal_atoms(size=MANY):
    return np.full(size, 1 / size), np.arange(size) / size


def chances_by_enumeration(policy, rewards, procedure):
    """Return T(pi) from all M^N tuples of draws, ties broken uniformly."""
    keep = max if isinstance(procedure, BestOfN) else min
    chances = np.zeros(len(policy))
    for draws in itertools.product(range(len(policy)), repeat=procedure.n):
        chance = math.prod(policy[i] for i in draws)
        kept = keep(rewards[i] for i in draws)
        ties = [i for i in draws if rewards[i] == kept]
        for i in ties:
            chances[i] += chance / len(ties)
    return chances


def win_rate_by_pairs(policy, base, rewards):
    return sum(
        p * q * (0.5 if a == b else float(a > b))
        for p, a in zip(policy, rewards, strict=True)
        for q, b in zip(base, rewards, strict=True)
    )


# Calibration


def test_calibrated_reward_is_the_win_rate_against_the_base():
    _, base, rewards = world(0, size=9, levels=4)
    expected = [win_rate_by_pairs(np.eye(9)[i], base, rewards) for i in range(9)]
    np.testing.assert_allclose(calibrated_reward(rewards, base), expected, atol=1e-15)


@settings(deadline=None)
@given(seeds, st.integers(1, 30), st.integers(1, 8))
def test_calibrated_reward_has_mean_one_half_under_the_base(seed, size, levels):
    _, base, rewards = world(seed, size, levels)
    calibrated = calibrated_reward(rewards, base)
    assert calibrated @ base == pytest.approx(0.5, abs=1e-13)
    assert calibrated.min() >= 0
    assert calibrated.max() <= 1


def test_calibrated_reward_of_many_distinct_rewards_is_uniform():
    rng = np.random.default_rng(1)
    rewards = rng.lognormal(size=200_000)
    calibrated = calibrated_reward(rewards, np.full(rewards.size, 1 / rewards.size))
    drawn = rng.choice(calibrated, size=2000)
    assert kstest(drawn, "uniform").pvalue > FALSE_ALARM


@pytest.mark.parametrize(
    "change", [np.exp, lambda r: r**3, lambda r: 7 * r - 2], ids=["exp", "cube", "line"]
)
@pytest.mark.parametrize("procedure", PROCEDURES, ids=NAMES)
def test_increasing_maps_of_the_reward_change_nothing(change, procedure):
    policy, base, rewards = world(2, size=40)
    policy, base = np.stack([policy, base]), np.stack([base, policy])
    rewards = np.stack([rewards, 10 * rewards])
    changed = np.stack([change(rewards[0]), rewards[1]])  # one prompt's rewards only
    np.testing.assert_allclose(
        calibrated_reward(changed, base), calibrated_reward(rewards, base), atol=1e-12
    )
    np.testing.assert_allclose(
        ctrl_policy(base, changed, Exponential(10.0), 300.0),
        ctrl_policy(base, rewards, Exponential(10.0), 300.0),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        inference_win_rate(policy, base, changed, procedure),
        inference_win_rate(policy, base, rewards, procedure),
        atol=1e-12,
    )


def test_empirical_calibration_counts_base_rewards():
    rng = np.random.default_rng(3)
    base = rng.integers(0, 6, (4, 25)) / 2
    prompts, rewards = rng.integers(0, 4, 300), rng.integers(-1, 14, 300) / 4
    expected = [
        np.mean((base[i] < reward) + 0.5 * (base[i] == reward))
        for i, reward in zip(prompts, rewards, strict=True)
    ]
    calibrator = RewardCalibrator().fit(base)
    np.testing.assert_allclose(calibrator.transform(prompts, rewards), expected, atol=1e-15)
    assert (calibrator.num_prompts, calibrator.num_samples) == (4, 25)


def test_quantile_calibration_interpolates_between_base_rewards():
    rng = np.random.default_rng(4)
    base = np.sort(rng.normal(size=(3, 20)), axis=1)
    prompts, rewards = rng.integers(0, 3, 500), rng.normal(scale=2, size=500)
    calibrator = RewardCalibrator("quantile").fit(base[:, ::-1])
    levels = (np.arange(20) + 0.5) / 20
    expected = [
        np.interp(reward, base[i], levels) for i, reward in zip(prompts, rewards, strict=True)
    ]
    np.testing.assert_allclose(calibrator.transform(prompts, rewards), expected, atol=1e-13)


@settings(deadline=None)
@given(seeds, st.integers(1, 12), st.integers(1, 5))
def test_both_calibrations_agree_at_base_rewards_and_rise(seed, samples, levels):
    rng = np.random.default_rng(seed)
    base = rng.integers(0, levels, (2, samples)) * 1.0
    queries = np.sort(rng.uniform(-1, levels, 50))
    for prompt in (0, 1):
        at_base = np.full(samples, prompt)
        values = [RewardCalibrator(m).fit(base) for m in ("empirical", "quantile")]
        np.testing.assert_allclose(
            values[0].transform(at_base, base[prompt]), values[1].transform(at_base, base[prompt])
        )
        for calibrator in values:
            calibrated = calibrator.transform(np.full(50, prompt), queries)
            assert np.all(np.diff(calibrated) >= -1e-15)
            assert calibrated.min() >= 0
            assert calibrated.max() <= 1


def test_empirical_calibration_of_all_responses_is_the_exact_one():
    _, _, rewards = world(5, size=50, levels=7)
    calibrator = RewardCalibrator().fit(rewards[None])
    exact = calibrated_reward(rewards, np.full(50, 1 / 50))
    np.testing.assert_allclose(calibrator.transform(np.zeros(50, int), rewards), exact, atol=1e-14)


@pytest.mark.parametrize("samples", [10, 100])
def test_dkw_band_covers(samples):
    repeats = 4000
    rng = np.random.default_rng(6)
    base = np.sort(rng.uniform(size=(repeats, samples)), axis=1)
    around = np.concatenate([np.nextafter(base, 0), np.nextafter(base, 1)], axis=1)
    prompts = np.repeat(np.arange(repeats), 2 * samples)
    estimate = RewardCalibrator().fit(base).transform(prompts, around.ravel())
    worst = np.abs(estimate - around.ravel()).reshape(repeats, -1).max(axis=1)
    covered = np.mean(worst <= dkw_band(samples))
    assert covered >= 0.93
    # The inequality promises 0.95; 0.93 is lower than chance allows.
    assert binom.sf(0.07 * repeats - 1, repeats, 0.05) < FALSE_ALARM


def test_dkw_band_matches_the_formula():
    assert dkw_band(10) == pytest.approx(0.4295, abs=5e-5)
    assert 2 * math.exp(-2 * 37 * dkw_band(37, level=0.8) ** 2) == pytest.approx(0.2)


# Decoding


@pytest.mark.parametrize("procedure", [BestOfN(3), WorstOfN(3), BestOfN(1), WorstOfN(2)], ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_decoded_distribution_matches_enumeration_with_ties(procedure, seed):
    policy, _, rewards = world(seed, size=5, levels=3)
    expected = chances_by_enumeration(policy, rewards, procedure)
    np.testing.assert_allclose(procedure.distribution(policy, rewards), expected, atol=1e-12)


@settings(deadline=None)
@given(seeds, procedures, st.integers(1, 20), st.integers(1, 6))
def test_decoded_distribution_is_a_distribution(seed, procedure, size, levels):
    policy, _, rewards = world(seed, size, levels)
    decoded = procedure.distribution(policy, rewards)
    assert decoded.min() >= 0
    assert decoded.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(decoded, procedure.dual().distribution(policy, -rewards), atol=1e-12)


@pytest.mark.parametrize("procedure", [BestOfN(4), WorstOfN(4)], ids=str)
def test_responses_too_rare_for_the_sums_keep_their_chances(procedure):
    policy = np.array([0.5, 1e-30, 0.5])
    decoded = procedure.distribution(policy, [0.0, 1.0, 2.0])
    # A third draw decides nothing else: kept if the others are on the losing side.
    assert decoded[1] == pytest.approx(4 * 0.5**3 * 1e-30, rel=1e-12)


@pytest.mark.parametrize("procedure", [Sampling(), BestOfN(3), WorstOfN(3)], ids=str)
def test_selected_draws_follow_the_decoded_distribution(procedure):
    policy, _, rewards = world(7, size=6, levels=3)
    draws = np.random.default_rng(8).choice(6, p=policy, size=(100_000, procedure.n))
    index = procedure.select(rewards[draws])
    kept = np.take_along_axis(draws, index[:, None], 1)[:, 0]
    expected = 100_000 * procedure.distribution(policy, rewards)
    assert chisquare(np.bincount(kept, minlength=6), expected).pvalue > FALSE_ALARM


def test_selection_keeps_leading_axes():
    rewards = np.array([[[1.0, 3.0], [2.0, 0.0]]])
    np.testing.assert_array_equal(BestOfN(2).select(rewards), [[1, 0]])
    np.testing.assert_array_equal(WorstOfN(2).select(rewards), [[0, 1]])
    np.testing.assert_array_equal(Sampling().select(rewards[..., :1]), [[0, 0]])


@pytest.mark.parametrize("procedure", PROCEDURES, ids=NAMES)
def test_procedures_map_distribution_functions(procedure):
    level = np.linspace(0, 1, 101)
    step = 1e-6
    slope = (procedure.cdf(level[1:-1] + step) - procedure.cdf(level[1:-1] - step)) / (2 * step)
    np.testing.assert_allclose(procedure.slope(level[1:-1]), slope, atol=1e-6)
    np.testing.assert_allclose(
        procedure.dual().cdf(level), 1 - procedure.cdf(1 - level), atol=1e-15
    )
    assert procedure.dual().dual() == procedure
    assert procedure.slope(level).max() == pytest.approx(procedure.n)


def test_procedure_of_names_the_two_kinds():
    assert procedure_of(4, "best") == BestOfN(4)
    assert procedure_of(4, "worst") == WorstOfN(4)
    assert [p.name for p in (Sampling(), BestOfN(4), WorstOfN(2))] == [
        "sampling",
        "best of 4",
        "worst of 2",
    ]


def test_formula_is_thousands_of_times_faster_than_enumeration():
    rng = np.random.default_rng(9)
    policy, rewards = rng.dirichlet(np.ones(12)), rng.normal(size=12)
    start = time.perf_counter()
    expected = chances_by_enumeration(policy, rewards, BestOfN(5))
    enumeration = time.perf_counter() - start
    formula = math.inf
    for _ in range(200):
        start = time.perf_counter()
        decoded = BestOfN(5).distribution(policy, rewards)
        formula = min(formula, time.perf_counter() - start)
    np.testing.assert_allclose(decoded, expected, atol=1e-12)
    assert enumeration / formula > 4000  # well above 1e4 where nothing else runs


def test_formula_needs_memory_linear_in_the_responses():
    rng = np.random.default_rng(25)
    size = 100_000
    policy, rewards = rng.dirichlet(np.ones(size)), rng.normal(size=size)
    tracemalloc.start()
    BestOfN(5).distribution(policy, rewards)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 25 * 8 * size


# Win rates


@settings(deadline=None)
@given(seeds, procedures, st.integers(1, 12), st.integers(1, 6))
def test_win_rate_compares_the_decoded_policies_pair_by_pair(seed, procedure, size, levels):
    policy, base, rewards = world(seed, size, levels)
    decoded = [procedure.distribution(p, rewards) for p in (policy, base)]
    expected = win_rate_by_pairs(*decoded, rewards)
    assert inference_win_rate(policy, base, rewards, procedure) == pytest.approx(
        expected, abs=1e-12
    )
    back = inference_win_rate(base, policy, rewards, procedure)
    assert expected + back == pytest.approx(1, abs=1e-12)


@settings(deadline=None)
@given(seeds, procedures, st.integers(1, 12), st.integers(1, 6))
def test_a_policy_draws_with_itself(seed, procedure, size, levels):
    policy, _, rewards = world(seed, size, levels)
    assert inference_win_rate(policy, policy, rewards, procedure) == pytest.approx(0.5, abs=1e-12)


@settings(deadline=None)
@given(seeds, procedures, st.integers(1, 12), st.integers(1, 6))
def test_worst_of_n_is_best_of_n_of_negated_rewards(seed, procedure, size, levels):
    policy, base, rewards = world(seed, size, levels)
    won = inference_win_rate(policy, base, rewards, procedure)
    lost = inference_win_rate(policy, base, -rewards, procedure.dual())
    assert won + lost == pytest.approx(1, abs=1e-12)
    gradient = win_rate_gradient(policy, base, rewards, procedure)
    mirrored = -win_rate_gradient(policy, base, -rewards, procedure.dual())
    np.testing.assert_allclose(gradient - gradient.min(), mirrored - mirrored.min(), atol=1e-11)


@pytest.mark.parametrize("procedure", [BestOfN(1), WorstOfN(1)], ids=str)
def test_one_draw_is_sampling(procedure):
    policy, base, rewards = world(10, levels=4)
    np.testing.assert_allclose(procedure.distribution(policy, rewards), policy, atol=1e-15)
    assert inference_win_rate(policy, base, rewards, procedure) == pytest.approx(
        win_rate(policy, base, rewards), abs=1e-15
    )
    assert win_rate(policy, base, rewards) == pytest.approx(
        win_rate_by_pairs(policy, base, rewards)
    )


def test_gradient_of_the_plain_win_rate_is_the_calibrated_reward():
    policy, base, rewards = world(11, levels=4)
    calibrated = calibrated_reward(rewards, base)
    np.testing.assert_allclose(
        win_rate_gradient(policy, base, rewards, Sampling()), calibrated - calibrated.max()
    )


@pytest.mark.parametrize("procedure", PROCEDURES, ids=NAMES)
@pytest.mark.parametrize("levels", [None, 3])
def test_gradient_matches_finite_differences_along_the_simplex(procedure, levels):
    policy, base, rewards = world(12, size=8, levels=levels)
    policy = 0.5 * policy + 0.5 / 8
    gradient = win_rate_gradient(policy, base, rewards, procedure)
    assert gradient.max() == 0
    step = 1e-5
    for i in range(1, 8):
        direction = np.eye(8)[i] - np.eye(8)[0]
        ahead, behind = (
            inference_win_rate(policy + sign * step * direction, base, rewards, procedure)
            for sign in (1, -1)
        )
        slope = (ahead - behind) / (2 * step)
        tolerance = 1e-8 * max(1, procedure.n**3 / 64)
        assert gradient @ direction == pytest.approx(slope, abs=tolerance)


@settings(deadline=None)
@given(seeds, st.integers(1, 12), st.integers(2, 12), st.integers(1, 6), st.floats(0, 1))
def test_win_rate_is_concave_for_best_of_n_and_convex_for_worst(seed, n, size, levels, share):
    policy, base, rewards = world(seed, size, levels)
    other = world(seed + 1, size)[0]
    mixed = share * policy + (1 - share) * other
    for procedure, sign in ((BestOfN(n), 1), (WorstOfN(n), -1)):
        ends = [inference_win_rate(p, base, rewards, procedure) for p in (policy, other)]
        chord = share * ends[0] + (1 - share) * ends[1]
        value = inference_win_rate(mixed, base, rewards, procedure)
        assert sign * (value - chord) >= -1e-12


def test_divergence_matches_the_sum_and_the_limits():
    policy, base, _ = world(13)
    assert kl_divergence(policy, base) == pytest.approx(np.sum(policy * np.log(policy / base)))
    assert kl_divergence(base, base) == 0
    assert kl_divergence([0.0, 1.0], [0.5, 0.5]) == pytest.approx(math.log(2))
    assert kl_divergence([0.5, 0.5], [0.0, 1.0]) == math.inf


def test_prompts_in_a_batch_are_separate():
    rng = np.random.default_rng(14)
    policy, base = rng.dirichlet(np.ones(7), (2, 3))
    rewards = rng.integers(0, 4, (3, 7)) * 1.0
    procedure = BestOfN(3)
    rows = list(zip(policy, base, rewards, strict=True))
    for batch, one in [
        (calibrated_reward(rewards, base), [calibrated_reward(r, q) for _, q, r in rows]),
        (
            procedure.distribution(policy, rewards),
            [procedure.distribution(p, r) for p, _, r in rows],
        ),
        (win_rate(policy, base, rewards), [win_rate(*row) for row in rows]),
        (
            win_rate_gradient(policy, base, rewards, procedure),
            [win_rate_gradient(*row, procedure) for row in rows],
        ),
        (kl_divergence(policy, base), [kl_divergence(p, q) for p, q, _ in rows]),
        (rlhf_policy(base, rewards, 0.3), [rlhf_policy(q, r, 0.3) for _, q, r in rows]),
        (standardized_reward(rewards, base), [standardized_reward(r, q) for _, q, r in rows]),
        (
            infalign_objective(policy, base, rewards, procedure, 0.2),
            [infalign_objective(*row, procedure, 0.2) for row in rows],
        ),
    ]:
        np.testing.assert_allclose(batch, np.stack(one), atol=1e-14)


def test_the_sum_may_be_off_by_the_rounding_of_the_type_given():
    rng = np.random.default_rng(30)
    probs = torch.softmax(torch.tensor(rng.normal(size=1000), dtype=torch.float32), 0)
    rewards = rng.normal(size=1000)
    off = probs.numpy() * np.float32(1 + 3e-6)
    exact = probs.numpy().astype(float)
    np.testing.assert_allclose(
        calibrated_reward(rewards, off), calibrated_reward(rewards, exact / exact.sum()), atol=1e-6
    )
    with pytest.raises(ValueError, match="probs must sum to 1"):
        calibrated_reward(rewards, off.astype(float))
    with pytest.raises(ValueError, match="probs must sum to 1"):
        calibrated_reward(rewards, probs.numpy() * np.float32(1.001))


@pytest.mark.parametrize("kind", [BestOfN, WorstOfN])
@pytest.mark.parametrize("mass", [1e-16, 1e-12, 1e-9, 1e-6])
def test_light_responses_keep_the_digits_of_their_chances(kind, mass):
    decoded = kind(4).distribution([0.5 - mass, mass, 0.5], [0.0, 1.0, 2.0])
    assert decoded[1] == pytest.approx(0.5 * mass, rel=3 * mass + 1e-9)
    first = BestOfN(4).distribution([mass, 1 - mass], [0.0, 1.0])
    assert first[0] == pytest.approx(mass**4, rel=1e-12)


# Transforms


@pytest.mark.parametrize(
    "transform",
    [
        Identity(),
        Exponential(7.0),
        Exponential(-7.0),
        Exponential(700.0),
        Log(),
        FirstOrder(4, "best"),
        FirstOrder(4, "worst"),
        Optimal(4, 0.2, "best"),
        Optimal(4, 0.2, "worst"),
    ],
    ids=lambda transform: transform.name,
)
def test_transforms_rise_and_are_finite(transform):
    assert isinstance(transform, Transform)
    values = transform(np.linspace(0, 1, 1001))
    assert np.all(np.isfinite(values))
    assert np.all(np.diff(values) >= 0)
    assert values[-1] > values[0]
    assert transform(0.5) == values[500]
    assert transform == type(transform)(**vars_of(transform))


def vars_of(transform):
    return {name: getattr(transform, name) for name in transform.__dataclass_fields__}


def test_transforms_have_their_formulas():
    u = np.array([0.0, 0.001, 0.3, 1.0])
    np.testing.assert_array_equal(Identity()(u), u)
    np.testing.assert_allclose(Exponential(3)(u), np.exp(3 * u))
    np.testing.assert_allclose(Exponential(-3)(u), -np.exp(-3 * u))
    np.testing.assert_allclose(Log(0.01)(u), np.log([0.01, 0.01, 0.3, 1.0]))
    np.testing.assert_allclose(FirstOrder(3, "best")(u), 9 / 5 * u**5)
    np.testing.assert_allclose(FirstOrder(3, "worst")(u), -9 / 5 * (1 - u) ** 5)
    np.testing.assert_array_equal(FirstOrder(1, "best")(u), u)
    names = [t.name for t in (Exponential(10), Exponential(-5.5), FirstOrder(3, "worst"))]
    assert names == ["exp(+10)", "exp(-5.5)", "first order, worst of 3"]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_small_exponent_is_the_identity(sign):
    small = Exponential(sign * 1e-5)
    for procedure in (BestOfN(4), WorstOfN(4)):
        rates = [
            continuum_win_rate(density(t, continuum_beta_for_kl(t, 0.5)), procedure)
            for t in (Identity(), small)
        ]
        assert rates[0] == pytest.approx(rates[1], abs=1e-5)


@pytest.mark.parametrize("kind", ["best", "worst"])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_first_order_transform_is_the_gradient_at_the_base(n, kind):
    base, rewards = equal_atoms()
    gradient = win_rate_gradient(base, base, rewards, procedure_of(n, kind))
    phi = FirstOrder(n, kind)(calibrated_reward(rewards, base))
    np.testing.assert_allclose(gradient, phi - phi[-1], atol=5 * n / MANY)


@pytest.mark.parametrize("kind", ["best", "worst"])
def test_optimal_transform_is_the_gradient_at_the_optimum(kind):
    base, rewards = equal_atoms(4000)
    calibrated = calibrated_reward(rewards, base)
    transform = Optimal(4, 0.3, kind)
    policy = rlhf_policy(base, transform(calibrated), 0.3)
    gradient = win_rate_gradient(policy, base, rewards, procedure_of(4, kind))
    phi = transform(calibrated)
    np.testing.assert_allclose(gradient, phi - phi[-1], atol=5e-3)


def test_optimal_transform_gives_back_the_optimum():
    policy, optimum = density(Optimal(4, 0.2, "best"), 0.2), optimal_density(4, 0.2, "best")
    np.testing.assert_allclose(policy.f, optimum.f, rtol=1e-9)


# Optimal policies on finite spaces


def test_gibbs_policy_has_its_formula_and_beats_other_policies():
    _, base, reward = world(15)
    policy = rlhf_policy(base, reward, 0.4)
    weights = base * np.exp(reward / 0.4)
    np.testing.assert_allclose(policy, weights / weights.sum(), rtol=1e-13)
    best = policy @ reward - 0.4 * kl_divergence(policy, base)
    assert best == pytest.approx(0.4 * math.log(weights.sum()))
    for seed in range(50):
        other = world(seed)[0]
        assert other @ reward - 0.4 * kl_divergence(other, base) < best


@pytest.mark.parametrize("beta", [5e-324, 1e-300, 1e-8])
def test_tiny_beta_leaves_the_best_response(beta):
    policy = rlhf_policy([0.2, 0.0, 0.3, 0.5], [1.0, 1e308, 2.0, -1e308], beta)
    np.testing.assert_array_equal(policy, [0, 0, 1, 0])


@pytest.mark.parametrize("procedure", [BestOfN(4), WorstOfN(4), Sampling()], ids=str)
def test_the_solver_survives_a_tiny_beta(procedure):
    _, base, rewards = world(16)
    solution = solve_infalign(base, rewards, procedure, 1e-5, start=np.full(6, 1 / 6))
    limit = inference_win_rate(np.eye(6)[np.argmax(rewards)], base, rewards, procedure)
    assert solution.converged
    assert limit - 1e-3 < solution.objective < limit


@settings(deadline=None)
@given(seeds, st.floats(0.01, 0.9))
def test_beta_for_kl_inverts_the_divergence(seed, share):
    _, base, rewards = world(seed)
    kl = share * -math.log(base[np.argmax(rewards)])
    beta = beta_for_kl(base, rewards, kl)
    assert kl_divergence(rlhf_policy(base, rewards, beta), base) == pytest.approx(kl, rel=1e-6)


def test_beta_for_kl_of_prompts_meets_the_mean():
    base = np.random.default_rng(17).dirichlet(np.ones(50), 4)
    rewards = np.random.default_rng(18).normal(size=(4, 50)) * [[0.3], [1], [3], [10]]
    beta = beta_for_kl(base, rewards, 0.5)
    divergences = kl_divergence(rlhf_policy(base, rewards, beta), base)
    assert divergences.mean() == pytest.approx(0.5)
    assert np.all(np.diff(divergences) > 0)  # raw rewards spend the budget on the largest scale


def test_rewards_of_any_size_are_scaled():
    base, huge = [0.3, 0.3, 0.4], [-1e308, 1.0, 1e308]
    beta = beta_for_kl(base, huge, 0.1)
    assert kl_divergence(rlhf_policy(base, huge, beta), base) == pytest.approx(0.1)
    half = [0.5, 0.5]
    for rewards in ([0.0, 5e-324], [-1e-200, 1e-200], [-1e200, 1e200], [-1e308, 1.7e308]):
        np.testing.assert_allclose(standardized_reward(rewards, half), [-1, 1])
    close = standardized_reward([1.0, 1 + 2**-50, 0.0], [0.5, 0.5, 0.0])
    np.testing.assert_allclose(close[:2], [-1, 1], rtol=1e-3)
    calibrator = RewardCalibrator("quantile").fit([[-1e308, 1e308], [0.0, 5e-324]])
    calibrated = calibrator.transform([0, 0, 0, 1, 1], [-1.5e308, 0.0, 1e308, 0.0, 5e-324])
    np.testing.assert_allclose(calibrated, [0.25, 0.5, 0.75, 0.25, 0.75])


def test_convergence_is_judged_relative_to_a_large_beta():
    base, rewards = equal_atoms(50)
    for beta in (1e6, 1e12):
        solution = solve_infalign(base, rewards, BestOfN(4), beta)
        assert solution.converged
        np.testing.assert_allclose(solution.policy, base, rtol=1e-4)


def test_stationary_points_hold_the_best_of_a_steep_problem():
    points = stationary_solutions([0.05, 0.14, 0.74, 0.07], np.arange(4.0), WorstOfN(32), 0.001)
    assert points[0].objective == pytest.approx(0.99920, abs=1e-5)
    assert points[0].converged


def test_stationary_points_hold_the_ends_of_ascents():
    rng = np.random.default_rng(31)
    for _ in range(60):
        size, n, beta = rng.integers(2, 9), int(rng.choice([2, 4, 8, 32])), 10 ** rng.uniform(-3, 0)
        base, start = rng.dirichlet(np.ones(size), 2)
        rewards = rng.normal(size=size)
        points = stationary_solutions(base, rewards, WorstOfN(n), beta)
        for first in (base, start):
            end = solve_infalign(base, rewards, WorstOfN(n), beta, start=first, tol=1e-12)
            distances = [np.abs(point.policy - end.policy).sum() for point in points]
            assert not end.converged or min(distances) < 2e-3


@pytest.mark.parametrize("beta", [0.05, 0.2, 1.0])
@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_solver_matches_direct_maximisation_for_best_of_n(n, beta):
    _, base, rewards = world(19, size=7, levels=5)
    procedure = BestOfN(n)

    def loss(logits):
        policy = softmax(logits)
        value = -infalign_objective(policy, base, rewards, procedure, beta)
        reward = win_rate_gradient(policy, base, rewards, procedure)
        reward = reward - beta * np.log(policy / base)
        return value, -policy * (reward - policy @ reward)

    rng = np.random.default_rng(20)
    found = [
        minimize(loss, rng.normal(size=7), jac=True, method="BFGS", options={"gtol": 1e-10}).fun
        for _ in range(3)
    ]
    solution = solve_infalign(base, rewards, procedure, beta)
    assert solution.converged
    assert solution.objective == pytest.approx(-min(found), abs=1e-8)
    assert solution.objective == pytest.approx(-max(found), abs=1e-6)  # every start ends there
    assert solution.objective == pytest.approx(solution.win_rate - beta * solution.kl)
    won = inference_win_rate(solution.policy, base, rewards, procedure)
    assert solution.win_rate == pytest.approx(won, abs=1e-14)
    assert solution.kl == pytest.approx(kl_divergence(solution.policy, base), abs=1e-14)


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(1, 8), st.floats(0.03, 3), st.integers(2, 15), st.integers(2, 6))
def test_solver_ends_at_the_only_stationary_point_of_best_of_n(seed, n, beta, size, levels):
    _, base, rewards = world(seed, size, levels)
    points = stationary_solutions(base, rewards, BestOfN(n), beta)
    assert len(points) == 1
    assert points[0].converged
    solution = solve_infalign(base, rewards, BestOfN(n), beta, tol=1e-12)
    np.testing.assert_allclose(solution.policy, points[0].policy, atol=1e-4)
    assert solution.objective == pytest.approx(points[0].objective, abs=1e-11)


@settings(max_examples=40, deadline=None)
@given(seeds, procedures, st.floats(0.05, 3))
def test_stationary_points_are_gibbs_policies_of_their_own_gradient(seed, procedure, beta):
    _, base, rewards = world(seed, size=8, levels=5)
    points = stationary_solutions(base, rewards, procedure, beta)
    assert points
    for point in points:
        gradient = win_rate_gradient(point.policy, base, rewards, procedure)
        np.testing.assert_allclose(rlhf_policy(base, gradient, beta), point.policy, atol=1e-7)


def test_worst_of_n_has_three_stationary_points_on_two_responses():
    points = stationary_solutions([0.99, 0.01], [0.0, 1.0], WorstOfN(4), 0.2)
    good = [point.policy[1] for point in points]
    np.testing.assert_allclose(good, [0.0100001, 0.9947743, 0.8635904], atol=1e-7)
    objectives = [point.objective for point in points]
    np.testing.assert_allclose(objectives, [0.5, 0.0799, 0.0621], atol=5e-5)
    # The two hills are found from either side of the valley between them.
    for start, expected in ((0.8, good[0]), (0.9, good[1])):
        solution = solve_infalign(
            [0.99, 0.01], [0.0, 1.0], WorstOfN(4), 0.2, start=[1 - start, start]
        )
        assert solution.converged
        assert solution.policy[1] == pytest.approx(expected, abs=1e-5)


def test_stationary_points_on_two_responses_solve_their_equation():
    """On two responses the condition is ``logit p = logit q + g(1 - p) / (2 beta)``."""
    for procedure, beta, q in [(WorstOfN(4), 0.2, 0.01), (BestOfN(8), 0.1, 0.3)]:
        for point in stationary_solutions([1 - q, q], [0.0, 1.0], procedure, beta):
            p = point.policy[1]
            slope = float(procedure.slope(1 - p))
            left = math.log(p / (1 - p)) - math.log(q / (1 - q))
            assert left == pytest.approx(slope / (2 * beta), rel=1e-9)


def test_responses_without_base_mass_stay_out():
    base, rewards = [0.5, 0.0, 0.5], [0.0, 5.0, 1.0]
    solution = solve_infalign(base, rewards, BestOfN(2), 0.3)
    assert solution.policy[1] == 0
    small = solve_infalign([0.5, 0.5], [0.0, 1.0], BestOfN(2), 0.3)
    np.testing.assert_allclose(solution.policy[[0, 2]], small.policy)
    (point,) = stationary_solutions(base, rewards, BestOfN(2), 0.3)
    np.testing.assert_allclose(point.policy, solution.policy, atol=1e-5)
    path = fixed_point_iteration(base, rewards, BestOfN(2), 0.3, iterations=3)
    np.testing.assert_array_equal(path[:, 1], 0)


def test_equal_rewards_leave_the_base():
    base = np.array([0.2, 0.3, 0.5])
    for solution in (
        solve_infalign(base, [1.0, 1.0, 1.0], BestOfN(4), 0.1),
        *stationary_solutions(base, [1.0, 1.0, 1.0], WorstOfN(4), 0.1),
    ):
        np.testing.assert_allclose(solution.policy, base, atol=1e-12)
        assert solution.objective == pytest.approx(0.5)


def test_solvers_cope_with_a_response_too_rare_for_the_sums():
    base, rewards = [0.5, 1e-30, 0.5], [0.0, 1.0, 2.0]
    (point,) = stationary_solutions(base, rewards, BestOfN(3), 0.2)
    solution = solve_infalign(base, rewards, BestOfN(3), 0.2)
    assert point.policy[1] > 0
    np.testing.assert_allclose(solution.policy, point.policy, rtol=1e-4)


def test_solver_without_decoding_takes_one_step_to_the_calibrated_optimum():
    _, base, rewards = world(21)
    solution = solve_infalign(base, rewards, Sampling(), 0.2)
    assert solution.iterations == 1
    np.testing.assert_allclose(solution.policy, ctrl_policy(base, rewards, Identity(), 0.2))


def test_solver_says_when_it_has_not_converged():
    base, rewards = equal_atoms(100)
    solution = solve_infalign(base, rewards, BestOfN(4), 0.1, max_iterations=2)
    assert not solution.converged
    assert solution.iterations == 2
    out_of_reach = solve_infalign(base, rewards, BestOfN(4), 0.1, tol=1e-300, max_iterations=50)
    assert not out_of_reach.converged
    assert out_of_reach.iterations == 50


@pytest.mark.parametrize("damping", [0.0, 0.5])
def test_fixed_point_iteration_fails_for_best_of_n(damping):
    base, rewards = equal_atoms(100)
    optimum = solve_infalign(base, rewards, BestOfN(4), 0.1).objective
    path = fixed_point_iteration(base, rewards, BestOfN(4), 0.1, damping=damping, iterations=2000)
    late = [infalign_objective(policy, base, rewards, BestOfN(4), 0.1) for policy in path[-2:]]
    assert max(late) < optimum - 0.005
    assert np.abs(path[-1] - path[-2]).sum() > 0.01  # it still jumps to and fro


def test_fixed_point_iteration_works_with_enough_damping_and_for_worst_of_n():
    base, rewards = equal_atoms(100)
    for procedure, damping in ((BestOfN(4), 0.95), (WorstOfN(4), 0.0)):
        optimum = solve_infalign(base, rewards, procedure, 0.1)
        path = fixed_point_iteration(base, rewards, procedure, 0.1, damping=damping, iterations=500)
        np.testing.assert_allclose(path[0], base)
        np.testing.assert_allclose(path[-1], optimum.policy, atol=1e-4)
    values = [infalign_objective(policy, base, rewards, WorstOfN(4), 0.1) for policy in path]
    assert np.all(np.diff(values) > -1e-12)  # every full step of worst of N ascends


# Baselines


def test_ipo_policy_minimises_the_population_loss():
    _, base, rewards = world(22, size=6, levels=4)
    beta = 0.3
    rows, targets = [], []
    for i, j in itertools.product(range(6), repeat=2):
        preferred = 0.5 if rewards[i] == rewards[j] else float(rewards[i] > rewards[j])
        weight = math.sqrt(base[i] * base[j] * preferred)
        rows.append(weight * (np.eye(6)[i] - np.eye(6)[j]))
        targets.append(weight / (2 * beta))
    log_ratio = np.linalg.lstsq(np.array(rows), np.array(targets))[0]
    policy = base * np.exp(log_ratio)
    np.testing.assert_allclose(ipo_policy(base, rewards, beta), policy / policy.sum(), rtol=1e-10)


def test_standardized_rewards_have_mean_zero_and_deviation_one():
    _, base, rewards = world(23)
    scaled = standardized_reward(40 + 1000 * rewards, base)
    assert base @ scaled == pytest.approx(0, abs=1e-12)
    assert base @ scaled**2 == pytest.approx(1)
    np.testing.assert_allclose(scaled, standardized_reward(rewards, base))


def test_no_reward_beats_the_calibrated_one_in_plain_win_rate_at_equal_kl():
    _, base, rewards = world(24, size=500)
    calibrated = calibrated_reward(rewards, base)
    rates = [
        win_rate(rlhf_policy(base, reward, beta_for_kl(base, reward, 0.5)), base, rewards)
        for reward in (
            calibrated,
            rewards,
            standardized_reward(rewards, base),
            Exponential(10.0)(calibrated),
            Exponential(-10.0)(calibrated),
            Log()(calibrated),
        )
    ]
    assert rates[0] > max(rates[1:]) + 1e-4


@pytest.mark.parametrize("m", [2, 3, 5])
@pytest.mark.parametrize("n", [1, 2, 4, 6])
def test_distillation_gains_nothing_from_best_of_n(m, n):
    base, rewards = equal_atoms()
    policy = distilled_policy(base, rewards, m)
    np.testing.assert_array_equal(policy, BestOfN(m).distribution(base, rewards))
    won = inference_win_rate(policy, base, rewards, BestOfN(n))
    assert won == pytest.approx(distilled_win_rate(m), abs=1e-4)
    assert kl_divergence(policy, base) == pytest.approx(distilled_kl(m), abs=0.01)


# The continuum


def test_closed_forms_have_the_known_figures():
    assert identity_win_rate(0.5) == pytest.approx(0.6565176, abs=5e-8)
    assert identity_kl(0.5) == pytest.approx(0.1515959, abs=5e-8)
    assert distilled_kl(4) == pytest.approx(0.6362944, abs=5e-8)
    assert distilled_win_rate(4) == 0.8


@pytest.mark.parametrize("beta", [0.02, 0.1, 0.5, 3.0])
def test_identity_density_matches_its_closed_forms(beta):
    policy = density(Identity(), beta)
    u = policy.u
    expected = np.exp((u - 1) / beta) / (beta * -math.expm1(-1 / beta))
    np.testing.assert_allclose(policy.f, expected, rtol=1e-10)
    assert continuum_win_rate(policy, Sampling()) == pytest.approx(identity_win_rate(beta))
    assert policy.kl == pytest.approx(identity_kl(beta), abs=1e-11)


@pytest.mark.parametrize("m", [1.0, 1.5, 2, 4, 30])
def test_distilled_density_matches_its_closed_forms(m):
    policy = distilled_density(m)
    np.testing.assert_allclose(policy.f, m * policy.u ** (m - 1), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(policy.cdf, policy.u**m, atol=1e-9)
    assert policy.kl == pytest.approx(distilled_kl(m), abs=1e-7)
    for procedure in (Sampling(), BestOfN(4), BestOfN(32)):
        assert continuum_win_rate(policy, procedure) == pytest.approx(distilled_win_rate(m))
    if m > 1:
        log = density(Log(1e-300), 1 / (m - 1))
        np.testing.assert_allclose(log.cdf, policy.cdf, atol=1e-12)


def test_worst_of_n_win_rate_of_distillation_matches_quadrature():
    expected = quad(lambda u: 4 * (1 - u**4) ** 4 * (1 - u) ** 3, 0, 1)[0]
    won = continuum_win_rate(distilled_density(4), WorstOfN(4))
    assert won == pytest.approx(expected, abs=1e-10)
    assert won == pytest.approx(0.95299, abs=5e-6)


@pytest.mark.parametrize("procedure", PROCEDURES, ids=NAMES)
def test_the_base_wins_half_in_the_continuum(procedure):
    policy = Density(np.zeros(8001))
    assert policy.kl == pytest.approx(0, abs=1e-14)
    assert continuum_win_rate(policy, procedure) == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize("procedure", [BestOfN(4), WorstOfN(4), Sampling()], ids=str)
def test_continuum_matches_quadrature_and_many_responses(procedure):
    transform, beta = Exponential(5.0), 60.0
    policy = density(transform, beta)
    total = quad(lambda u: math.exp(math.exp(5 * u) / beta), 0, 1)[0]

    def cdf(u):
        return quad(lambda v: math.exp(math.exp(5 * v) / beta), 0, u)[0] / total

    inner = quad(lambda u: float(procedure.cdf(cdf(u)) * procedure.slope(u)), 0, 1)[0]
    assert continuum_win_rate(policy, procedure) == pytest.approx(1 - inner, abs=1e-8)
    base, rewards = equal_atoms()
    finite = ctrl_policy(base, rewards, transform, beta)
    won = inference_win_rate(finite, base, rewards, procedure)
    assert won == pytest.approx(1 - inner, abs=1e-4)
    assert kl_divergence(finite, base) == pytest.approx(policy.kl, abs=1e-4)


def test_decoded_density_is_the_slope_of_the_decoded_distribution():
    policy = density(Identity(), 0.3)
    for procedure in (BestOfN(8), WorstOfN(8)):
        decoded, u = policy.decoded(procedure), policy.u
        mass = np.sum(np.diff(u) * (decoded[1:] + decoded[:-1]) / 2)
        assert mass == pytest.approx(1, abs=1e-5)
        slopes = np.diff(procedure.cdf(policy.cdf)) / np.diff(u)
        np.testing.assert_allclose((decoded[1:] + decoded[:-1]) / 2, slopes, atol=1e-4)


# Win rates that were measured on a trapezoid grid of 4001 points, before this code was written:
# kind, N, KL; identity, log, exp(5), exp(10), best exponential, first order, optimum, its beta.
TABLE = [
    ("best", 2, 0.5, 0.7917, 0.7682, 0.8154, 0.8031, 0.8154, 0.8132, 0.8156, 0.2340),
    ("best", 4, 0.1, 0.6562, 0.6185, 0.6994, 0.7057, 0.7058, 0.7050, 0.7059, 0.8798),
    ("best", 4, 0.5, 0.7998, 0.7682, 0.8566, 0.8715, 0.8726, 0.8665, 0.8732, 0.2166),
    ("best", 4, 1.0, 0.8770, 0.8631, 0.9192, 0.9351, 0.9399, 0.9284, 0.9411, 0.0831),
    ("best", 8, 0.5, 0.8036, 0.7682, 0.8746, 0.9037, 0.9285, 0.9175, 0.9298, 0.1700),
    ("worst", 2, 0.5, 0.8403, 0.8559, 0.8587, 0.8509, 0.8594, 0.8596, 0.8603, 0.2805),
    ("worst", 4, 0.1, 0.6808, 0.7235, 0.7339, 0.7339, 0.7367, 0.7367, 0.7374, 1.1473),
    ("worst", 4, 0.5, 0.8860, 0.9270, 0.9439, 0.9476, 0.9476, 0.9475, 0.9479, 0.2084),
    ("worst", 8, 0.1, 0.6949, 0.7788, 0.7934, 0.8220, 0.8250, 0.8242, 0.8256, 1.4097),
]


def rate_at(transform, kl, procedure):
    return continuum_win_rate(density(transform, continuum_beta_for_kl(transform, kl)), procedure)


@functools.cache
def optimum_at(n, kl, kind):
    beta = optimal_beta_for_kl(n, kl, kind)
    return beta, optimal_density(n, beta, kind)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]} of {row[1]}, KL {row[2]}")
def test_win_rates_at_equal_kl_match_the_table_and_the_optimum_is_on_top(row):
    kind, n, kl, *expected, beta = row
    procedure, sign = procedure_of(n, kind), 1 if kind == "best" else -1
    fixed = (Identity(), Log(1e-300), Exponential(5 * sign), Exponential(10 * sign))
    found = [rate_at(transform, kl, procedure) for transform in fixed]
    found += [best_exponent(n, kl, kind)[1], rate_at(FirstOrder(n, kind), kl, procedure)]
    own_beta, optimum = optimum_at(n, kl, kind)
    assert optimum.kl == pytest.approx(kl, abs=1e-9)
    found.append(continuum_win_rate(optimum, procedure))
    np.testing.assert_allclose(found, expected, atol=5e-4)
    assert own_beta == pytest.approx(beta, abs=5e-4)
    assert found[-1] >= max(found[:-1])  # A1


def test_exponential_is_near_the_optimum_where_identity_is_not():
    """A2, for the best of 4 at a divergence of 0.5."""
    rates = [rate_at(t, 0.5, BestOfN(4)) for t in (Identity(), Exponential(10))]
    optimum = continuum_win_rate(optimum_at(4, 0.5, "best")[1], BestOfN(4))
    assert optimum - rates[1] < 0.002
    assert optimum - rates[0] > 0.07


@pytest.mark.parametrize("n", [2, 4, 8, 32])
def test_log_loses_to_identity_for_best_of_n_and_wins_for_worst(n):
    """A3."""
    for kl in (0.1, 0.5, 1.0):
        log, identity = Log(1e-300), Identity()
        assert rate_at(log, kl, BestOfN(n)) < rate_at(identity, kl, BestOfN(n))
        assert rate_at(log, kl, WorstOfN(n)) > rate_at(identity, kl, WorstOfN(n))


def test_best_exponent_grows_with_n():
    """A4, with the figures found on a grid of 20001 points; the optimum in t is flat."""
    expected = {2: (4.57, 0.81558), 4: (12.63, 0.87271), 8: (34.18, 0.92852), 16: (103.9, 0.96976)}
    found = {n: best_exponent(n, 0.5, "best") for n in expected}
    for n, (t, won) in expected.items():
        assert found[n][1] == pytest.approx(won, abs=1e-4)
        assert found[n][0] == pytest.approx(t, rel=0.05)
    slope = np.polyfit(np.log(list(found)), np.log([t for t, _ in found.values()]), 1)[0]
    assert 1.3 < slope < 1.7
    worst = [best_exponent(n, 0.5, "worst")[0] for n in (2, 4, 8)]
    assert np.all(np.diff(worst) < 0)


@pytest.mark.parametrize("kind", ["best", "worst"])
@pytest.mark.parametrize("n", [1, 2, 4, 8, 32])
@pytest.mark.parametrize("beta", [0.05, 0.2166, 1.0, 30.0])
def test_virial_identity_holds_at_the_optimum(kind, n, beta):
    """A5; on this grid the residual is far below 1e-5."""
    optimum = optimal_density(n, beta, kind)
    won = continuum_win_rate(optimum, procedure_of(n, kind))
    assert virial_win_rate(optimum, n, beta, kind) == pytest.approx(won, abs=2e-7)


@pytest.mark.parametrize(
    ("n", "beta", "kind"),
    [(n, 1e-3, "best") for n in (1, 2, 8, 32)]
    + [(64, 3e-3, "best"), (200, 3e-2, "best")]
    + [(n, 1e-5, "worst") for n in (1, 2, 8, 32, 64, 200)],
)
def test_the_documented_range_is_resolved(n, beta, kind):
    optimum = optimal_density(n, beta, kind)
    won = continuum_win_rate(optimum, procedure_of(n, kind))
    assert virial_win_rate(optimum, n, beta, kind) == pytest.approx(won, abs=1e-4)
    assert 0.5 < won < 1


@pytest.mark.parametrize(
    ("n", "kl", "kind"),
    [(4, 5.0, "worst"), (32, 1.0, "best"), (64, 0.5, "best"), (200, 0.1, "best")],
)
def test_optimal_beta_for_kl_reaches_what_is_resolved(n, kl, kind):
    beta = optimal_beta_for_kl(n, kl, kind)
    assert optimal_density(n, beta, kind).kl == pytest.approx(kl, rel=1e-6)


def test_the_base_ties_with_itself_for_many_draws():
    base = density(Exponential(-1e-6), 1e9)
    for n in (32, 1000, 20_000):
        for kind in ("best", "worst"):
            assert continuum_win_rate(base, procedure_of(n, kind)) == pytest.approx(0.5, abs=1e-6)


def test_identity_closed_forms_hold_in_the_limits():
    assert identity_win_rate(1e17) == 0.5
    assert identity_kl(1e17) == pytest.approx(1e-34 / 24)
    assert identity_kl(5e-324) == pytest.approx(-1 - math.log(5e-324))
    assert identity_kl(1e-12) == pytest.approx(12 * math.log(10) - 1, rel=1e-14)
    below, above = math.nextafter(10, 0), 10.0  # where the forms change
    assert identity_win_rate(below) == pytest.approx(identity_win_rate(above), rel=1e-13)
    assert identity_kl(below) == pytest.approx(identity_kl(above), rel=1e-11)


def test_best_exponent_says_when_it_is_at_its_end():
    assert best_exponent(32, 2.0, "best")[0] == 700


def test_worst_of_n_saturates():
    won = continuum_win_rate(optimal_density(4, 0.1, "worst"), WorstOfN(4))
    assert won == pytest.approx(1 - 0.1 / 4, abs=1e-6)


@pytest.mark.parametrize("kind", ["best", "worst"])
@pytest.mark.parametrize(("n", "beta"), [(2, 0.3), (4, 0.2166), (8, 0.5)])
def test_optimal_density_matches_a_boundary_value_solver(kind, n, beta):
    def g(level):
        return n * (level if kind == "best" else 1 - level) ** (n - 1)

    def slopes(u, state):
        return np.stack([g(state[1]) * g(u) / beta, np.exp(state[0])])

    grid = np.linspace(0, 1, 201)
    guess = density(FirstOrder(n, kind), beta)
    start = np.stack([np.interp(grid, guess.u, y) for y in (guess.log_density, guess.cdf)])
    solved = solve_bvp(
        slopes, lambda a, b: np.array([a[1], b[1] - 1]), grid, start, tol=1e-10, max_nodes=50_000
    )
    assert solved.success
    optimum = optimal_density(n, beta, kind)
    np.testing.assert_allclose(solved.sol(optimum.u)[0], optimum.log_density, atol=1e-6)
    np.testing.assert_allclose(solved.sol(optimum.u)[1], optimum.cdf, atol=1e-7)


@pytest.mark.parametrize("kind", ["best", "worst"])
@pytest.mark.parametrize(("n", "beta"), [(2, 0.234), (4, 0.2166), (4, 1.0), (8, 0.17)])
def test_optimal_density_matches_many_responses(kind, n, beta):
    base, rewards = equal_atoms()
    finite = solve_infalign(base, rewards, procedure_of(n, kind), beta)
    optimum = optimal_density(n, beta, kind)
    won = continuum_win_rate(optimum, procedure_of(n, kind))
    assert finite.win_rate == pytest.approx(won, abs=2e-3)
    assert finite.kl == pytest.approx(optimum.kl, abs=5e-3)


@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("beta", [0.02, 0.1, 1.0])
def test_worst_of_n_has_one_stationary_point_on_many_equal_responses(n, beta):
    base, rewards = equal_atoms(200)
    assert len(stationary_solutions(base, rewards, WorstOfN(n), beta)) == 1


@pytest.mark.parametrize("kind", ["best", "worst"])
def test_the_optimum_tends_to_the_first_order_density(kind):
    for beta, tolerance in ((10.0, 0.02), (1000.0, 2e-6)):
        optimum = optimal_density(4, beta, kind)
        first = density(FirstOrder(4, kind), beta)
        np.testing.assert_allclose(optimum.log_density, first.log_density, atol=tolerance)


@pytest.mark.parametrize("kind", ["best", "worst"])
def test_one_draw_has_the_identity_density_as_optimum(kind):
    np.testing.assert_allclose(
        optimal_density(1, 0.3, kind).f, density(Identity(), 0.3).f, rtol=1e-8
    )


def test_curves_trace_single_policies():
    betas = [0.1, 0.5, 2.0]
    kl, won = continuum_curve(Identity(), Sampling(), betas)
    np.testing.assert_allclose(kl, [identity_kl(beta) for beta in betas])
    np.testing.assert_allclose(won, [identity_win_rate(beta) for beta in betas])
    kl, won = optimal_curve(4, "worst", betas)
    optimum = optimal_density(4, 0.5, "worst")
    assert (kl[1], won[1]) == (optimum.kl, continuum_win_rate(optimum, WorstOfN(4)))
    assert np.all(np.diff(kl) < 0)
    assert np.all(np.diff(won) < 0)


@settings(max_examples=40, deadline=None)
@given(st.floats(-400, 400).filter(lambda t: abs(t) > 1e-3), st.floats(1e-4, 4.5))
def test_continuum_beta_for_kl_inverts_the_divergence(t, kl):
    beta = continuum_beta_for_kl(Exponential(t), kl)
    assert density(Exponential(t), beta).kl == pytest.approx(kl, rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 16), st.floats(0.01, 2), st.sampled_from(["best", "worst"]), st.floats(-30, 30)
)
def test_no_exponential_beats_the_optimum_in_the_objective(n, beta, kind, t):
    optimum, procedure = optimal_density(n, beta, kind), procedure_of(n, kind)
    highest = continuum_win_rate(optimum, procedure) - beta * optimum.kl
    transform = Exponential(t if abs(t) > 0.1 else 0.1)
    other = density(transform, continuum_beta_for_kl(transform, max(optimum.kl, 1e-6)))
    assert continuum_win_rate(other, procedure) - beta * other.kl <= highest + 1e-9


class Constant(Transform):
    """A map that prefers nothing."""

    name = "constant"

    def _map(self, quantile):
        return np.ones_like(quantile)


class Plateau(Transform):
    """A map that cannot tell the better half apart, so that no beta gives more than log 2."""

    name = "plateau"

    def _map(self, quantile):
        return np.minimum(quantile, 0.5)


# Bad input

GOOD = [0.2, 0.8]
R2 = [0.0, 1.0]
FITTED = RewardCalibrator().fit([[0.0, 1.0, 2.0]])
OPTIMUM = optimal_density(2, 0.5, "best")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: calibrated_reward([0.0, math.nan], GOOD), ValueError, "rewards"),
        (lambda: calibrated_reward([0.0, math.inf], GOOD), ValueError, "rewards"),
        (lambda: calibrated_reward([], []), ValueError, "rewards"),
        (lambda: calibrated_reward(torch.ones(2).bfloat16(), GOOD), ValueError, "rewards"),
        (lambda: calibrated_reward(R2, torch.ones(2, requires_grad=True)), ValueError, "probs"),
        (lambda: BestOfN(4).cdf(2.0), ValueError, "level"),
        (lambda: WorstOfN(4).slope([-0.1]), ValueError, "level"),
        (lambda: Sampling().cdf(math.nan), ValueError, "level"),
        (lambda: standardized_reward([1e-300, 0, 1e300], [0.5, 0.5, 0]), ValueError, "rewards"),
        (lambda: beta_for_kl(GOOD, R2, 1e-18), ValueError, "kl must"),
        (lambda: beta_for_kl(GOOD, [-1e308, 1e308], 1e-9), ValueError, "reward is too large"),
        (lambda: Exponential(1e-15), ValueError, "t must"),
        (lambda: continuum_beta_for_kl(Identity(), 1e-18), ValueError, "kl must"),
        (lambda: continuum_beta_for_kl(FirstOrder(10**12, "worst"), 0.1), ValueError, "transform"),
        (lambda: continuum_win_rate(OPTIMUM, BestOfN(10**6)), ValueError, "procedure"),
        (lambda: continuum_win_rate(OPTIMUM, WorstOfN(10**9)), ValueError, "procedure"),
        (lambda: optimal_density(32, 1e-6, "best"), ValueError, "beta = 1e-06 is too small"),
        (lambda: optimal_density(200, 1e-5, "best"), ValueError, "n = 200 too large"),
        (lambda: optimal_beta_for_kl(32, 5, "best"), ValueError, "kl = 5.0 is too large for n"),
        (lambda: optimal_beta_for_kl(1000, 0.5, "best"), ValueError, "kl = 0.5 is too large"),
        (lambda: virial_win_rate(OPTIMUM, 2, 1e15, "best"), ValueError, "beta"),
        (lambda: calibrated_reward(3.0, 1.0), ValueError, "rewards"),
        (lambda: calibrated_reward(R2, [0.2, 0.80001]), ValueError, "probs must sum to 1"),
        (lambda: calibrated_reward(R2, [-0.2, 1.2]), ValueError, "probs must be >= 0"),
        (lambda: calibrated_reward(R2, [0.2, math.nan]), ValueError, "probs"),
        (lambda: calibrated_reward(R2, [0.2, 0.3, 0.5]), ValueError, "probs must have shape"),
        (lambda: RewardCalibrator("kernel"), ValueError, "method"),
        (lambda: RewardCalibrator().fit([1.0, 2.0]), ValueError, "base_rewards"),
        (lambda: RewardCalibrator().fit([[]]), ValueError, "base_rewards"),
        (lambda: RewardCalibrator().fit([[math.nan]]), ValueError, "base_rewards"),
        (lambda: RewardCalibrator().transform([0], [0.0]), RuntimeError, "fit"),
        (lambda: RewardCalibrator().num_samples, RuntimeError, "fit"),
        (lambda: FITTED.transform([1], [0.0]), ValueError, "prompt_index must be of prompts seen"),
        (lambda: FITTED.transform([-1], [0.0]), ValueError, "prompt_index must be of prompts seen"),
        (lambda: FITTED.transform([0.0], [0.0]), ValueError, "prompt_index"),
        (lambda: FITTED.transform([0, 0], [0.0]), ValueError, "prompt_index"),
        (lambda: FITTED.transform([0], [math.nan]), ValueError, "rewards"),
        (lambda: FITTED.transform([[0]], [[0.0]]), ValueError, "rewards"),
        (lambda: dkw_band(0), ValueError, "num_samples"),
        (lambda: dkw_band(10, level=1.0), ValueError, "level"),
        (lambda: dkw_band(10, level=math.nan), ValueError, "level"),
        (lambda: BestOfN(0), ValueError, "n must"),
        (lambda: WorstOfN(0), ValueError, "n must"),
        (lambda: BestOfN(2.0), ValueError, "n must"),
        (lambda: procedure_of(2, "median"), ValueError, "kind"),
        (lambda: procedure_of(0, "best"), ValueError, "n must"),
        (lambda: BestOfN(2).distribution([0.5, 0.6], R2), ValueError, "probs"),
        (lambda: BestOfN(2).distribution(GOOD, [math.nan, 0]), ValueError, "rewards"),
        (lambda: BestOfN(2).select([1.0, 2.0, 3.0]), ValueError, "rewards"),
        (lambda: BestOfN(2).select([1.0, math.inf]), ValueError, "rewards"),
        (lambda: Sampling().select(1.0), ValueError, "rewards"),
        (lambda: win_rate([0.5, 0.6], GOOD, R2), ValueError, "policy"),
        (lambda: win_rate(GOOD, [0.5, 0.6], R2), ValueError, "base"),
        (lambda: win_rate(GOOD, GOOD, [0.0, math.nan]), ValueError, "rewards"),
        (lambda: inference_win_rate(GOOD, GOOD, R2, BestOfN), TypeError, "procedure"),
        (lambda: win_rate_gradient(GOOD, GOOD, R2, "best"), TypeError, "procedure"),
        (lambda: kl_divergence(GOOD, [1.0]), ValueError, "policy"),
        (lambda: kl_divergence(GOOD, [[0.5, 0.6]]), ValueError, "base"),
        (lambda: Exponential(0), ValueError, "t must"),
        (lambda: Exponential(math.inf), ValueError, "t must"),
        (lambda: Exponential(701), ValueError, "t must"),
        (lambda: Log(0.0), ValueError, "floor"),
        (lambda: Log(1.0), ValueError, "floor"),
        (lambda: FirstOrder(0, "best"), ValueError, "n must"),
        (lambda: FirstOrder(2, "good"), ValueError, "kind"),
        (lambda: Optimal(2, 0.0, "best"), ValueError, "beta"),
        (lambda: Optimal(2, 0.1, "good"), ValueError, "kind"),
        (lambda: Optimal(0, 0.1, "best"), ValueError, "n must"),
        (lambda: Identity()([0.5, 1.1]), ValueError, "quantile"),
        (lambda: Identity()(-0.1), ValueError, "quantile"),
        (lambda: Identity()(math.nan), ValueError, "quantile"),
        (lambda: rlhf_policy(GOOD, R2, 0.0), ValueError, "beta"),
        (lambda: rlhf_policy(GOOD, [0.0, math.inf], 1.0), ValueError, "reward"),
        (lambda: rlhf_policy([0.5, 0.6], R2, 1.0), ValueError, "base"),
        (lambda: beta_for_kl(GOOD, R2, 0.0), ValueError, "kl must"),
        (lambda: beta_for_kl(GOOD, R2, -math.log(0.8)), ValueError, "kl must be less than"),
        (lambda: beta_for_kl(GOOD, [1.0, 1.0], 0.1), ValueError, "kl must be less than"),
        (lambda: infalign_objective(GOOD, GOOD, R2, BestOfN(2), -1.0), ValueError, "beta"),
        (lambda: solve_infalign(GOOD, R2, BestOfN(2), 0.0), ValueError, "beta"),
        (lambda: solve_infalign([GOOD], [R2], BestOfN(2), 0.1), ValueError, "rewards"),
        (lambda: solve_infalign(GOOD, R2, None, 0.1), TypeError, "procedure"),
        (lambda: solve_infalign(GOOD, R2, BestOfN(2), 0.1, [0.0, 1.0]), ValueError, "start"),
        (lambda: solve_infalign(GOOD, R2, BestOfN(2), 0.1, tol=0.0), ValueError, "tol"),
        (
            lambda: solve_infalign(GOOD, R2, BestOfN(2), 0.1, max_iterations=0),
            ValueError,
            "max_iterations",
        ),
        (lambda: stationary_solutions(GOOD, R2, BestOfN(2), 0.0), ValueError, "beta"),
        (lambda: stationary_solutions(GOOD, R2, BestOfN(2), 0.1, tol=-1), ValueError, "tol"),
        (lambda: fixed_point_iteration(GOOD, R2, BestOfN(2), 0.1, 1.0), ValueError, "damping"),
        (lambda: fixed_point_iteration(GOOD, R2, BestOfN(2), 0.1, -0.1), ValueError, "damping"),
        (
            lambda: fixed_point_iteration(GOOD, R2, BestOfN(2), 0.1, iterations=0),
            ValueError,
            "iterations",
        ),
        (lambda: standardized_reward([0.1, 0.1], GOOD), ValueError, "rewards must differ"),
        (lambda: standardized_reward([0.1, 0.2], [1.0, 0.0]), ValueError, "rewards must differ"),
        (lambda: ctrl_policy(GOOD, R2, np.exp, 0.1), TypeError, "transform"),
        (lambda: ipo_policy(GOOD, R2, 0.0), ValueError, "beta"),
        (lambda: distilled_policy(GOOD, R2, 0), ValueError, "m must"),
        (lambda: Density(np.zeros(7)), ValueError, "log_density"),
        (lambda: Density(np.full(8001, -np.inf)), ValueError, "log_density"),
        (lambda: Density(np.full(8001, np.nan)), ValueError, "log_density"),
        (lambda: Density(np.where(np.arange(8001) > 0, -np.inf, 0)), ValueError, "one point"),
        (lambda: Density(np.where(np.arange(8001) < 7999, -np.inf, 0)), ValueError, "one cell"),
        (lambda: density(Identity(), 1e-9), ValueError, "too steep"),
        (lambda: density(Identity(), 0.0), ValueError, "beta"),
        (lambda: density(np.exp, 0.1), TypeError, "transform"),
        (lambda: continuum_win_rate(np.ones(8001), BestOfN(2)), TypeError, "policy"),
        (lambda: continuum_win_rate(OPTIMUM, 2), TypeError, "procedure"),
        (lambda: OPTIMUM.decoded(2), TypeError, "procedure"),
        (lambda: continuum_curve(Identity(), BestOfN(2), 0.1), ValueError, "betas"),
        (lambda: continuum_curve(Identity(), BestOfN(2), [0.1, 0]), ValueError, "betas"),
        (lambda: optimal_curve(2, "best", [[0.1]]), ValueError, "betas"),
        (lambda: continuum_beta_for_kl(Identity(), 5.1), ValueError, "kl must"),
        (lambda: continuum_beta_for_kl(Identity(), 0.0), ValueError, "kl must"),
        (lambda: continuum_beta_for_kl(np.exp, 0.1), TypeError, "transform"),
        (lambda: continuum_beta_for_kl(Constant(), 0.1), ValueError, "transform"),
        (lambda: continuum_beta_for_kl(Plateau(), 0.7), ValueError, "kl must"),
        (lambda: best_exponent(0, 0.5, "best"), ValueError, "n must"),
        (lambda: best_exponent(2, 9.0, "best"), ValueError, "kl must"),
        (lambda: optimal_density(2, 0.1, "none"), ValueError, "kind"),
        (lambda: optimal_density(0, 0.1, "best"), ValueError, "n must"),
        (lambda: optimal_density(2, math.nan, "best"), ValueError, "beta"),
        (lambda: optimal_beta_for_kl(2, -1.0, "best"), ValueError, "kl must"),
        (lambda: virial_win_rate(OPTIMUM, 2, 0.0, "best"), ValueError, "beta"),
        (lambda: virial_win_rate(OPTIMUM, 0, 0.5, "best"), ValueError, "n must"),
        (lambda: virial_win_rate(OPTIMUM, 2, 0.5, "good"), ValueError, "kind"),
        (lambda: virial_win_rate(None, 2, 0.5, "best"), TypeError, "optimum"),
        (lambda: identity_win_rate(0.0), ValueError, "beta"),
        (lambda: identity_kl(-1.0), ValueError, "beta"),
        (lambda: distilled_density(0.5), ValueError, "m must"),
        (lambda: distilled_kl(0), ValueError, "m must"),
        (lambda: distilled_win_rate(math.nan), ValueError, "m must"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_probabilities_may_be_off_by_rounding():
    off = np.array([0.2, 0.8 + 5e-9])
    assert win_rate(off, off, R2) == pytest.approx(0.5, abs=1e-8)
    assert BestOfN(3).distribution(off, R2).sum() == pytest.approx(1, abs=1e-15)
    assert isinstance(BestOfN(3), Procedure)
