"""The fair-bandit package against brute force, closed forms, naive loops and the theory."""

import copy
import itertools
import math
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import linprog
from scipy.stats import binom, ks_2samp, linregress

from workingpapers.arguments import check_positive
from workingpapers.fair_bandits import (
    DFE,
    MU10,
    CentralizedUCB,
    DFEPlayer,
    Environment,
    ExploreThenCommit,
    LeshemAuction,
    MaxMinInstance,
    MyFairBandit,
    Oracle,
    SumOptimal,
    UniformPlay,
    allowed_pairs,
    bottleneck_matching,
    confidence_radius,
    cover_bound,
    edge_coloring,
    eliminate,
    elimination,
    elimination_epoch,
    exploration_cover,
    failure_probability,
    forced_matching,
    hard_instance,
    has_saturating_matching,
    lower_bound_slope,
    maximum_matching,
    play,
    random_instance,
    simulate_round_by_round,
    upper_bound,
)
from workingpapers.fair_bandits.communication import (
    StartUp,
    code_length,
    decode,
    encode,
    epoch_message,
    hopping_arms,
    musical_chairs,
    musical_chairs_length,
    start_up,
)
from workingpapers.fair_bandits.instances import Run, collect

COVERS = ["structured", "pairwise", "greedy"]
ALGORITHMS = [
    DFE(),
    DFE(communication="collision"),
    MyFairBandit(),
    LeshemAuction(),
    ExploreThenCommit(),
    ExploreThenCommit(m=3),
    CentralizedUCB(),
    Oracle(),
    SumOptimal(),
    UniformPlay(),
]
THREE = MaxMinInstance([[0.9, 0.5, 0.1], [0.5, 0.8, 0.3], [0.2, 0.6, 0.7]], noise="bernoulli")
# Means that are multiples of 1/64: sums of regrets are exact in floating point.
DYADIC = MaxMinInstance(np.round(64 * MU10) / 64)
# A two-sample test at this level raises a false alarm once in a million files of random numbers.
SAME_LAW = 1e-6


def matchings_of(num_players, num_arms):
    return np.array(list(itertools.permutations(range(num_arms), num_players)))


def matchings_inside(graph):
    every = matchings_of(*graph.shape)
    return every[graph[np.arange(graph.shape[0]), every].all(axis=1)]


def pairs_used(matchings, shape):
    used = np.zeros(shape, dtype=bool)
    for matching in matchings:
        used[np.arange(shape[0]), matching] = True
    return used


@st.composite
def graphs(draw, max_players=4, max_arms=5):
    num_players = draw(st.integers(1, max_players))
    num_arms = draw(st.integers(num_players, max_arms))
    return draw(hnp.arrays(bool, (num_players, num_arms)))


@st.composite
def weights(draw):
    num_players = draw(st.integers(1, 4))
    num_arms = draw(st.integers(num_players, 5))
    tenths = draw(hnp.arrays(int, (num_players, num_arms), elements=st.integers(-5, 10)))
    return tenths / 10  # many ties


# Matchings


@settings(max_examples=200, deadline=None)
@given(weights())
def test_bottleneck_matching_is_the_best_of_all_permutations(matrix):
    value, matching = bottleneck_matching(matrix)
    players = np.arange(matrix.shape[0])
    assert value == matrix[players, matchings_of(*matrix.shape)].min(axis=1).max()
    assert len(set(matching)) == len(matching)
    assert matrix[players, matching].min() == value


def test_bottleneck_matching_takes_infinite_bounds():
    value, matching = bottleneck_matching([[np.inf, 1.0], [np.inf, 0.5]])
    assert (value, matching.tolist()) == (1.0, [1, 0])
    assert bottleneck_matching(np.full((2, 3), -np.inf))[0] == -np.inf


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_allowed_pairs_are_those_of_all_matchings(graph):
    inside = matchings_inside(graph)
    assert (allowed_pairs(graph) == pairs_used(inside, graph.shape)).all()
    assert has_saturating_matching(graph) == (len(inside) > 0)
    every = matchings_of(*graph.shape)
    largest = maximum_matching(graph)
    matched = np.flatnonzero(largest >= 0)
    assert len(matched) == graph[np.arange(len(graph)), every].sum(axis=1).max()
    assert len(set(largest[matched])) == len(matched)
    assert graph[matched, largest[matched]].all()


