"""Statistics of few runs: closed forms, invariances, and coverage by simulation."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import special, stats

from workingpapers.lab import (
    Estimate,
    bootstrap_interval,
    interquartile_mean,
    iqm_interval,
    linear_fit,
    mean_interval,
    paired_difference,
    paired_ratio,
    proportion_interval,
)

# Not so small that squares underflow, which is refused.
NUMBERS = st.floats(-1e6, 1e6).map(lambda number: number if abs(number) > 1e-50 else 0.0)


def samples(least=2, most=20, elements=NUMBERS):
    return arrays(float, st.integers(least, most), elements=elements)


def covers(estimate, truth):
    return estimate.low <= truth <= estimate.high


def assert_level(hits, trials, lowest, highest=None):
    """Fail if the coverage is outside [lowest, highest]; false alarms have p < 1e-6."""
    highest = lowest if highest is None else highest
    assert stats.binom.cdf(hits, trials, lowest) > 5e-7, hits / trials
    assert stats.binom.sf(hits - 1, trials, highest) > 5e-7, hits / trials


# --- Estimate


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(6.41, 6.12, 6.70, 5), "6.41 [6.12, 6.70]"),
        (Estimate(641.3, 612.2, 670.1, 5), "641 [612, 670]"),
        (Estimate(0.012345, 0.011, 0.0137, 5), "0.0123 [0.0110, 0.0137]"),
        (Estimate(2, 2, 2, 5), "2 [2, 2]"),
        (Estimate(0, -2e307, 1.7e308, 5), f"0 [-{2e307:.0f}, {1.7e308:.0f}]"),
        (Estimate(3e-9, 1e-9, 5e-9, 5), "3.000e-09 [1.000e-09, 5.000e-09]"),
    ],
)
def test_estimates_show_the_digits_that_their_width_supports(estimate, text):
    assert str(estimate) == f"{estimate}" == text


def test_estimates_take_a_format():
    assert f"{Estimate(0.5, 0.25, 0.75, 4):.0%}" == "50% [25%, 75%]"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"value": math.nan}, ValueError, "value"),
        ({"low": -math.inf}, ValueError, "low"),
        ({"high": "1"}, ValueError, "high"),
        ({"high": 10**400}, ValueError, "high must be a finite number"),
        ({"low": 2.0}, ValueError, "low must not be above high"),
        ({"n": 0}, ValueError, "n must be at least 1"),
        ({"n": 2.5}, TypeError, "n must be an integer"),
        ({"level": 95}, ValueError, "level must be between 0 and 1"),
        ({"level": True}, ValueError, "level"),
    ],
)
def test_bad_estimates(arguments, error, message):
    with pytest.raises(error, match=message):
        Estimate(**{"value": 0.5, "low": 0.0, "high": 1.0, "n": 3, **arguments})


# --- means


def test_mean_interval_by_hand():
    # mean 2, standard deviation 1; with 2 degrees of freedom t has a closed form
    estimate = mean_interval([1, 2, 3])
    half = 0.95 * math.sqrt(2 / (1 - 0.95**2)) / math.sqrt(3)
    assert (estimate.value, estimate.n, estimate.level) == (2.0, 3, 0.95)
    assert (estimate.low, estimate.high) == pytest.approx((2 - half, 2 + half), rel=1e-9)


@given(samples(), st.floats(0.5, 0.999))
def test_mean_interval_agrees_with_the_t_test(x, level):
    if np.ptp(x) < 1e-3:
        return
    estimate = mean_interval(x, level)
    expected = stats.ttest_1samp(x, 0.0).confidence_interval(level)
    tolerance = 1e-9 * max(1.0, abs(x).max())
    assert estimate.low == pytest.approx(expected.low, abs=tolerance)
    assert estimate.high == pytest.approx(expected.high, abs=tolerance)


@given(samples(), NUMBERS, st.sampled_from([-2.0, -1.0, 0.5, 4.0]))
def test_mean_interval_moves_and_scales_with_the_sample(x, shift, scale):
    before, after = mean_interval(x), mean_interval(scale * x + shift)
    ends = sorted([scale * before.low + shift, scale * before.high + shift])
    assert [after.low, after.high] == pytest.approx(ends, rel=1e-6, abs=1e-5)


def test_t_intervals_cover_at_their_level():
    rng = np.random.default_rng(1)
    trials = 4000
    for n, level in ((2, 0.95), (5, 0.8)):
        draws = rng.normal(3.0, 2.0, (trials, n))
        assert_level(sum(covers(mean_interval(x, level), 3.0) for x in draws), trials, level)


@given(samples(), st.data())
def test_paired_difference_is_the_t_interval_of_the_differences(a, data):
    b = data.draw(arrays(float, len(a), elements=NUMBERS))
    assert paired_difference(a, b) == mean_interval(a - b)
    forth, back = paired_difference(a, b), paired_difference(b, a)
    assert (forth.low, forth.high) == (-back.high, -back.low)


def test_pairing_removes_what_the_pairs_share():
    rng = np.random.default_rng(2)
    luck = rng.normal(0, 100, 30)
    a, b = luck + 1.0 + rng.normal(0, 0.1, 30), luck + rng.normal(0, 0.1, 30)
    estimate = paired_difference(a, b)
    assert covers(estimate, 1.0) and estimate.high - estimate.low < 0.2


# --- bootstrap


@settings(max_examples=25, deadline=None)
@given(samples(3, 12), st.sampled_from([np.mean, np.median, interquartile_mean]))
def test_bootstrap_intervals_lie_within_the_sample(x, statistic):
    estimate = bootstrap_interval(x, statistic, resamples=200)
    slack = 1e-9 * max(1.0, abs(x).max())
    assert x.min() - slack <= estimate.low <= estimate.high <= x.max() + slack
    assert estimate.value == pytest.approx(float(statistic(x)))


def test_bootstrap_interval_nears_the_normal_one_in_large_samples():
    x = np.random.default_rng(3).exponential(size=5000)
    estimate = bootstrap_interval(x, resamples=4000)
    half = 1.959964 * x.std() / math.sqrt(len(x))
    assert estimate.low == pytest.approx(x.mean() - half, abs=0.2 * half)
    assert estimate.high == pytest.approx(x.mean() + half, abs=0.2 * half)


def test_bootstrap_interval_depends_on_the_seed_alone():
    x = np.random.default_rng(4).normal(size=20)
    assert bootstrap_interval(x, seed=5) == bootstrap_interval(x, seed=5)
    assert bootstrap_interval(x, seed=5) != bootstrap_interval(x, seed=6)


def test_bootstrap_intervals_cover_about_at_their_level():
    rng = np.random.default_rng(5)
    draws = rng.exponential(size=(600, 40))
    hits = sum(covers(bootstrap_interval(x, resamples=600), 1.0) for x in draws)
    assert_level(hits, 600, 0.90, 0.97)


def test_where_bca_is_undefined_the_percentiles_serve():
    # leaving out any one number leaves the median where it is: BCa would be 0/0
    x = [1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 3.0]
    estimate = bootstrap_interval(x, np.median)
    assert estimate.value == 2.0 and 1.0 <= estimate.low <= 2.0 <= estimate.high <= 3.0


@settings(max_examples=25, deadline=None)
@given(samples(2, 12, st.floats(0.5, 10.0)), st.data())
def test_paired_ratio_scales_and_inverts(a, data):
    b = data.draw(arrays(float, len(a), elements=st.floats(0.5, 10.0)))
    ratio = paired_ratio(a, b, resamples=200)
    assert ratio.value == pytest.approx(a.mean() / b.mean())
    scaled = paired_ratio(4 * a, -2 * b, resamples=200)
    assert (scaled.low, scaled.high) == pytest.approx((-2 * ratio.high, -2 * ratio.low), rel=0.2)
    assert (a / b).min() - 1e-9 <= ratio.low <= ratio.high <= (a / b).max() + 1e-9


def test_paired_ratio_of_proportional_pairs_is_certain():
    b = np.random.default_rng(6).uniform(1, 100, 15)
    estimate = paired_ratio(3 * b, b)
    assert (estimate.low, estimate.high) == pytest.approx((3.0, 3.0), rel=1e-12)


def test_paired_ratios_cover_about_at_their_level():
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(500):
        b = rng.uniform(1, 3, 30)
        hits += covers(paired_ratio(1.5 * b + rng.normal(0, 1, 30), b, resamples=500), 1.5)
    assert_level(hits, 500, 0.90, 0.97)


def test_pairs_that_are_series_must_have_the_same_index():
    table = pd.DataFrame({"method": ["a", "a", "b", "b"], "y": [1.0, 3.0, 2.0, 3.0]})
    a, b = (table.loc[table["method"] == method, "y"] for method in "ab")
    for call in (paired_difference, paired_ratio):
        with pytest.raises(ValueError, match="a and b must pair up; their indices differ"):
            call(a, b)
    assert paired_difference(a.reset_index(drop=True), b.reset_index(drop=True)).value == -0.5
    assert paired_difference(a, b.to_numpy()).value == -0.5


def test_a_statistic_may_spoil_its_sample():
    def largest(x):
        x.sort()
        top, x[:] = x[-1], 0.0
        return top

    x = np.random.default_rng(12).normal(size=12)
    before = x.copy()
    assert bootstrap_interval(x, largest) == bootstrap_interval(x, lambda x: x.max())
    assert (x == before).all()


# --- interquartile means


@given(arrays(float, st.tuples(st.integers(1, 9), st.integers(1, 5)), elements=NUMBERS))
def test_interquartile_mean_by_sorting(x):
    numbers = sorted(x.ravel())
    cut = len(numbers) // 4
    middle = numbers[cut : len(numbers) - cut]
    expected = math.fsum(middle) / len(middle)
    assert interquartile_mean(x) == pytest.approx(expected, rel=1e-9, abs=1e-6)
    assert interquartile_mean(x) == stats.trim_mean(x, 0.25, axis=None)


def test_interquartile_mean_ignores_outliers():
    assert interquartile_mean([-1e9, 1, 2, 3, 4, 5, 6, 1e12]) == 3.5


def test_iqm_interval_resamples_within_tasks():
    # Runs do not vary within a task, so that only resampling across tasks would give a width.
    scores = np.tile([0.0, 1.0, 5.0, 9.0], (6, 1))
    estimate = iqm_interval(scores)
    assert (estimate.value, estimate.low, estimate.high, estimate.n) == (3.0, 3.0, 3.0, 6)


def test_iqm_interval_against_a_plain_loop():
    rng = np.random.default_rng(8)
    scores = rng.normal(size=(12, 5)) + np.arange(5)
    draws = []
    for _ in range(4000):
        columns = [rng.choice(scores[:, task], 12) for task in range(5)]
        draws.append(stats.trim_mean(np.concatenate(columns), 0.25))
    low, high = np.quantile(draws, [0.025, 0.975])
    estimate = iqm_interval(scores)
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=0.15 * (high - low))
    vector = iqm_interval(scores[:, 0])
    assert vector == iqm_interval(scores[:, :1])
    assert vector.n == 12


def test_iqm_intervals_cover_about_at_their_level():
    rng = np.random.default_rng(9)
    hits = sum(
        covers(iqm_interval(rng.normal(2.0, 1.0, (10, 4)), resamples=500), 2.0) for _ in range(500)
    )
    assert_level(hits, 500, 0.89, 0.975)


# --- proportions


@given(st.integers(1, 200), st.data(), st.floats(0.5, 0.999))
def test_proportion_interval_by_the_beta_quantiles(trials, data, level):
    successes = data.draw(st.integers(0, trials))
    estimate = proportion_interval(successes, trials, level)
    tail = (1 - level) / 2
    low = special.betaincinv(successes, trials - successes + 1, tail) if successes else 0.0
    high = 1.0
    if successes < trials:
        high = special.betaincinv(successes + 1, trials - successes, 1 - tail)
    assert estimate.value == successes / trials
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=1e-8)


@pytest.mark.parametrize("trials", [1, 7, 40])
def test_proportion_intervals_cover_with_at_least_their_level_exactly(trials):
    estimates = [proportion_interval(successes, trials) for successes in range(trials + 1)]
    for truth in np.linspace(0.003, 0.997, 101):
        weights = stats.binom.pmf(range(trials + 1), trials, truth)
        covered = sum(w for w, e in zip(weights, estimates, strict=True) if covers(e, truth))
        assert covered >= 0.95 - 1e-9


# --- lines


def test_linear_fit_by_the_normal_equations():
    rng = np.random.default_rng(10)
    x = rng.uniform(0, 5, 25)
    y = 2.0 - 3.0 * x + rng.normal(size=25)
    fit = linear_fit(x, y)
    design = np.column_stack([np.ones(25), x])
    coefficients, (rss,), *_ = np.linalg.lstsq(design, y, rcond=None)
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * rss / 23)
    half = 2.0686576104190406 * errors  # t(0.975, 23)
    for estimate, value, width in zip((fit.intercept, fit.slope), coefficients, half, strict=True):
        assert estimate.value == pytest.approx(value)
        assert (estimate.low, estimate.high) == pytest.approx((value - width, value + width))
    assert fit.r_squared == pytest.approx(1 - rss / ((y - y.mean()) ** 2).sum())
    slope, intercept, r_squared = fit
    assert (slope, intercept, r_squared) == (fit.slope, fit.intercept, fit.r_squared)


def test_linear_fit_covers_at_its_level():
    rng = np.random.default_rng(11)
    x = np.array([0.0, 1.0, 2.0, 5.0])
    fits = [linear_fit(x, 1.0 + 2.0 * x + rng.normal(size=4)) for _ in range(3000)]
    assert_level(sum(covers(fit.slope, 2.0) for fit in fits), 3000, 0.95)
    assert_level(sum(covers(fit.intercept, 1.0) for fit in fits), 3000, 0.95)


def test_linear_fit_of_points_on_a_line():
    fit = linear_fit([0, 1, 2, 3], [1, 3, 5, 7])
    assert fit.slope.value == pytest.approx(2) and fit.intercept.value == pytest.approx(1)
    assert fit.slope.high - fit.slope.low < 1e-6
    assert fit.r_squared == pytest.approx(1)


# --- degenerate and bad input


@pytest.mark.parametrize("value", [0.0, 0.1, -3e5])
def test_constant_samples_give_intervals_of_no_width(value):
    x = [value] * 7
    for estimate in (
        mean_interval(x),
        bootstrap_interval(x),
        bootstrap_interval(x, interquartile_mean),
        iqm_interval(x),
        iqm_interval(np.reshape(x * 2, (7, 2))),
        linear_fit(range(7), x).intercept,
    ):
        assert estimate.low == estimate.value == estimate.high == pytest.approx(value)
    assert paired_difference(x, x).high == paired_difference(x, x).low == 0
    assert linear_fit(range(7), x).slope == Estimate(0.0, 0.0, 0.0, 7)
    assert linear_fit(range(7), x).r_squared == 1


ONE = np.ones(3)


def reciprocal_spread(x):
    return 1 / np.ptp(x) if np.ptp(x) else np.nan


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: mean_interval([1.0]), ValueError, "x must hold at least 2"),
        (lambda: mean_interval([]), ValueError, "x must hold at least 2"),
        (lambda: mean_interval(3.0), ValueError, "x must have 1 dim"),
        (lambda: mean_interval(np.ones((3, 2))), ValueError, "x must have 1 dim"),
        (lambda: mean_interval([1.0, math.nan]), ValueError, "x must be finite"),
        (lambda: mean_interval([1.0, math.inf]), ValueError, "x must be finite"),
        (lambda: mean_interval(["1", "2"]), TypeError, "x must hold real numbers"),
        (lambda: mean_interval([1j, 2.0]), TypeError, "x must hold real numbers"),
        (lambda: mean_interval([None, 2.0]), TypeError, "x must hold real numbers"),
        (lambda: mean_interval(ONE, level=1.0), ValueError, "level"),
        (lambda: mean_interval(ONE, level=math.nan), ValueError, "level"),
        (lambda: mean_interval(ONE, level=1 - 1e-16), ValueError, "level"),
        (lambda: mean_interval(ONE, level=1e-300), ValueError, "level"),
        (lambda: mean_interval([1e308, -1e308]), ValueError, r"x must have numbers .* 1e\+308"),
        (lambda: mean_interval([1e-200, 3e-200]), ValueError, "x must have numbers"),
        (lambda: mean_interval([0.0, 1e-200]), ValueError, "x must have numbers"),
        (lambda: mean_interval([1e-61, 1e-61 * (1 + 1e-15)]), ValueError, "x must have diff"),
        (lambda: mean_interval(np.longdouble([1, 2]) * np.longdouble("1e4000")), ValueError, "x m"),
        (lambda: paired_difference([1e308, 1], [-1e308, 1]), ValueError, "a must have numbers"),
        (lambda: paired_ratio([1, 2], [1e-300, 1e-300]), ValueError, "b must have numbers"),
        (lambda: linear_fit([1e200, 2e200, 3e200], [1, 3, 2]), ValueError, "x must have numbers"),
        (lambda: linear_fit([1, 2, 3], [1e-200, 3e-200, 2e-200]), ValueError, "y must have numb"),
        (lambda: iqm_interval([1e308, 1.1e308]), ValueError, "x must have numbers"),
        (lambda: interquartile_mean([1e308, 1.1e308]), ValueError, "x must have numbers"),
        (lambda: bootstrap_interval([1.0, 2.0, 3.0], reciprocal_spread), ValueError, "resample"),
        (lambda: mean_interval(ONE, level="0.9"), ValueError, "level"),
        (lambda: paired_difference(ONE, np.ones(4)), ValueError, "a and b must pair up"),
        (lambda: paired_difference(ONE, [1, 2, math.nan]), ValueError, "b must be finite"),
        (lambda: paired_ratio(ONE, [1, 0, 2]), ValueError, "b must be all positive"),
        (lambda: paired_ratio(ONE, [1, -1, 2]), ValueError, "b must be all positive"),
        (lambda: paired_ratio([1], [1]), ValueError, "a must hold at least 2"),
        (lambda: bootstrap_interval([1.0]), ValueError, "x must hold at least 2"),
        (lambda: bootstrap_interval(ONE, resamples=10), ValueError, "resamples must be at least"),
        (lambda: bootstrap_interval(ONE, resamples=1e4), TypeError, "resamples"),
        (lambda: bootstrap_interval(ONE, seed=-1), ValueError, "seed"),
        (lambda: bootstrap_interval(ONE, level=0), ValueError, "level"),
        (lambda: bootstrap_interval(ONE, np.cumsum), ValueError, "one finite number"),
        (lambda: bootstrap_interval(ONE, lambda x: math.nan), ValueError, "one finite number"),
        (lambda: bootstrap_interval(ONE, lambda x: "low"), ValueError, "one finite number"),
        (lambda: interquartile_mean([]), ValueError, "x must hold at least 1"),
        (lambda: interquartile_mean(np.ones((1, 1, 1))), ValueError, "1 or 2 dim"),
        (lambda: iqm_interval([1.0]), ValueError, "x must hold at least 2"),
        (lambda: iqm_interval(np.ones((1, 9))), ValueError, "x must hold at least 2"),
        (lambda: iqm_interval(np.ones((9, 0))), ValueError, "x must hold"),
        (lambda: proportion_interval(3, 2), ValueError, "at most trials"),
        (lambda: proportion_interval(-1, 2), ValueError, "successes"),
        (lambda: proportion_interval(0, 0), ValueError, "trials"),
        (lambda: proportion_interval(0.5, 2), TypeError, "successes"),
        (lambda: proportion_interval(1, 2, level=2), ValueError, "level"),
        (lambda: linear_fit([1, 2], [1, 2]), ValueError, "x must hold at least 3"),
        (lambda: linear_fit(ONE, [1, 2, 3]), ValueError, "two different numbers"),
        (lambda: linear_fit([1, 2, 3], [1, 2]), ValueError, "y must hold at least 3"),
        (lambda: linear_fit([1, 2, 3], [1, 2, 3, 4]), ValueError, "pair up"),
        (lambda: linear_fit([1, 2, 3], [1, 2, 4], level=-1), ValueError, "level"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