@settings(max_examples=100, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_forced_matching_contains_its_pair_and_is_heaviest(graph, random):
    prefer = np.array([[random.randint(0, 3) for _ in row] for row in graph])
    inside = matchings_inside(graph)
    for i, k in np.ndindex(graph.shape):
        through = inside[inside[:, i] == k]
        if len(through) == 0:
            with pytest.raises(ValueError, match="no matching"):
                forced_matching(graph, i, k)
            continue
        players = np.arange(len(graph))
        matching = forced_matching(graph, i, k, prefer)
        assert matching[i] == k
        assert (through == matching).all(axis=1).any()
        assert prefer[players, matching].sum() == prefer[players, through].sum(axis=1).max()


@settings(max_examples=200, deadline=None)
@given(hnp.arrays(bool, st.tuples(st.integers(1, 6), st.integers(0, 6))))
def test_edge_coloring_uses_as_many_matchings_as_the_largest_degree(graph):
    colors = edge_coloring(graph)
    assert ((colors >= 0) == graph).all()
    degree = max(graph.sum(axis=0).max(initial=0), graph.sum(axis=1).max(initial=0))
    assert colors.max(initial=-1) + 1 == degree
    for color in range(degree):
        edges = colors == color
        assert edges.any()
        assert edges.sum(axis=0).max() <= 1
        assert edges.sum(axis=1).max() <= 1


@pytest.mark.parametrize("mode", COVERS)
@settings(max_examples=100, deadline=None)
@given(graph=graphs(max_players=5, max_arms=8))
def test_covers_are_matchings_that_use_exactly_the_graph(mode, graph):
    graph = allowed_pairs(graph)
    if not graph.any():
        with pytest.raises(ValueError, match="must have a pair"):
            exploration_cover(graph, mode)
        return
    cover = exploration_cover(graph, mode)
    assert (pairs_used(cover, graph.shape) == graph).all()
    assert all(len(set(matching)) == len(matching) for matching in cover)
    limit = cover_bound(*graph.shape) if mode == "structured" else graph.sum()
    assert len(cover) <= limit


@pytest.mark.parametrize(
    ("shape", "mode", "length"),
    [
        ((4, 4), "structured", 10),
        ((4, 4), "pairwise", 16),
        ((4, 4), "greedy", 4),
        ((6, 30), "structured", 50),
        ((6, 30), "pairwise", 180),
        ((6, 30), "greedy", 30),
    ],
)
def test_cover_sizes_on_complete_graphs(shape, mode, length):
    assert len(exploration_cover(np.ones(shape, dtype=bool), mode)) == length


@settings(max_examples=200)
@given(st.integers(1, 40), st.integers(1, 200))
def test_cover_bound_is_at_most_players_squared_plus_arms(num_players, more):
    num_arms = max(2, num_players - 1 + more)
    assert cover_bound(num_players, num_arms) <= num_players**2 + num_arms


# Instances


def test_mu10_has_the_published_value_and_gap():
    instance = MaxMinInstance(MU10)
    assert instance.gamma_star == 0.4
    assert instance.min_gap == pytest.approx(0.1)
    assert (instance.gaps > 0).sum() == 64
    assert instance.regret(instance.optimal_matching) == 0


def test_the_hard_instance_moves_to_a_cycle_when_one_pair_is_raised():
    instance = hard_instance(3, 3, 0.1)
    assert instance.gamma_star == 0.5
    assert instance.optimal_matching.tolist() == list(range(7))
    means = instance.means.copy()
    means[1, 5] = 0.6
    value, matching = bottleneck_matching(means)
    assert value == 0.6
    assert matching.tolist() == [1, 5, 2, 3, 4, 0, 6]


def test_hard_pairs_are_seen_one_at_a_time_at_positive_value():
    instance = hard_instance(2, 2, 0.1)
    hard = np.isclose(instance.means, 0.4)
    every = matchings_of(5, 5)
    worst = instance.means[np.arange(5), every].min(axis=1)
    seen = hard[np.arange(5), every].sum(axis=1)
    assert hard.sum() == 4
    assert (seen[(worst > 0) & (worst < 0.5)] == 1).all()
    assert seen[worst == 0].max() == 2


def test_regret_counts_a_collision_as_nothing_earned():
    assert THREE.regret([[0, 1, 2], [0, 0, 2], [1, 0, 2]]).tolist() == pytest.approx([0, 0.7, 0.2])
    below_zero = MaxMinInstance([[-1.0, -2.0], [-2.0, -1.0]])
    assert below_zero.regret([[0, 1], [0, 0]]).tolist() == [0, -1]


@pytest.mark.parametrize("noise", ["gaussian", "bernoulli"])
def test_reward_sums_have_the_moments_of_single_rewards(noise):
    instance = MaxMinInstance([[0.3, 0.8]], noise=noise)
    rng = np.random.default_rng(0)
    pulls = np.array([[50, 7]])
    sums = np.array([instance.reward_sums(pulls, rng)[0] for _ in range(4000)])
    single = np.array([[0.3, 0.8]])
    variance = single * (1 - single) if noise == "bernoulli" else np.ones((1, 2))
    scale = np.sqrt(pulls * variance / 4000)
    assert (np.abs(sums.mean(axis=0) - pulls * single) < 6 * scale).all()
    assert sums.var(axis=0) == pytest.approx((pulls * variance)[0], rel=0.15)


def test_random_instances_repeat_with_their_seed():
    one, same, other = (random_instance(3, 4, seed).means for seed in (0, 0, 1))
    assert (one == same).all()
    assert (one != other).all()


def test_an_instance_keeps_its_own_means():
    means = np.array([[0.5, 0.2]])
    instance = MaxMinInstance(means)
    means[0, 0] = 0.0
    assert instance.gamma_star == 0.5
    for same in (instance, copy.deepcopy(instance), pickle.loads(pickle.dumps(instance))):
        with pytest.raises(ValueError, match="read-only"):
            same.means[0, 0] = 1.0
        assert (same.means == [[0.5, 0.2]]).all()
        assert (same.noise, same.sigma) == ("gaussian", 1.0)


@pytest.mark.parametrize("scale", [2.0**-90, 2.0**-40, 2.0**40, 2.0**900])
def test_gaps_grow_with_the_scale_of_the_means(scale):
    assert MaxMinInstance(MU10 * scale).min_gap == MaxMinInstance(MU10).min_gap * scale
    nearly = np.array([[0.1 + 0.2, 0.3, 0.1]])  # the first two differ by rounding only
    assert MaxMinInstance(nearly * scale).min_gap == pytest.approx(0.2 * scale)


def test_the_hard_instance_has_the_gap_that_it_is_asked_for():
    for delta in (2e-12, 1e-9, 0.1, np.nextafter(0.5, 0)):
        assert hard_instance(1, 1, delta, 2).min_gap == pytest.approx(delta, rel=1e-3)


def test_choices_of_any_integer_dtype_cost_the_same():
    arms = [[0, 1, 2], [0, 0, 2]]
    for dtype in (np.int8, np.uint8, np.int32, np.uint64):
        assert (THREE.regret(np.array(arms, dtype)) == THREE.regret(arms)).all()
        pulls, rng = np.full((3, 3), 100, dtype), np.random.default_rng(0)
        sums = THREE.reward_sums(pulls.astype(int), np.random.default_rng(0))
        assert (THREE.reward_sums(pulls, rng) == sums).all()
        step = Environment(THREE, np.random.default_rng(0)).step(np.array(arms[1], dtype))
        assert step[1].tolist() == [True, True, False]
    assert THREE.regret(np.empty((0, 3), int)).shape == (0,)


def test_no_gap_is_an_infinite_gap():
    flat = MaxMinInstance(np.full((2, 2), 0.5))
    assert flat.min_gap == math.inf
    assert upper_bound(flat, 100) == 0
    assert ExploreThenCommit().sweeps(flat, 100) == 1


# Elimination


def test_with_one_player_dfe_is_successive_elimination():
    instance = MaxMinInstance([[0.2, 0.5, 0.9, 0.85]])
    horizon, c = 100_000, 1.5
    records = DFE(c=c).trace(instance, horizon, seed=3)
    active = [True] * 4
    for record in records[:-1]:
        seen, means = record.after.counts[0], record.means[0]
        radius = [math.sqrt(c * math.log(horizon) / n) for n in seen]
        best = max(mean - r for mean, r in zip(means, radius, strict=True))
        active = [
            was and mean + r >= best for was, mean, r in zip(active, means, radius, strict=True)
        ]
        assert record.after.plausible[0].tolist() == active
    assert active == [False, False, True, False]


@pytest.mark.parametrize(
    ("instance", "horizon"), [(THREE, 3000), (DYADIC, 20_000)], ids=["bernoulli", "gaussian"]
)
@pytest.mark.parametrize("cover", COVERS)
def test_fast_and_naive_simulation_agree_exactly_on_the_same_rewards(instance, horizon, cover):
    slow = simulate_round_by_round(DFE(cover=cover, c=0.5), instance, horizon, 2, 4)
    fast = DFE(cover=cover, c=0.5, draws="rounds").simulate(instance, horizon, 2, 4)
    assert (slow.eliminated_in == fast.eliminated_in).all()
    assert (slow.plausible_history == fast.plausible_history).all()
    assert slow.epochs.tolist() == fast.epochs.tolist()
    exact = instance is DYADIC
    for run in range(2):
        at_ends = np.interp(slow.times[run], fast.times[run], fast.cum_regret[run])
        assert slow.cum_regret[run] == pytest.approx(at_ends, rel=0 if exact else 1e-9, abs=1e-9)
    assert not exact or (slow.final == fast.final).all()
    assert fast.eliminated_in.max() > 0


def test_sums_and_single_rewards_have_the_same_law():
    slow = simulate_round_by_round(DFE(c=0.5), THREE, 3000, 40, 0).final
    fast = DFE(c=0.5).simulate(THREE, 3000, 500, 1).final
    # Regrets are discrete: without rounding the last bits break the ties between the samples.
    assert ks_2samp(slow.round(6), fast.round(6)).pvalue > SAME_LAW
    assert abs(slow.mean() - fast.mean()) < 6 * fast.std() / math.sqrt(40)


@pytest.mark.parametrize("algorithm", [DFE(c=1.5), DFE(c=1.5, cover="greedy", growth=1.5)])
def test_a_run_obeys_the_invariants(algorithm):
    instance = MaxMinInstance(MU10)
    horizon = 300_000
    records = algorithm.trace(instance, horizon, seed=5)
    optimal = instance.means >= instance.gamma_star
    assert records[-1].end == horizon
    for record, following in itertools.pairwise(records):
        before, after = record.before, record.after
        assert record.end == following.start
        assert (following.before.plausible == after.plausible).all()
        assert (after.plausible <= before.plausible).all()
        fell = record.elimination.by_bound ^ record.elimination.by_structure
        assert (fell == before.plausible & ~after.plausible).all()
        gone = ~before.plausible
        assert (after.counts[gone] == before.counts[gone]).all()
        assert (after.lower[gone] == before.lower[gone]).all()
        assert has_saturating_matching(after.plausible & optimal)  # Lemma 1
        radius = confidence_radius(after.counts, horizon, algorithm.c)
        assert (instance.gaps[after.plausible] <= 4 * radius[after.plausible].max()).all()
        if not (before.plausible & ~optimal).any():
            assert (record.slopes == 0).all()


def test_bounds_of_dropped_pairs_stay_though_the_codes_get_finer():
    records = DFE(c=0.5, communication="collision").trace(THREE, 50_000, 1)
    gone = [~record.before.plausible for record in records]
    assert sum(pairs.any() for pairs in gone) > 2
    for record, pairs in zip(records, gone, strict=True):
        assert (record.after.lower[pairs] == record.before.lower[pairs]).all()
        assert (record.after.upper[pairs] == record.before.upper[pairs]).all()


def test_a_pair_falls_by_structure_when_its_arm_is_needed_elsewhere():
    # Player 1 needs arm 0. Once its own arm 1 is out, player 0 cannot have arm 0, however good.
    instance = MaxMinInstance([[0.95, 0.9], [0.7, 0.1]])
    record = next(r for r in DFE().trace(instance, 10**5, 0) if not r.after.plausible.all())
    assert record.elimination.by_bound.tolist() == [[False, False], [False, True]]
    assert record.elimination.by_structure.tolist() == [[True, False], [False, False]]


def test_a_trace_is_the_first_run_of_a_simulation():
    for algorithm in (DFE(c=1.5), DFE(c=1.5, communication="collision")):
        result = algorithm.simulate(THREE, 5000, 3, 7)
        records = algorithm.trace(THREE, 5000, 7)
        regret = sum(record.rounds @ record.slopes + record.comm_regret for record in records)
        opening = result.at([records[0].start])[0, 0]
        assert regret + opening == pytest.approx(result.final[0])
        last = records[-1].after.plausible
        assert (result.plausible_history[0, result.epochs[0]] == last).all()
        assert result.epochs[0] == sum(r.elimination is not None for r in records)


@settings(max_examples=50, deadline=None)
@given(weights(), st.randoms(use_true_random=False))
def test_elimination_does_not_depend_on_the_labels(matrix, random):
    lower = matrix
    upper = matrix + np.array([[random.choice([0.1, 0.3, 0.6]) for _ in row] for row in matrix])
    plausible = np.ones(matrix.shape, dtype=bool)
    players = random.sample(range(matrix.shape[0]), matrix.shape[0])
    arms = random.sample(range(matrix.shape[1]), matrix.shape[1])
    cut = np.ix_(players, arms)
    one, other = (
        eliminate(plausible, lower, upper),
        eliminate(plausible[cut], lower[cut], upper[cut]),
    )
    assert one.g_low == other.g_low
    assert (one.by_bound[cut] == other.by_bound).all()
    assert (one.by_structure[cut] == other.by_structure).all()


def test_relabelling_leaves_the_law_of_the_regret():
    # With two players and two arms there are two matchings, whatever the labels.
    means = np.array([[0.9, 0.7], [0.9, 0.1]])
    one = DFE(c=1.5).simulate(MaxMinInstance(means), 10_000, 150, 0).final
    other = DFE(c=1.5).simulate(MaxMinInstance(means[::-1]), 10_000, 150, 1).final
    assert len(np.unique(one)) > 2
    assert ks_2samp(one.round(6), other.round(6)).pvalue > SAME_LAW


def test_a_constant_added_to_all_means_changes_nothing():
    one = DFE(c=1.5).simulate(MaxMinInstance(MU10), 50_000, 3, 0)
    other = DFE(c=1.5).simulate(MaxMinInstance(MU10 + 1.0), 50_000, 3, 0)
    assert (one.eliminated_in == other.eliminated_in).all()
    assert other.final == pytest.approx(one.final, rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_without_noise_only_optimal_matchings_are_left_after_one_epoch(seed):
    means = np.round(random_instance(4, 5, seed).means, 1)
    instance = MaxMinInstance(means, sigma=1e-9)
    record = DFE().trace(instance, 10_000, 0)[0]
    inside = matchings_inside(means >= instance.gamma_star)
    assert (record.after.plausible == pairs_used(inside, means.shape)).all()


def test_ties_at_the_max_min_value_survive():
    instance = MaxMinInstance(np.full((3, 4), 0.5))
    result = DFE().simulate(instance, 10_000, 5, 0)
    assert (result.eliminated_in == -1).all()
    assert (result.final == 0).all()


def test_confidence_intervals_hold_as_often_as_promised():
    horizon, runs = 10_000, 200

    def misses(c):
        count = 0
        for seed in range(runs):
            for record in DFE(c=c, cover="greedy").trace(THREE, horizon, seed)[:-1]:
                radius = confidence_radius(record.after.counts, horizon, c, THREE.sigma)
                if (np.abs(record.means - THREE.means) > radius).any():
                    count += 1
                    break
        return count

    most = binom.isf(1e-7, runs, failure_probability(3, 3, horizon))
    assert misses(4.0) <= most < runs / 20
    assert misses(0.05) > runs / 4


def test_small_exploration_constants_lose_the_optimal_matchings():
    instance = hard_instance(2, 2, 0.2)

    def lost(c):
        result = DFE(cover="greedy", c=c).simulate(instance, 10_000, 100, 0)
        left = result.plausible_history[:, -1] & (instance.means >= instance.gamma_star)
        return np.mean([not has_saturating_matching(pairs) for pairs in left])

    assert lost(0.02) > 0.25
    assert lost(4.0) == 0


def test_a_bound_that_meets_the_value_survives():
    lower = np.array([[0.5, 0.25]])
    result = eliminate(np.ones((1, 2), dtype=bool), lower, np.array([[1.0, 0.5]]))
    assert result.g_low == 0.5
    assert not result.fallen.any()


def test_losing_everything_is_a_failure_that_keeps_the_pairs():
    plausible = np.array([[True, False], [False, True]])
    lower = np.array([[0.1, 0.9], [0.9, 0.1]])  # the bounds of dropped pairs still count
    result = eliminate(plausible, lower, lower + 0.2)
    assert result.failed
    assert not (result.by_bound | result.by_structure).any()
    runs = DFE(c=0.01, cover="greedy").simulate(hard_instance(2, 2, 0.2), 2000, 50, 0)
    assert runs.failures.sum() > 0


LONGEST = 2**63 - 1


@pytest.mark.parametrize(
    "algorithm",
    [
        *(a for a in ALGORITHMS if not isinstance(a, MyFairBandit | UniformPlay)),  # slow ones
        MyFairBandit(c1=50, c2=50),
        *(DFE(growth=growth) for growth in (1.7, 3e9, 1e19, 1e308)),
        DFE(growth=1e10, communication="collision"),
        DFE(tol=0.5),
        ExploreThenCommit(m=LONGEST),
        LeshemAuction(exploration=1e308),
    ],
)
def test_the_longest_horizon_is_played_to_the_end(algorithm):
    for instance in (DYADIC, hard_instance(1, 1, 0.2, 3)):
        result = algorithm.simulate(instance, LONGEST, 1, 0)
        assert result.horizon == LONGEST
        assert (np.diff(result.times) >= 0).all()
        assert (np.diff(result.cum_regret) >= 0).all()
        assert result.final <= LONGEST * instance.gamma_star


@pytest.mark.parametrize("growth", [2.0, 7.0, 1e10, 1e200, 1e308])
@pytest.mark.parametrize("horizon", [30, 1000, 2**40, LONGEST])
def test_an_epoch_holds_every_matching_for_its_block_until_the_horizon(growth, horizon):
    records = DFE(growth=growth).trace(DYADIC, horizon, 0)
    for record in records:
        block = min(math.ceil(int(growth) ** record.epoch), horizon)  # in exact integers
        assert record.block == pytest.approx(block, rel=1e-12)
        left = horizon - record.start
        for held in record.rounds.tolist():
            assert held == min(record.block, left)
            left -= held
    assert records[-1].end == horizon


def test_players_outlast_blocks_beyond_all_horizons():
    algorithm, horizon = DFE(c=0.5, communication="collision", growth=1e300), 2000
    players = players_of(algorithm, THREE, horizon, np.random.default_rng(1))
    arms = play(Environment(THREE, np.random.default_rng(0)), players, horizon)
    first = len(players[0].agreements)
    assert first == 1
    assert (arms[players[0].agreements[0].end :] == arms[-1]).all()  # the first matching, held
    slow = simulate_round_by_round(DFE(growth=1e300), THREE, 200, 1, 0)
    assert slow.final == pytest.approx(DFE(growth=1e300).simulate(THREE, 200, 1, 0).final, abs=0.3)


def test_single_rewards_take_little_memory():
    algorithm = DFE(draws="rounds", growth=1e6)
    algorithm.simulate(THREE, 100, 1, 0)
    tracemalloc.start()
    algorithm.simulate(MaxMinInstance([[0.5, 0.4]]), 2 * 10**6 + 5, 1, 0)  # two blocks of 8 MB
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


def test_commitment_ends_exploration():
    instance = MaxMinInstance(MU10)
    committed = DFE(tol=0.5).simulate(instance, 200_000, 3, 0)
    assert (committed.final < DFE().simulate(instance, 200_000, 3, 0).final).all()
    last = DFE(tol=0.5).trace(instance, 200_000, 0)[-1]
    assert len(last.matchings) == 1
    lower, upper = last.before.lower, last.before.upper
    assert bottleneck_matching(upper)[0] - bottleneck_matching(lower)[0] <= 0.5
    assert (
        DFE(tol=1e-9).simulate(instance, 2000, 1, 0).final
        == DFE().simulate(instance, 2000, 1, 0).final
    )


# Theory


def test_no_pair_outlives_its_elimination_epoch():
    instance, horizon = hard_instance(2, 2, 0.2), 10**6
    result = DFE().simulate(instance, horizon, 20, 0)
    for gap in (0.2, 0.5):
        fell = result.eliminated_in[:, np.isclose(instance.gaps, gap)]
        assert (fell >= 0).all()
        assert fell.max() <= elimination_epoch(gap, horizon)


@settings(max_examples=100)
@given(st.floats(0.01, 2), st.integers(1, 10**9), st.floats(0.1, 8), st.floats(0.1, 3))
def test_elimination_epoch_is_the_first_with_four_radii_below_the_gap(gap, horizon, c, sigma):
    def separated(p):
        return 4 * sigma * math.sqrt(c * math.log(horizon) / (2 ** (p + 1) - 1)) < gap

    assert elimination_epoch(gap, horizon, c, sigma) == next(filter(separated, itertools.count()))


@pytest.mark.parametrize(
    ("instance", "horizon"),
    [
        (hard_instance(2, 2, 0.2), 10**7),
        (hard_instance(1, 1, 0.1, extra=5), 10**6),
        (MaxMinInstance(MU10), 10**5),
        (MaxMinInstance([[0.5, 0.4]]), 1),
    ],
)
def test_measured_regret_is_below_the_upper_bound(instance, horizon):
    final = DFE().simulate(instance, horizon, 3, 0).final
    assert (final <= upper_bound(instance, horizon)).all()


def test_the_upper_bound_has_its_constant():
    instance = hard_instance(2, 2, 1e-4)
    leading = cover_bound(5, 5) * 4 * math.log(10**9) / 1e-4
    assert upper_bound(instance, 10**9) / leading == pytest.approx(
        32 / (math.sqrt(2) - 1), rel=1e-3
    )


@pytest.mark.parametrize(
    ("a", "b", "delta", "extra"),
    [(2, 2, 0.1, 0), (2, 1, 0.2, 0), (1, 1, 0.3, 3), (2, 1, 0.1, 3), (2, 2, 0.45, 0)],
)
def test_the_lower_bound_is_below_the_cheapest_way_to_see_every_hard_pair(a, b, delta, extra):
    instance = hard_instance(a, b, delta, extra)
    num_players, num_arms = instance.means.shape
    hard = np.isclose(instance.means, 0.5 - delta)
    arms = np.array(list(itertools.product(range(num_arms), repeat=num_players)))  # collisions too
    clear = (arms[:, :, None] == arms[:, None, :]).sum(axis=2) == 1
    sees = np.zeros((len(arms), *hard.shape), dtype=bool)
    for player in range(num_players):
        sees[np.arange(len(arms)), player, arms[:, player]] = clear[:, player]
    rows = np.unique(np.column_stack([sees[:, hard], instance.regret(arms)]), axis=0)
    cheapest = linprog(rows[:, -1], A_ub=-rows[:, :-1].T, b_ub=-np.ones(hard.sum())).fun
    bound = lower_bound_slope(a, b, delta, extra=extra) * delta**2 / 2
    assert bound <= cheapest + 1e-9
    if delta <= 0.25:  # here seeing pairs one by one is the cheapest way
        assert bound == pytest.approx(cheapest)
        assert bound == pytest.approx(max(a * b, extra) * delta)


def test_regret_grows_like_the_logarithm_between_the_bounds():
    instance = hard_instance(3, 3, 0.2)
    horizons = [10**k for k in range(5, 10)]
    regrets = [DFE().simulate(instance, T, 6, 0).final.mean() for T in horizons]
    fit = linregress(np.log(horizons), regrets)
    assert fit.rvalue**2 > 0.95
    assert fit.slope > lower_bound_slope(3, 3, 0.2)
    assert all(r < upper_bound(instance, T) for r, T in zip(regrets, horizons, strict=True))


def test_regret_grows_with_the_hard_pairs_and_with_the_extra_arms():
    sizes, extras = [2, 3, 4, 6], [2, 8, 16, 32]
    pairs = [DFE().simulate(hard_instance(a, a, 0.2), 10**7, 4, 0).final.mean() for a in sizes]
    arms = [DFE().simulate(hard_instance(1, 1, 0.2, e), 10**7, 4, 0).final.mean() for e in extras]
    assert linregress(np.square(sizes), pairs).rvalue ** 2 > 0.97
    assert linregress(extras, arms).rvalue ** 2 > 0.97


@settings(max_examples=100)
@given(st.integers(0, 10**9), st.integers(2, 10**9), st.floats(0.1, 9), st.floats(0.1, 9))
def test_the_radius_is_where_the_tail_bound_meets_the_error(count, horizon, c, sigma):
    radius = confidence_radius(count, horizon, c, sigma)
    if count == 0:
        assert radius == np.inf
    else:
        tail = -count * radius**2 / (2 * sigma**2)
        assert tail == pytest.approx(-c / 2 * math.log(horizon))


# Communication


@settings(max_examples=200)
@given(hnp.arrays(float, 5, elements=st.floats(0, 1)), st.integers(1, 40))
def test_coded_means_are_off_by_at_most_half_a_step(means, length):
    codes = encode(means, length)
    assert ((codes >= 0) & (codes < 2**length)).all()
    assert (np.abs(decode(codes, length) - means) <= 0.5 / 2**length).all()
    assert (encode(np.array([-0.3, 1.7]), length) == [0, 2**length - 1]).all()


@settings(max_examples=100)
@given(st.floats(1e-9, 100))
def test_code_length_keeps_the_step_small_beside_the_radius(radius):
    length = code_length(radius)
    assert 0.5 / 2**length <= radius / 16 or length == 1
    assert length == 1 or 0.5 / 2 ** (length - 1) > radius / 16


def test_codes_stop_at_what_a_float_can_resolve():
    assert code_length(2.0**-49) == code_length(np.float64(1e-300)) == code_length(5e-324) == 52
    last = np.array([0.0, 2**52 - 1])
    assert (encode(decode(last.astype(int), 52), 52) == last).all()
    for algorithm in (DFE(c=1e-30, communication="collision"), DFE(communication="collision")):
        instance = MaxMinInstance(THREE.means, sigma=1e-20)
        result = algorithm.simulate(instance, 50_000, 2, 0)
        assert (result.failures == 0).all()
        assert (result.at([40_000, 50_000]) @ [1, -1] == 0).all()  # the optimum, found


def test_messages_carry_codes_then_decisions():
    codes = np.array([[9, 9, 9], [5, 0, 2]])
    plausible = np.array([[True, True, False], [True, False, True]])
    survivors = np.array([[True, False, False], [True, False, False]])
    bits = epoch_message(codes, 3, plausible, survivors)
    assert bits.astype(int).tolist() == [1, 0, 1, 0, 1, 0, 1, 0, 1, 0]
    assert len(epoch_message(codes[:1], 3, plausible[:1], survivors[:1])) == 0


@settings(max_examples=50)
@given(st.integers(1, 12).flatmap(lambda k: st.tuples(st.just(k), st.sets(st.integers(0, k - 1)))))
def test_hopping_players_meet_once_and_learn_their_rank(seats_of_arms):
    num_arms, seats = seats_of_arms
    for seat in seats:
        own = hopping_arms(seat, num_arms)
        met = sum((hopping_arms(other, num_arms) == own) for other in seats - {seat})
        met = met + np.zeros(2 * num_arms, dtype=int)
        assert met.max(initial=0) <= 1
        assert met.sum() == len(seats) - 1
        assert met[: 2 * seat].sum() == sum(other < seat for other in seats)


def test_musical_chairs_fail_as_rarely_as_promised():
    rng = np.random.default_rng(0)
    num_players, num_arms, horizon, games = 4, 4, 20, 1000
    rounds = musical_chairs_length(num_arms, horizon)
    failures = 0
    for _ in range(games):
        arms, seats = musical_chairs(num_players, num_arms, rounds, rng)
        failures += (seats < 0).any()
        settled = seats[seats >= 0]
        assert len(set(settled)) == len(settled)
        assert arms.shape == (rounds, num_players)
        assert (arms[-1][seats >= 0] == settled).all()
    assert failures / games <= num_players / horizon


def players_of(algorithm, instance, horizon, rng):
    streams = rng.spawn(instance.num_players)
    return [
        DFEPlayer(algorithm, instance.num_arms, horizon, instance.sigma, stream)
        for stream in streams
    ]


@pytest.mark.parametrize(
    ("instance", "c"),
    [(THREE, 0.5), (MaxMinInstance([[0.9, 0.2, 0.4, 0.1], [0.8, 0.3, 0.1, 0.6]]), 0.2)],
)
def test_the_collision_protocol_delivers_means_and_decisions_bit_by_bit(instance, c):
    horizon, rng = 15_000, np.random.default_rng(1)
    algorithm = DFE(c=c, communication="collision")
    players = players_of(algorithm, instance, horizon, rng)
    arms = play(Environment(instance, rng), players, horizon)
    by_rank = sorted(players, key=lambda player: player.rank)
    leader, followers = by_rank[0], by_rank[1:]
    assert [player.rank for player in by_rank] == list(range(instance.num_players))
    assert {player.num_players for player in players} == {instance.num_players}
    assert arms.shape == (horizon, instance.num_players)
    assert len(leader.agreements) > 5

    plausible = np.ones(instance.means.shape, dtype=bool)
    counts = np.zeros(instance.means.shape, dtype=int)
    lower, upper = np.full(counts.shape, -np.inf), np.full(counts.shape, np.inf)
    for epoch, agreed in enumerate(leader.agreements):
        for matching in exploration_cover(plausible):
            counts[np.arange(len(matching)), matching] += 2**epoch
        radius = confidence_radius(counts, horizon, c, instance.sigma)
        length = code_length(radius[plausible].min())
        for follower in followers:
            own = follower.agreements[epoch]
            mine = plausible[follower.rank]
            sent, heard = own.codes[follower.rank], agreed.codes[follower.rank]
            assert (heard[mine] == sent[mine]).all()
            assert (own.plausible == agreed.plausible).all()
            assert (own.explored, own.end) == (agreed.explored, agreed.end)
        means = decode(agreed.codes, length)
        lower = np.where(plausible, means - radius - 0.5 / 2**length, lower)
        upper = np.where(plausible, means + radius + 0.5 / 2**length, upper)
        result = eliminate(plausible, lower, upper)
        survivors = plausible & ~result.by_bound & ~result.by_structure
        assert (agreed.plausible == survivors).all()
        bits = epoch_message(agreed.codes, length, plausible, survivors)
        assert agreed.end - agreed.explored == len(bits)
        plausible = survivors
    assert not plausible.all()


class Silent(MaxMinInstance):
    """Rewards without noise, under the confidence bounds of noisy ones."""

    def rewards(self, arms, rounds, rng):
        return np.tile(self.means[np.arange(self.num_players), arms], (rounds, 1))

    def reward_sums(self, pulls, rng):
        return pulls * self.means


@pytest.mark.parametrize("horizon", [50, 300, 777, 1500, 2000, 2100, 2200, 4000, 6000])
@pytest.mark.parametrize(
    "means",
    [
        [[60, 32, 6], [32, 50, 20], [12, 40, 44]],
        [[60, 10, 30, 8], [50, 20, 6, 40]],
        [[61, 58, 2], [45, 6, 3]],
    ],
)
def test_players_and_event_driven_simulation_agree_exactly_without_noise(
    means, horizon, monkeypatch
):
    instance, rng = Silent(np.array(means) / 64), np.random.default_rng(horizon)
    algorithm = DFE(c=0.05, communication="collision")
    players = players_of(algorithm, instance, horizon, rng)
    arms = play(Environment(instance, rng), players, horizon)
    begun = musical_chairs_length(instance.num_arms, horizon) + 2 * instance.num_arms
    ranks = np.array([player.rank for player in players])
    start = StartUp(np.resize(arms[:begun], (begun, len(ranks))), ranks)
    monkeypatch.setattr(elimination, "start_up", lambda *_: start)
    result = algorithm.simulate(instance, horizon, 1, 0)
    assert result.final[0] == pytest.approx(instance.regret(arms).sum(), abs=1e-9)
    assert result.epochs[0] == len(players[0].agreements)
    records = algorithm.trace(instance, horizon, 0)
    for record, agreed in zip(records, players[0].agreements, strict=False):
        assert (record.after.plausible == agreed.plausible[ranks]).all()
        assert (record.explored, record.end) == (agreed.explored, agreed.end)


def test_ranks_follow_the_seats():
    start = start_up(4, 6, 10_000, np.random.default_rng(3))
    seats = start.arms[musical_chairs_length(6, 10_000) - 1]
    assert start.settled
    assert start.ranks.tolist() == [sum(seats < seat) for seat in seats]
    assert len(start.arms) == musical_chairs_length(6, 10_000) + 12


def test_reported_means_are_those_of_the_rewards():
    horizon, rng = 3000, np.random.default_rng(2)
    players = players_of(DFE(c=0.5, communication="collision"), THREE, horizon, rng)
    rewards_of, environment = {player: [] for player in players}, Environment(THREE, rng)
    for _ in range(horizon):
        arms = [player.act() for player in players]
        rewards, collided = environment.step(arms)
        for player, arm, reward, hit in zip(players, arms, rewards, collided, strict=True):
            rewards_of[player].append((arm, reward))
            player.observe(reward, hit)
    for player in players:
        start, counts, sums = musical_chairs_length(3, horizon) + 6, np.zeros(3), np.zeros(3)
        plausible = np.ones((3, 3), dtype=bool)
        for agreed in player.agreements:
            for arm, reward in rewards_of[player][start : agreed.explored]:
                counts[arm] += 1
                sums[arm] += reward
            codes = agreed.codes[player.rank]
            pulls = counts[plausible[player.rank]]
            assert (pulls > 0).all()
            length = next(b for b in range(1, 60) if (encode(sums / counts, b) == codes).all())
            assert length >= code_length(confidence_radius(1, horizon, 0.5, 0.5))
            start, plausible = agreed.end, agreed.plausible


def test_players_and_event_driven_simulation_have_the_same_law():
    horizon, algorithm = 2500, DFE(c=0.5, communication="collision")
    acted = []
    for rng in np.random.default_rng(0).spawn(30):
        players = players_of(algorithm, THREE, horizon, rng)
        arms = play(Environment(THREE, rng), players, horizon)
        acted.append(THREE.regret(arms).sum())
    fast = algorithm.simulate(THREE, horizon, 400, 1)
    assert fast.failures.sum() <= 2
    assert ks_2samp(np.round(acted, 6), fast.final.round(6)).pvalue > SAME_LAW
    assert abs(np.mean(acted) - fast.final.mean()) < 6 * fast.final.std() / math.sqrt(30)


def test_communication_is_charged_exactly_or_from_above():
    instance = MaxMinInstance(MU10)
    exact = DFE(communication="collision").simulate(instance, 10**6, 3, 0)
    bound = DFE(communication="collision", comm_regret="bound").simulate(instance, 10**6, 3, 0)
    assert (exact.comm_rounds == bound.comm_rounds).all()
    assert bound.comm_regret == pytest.approx(0.4 * bound.comm_rounds)
    assert (exact.comm_regret < bound.comm_regret).all()
    play_regret = exact.final - exact.comm_regret
    assert play_regret == pytest.approx(bound.final - bound.comm_regret)
    assert (exact.comm_regret < 0.35 * play_regret).all()


@pytest.mark.parametrize("horizon", [1, 2, 5, 30, 47, 48, 49, 60, 75, 100, 140])
def test_the_horizon_may_cut_any_phase(horizon):
    for algorithm in (DFE(communication="collision"), DFE(cover="greedy"), DFE(growth=1.0)):
        result = algorithm.simulate(THREE, horizon, 2, 0)
        assert result.horizon == horizon
        assert (result.comm_rounds <= horizon).all()
        assert (np.diff(result.cum_regret) >= -1e-12).all()
        assert algorithm.trace(THREE, horizon, 0)[-1:] == [] or (
            algorithm.trace(THREE, horizon, 0)[-1].end == horizon
        )


def test_a_player_without_a_seat_costs_all_that_follows():
    algorithm = DFE(communication="collision")
    results = algorithm.simulate(THREE, 3, 200, 0)
    failed = results.failures > 0
    assert failed.any()
    assert not failed.all()
    longer = MaxMinInstance(np.full((6, 6), 0.5))
    runs = algorithm.simulate(longer, 60, 2000, 0)
    assert (runs.failures <= 1).all()
    assert (runs.final[runs.failures == 1] <= 0.5 * 60 + 1e-9).all()
    rng = np.random.default_rng(0)
    with pytest.raises(RuntimeError, match="no seat"):
        for _ in range(100):
            play(Environment(THREE, rng), players_of(algorithm, THREE, 3, rng), 20)


# Baselines


def test_exploring_then_committing_costs_its_sweeps():
    instance = MaxMinInstance(MU10)
    latin = (np.arange(10)[:, None] + np.arange(10)) % 10
    sweep = sum(0.4 - min(MU10[i, k] for i, k in enumerate(row)) for row in latin)
    assert sweep == pytest.approx(3.35)
    result = ExploreThenCommit(m=100).simulate(instance, 1000, 2, 0)
    assert result.final == pytest.approx(np.full(2, 100 * 3.35))
    cut = ExploreThenCommit(m=100).simulate(instance, 25, 1, 0)
    assert cut.final == pytest.approx(2 * 3.35 + sum(instance.regret(latin[:5])))
    noiseless = ExploreThenCommit(m=1).simulate(MaxMinInstance(MU10, sigma=1e-9), 10**6, 1, 0)
    assert noiseless.final == pytest.approx(3.35)
    assert ExploreThenCommit().sweeps(instance, 10**5) == math.ceil(800 * math.log(10**5))


def test_leshem_without_noise_pays_for_turns_and_auctions_only():
    instance = MaxMinInstance(MU10, sigma=1e-9)
    horizon, left, expected, k = 200_000, 200_000, 0.0, 0
    while left > 0:
        k += 1
        turns = min(left, math.ceil(50 * math.log(k + 1)))
        expected += sum(0.4 - min(MU10[i, (t + i) % 10] for i in range(10)) for t in range(turns))
        auction = min(left - turns, 10_000)
        expected += 0.4 * auction
        left -= turns + auction + 2**k
    result = LeshemAuction(exploration=50).simulate(instance, horizon, 2, 0)
    assert result.final == pytest.approx(np.full(2, expected))
    assert result.epochs.tolist() == [k, k]


def test_with_one_player_the_central_planner_is_ucb():
    instance = MaxMinInstance([[0.3, 0.5, 0.45]])
    horizon = 400
    (rng,) = np.random.default_rng(2).spawn(1)
    counts, sums, regret = np.zeros(3), np.zeros(3), 0.0
    for _ in range(horizon):
        noise = rng.standard_normal((1, 3))[0]
        index = [
            s / n + math.sqrt(4 * math.log(horizon) / n) if n else np.inf
            for s, n in zip(sums, counts, strict=True)
        ]
        arm = int(np.argmax(index))
        counts[arm] += 1
        sums[arm] += instance.means[0, arm] + noise[arm]
        regret += 0.5 - instance.means[0, arm]
    result = CentralizedUCB(patience=0).simulate(instance, horizon, 1, 2)
    assert result.final[0] == pytest.approx(regret)
    assert result.epochs[0] == horizon


def test_patience_saves_plans_and_costs_little():
    eager = CentralizedUCB(patience=0).simulate(THREE, 1500, 5, 0)
    lazy = CentralizedUCB().simulate(THREE, 1500, 5, 0)
    assert lazy.epochs.max() < 300
    assert lazy.final.mean() < 1.5 * eager.final.mean()


def fair_bandit_step_by_step(rules, instance, horizon, rng):
    """My Fair Bandit as written down, for one run, on the draws of the package; returns R(T)."""
    num_players, num_arms = instance.means.shape
    players, arms = range(num_players), range(num_arms)
    counts, sums = np.zeros((num_players, num_arms), int), np.zeros((num_players, num_arms))
    regrets = []
    gamma, eps, waited, expiry = 0.0, 1.0, 0, 1
    memory = {}

    def collisions(choice):
        return [list(choice).count(arm) > 1 for arm in choice]

    def play_round(choice):
        if len(regrets) < horizon:
            earned = [
                0.0 if hit else instance.means[i, choice[i]]
                for i, hit in enumerate(collisions(choice))
            ]
            regrets.append(instance.gamma_star - min(earned))

    def confidence(n):
        if rules.confidence == "hoeffding":
            return 2 * instance.sigma * math.sqrt(math.log(horizon) / n) if n else math.inf
        return math.sqrt(num_arms / math.log(n)) if n > 1 else math.inf

    for k in itertools.count(1):
        planned = math.ceil(rules.c1 * math.log(k + 1))
        pulls = np.zeros_like(counts)
        for _ in range(min(planned, horizon - len(regrets))):
            choice = rng.integers(num_arms, size=num_players)
            play_round(choice)
            for i, hit in enumerate(collisions(choice)):
                pulls[i, choice[i]] += not hit
        counts, sums = counts + pulls, sums + instance.reward_sums(pulls, rng)

        waited += 1
        if waited == expiry:
            gamma, waited, expiry, eps = 0.0, 0, max(1, k // 3), 1 / (1 + math.log(k))
        accepted = [
            [
                arm
                for arm in arms
                if sums[i, arm] / max(counts[i, arm], 1) >= gamma - confidence(counts[i, arm])
            ]
            for i in players
        ]
        left = min(math.ceil(rules.c2 * math.log(k + 1)), horizon - len(regrets))
        choice, moving = [0] * num_players, [True] * num_players
        for t in range(left):
            if t % 500 == 0 and any(moving):
                luck = rng.random((min(500, left - t), num_players))
            for i in players:
                if moving[i]:
                    options = accepted[i] or list(arms)
                    choice[i] = options[int(luck[t % 500, i] * len(options))]
            moving = collisions(choice)
            play_round(choice)
        worked = not any(moving) and all(accepted)

        for _ in range(min(num_arms, horizon - len(regrets))):
            if worked:
                play_round(choice)
            else:
                regrets.append(instance.gamma_star)
        memory[k] = (gamma if worked else -1.0, list(choice))
        best = max(range(math.ceil(k / 2), k + 1), key=lambda epoch: (memory[epoch][0], epoch))
        for _ in range(math.ceil(rules.c3 * (4 / 3) ** k)):
            play_round(memory[best][1])
        gamma += eps * worked
        if len(regrets) == horizon:
            return sum(regrets)


@pytest.mark.parametrize("confidence", ["paper", "hoeffding"])
@pytest.mark.parametrize(("horizon", "c2"), [(300, 250), (5000, 3), (20_000, 250)])
def test_my_fair_bandit_is_its_description_on_the_same_draws(confidence, horizon, c2):
    instance = MaxMinInstance([[0.9, 0.3, 0.2], [0.8, 0.5, 0.1], [0.6, 0.7, 0.4]], sigma=0.05)
    rules = MyFairBandit(c1=40, c2=c2, c3=2, confidence=confidence)
    streams = np.random.default_rng(5).spawn(3)
    expected = [fair_bandit_step_by_step(rules, instance, horizon, rng) for rng in streams]
    assert rules.simulate(instance, horizon, 3, 5).final == pytest.approx(expected)


def test_my_fair_bandit_survives_targets_that_nobody_accepts():
    instance = MaxMinInstance([[0.1, 0.0], [0.0, 0.1]], sigma=0.01)
    result = MyFairBandit(c1=50, c2=20, c3=10, confidence="hoeffding").simulate(
        instance, 5000, 3, 0
    )
    assert (result.final > 0).all()
    assert (np.diff(result.cum_regret) >= 0).all()


def test_uniform_play_has_its_expected_regret():
    instance = MaxMinInstance([[0.9, 0.5, 0.1], [0.5, 0.8, 0.3]])
    choices = list(itertools.product(range(3), repeat=2))
    per_round = [
        0.8 - (0.0 if i == j else min(instance.means[0, i], instance.means[1, j]))
        for i, j in choices
    ]
    result = UniformPlay().simulate(instance, 20_000, 5, 0)
    room = 6 * np.std(per_round) * math.sqrt(20_000)
    assert (np.abs(result.final - 20_000 * np.mean(per_round)) < room).all()


def test_the_largest_total_may_starve_a_player():
    instance = MaxMinInstance([[1.0, 0.5], [0.9, 0.1]])
    assert Oracle().simulate(instance, 1000, 2, 0).final.tolist() == [0, 0]
    unfair = MaxMinInstance([[1.0, 0.5], [0.5, 0.1]])
    assert SumOptimal().simulate(unfair, 1000, 1, 0).final == pytest.approx(400)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: type(algorithm).__name__)
@pytest.mark.parametrize(
    "instance",
    [MaxMinInstance([[0.5]]), MaxMinInstance([[0.2, 0.7]]), THREE, hard_instance(1, 1, 0.1, 3)],
    ids=["one pair", "one player", "square", "wide"],
)
def test_every_algorithm_gives_a_sound_result(algorithm, instance):
    for horizon in (1, 2, 777):
        result = algorithm.simulate(instance, horizon, 3, 0)
        assert result.times.shape == result.cum_regret.shape
        assert (result.times[:, 0] == 0).all()
        assert (result.times[:, -1] == horizon).all()
        assert (result.cum_regret[:, 0] == 0).all()
        assert (np.diff(result.cum_regret) >= -1e-12).all()
        assert (result.final <= horizon * instance.gamma_star + 1e-9).all()
        assert (result.at([0, horizon]) == result.cum_regret[:, [0, -1]]).all()
        assert (result.comm_regret <= result.final + 1e-9).all()
        assert (result.comm_rounds <= horizon).all()


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: type(algorithm).__name__)
def test_more_seeds_do_not_change_the_first_and_a_seed_repeats(algorithm):
    two, five = (algorithm.simulate(THREE, 2000, n, 9) for n in (2, 5))
    assert (two.final == five.final[:2]).all()
    spawned = algorithm.simulate(THREE, 2000, 2, np.random.default_rng(9))
    assert (two.final == spawned.final).all()


def test_dfe_beats_the_earlier_algorithms_on_the_published_means():
    instance = MaxMinInstance(MU10)
    dfe = DFE().simulate(instance, 10**6, 4, 0).final
    assert (MyFairBandit().simulate(instance, 10**6, 4, 0).final > 3 * dfe).all()
    assert LeshemAuction().simulate(instance, 10**6, 4, 0).final.mean() > 1.3 * dfe.mean()


def test_curves_are_exact_between_their_corners():
    result = DFE(c=0.5).simulate(THREE, 500, 1, 3)
    records = DFE(c=0.5).trace(THREE, 500, 3)
    per_round = np.concatenate([np.repeat(r.slopes, r.rounds) for r in records])
    expected = np.append(0.0, np.cumsum(per_round))
    assert result.at(np.arange(501))[0] == pytest.approx(expected)


# Bad input

SQUARE = np.ones((2, 2), dtype=bool)
FREE, TALKING = DFE(), DFE(communication="collision")
RNG = np.random.default_rng(0)
NEGATIVE = MaxMinInstance([[0.5, -0.1]])
SHORT = Run(np.array([1]), np.array([0.0]))
DROPPING = Run(np.array([1]), np.array([0.0]), eliminated_in=np.array([[-1]]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MaxMinInstance([0.5, 0.5]), "means must be 2-D"),
        (lambda: MaxMinInstance([[0.5], [0.5]]), "means must be 2-D"),
        (lambda: MaxMinInstance(np.empty((0, 3))), "means must be 2-D"),
        (lambda: MaxMinInstance([[0.5, np.nan]]), r"means must be finite, got nan at \(0, 1\)"),
        (lambda: MaxMinInstance([[np.inf, 0.5]]), "means must be finite"),
        (lambda: MaxMinInstance([[0.5, 1j]]), "means must be real numbers, got complex128"),
        (lambda: MaxMinInstance([["0.5", "1"]]), "means must be real numbers, got <U3"),
        (lambda: MaxMinInstance([[0.5, None]]), "means must be real numbers, got object"),
        (lambda: MaxMinInstance([[0.5, 1.0], [0.5]]), "means must have rows of one length"),
        (lambda: MaxMinInstance(np.ma.masked_less([[0.5, 0.1]], 0.2)), "means must not be a mask"),
        (lambda: MaxMinInstance([[0.5]], noise=["gaussian"]), "noise must be one of"),
        (lambda: MaxMinInstance([[0.5]], sigma=np.complex128(1)), "sigma must be"),
        (lambda: MaxMinInstance([[0.5]], sigma=np.timedelta64(1)), "sigma must be"),
        (lambda: MaxMinInstance([[0.5]], sigma=np.True_), "sigma must be"),
        (lambda: MaxMinInstance([[0.5]], sigma=10**400), "sigma must be"),
        (lambda: MaxMinInstance([[1.1, 0.5]], noise="bernoulli"), r"must lie in \[0, 1\]"),
        (lambda: MaxMinInstance([[-0.1, 0.5]], noise="bernoulli"), r"must lie in \[0, 1\]"),
        (lambda: MaxMinInstance([[0.5]], noise="cauchy"), "noise must be one of"),
        (lambda: MaxMinInstance([[0.5]], noise="bernoulli", sigma=1.0), "sigma of Bernoulli"),
        (lambda: MaxMinInstance([[0.5]], sigma=0.0), "sigma must be"),
        (lambda: MaxMinInstance([[0.5]], sigma=np.nan), "sigma must be"),
        (lambda: MaxMinInstance([[0.5]], sigma="1"), "sigma must be"),
        (lambda: hard_instance(0, 1, 0.1), "a must be an integer >= 1"),
        (lambda: hard_instance(1, 1.5, 0.1), "b must be an integer >= 1"),
        (lambda: hard_instance(1, 1, 0.5), "delta must lie in"),
        (lambda: hard_instance(1, 1, -0.1), "delta must be"),
        (lambda: hard_instance(1, 1, 1e-17), "delta must lie in"),
        (lambda: hard_instance(1, 1, 1e-13), "delta must lie in"),
        (lambda: hard_instance(np.timedelta64(1), 1, 0.1), "a must be an integer"),
        (lambda: THREE.regret([0, 1, -1]), r"arms must lie in 0\.\.2, got -1\.\.1"),
        (lambda: THREE.regret([[0, 1, 2], [0, 1, 3]]), r"arms must lie in 0\.\.2"),
        (lambda: THREE.regret([0, 1]), "arms must be 3 a round"),
        (lambda: THREE.regret([[0], [1], [2]]), "arms must be 3 a round"),
        (lambda: THREE.regret(1), "arms must be 3 a round"),
        (lambda: THREE.regret([0.0, 1.0, 2.0]), "arms must be integers"),
        (lambda: THREE.regret([True, False, True]), "arms must be integers"),
        (lambda: THREE.rewards([0, 1, -1], 1, RNG), "arms must lie in"),
        (lambda: THREE.rewards([[0, 1, 2]], 1, RNG), r"arms must have shape \(3,\)"),
        (lambda: THREE.rewards([0, 1, 2], -1, RNG), "rounds must be an integer >= 0"),
        (lambda: THREE.reward_sums([1, 1, 1], RNG), r"pulls must have shape \(3, 3\)"),
        (lambda: THREE.reward_sums(-np.eye(3, dtype=int), RNG), "pulls must be integers >= 0"),
        (lambda: THREE.reward_sums(np.eye(3), RNG), "pulls must be integers, got float64"),
        (lambda: hard_instance(1, 1, 0.1, extra=-1), "extra must be an integer >= 0"),
        (lambda: random_instance(3, 2, 0), "num_arms must be an integer >= 3"),
        (lambda: random_instance(2, 3, -1), "seed must be"),
        (lambda: bottleneck_matching([[np.nan]]), "NaN"),
        (lambda: bottleneck_matching([[0.1], [0.2]]), "weights must be 2-D"),
        (lambda: bottleneck_matching([["1"]]), "weights must be real numbers"),
        (lambda: bottleneck_matching(np.ma.array([[1.0]])), "weights must not be a masked"),
        (lambda: allowed_pairs([[1, 0]]), "graph must be boolean"),
        (lambda: allowed_pairs(np.ma.array(SQUARE)), "graph must not be a masked"),
        (lambda: eliminate([[1]], [[0.1]], [[0.2]]), "plausible must be boolean"),
        (lambda: eliminate([[True]], [[math.nan]], [[0.2]]), "lower must not hold NaN, got nan"),
        (lambda: eliminate([[True]], [[0.1]], [[math.nan]]), "upper must not hold NaN, got nan"),
        (lambda: eliminate([[True]], [[0.3]], [[0.2]]), "lower must be <= upper"),
        (lambda: eliminate(SQUARE, [[0.1, 0.2]], SQUARE), r"lower must have shape \(2, 2\)"),
        (lambda: eliminate(SQUARE, SQUARE, 1.0), r"upper must have shape \(2, 2\), got \(\)"),
        (lambda: has_saturating_matching(np.ones((3, 2), bool)), "graph must be 2-D"),
        (lambda: forced_matching(SQUARE, 2, 0), "player must be an integer >= 0 and <= 1, got 2"),
        (lambda: forced_matching(SQUARE, 0, -1), "arm must be an integer >= 0 and <= 1, got -1"),
        (lambda: forced_matching(SQUARE, 0, 0.5), "arm must be an integer"),
        (lambda: forced_matching(SQUARE, True, 0), "player must be an integer"),
        (lambda: forced_matching(SQUARE, 0, 0, [[1j, 0], [0, 0]]), "prefer must be real numbers"),
        (lambda: forced_matching(SQUARE, 0, 0, [[1.0, np.nan], [0, 0]]), "prefer"),
        (lambda: forced_matching(SQUARE, 0, 0, [1.0]), "prefer"),
        (lambda: edge_coloring([[1, 0]]), "boolean"),
        (lambda: edge_coloring(np.ma.array(SQUARE)), "graph must not be a masked"),
        (lambda: edge_coloring(np.ones(3, bool)), "2-D"),
        (lambda: exploration_cover(SQUARE, "smallest"), "mode must be one of"),
        (
            lambda: exploration_cover(np.array([[True, True], [True, False]])),
            "must lie in a matching",
        ),
        (lambda: DFE(cover="latin"), "cover must be one of"),
        (lambda: DFE(c=0), "c must be"),
        (lambda: DFE(c=math.inf), "c must be"),
        (lambda: DFE(c=True), "c must be"),
        (lambda: DFE(growth=0.5), "growth must be >= 1"),
        (lambda: DFE(communication="radio"), "communication must be one of"),
        (lambda: DFE(comm_regret="none"), "comm_regret must be one of"),
        (lambda: DFE(tol=-0.1), "tol must be"),
        (lambda: DFE(tol=0.1, communication="collision"), "tol needs"),
        (lambda: DFE(tol=False), "tol must be"),
        (lambda: DFE(c=np.complex128(4)), "c must be"),
        (lambda: DFE(growth=np.timedelta64(2)), "growth must be"),
        (lambda: DFE(draws="blocks"), "draws must be one of"),
        (lambda: FREE.simulate(THREE, 0, 1, 0), "horizon must be an integer >= 1"),
        (lambda: FREE.simulate(THREE, 1e5, 1, 0), "horizon must be an integer >= 1"),
        (lambda: FREE.simulate(THREE, -3, 1, 0), "horizon must be"),
        (lambda: FREE.simulate(THREE, math.nan, 1, 0), "horizon must be"),
        (lambda: FREE.simulate(THREE, 10, 0, 0), "n_seeds must be"),
        (lambda: FREE.simulate(THREE, 10, 1, -1), "rng must be an integer >= 0"),
        (lambda: FREE.simulate(THREE, np.timedelta64(10), 1, 0), "horizon must be an integer"),
        (lambda: FREE.trace(THREE, 2**63, 0), "horizon must be an integer >= 1 and <= 9223372036"),
        (lambda: simulate_round_by_round(FREE, THREE, 2**63, 1, 0), "horizon must be an integer"),
        (lambda: DFEPlayer(TALKING, 3, np.uint64(2**63), 1.0, RNG), "horizon must be an integer"),
        (lambda: DFEPlayer(TALKING, 3, 1, 1.0, RNG), "horizon must be an integer >= 2"),
        (lambda: confidence_radius(1, 10**40), "horizon must be an integer"),
        (lambda: failure_probability(1, 1, 10**400), "horizon must be an integer"),
        (lambda: elimination_epoch(0.1, 2**63), "horizon must be an integer"),
        (lambda: upper_bound(THREE, 2**63), "horizon must be an integer"),
        (lambda: ExploreThenCommit().sweeps(THREE, 2**63), "horizon must be an integer"),
        (lambda: ExploreThenCommit(m=1).sweeps(THREE, 0), "horizon must be an integer"),
        (lambda: LeshemAuction().simulate(NEGATIVE, 10, 1, 0), "means must be >= 0 where"),
        (lambda: MyFairBandit().simulate(NEGATIVE, 10, 1, 0), "means must be >= 0 where"),
        (lambda: FREE.trace(THREE, 10, -1), "rng must be an integer >= 0"),
        (lambda: TALKING.simulate(MaxMinInstance([[1.5]]), 10, 1, 0), "means must lie in"),
        (lambda: FREE.simulate(THREE, 10, 1, 0).at([11]), "grid must be"),
        (lambda: FREE.simulate(THREE, 10, 1, 0).at([np.nan]), "grid must be"),
        (lambda: FREE.simulate(THREE, 10, 1, 0).at(3), "grid must be"),
        (lambda: FREE.simulate(THREE, 10, 1, 0).at(["3"]), "grid must be real numbers"),
        (lambda: FREE.simulate(THREE, 10, 1, 0).at(np.ma.array([3])), "grid must not be a masked"),
        (lambda: collect([SHORT, DROPPING]), "1 of 2 runs have eliminated_in"),
        (lambda: code_length(0.0), "radius must be"),
        (lambda: code_length(math.nan), "radius must be"),
        (lambda: encode([0.5], 53), "length must be an integer >= 1 and <= 52"),
        (lambda: encode([0.5], 0), "length must be"),
        (lambda: encode([math.nan], 3), r"means must be finite, got nan at \(0,\)"),
        (lambda: decode([1], 53), "length must be"),
        (lambda: decode([0.5], 3), "codes must be integers"),
        (lambda: Oracle().simulate(THREE, 10, 1, 0).plausible_history, "plausible_history"),
        (lambda: MyFairBandit(c1=0), "c1 must be"),
        (lambda: MyFairBandit(confidence="none"), "confidence must be one of"),
        (lambda: LeshemAuction(exploration=-1.0), "exploration must be"),
        (lambda: ExploreThenCommit(m=0), "m must be"),
        (lambda: ExploreThenCommit(m="best"), "m must be"),
        (lambda: CentralizedUCB(c=-1), "c must be"),
        (lambda: CentralizedUCB(patience=-0.1), "patience must be"),
        (lambda: confidence_radius([-1], 10), "counts must be"),
        (lambda: confidence_radius([1.5], 10), "counts must be"),
        (lambda: confidence_radius(np.ma.array([1]), 10), "counts must not be a masked"),
        (lambda: confidence_radius([1], 10, sigma=0), "sigma must be"),
        (lambda: cover_bound(3, 2), "num_arms must be"),
        (lambda: elimination_epoch(0.0, 100), "gap must be"),
        (lambda: elimination_epoch(-0.1, 100), "gap must be"),
        (lambda: elimination_epoch(0.1, 100, c=0), "c must be"),
        (lambda: failure_probability(0, 1, 10), "num_players must be"),
        (lambda: upper_bound(THREE, 0), "horizon must be"),
        (lambda: lower_bound_slope(1, 1, 0.0), "delta must be"),
        (lambda: lower_bound_slope(1, 1, 1e-17), "delta must lie in"),
        (lambda: lower_bound_slope(1, 1, 0.1, sigma=-1), "sigma must be"),
        (lambda: Environment(THREE, RNG).step([0, 1]), r"arms must have shape \(3,\)"),
        (lambda: Environment(THREE, RNG).step([0, 1, 3]), r"arms must lie in 0\.\.2"),
        (lambda: Environment(THREE, RNG).step([0.0, 1.0, 2.0]), "arms must be integers"),
        (lambda: DFEPlayer(FREE, 3, 10, 1.0, RNG), "communication='collision'"),
        (lambda: DFEPlayer(TALKING, 0, 10, 1.0, RNG), "num_arms must be"),
        (lambda: DFEPlayer(TALKING, 3, 10, -1.0, RNG), "sigma must be"),
        (lambda: play(Environment(THREE, RNG), [], 10), "players must be 3"),
        (lambda: simulate_round_by_round(TALKING, THREE, 10, 1, 0), "communication='free'"),
        (lambda: simulate_round_by_round(DFE(tol=0.1), THREE, 10, 1, 0), "tol=0"),
    ],
)
def test_bad_values_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: type(algorithm).__name__)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((MU10, 10, 1, 0), "instance must be a MaxMinInstance"),
        ((THREE, 10, 1, None), "rng must be an integer seed or a Generator"),
        ((THREE, 10, 1, 0.5), "rng must be"),
        ((THREE, 10, 1, True), "rng must be"),
    ],
)
def test_wrong_types_are_refused_by_name(algorithm, arguments, message):
    with pytest.raises(TypeError, match=message):
        algorithm.simulate(*arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: DFEPlayer(None, 3, 10, 1.0, RNG), "algorithm must be a DFE, got NoneType"),
        (lambda: DFEPlayer(TALKING, 3, 10, 1.0, 0), "rng must be a Generator, got int"),
        (lambda: Environment(None, RNG), "instance must be a MaxMinInstance, got NoneType"),
        (lambda: Environment(THREE, None), "rng must be a Generator, got NoneType"),
        (lambda: simulate_round_by_round(Oracle(), THREE, 10, 1, 0), "algorithm must be a DFE"),
        (lambda: upper_bound(MU10, 10), "instance must be a MaxMinInstance, got ndarray"),
        (lambda: ExploreThenCommit().sweeps(MU10, 10), "instance must be a MaxMinInstance"),
        (lambda: THREE.rewards([0, 1, 2], 1, 0), "rng must be a Generator, got int"),
        (lambda: THREE.reward_sums(np.eye(3, dtype=int), 0), "rng must be a Generator, got int"),
    ],
)
def test_other_objects_are_refused_by_name(call, message):
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize(
    ("small", "plain"),
    [
        (lambda: cover_bound(np.int8(100), np.int8(120)), cover_bound(100, 120)),
        (lambda: failure_probability(np.int8(100), np.int8(100), np.int32(10**9)), 2e-5),
        (
            lambda: lower_bound_slope(np.int8(50), np.int8(50), np.float16(0.25), extra=np.int8(9)),
            lower_bound_slope(50, 50, 0.25, extra=9),
        ),
        (lambda: hard_instance(np.int8(90), np.int8(90), 0.1).num_players, 181),
        (lambda: random_instance(np.uint8(3), np.uint8(4), np.uint64(2**64 - 1)).num_arms, 4),
        (lambda: ExploreThenCommit(m=np.int8(100)).simulate(DYADIC, 5000, 1, 0).times[0, 1], 1000),
        (lambda: DFE(growth=np.int32(2)).trace(THREE, LONGEST, 0)[-1].end, LONGEST),
        (lambda: CentralizedUCB(patience=np.float32(0)).patience, 0.0),
        (
            lambda: upper_bound(THREE, np.uint64(10**6), np.int8(100)),
            upper_bound(THREE, 10**6, 100),
        ),
        (lambda: check_positive("c", np.float16(1)), 1.0),
    ],
)
def test_numpy_scalars_count_as_the_numbers_that_they_are(small, plain):
    assert small() == pytest.approx(plain, rel=1e-12)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: type(algorithm).__name__)
def test_horizons_of_any_integer_dtype_give_the_same(algorithm):
    plain = algorithm.simulate(THREE, 100, 2, 9)
    for dtype in (np.int8, np.uint64):
        same = algorithm.simulate(THREE, dtype(100), dtype(2), dtype(9))
        assert (same.times == plain.times).all()
        assert (same.cum_regret == plain.cum_regret).all()


def test_a_generator_is_only_spawned_from():
    rng = np.random.default_rng(3)
    first, second = (DFE(c=0.5).simulate(THREE, 3000, 2, rng).final for _ in range(2))
    assert (first != second).any()
    assert rng.random() == np.random.default_rng(3).random()
