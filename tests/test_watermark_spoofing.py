"""Spoofers, the spoofing test and its power, against brute force, other libraries and theory."""

import copy
import itertools
import math
import sys
import warnings
from collections import Counter, defaultdict
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from workingpapers import lab, project
from workingpapers import watermark_spoofing as ws
from workingpapers.language import (
    CausalLM,
    Decoding,
    NGramLM,
    TransformerLM,
    generate,
    king_james_bible,
    new_transformer,
    save_checkpoint,
    small_config,
    train_tokenizer,
)
from workingpapers.watermark_spoofing.world import bible_world

X = [1, 0, 1, 1, 0, 0, 1, 0, 1, 1]
Y = [5, 0, 3, 3, 0, 1, 8, 0, 2, 0]
V = 512
FALSE_ALARM = 1e-6
SMALL = {"data_texts": 60, "data_tokens": 200}


class Memoryless(CausalLM):
    """The same distribution, whatever came before."""

    def __init__(self, log_probs):
        self.log_probs = torch.as_tensor(log_probs, dtype=torch.float32)
        self.vocab_size = len(self.log_probs)

    def start(self, prompts):
        decoding = Fixed()
        decoding.logits = self.log_probs.repeat(len(prompts), 1)
        return decoding

    def position_log_probs(self, batch):
        return self.log_probs.repeat(*self.check_batch("batch", batch).shape, 1)


class Fixed(Decoding):
    def append(self, tokens):
        pass


def make(width=None, seeding="sum"):
    return lambda key, size: ws.KGW(key, size, width, seeding=seeding)


SETUPS = {
    "sum": ws.Setup(make(2), strength=6.0, **SMALL),
    "self": ws.Setup(make(seeding="self"), strength=6.0, **SMALL),
    "aar": ws.Setup(lambda key, size: ws.Aaronson(key, size, 2), skip_repeated=True, **SMALL),
    "kth": ws.Setup(lambda key, size: ws.KTH(key, size, 32), **SMALL),
}


@pytest.fixture(scope="module")
def world():
    return ws.ngram_world(king_james_bible().texts[:250], vocab_size=V, block_size=500)


@pytest.fixture(scope="module")
def studies(world):
    """Texts of each scheme, 250 tokens each."""
    return {
        name: ws.make_study(world, setup, seed=3, num_texts=40, num_tokens=250)
        for name, setup in SETUPS.items()
    }


@pytest.fixture(scope="module")
def forged(studies):
    """A scheme with its counts, and forged and genuine texts with a prompt of 3 tokens."""
    study = studies["sum"]
    return study.scheme, study.reference, list(study.spoofed["stealing"]), list(study.genuine)


# --- the statistic


def test_the_worked_example_of_ten_tokens():
    rho, z = ws.spearman_z(X, Y)
    assert rho == pytest.approx(0.6988317400, abs=1e-9)
    assert z == pytest.approx(2.0964952201, abs=1e-9)
    assert stats.norm.sf(z) == pytest.approx(0.0180191417, abs=1e-9)
    assert ws.spearman_z(X, Y, "fisher")[1] == pytest.approx(2.2886105624, abs=1e-9)


@st.composite
def sequences(draw, binary=False):
    length = draw(st.integers(5, 40))
    ties = st.integers(0, 1) if binary else st.integers(-3, 9)
    x = draw(hnp.arrays(int, length, elements=ties))
    y = draw(hnp.arrays(int, length, elements=st.integers(0, 12)))
    if len(set(x)) == 1 or len(set(y)) == 1:
        x, y = np.arange(length) % 2, np.arange(length) // 3
    return x, y


@settings(max_examples=150, deadline=None)
@given(sequences(binary=True))
def test_for_binary_colours_it_is_the_mann_whitney_z(pair):
    x, y = pair
    expected = stats.mannwhitneyu(
        y[x == 1], y[x == 0], alternative="greater", method="asymptotic", use_continuity=False
    )
    assert stats.norm.sf(ws.spearman_z(x, y)[1]) == pytest.approx(expected.pvalue, abs=1e-12)


@settings(max_examples=150, deadline=None)
@given(sequences(), st.randoms(use_true_random=False))
def test_it_hears_only_the_ranks_and_the_pairing(pair, random):
    x, y = pair
    rho, z = ws.spearman_z(x, y)
    assert rho == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    assert z == pytest.approx(ws.spearman_z(3 + 2.5 * x, np.exp(y / 4.0))[1], abs=1e-9)
    assert z == pytest.approx(-ws.spearman_z(-x, y)[1], abs=1e-9)
    assert z == pytest.approx(ws.spearman_z(y, x)[1], abs=1e-9)
    order = list(range(len(x)))
    random.shuffle(order)
    assert z == pytest.approx(ws.spearman_z(x[order], y[order])[1], abs=1e-9)
    assert abs(rho) <= 1 and math.isfinite(z)


def test_over_all_pairings_the_mean_is_0_and_the_variance_1():
    x, y = [0, 1, 1, 0, 1, 0, 1], [0, 0, 3, 5, 5, 5, 9]
    z = [ws.spearman_z(x, order)[1] for order in itertools.permutations(y)]
    assert np.mean(z) == pytest.approx(0, abs=1e-12)
    assert np.var(z) == pytest.approx(1, abs=1e-12)


def test_pvalues_are_uniform_where_colour_and_frequency_are_independent():
    rng = np.random.default_rng(0)
    z = [
        ws.spearman_z(rng.random(1000) < 0.6, np.minimum(rng.zipf(1.3, 1000), 10**6))[1]
        for _ in range(2000)
    ]
    assert stats.kstest(stats.norm.sf(z), "uniform").pvalue > FALSE_ALARM
    assert np.var(z) == pytest.approx(1, abs=0.16)  # 5 standard errors


def test_fisher_and_plain_agree_where_the_correlation_is_small():
    rng = np.random.default_rng(1)
    x, y = rng.random((2, 5000))
    assert ws.spearman_z(x, y, "fisher")[1] == pytest.approx(ws.spearman_z(x, y)[1], abs=1e-2)


# --- power


@pytest.mark.parametrize(
    ("q", "p1", "p0", "tokens", "mean", "power"),
    [
        (0.6, 0.5, 0.4, 500, 2.196, 0.448),
        (0.6, 0.6, 0.35, 200, 3.455, 0.871),
        (0.9, 0.6, 0.35, 500, 3.389, 0.856),
        (0.6, 0.5, 0.45, 1000, 1.550, 0.219),
    ],
)
def test_the_power_formula_agrees_with_simulation(q, p1, p0, tokens, mean, power):
    assert ws.expected_z(q, p1, p0, tokens) == pytest.approx(mean, abs=5e-4)
    assert ws.power(q, p1, p0, tokens) == pytest.approx(power, abs=5e-4)
    found = ws.simulated_power(q, p1, p0, tokens, seed=1, runs=3000)
    assert found["power"] == pytest.approx(power, abs=0.06)
    assert found["mean"] == pytest.approx(mean, abs=0.12)


PROBABILITIES = st.floats(0.02, 0.98)


@settings(deadline=None)
@given(PROBABILITIES, PROBABILITIES, PROBABILITIES, st.floats(0.1, 1), st.integers(1, 5))
def test_the_tokens_needed_are_just_enough(q, p1, p0, kappa, reprompts):
    p0, p1 = sorted((p0, p1 + 0.01))
    settings = {"kappa": kappa, "mode": "reprompting", "reprompts": reprompts}
    needed = ws.tokens_needed(q, p1, p0, target=0.8, **settings)
    assert ws.power(q, p1, p0, needed, **settings) >= 0.8 - 1e-9
    if needed > 2:
        assert ws.power(q, p1, p0, needed - 1, **settings) < 0.8


def test_the_price_of_reprompting():
    standard = ws.tokens_needed(0.6, 0.5, 0.45)
    once = ws.tokens_needed(0.6, 0.5, 0.45, mode="reprompting")
    often = ws.tokens_needed(0.6, 0.5, 0.45, mode="reprompting", reprompts=1000)
    assert once / standard == pytest.approx(2, rel=1e-2)
    assert often / standard == pytest.approx(1, rel=1e-2)
    share = [1 / math.sqrt(1 + 1 / k) for k in range(1, 12)]
    assert next(k for k in range(1, 12) if share[k - 1] > 0.95) == 10


def test_who_has_learned_all_or_nothing_is_found_as_often_as_a_genuine_text():
    for q in (0.0, 1.0):
        assert ws.power(q, 0.6, 0.3, 3000) == pytest.approx(0.01)
    assert ws.power(0.5, 0.4, 0.4, 3000, alpha=0.05) == pytest.approx(0.05)


# --- what the test reads


def slow_evidence(texts, scheme, reference_texts, prompt_length, width):
    """Colours and frequencies by definition, each context and token once."""
    counts = Counter(
        tuple(text[i : i + width]) for text in reference_texts for i in range(len(text) - width + 1)
    )
    colors, frequencies, seen = [], [], set()
    for text in map(list, texts):
        for t in range(max(prompt_length, width), len(text)):
            context = tuple(text[t - width : t])
            if (context, text[t]) in seen:
                continue
            seen.add((context, text[t]))
            colors.append(float(scheme.green(np.array([context]))[0, text[t]]))
            frequencies.append(counts[context])
    return colors, frequencies


def test_colours_frequencies_and_repeats_are_as_defined(world, forged):
    scheme, counts, texts, _ = forged
    texts = [list(map(int, text)) for text in texts[:2]] * 2
    colors, frequencies = slow_evidence(texts, scheme, world.reference.tolist(), 3, 2)
    result = ws.spoofing_test(texts, scheme, counts, prompt_lengths=3)
    assert result.rho == pytest.approx(stats.spearmanr(colors, frequencies).statistic)
    assert result.num_tokens == 4 * 250 and result.num_unique == len(colors)
    assert result.zero_share == pytest.approx(np.mean(np.array(frequencies) == 0))
    assert result.statistic == pytest.approx(result.rho * math.sqrt(len(colors) - 1))
    assert result.pvalue == pytest.approx(stats.norm.sf(result.statistic))
    groups = result.frequency_bins
    assert sum(group.num_tokens for group in groups) == result.num_unique
    green = sum(group.num_tokens * group.mean_color for group in groups)
    assert green == pytest.approx(sum(colors))
    assert all(one.high < two.low for one, two in itertools.pairwise(groups))


def test_contexts_do_not_cross_texts_and_prompts_are_not_scored(forged):
    scheme, counts, texts, _ = forged
    joined = ws.collect([np.concatenate(texts[:2])], scheme, counts)
    apart = ws.collect(texts[:2], scheme, counts)
    assert len(joined.colors) == len(apart.colors) + 2
    later = ws.collect(texts[:2], scheme, counts, prompt_lengths=[100, 3])
    np.testing.assert_array_equal(
        later.keys, np.concatenate([scheme.keys(texts[0], 100), scheme.keys(texts[1], 3)])
    )


def test_the_order_of_texts_does_not_matter(forged):
    scheme, counts, texts, _ = forged
    one = ws.spoofing_test(texts[:5], scheme, counts)
    two = ws.spoofing_test(texts[4::-1], scheme, counts)
    assert one.statistic == pytest.approx(two.statistic, abs=1e-9)


def test_repeats_count_once(forged):
    scheme, counts, texts, _ = forged
    once = ws.spoofing_test(texts[:1], scheme, counts)
    twice = ws.spoofing_test(texts[:1] * 2, scheme, counts)
    assert twice.statistic == once.statistic and twice.num_unique == once.num_unique
    single = ws.spoofing_test(texts[:1], scheme, counts, dedup=False)
    double = ws.spoofing_test(texts[:1] * 2, scheme, counts, dedup=False)
    assert double.statistic / single.statistic == pytest.approx(math.sqrt(2), rel=1e-2)


def test_a_frequency_that_sees_the_token_has_the_wrong_sign(world, studies):
    for name in ("sum", "self"):
        means = ws.score_means(studies[name], world, num_texts=40)
        assert means["genuine_ngram"] < -1
        assert abs(means["genuine_context"]) < 1
        assert means["stealing_context"] > 1 > 0 > means["genuine_ngram"]


def test_the_known_data_score_asks_whether_the_pair_was_in_the_data(world, studies):
    study = studies["sum"]
    known = ws.NGramCounts.from_texts(study.data, 3, V)
    evidence = ws.collect(
        study.genuine[:3], study.scheme, None, "known_data", known, prompt_lengths=3
    )
    rows = {tuple(row[i : i + 3]) for row in study.data.tolist() for i in range(len(row) - 2)}
    assert evidence.frequencies.tolist() == [float(tuple(key) in rows) for key in evidence.keys]


def test_position_keyed_colours_are_set_against_the_token_before(studies, world):
    study = studies["kth"]
    text = study.genuine[0]
    evidence = ws.collect([text], study.scheme, study.reference, prompt_lengths=3)
    counts = Counter(world.reference.ravel().tolist())
    assert evidence.frequencies.tolist() == [counts[int(token)] for token in text[2:-1]]
    assert evidence.keys[:, 0].tolist() == [i % 32 for i in range(250)]


def test_a_unigram_watermark_is_set_against_the_token_before(world):
    scheme = ws.KGW(1, V, seeding="unigram")
    counts = ws.NGramCounts.from_texts(world.reference, ws.gram_width(scheme), V)
    evidence = ws.collect([world.reference[0]], scheme, counts)
    assert counts.n == 1 and len(evidence.colors) == 499


# --- the three tests


def test_reprompting_is_the_difference_of_two_standard_tests(forged):
    scheme, counts, spoofed, genuine = forged
    ask = partial(ws.spoofing_test, scheme=scheme, reference=counts, prompt_lengths=3)
    one, two, three = (ask(texts).statistic for texts in (spoofed[:4], genuine[:4], genuine[4:8]))
    found = ask(spoofed[:4], mode="reprompting", reprompted=genuine[:4])
    assert found.statistic == pytest.approx((one - two) / math.sqrt(2))
    back = ask(genuine[:4], mode="reprompting", reprompted=spoofed[:4])
    assert back.statistic == pytest.approx(-found.statistic)
    rounds = [genuine[:4], genuine[4:8]]
    both = ask(spoofed[:4], mode="reprompting", reprompted=rounds)
    assert both.statistic == pytest.approx((one - (two + three) / 2) / math.sqrt(1.5))
    nested = [[text.tolist() for text in texts] for texts in rounds]
    assert ask(spoofed[:4], mode="reprompting", reprompted=nested).statistic == both.statistic


@pytest.mark.parametrize("transform", ["plain", "fisher"])
def test_texts_of_other_lengths_are_compared_by_their_correlations(forged, transform):
    scheme, counts, spoofed, genuine = forged
    ask = partial(
        ws.spoofing_test, scheme=scheme, reference=counts, prompt_lengths=3, transform=transform
    )
    one, two = ask(spoofed[:4]), ask(genuine[:2])
    lost = 1 if transform == "plain" else 3
    effect = (lambda rho: rho) if transform == "plain" else math.atanh
    spread = math.sqrt(1 / (one.num_unique - lost) + 1 / (two.num_unique - lost))
    found = ask(spoofed[:4], mode="reprompting", reprompted=genuine[:2])
    assert found.statistic == pytest.approx((effect(one.rho) - effect(two.rho)) / spread)
    back = ask(genuine[:2], mode="reprompting", reprompted=spoofed[:4])
    assert back.statistic == pytest.approx(-found.statistic)


def test_a_text_against_itself_gives_0_and_a_warning(forged):
    scheme, counts, spoofed, genuine = forged
    with pytest.warns(UserWarning, match="2 of 3 reprompted texts begin as copies"):
        ws.spoofing_test(
            spoofed[:3], scheme, counts, "reprompting", [spoofed[0], genuine[1], spoofed[2]]
        )
    with pytest.warns(UserWarning, match="copies"):
        same = ws.spoofing_test(spoofed[:3], scheme, counts, "reprompting", spoofed[:3])
    assert same.statistic == 0 and same.pvalue == 0.5


def test_copies_are_told_from_texts_with_one_prompt():
    one = np.arange(40)
    two = np.concatenate([one[:10], one[:30]])
    assert ws.copies([one, one], [two, one]).tolist() == [False, True]
    assert ws.copies([one], [two], num_tokens=10).tolist() == [True]
    assert ws.copies([one], [two], prompt_lengths=10).tolist() == [False]
    assert ws.copies([[1, 2]], [[3, 4]], prompt_lengths=2).tolist() == [False]
    assert ws.copies([[1, 2, 3]], [[1, 2, 3, 4]]).tolist() == [True]
    assert ws.copies([[1, 2, 3]], [[1, 2, 4, 4]]).tolist() == [False]


def test_the_same_prompt_and_shift_give_the_same_text_again(world, studies):
    study = studies["kth"]
    prompts = study.genuine[:5, :3]
    marks = [ws.processor(study.scheme, 3)]
    lm = ws.TiltedLM(world.model, study.subjects[:5].tilts)
    again = generate(lm, prompts, 250, np.random.default_rng(99), marks)
    np.testing.assert_array_equal(again, study.genuine[:5, 3:])
    assert not ws.copies(study.genuine, study.reprompted, 3).any()


def test_where_marks_are_left_out_of_known_contexts_standard_is_blind(studies):
    """Repeated contexts are frequent ones and carry no mark: a negative correlation."""
    study = studies["aar"]
    standard = ws.statistics(study, "genuine", texts_per_test=5)
    assert standard.max() < 0 and standard.mean() < -1.5
    assert abs(ws.statistics(study, "genuine", "reprompting", 5).mean()) < 1.5
    blind = ws.spoofing_test(study.genuine[:10], study.scheme, study.reference, prompt_lengths=3)
    assert blind.pvalue > 0.99  # one-sided: a negative Z is no sign of spoofing


@pytest.mark.parametrize("name", ["sum", "self"])
def test_forged_texts_are_found_and_genuine_ones_are_not(studies, name):
    study = studies[name]
    for mode, least in (("standard", 2.0), ("reprompting", 1.2)):
        genuine, stolen, copied = (
            ws.statistics(study, source, mode, 4) for source in ("genuine", "stealing", "distilled")
        )
        assert abs(genuine.mean()) < 1.5  # of 10 tests: 5 standard errors
        assert stolen.mean() > least and stolen.mean() > genuine.mean() + 1.5
        assert copied.mean() > genuine.mean()


def test_joining_texts_adds_to_the_power(studies):
    study = studies["sum"]
    means = [ws.statistics(study, "stealing", "reprompting", size).mean() for size in (1, 4, 20)]
    assert means[0] < means[1] < means[2]


def test_the_exact_statistic_is_as_defined():
    rng = np.random.default_rng(5)
    probs = rng.dirichlet(np.ones(20))
    lm, scheme = Memoryless(np.log(probs)), ws.KGW(9, 20, 1, delta=1.5)
    texts = rng.integers(20, size=(3, 30))
    counts = ws.NGramCounts.from_texts(rng.integers(20, size=(5, 60)), 1, 20)
    above, below = 0.0, 0.0
    rows = [(int(t[i - 1]), int(t[i])) for t in texts for i in range(1, 30)]
    weights = np.log1p([counts.count([[context]])[0] for context, _ in rows])
    usual = np.log1p(counts.counts) @ counts.counts / counts.total  # over the reference
    for (context, token), weight in zip(rows, weights - usual, strict=True):
        green = scheme.green([[context]])[0]
        mass = np.exp(1.5 * green) * probs
        chance = mass[green].sum() / mass.sum()
        above += weight * (green[token] - chance)
        below += weight**2 * chance * (1 - chance)
    found = ws.spoofing_test(texts, scheme, counts, "model", model=lm)
    assert found.statistic == pytest.approx(above / math.sqrt(below), rel=1e-5)
    assert found.num_unique == found.num_tokens == 87
    apart = ws.spoofing_test(texts, scheme, counts, "model", model=[lm, lm, lm])
    assert apart.statistic == pytest.approx(found.statistic)


@pytest.mark.parametrize("name", ["sum", "self"])
def test_the_exact_statistic_of_genuine_text_is_standard_normal(world, name):
    z = ws.exact_statistics(world, SETUPS[name], seed=1, num_texts=150, num_tokens=150)
    assert abs(z.mean()) < 5 / math.sqrt(150)
    assert abs(z.std() - 1) < 5 / math.sqrt(300)
    assert stats.kstest(z, "norm").pvalue > FALSE_ALARM


def test_thieves_who_know_all_or_nothing_leave_no_trace(world):
    found = ws.limits(world, ws.Setup(make(3), strength=6.0), seed=2, num_texts=60)
    assert abs(found["knowing_standard_1_mean"]) < 1
    assert found["knowing_standard_1_at_1"] <= 8
    assert abs(found["ignorant_mean"]) < 1.5 and abs(found["ignorant_sd"] - 1) < 0.5


# --- the procedure


def test_calibration_reports_what_the_tests_gave(studies):
    study = studies["self"]
    ask = partial(ws.calibrate, study.genuine, study.scheme, study.reference, texts_per_test=3)
    for mode, given_ in (
        ("standard", {}),
        ("reprompting", {"reprompted": study.reprompted}),
    ):
        report = ask(mode=mode, prompt_lengths=3, **given_)
        z = ws.statistics(study, "genuine", mode, 3)
        assert (report.mean, report.sd) == pytest.approx((z.mean(), z.std(ddof=1)))
        assert report.ks_pvalue == pytest.approx(stats.kstest(z, "norm").pvalue)
        assert report.fpr_5 == lab.proportion_interval(int((stats.norm.sf(z) < 0.05).sum()), 13)
        assert report.fpr_1 == lab.proportion_interval(int((stats.norm.sf(z) < 0.01).sum()), 13)
        assert "false alarms at 5%" in str(report) and f"n = {len(z)}" in str(report)


def test_calibration_of_the_exact_test(world, studies):
    study = studies["self"]
    models = [ws.TiltedLM(world.model, tilt) for tilt in study.subjects.tilts]
    report = ws.calibrate(
        study.genuine,
        study.scheme,
        study.reference,
        mode="model",
        model=models,
        prompt_lengths=3,
    )
    assert abs(report.mean) < 1 and abs(report.sd - 1) < 0.6


def test_examination_finds_the_forgery_the_genuine_and_the_unmarked(studies, world):
    study = studies["sum"]
    ask = partial(ws.examine, scheme=study.scheme, reference=study.reference, prompt_lengths=3)
    stolen = ask(study.spoofed["stealing"], mode="reprompting", reprompted=study.reprompted)
    assert stolen.verdict == "spoofed" and stolen.detection_z > 4
    assert "verdict: spoofed" in str(stolen) and f"Z = {stolen.test.statistic:.2f}" in str(stolen)
    assert str(stolen).count(" tokens)") == len(stolen.test.frequency_bins)
    genuine = ask(study.genuine[:20], mode="reprompting", reprompted=study.reprompted[:20])
    assert genuine.verdict == "no sign of spoofing"
    plain = ask(world.reference[:10])
    assert plain.verdict == "not watermarked" and plain.test is None
    assert "spoofing test" not in str(plain)


def test_detection_pools_texts_as_if_they_were_one(forged):
    scheme, counts, texts, _ = forged
    found = ws.examine(texts[:6], scheme, counts, detection_threshold=0)
    colors = {}  # by sum of the context, and token
    for text in texts[:6]:
        keys = [(row[0] + row[1], row[2]) for row in scheme.keys(text)]
        colors |= dict(zip(keys, scheme.colors(text), strict=True))
    z = (sum(colors.values()) - 0.25 * len(colors)) / math.sqrt(len(colors) * 0.25 * 0.75)
    assert found.detection_z == pytest.approx(z)
    again = ws.examine(texts[:6] * 2, scheme, counts, detection_threshold=0)
    assert again.detection_z == pytest.approx(z)


def test_unmarked_texts_are_not_found_watermarked(world):
    """Many texts of one model share their n-grams: what is shared is counted once."""
    texts = ws.write(
        world.model, world.subjects(30, np.random.default_rng(4)), 300, np.random.default_rng(5)
    )
    for kind in (make(1), make(2), make(seeding="self")):
        schemes = [kind(key, V) for key in range(40)]
        z = [scheme.detect_texts(texts, [3] * 30).statistic for scheme in schemes]
        assert np.std(z) < 1.8 and abs(np.mean(z)) < 1


def test_arguments_are_checked_before_the_watermark(world, studies):
    study, plain = studies["sum"], world.reference[:2]
    ask = partial(ws.examine, plain, study.scheme)
    for words, reference, options in (
        ("mode must be one of", study.reference, {"mode": "bogus"}),
        ("'typo'", study.reference, {"typo": 3}),
        ("reference must be a NGramCounts", None, {}),
        ("reprompted must be given", study.reference, {"mode": "reprompting"}),
        ("bins", study.reference, {"bins": 0}),
        ("transform", study.reference, {"transform": "log"}),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            ask(reference, **options)


def test_the_report_tells_what_was_counted_and_on_which_side_of_alpha_p_is(world):
    test = ws.SpoofingTestResult(2.0, 0.0100049, 0.1, 2990, 2990, 0.1, ())
    say = partial(ws.Examination, "LeftHash h=1", 5.0, 4.0, 0.01)
    text = str(say("model", test))
    assert "positions: 2990, repeats included" in text and "distinct" not in text
    assert "verdict: no sign" in text and "p = 0.01 >= alpha = 0.01" in text
    test = ws.SpoofingTestResult(2.0, 0.0099951, 0.1, 2990, 2800, 0.1, ())
    text = str(say("standard", test))
    assert "positions: 2800 counted of 2990" in text and "p = 0.01 < alpha = 0.01" in text
    assert "detector z = 5.00 >= threshold 4" in text
    assert "detector z = 5.00 < threshold 5" in str(ws.Examination("", 4.999, 5.0, 0.1, "", None))


def test_examination_refuses_copies(forged):
    scheme, counts, texts, genuine = forged
    with pytest.raises(ValueError, match=r"reprompted must not hold copies.*\[1\]"):
        ws.examine(texts[:2], scheme, counts, "reprompting", [genuine[0], texts[1]])
    for again in (texts[1::-1], [genuine[0], genuine[1], texts[0]], [[texts[1]], genuine[:2]]):
        with pytest.raises(ValueError, match="must not hold copies"):
            ws.examine(texts[:2], scheme, counts, "reprompting", again)
        with pytest.warns(UserWarning, match="begin as copies"):
            ws.spoofing_test(texts[:2], scheme, counts, "reprompting", again)


def test_reprompted_texts_may_be_any_sequences(forged):
    scheme, counts, texts, genuine = forged
    ask = partial(ws.spoofing_test, texts[:2], scheme, counts, "reprompting")
    expected = ask(genuine[:2])
    for again in (
        pd.Series(genuine[:2], index=[5, 6]),
        np.stack(genuine[:2]),
        torch.from_numpy(np.stack(genuine[:2])),
        [pd.Series(genuine[:2], index=[5, 6])],
        np.stack(genuine[:2])[None],
        [[text.tolist() for text in genuine[:2]]],
    ):
        assert ask(again) == expected


# --- stealing


def slow_scores(wm, base, vocab, least, clip):
    """Score the tokens of one context by the rules of the attack, in plain Python."""
    ratio = dict.fromkeys(range(vocab), 0.0)
    for v in range(vocab):
        if wm[v] >= least and base[v]:
            ratio[v] = (wm[v] / sum(wm.values())) / (base[v] / sum(base.values()))
    top = max(1.0, *ratio.values())
    for v in range(vocab):
        if wm[v] >= least and not base[v]:
            ratio[v] = top + 1e-3
    score = {v: min(r, clip) / clip if r >= 1 else 0.0 for v, r in ratio.items()}
    most = max((wm[v] for v in range(vocab) if score[v] > 0), default=1)
    score = {v: s + 1e-4 * wm[v] / most if s > 0 else 0.0 for v, s in score.items()}
    best = max(score.values()) or 1.0
    return np.array([score[v] / best for v in range(vocab)])


def slow_boosts(context, marked, ordinary, spoofer):
    """The boost of every token, by the definition."""
    h, vocab = spoofer.context_width, spoofer.vocab_size
    stores = []
    for texts in (marked, ordinary):
        store = defaultdict(Counter)
        for text in map(list, texts):
            for t in range(h, len(text)):
                for mask in itertools.product((0, 1), repeat=h):
                    store[key_of(text[t - h : t], mask, spoofer.ordered)][text[t]] += 1
        stores.append(store)
    total = sum(max(len(text) - h, 0) for text in ordinary)

    def score(*places):
        mask = [int(i in places) for i in range(h)]
        key = key_of(context, mask, spoofer.ordered)
        least = spoofer.min_count if places else max(1, round(spoofer.min_mass * total))
        return slow_scores(stores[0][key], stores[1][key], vocab, least, spoofer.clip)

    def cosine(one, two):
        lengths = np.linalg.norm(one) * np.linalg.norm(two)
        return one @ two / lengths if lengths else 0.0

    strong = [
        i
        for i in range(h)
        if all(
            cosine(score(i, j), score(i)) > cosine(score(i, j), score(j)) + 1e-9
            for j in range(h)
            if j != i
        )
    ]
    boost = spoofer.w_full * score(*range(h)) + spoofer.w_empty * score()
    used = spoofer.w_full + spoofer.w_empty
    if len(strong) == 1:
        boost, used = boost + spoofer.w_partial * score(*strong), used + spoofer.w_partial
    return boost / used, strong[0] if len(strong) == 1 else -1


def key_of(context, mask, ordered):
    if ordered:
        return tuple(token if kept else None for token, kept in zip(context, mask, strict=True))
    return tuple(sorted(token for token, kept in zip(context, mask, strict=True) if kept))


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("h", [1, 2, 3])
def test_boosts_are_those_of_the_definition(h, ordered):
    rng = np.random.default_rng(h)
    marked, ordinary = (rng.integers(4, size=(6, 60)) ** 2 // 3 for _ in range(2))
    spoofer = ws.StealingSpoofer(h, 4, ordered=ordered, min_mass=0.02, clip=1.8)
    stolen = spoofer.fit(marked, ordinary)
    contexts = np.array(list(itertools.product(range(4), repeat=h)))
    boosts, strong = stolen.boosts(contexts), stolen.strong(contexts)
    seen = set()
    for context, boost, place in zip(contexts.tolist(), boosts, strong, strict=True):
        expected, expected_place = slow_boosts(context, marked, ordinary, spoofer)
        assert place == expected_place
        np.testing.assert_allclose(boost, expected, atol=1e-6)
        seen.add(int(place))
    assert seen == {0} if h == 1 else len(seen) > 1


def test_the_worked_example_of_two_tokens():
    a, b = 1, 2
    marked = [[0, a]] * 6 + [[0, b]] * 2
    ordinary = [[0, a]] * 2 + [[0, b]] * 6
    spoofer = ws.StealingSpoofer(1, 3, w_partial=0, w_empty=0)
    np.testing.assert_allclose(spoofer.fit(marked, ordinary).boosts([[0]]), [[0, 1, 0]])


def test_tokens_seen_too_seldom_get_no_boost_and_new_ones_the_most():
    marked = [[0, 1], [0, 2], [0, 2], [0, 3], [0, 3], [0, 3]]
    ordinary = [[0, 1], [0, 3], [0, 3], [0, 3], [0, 3]]
    spoofer = ws.StealingSpoofer(1, 4, w_partial=0, w_empty=0, clip=10)
    boost = spoofer.fit(marked, ordinary).boosts([[0]])[0]
    assert boost[1] == 0 and boost[3] == 0  # once only; less often than in ordinary text
    assert boost[2] == 1


def test_a_context_without_data_is_boosted_by_the_empty_context_alone():
    rng = np.random.default_rng(2)
    marked, ordinary = rng.integers(4, size=(2, 8, 50))
    stolen = ws.StealingSpoofer(2, 6, min_mass=0.01).fit(marked, ordinary)
    unseen = stolen.boosts([[5, 5], [5, 5]])
    empty = np.zeros((1, 6), dtype=np.float32)
    stolen.tables[0].add_to(empty, np.zeros(1, dtype=np.int64), 0.5 / 2.5)
    np.testing.assert_allclose(unseen, np.repeat(empty, 2, axis=0))
    assert stolen.strong([[5, 5]]).tolist() == [-1]


def test_without_context_one_list_is_learned():
    marked, ordinary = [[0, 0, 0, 1]], [[0, 1, 1, 1]]
    stolen = ws.StealingSpoofer(0, 2).fit(marked, ordinary)
    np.testing.assert_allclose(stolen.boosts(np.zeros((1, 0), dtype=int)), [[1, 0]])


@pytest.mark.parametrize("h", [1, 2, 3])
def test_a_thief_who_saw_every_pair_once_has_learned_nothing(h):
    spoofer = ws.StealingSpoofer(h, 300, w_empty=0)
    stolen = spoofer.fit([list(range(40))], [list(range(100, 140))])
    contexts = [[5, 6, 7][:h], [200] * h]
    assert (stolen.boosts(contexts) == 0).all()
    if h > 1:  # a single token has no rival to be stronger than
        assert stolen.strong(contexts).tolist() == [-1, -1]


def test_slow_learning_leaves_out_what_the_thief_expects():
    attacker = Memoryless(np.log([0.6, 0.3, 0.1]))
    marked = [[2, 0, 0, 0, 1, 1, 0, 1, 1]] * 3
    slow = ws.StealingSpoofer(1, 3, learning="slow").fit(marked, marked, attacker)
    counts = slow.tables[1]
    assert 0 not in set(counts.tokens) and 1 in set(counts.tokens)
    fast = ws.StealingSpoofer(1, 3).fit(marked, marked)
    assert 0 in set(fast.tables[1].tokens)
    first = ws.StealingSpoofer(0, 3, learning="slow").fit([[0], [2, 0], [1]], [[2]], attacker)
    assert set(first.tables[0].tokens) == {0, 1}  # nothing was expected at the head of a text


def test_stealing_finds_the_green_tokens(studies):
    study = studies["sum"]
    stolen = ws.StealingSpoofer(2, V).fit(study.data, [list(range(V)) * 50])
    contexts = study.genuine[:, 100:102]
    green, boosts = study.scheme.green(contexts), stolen.boosts(contexts)
    assert green[boosts > 0.9].mean() > 0.4  # where 0.25 are green
    assert boosts.min() >= 0 and boosts.max() <= 1 + 1e-6


def test_the_processor_adds_strength_times_boost(studies):
    study = studies["sum"]
    stolen = ws.StealingSpoofer(2, V, strength=3.0).fit(study.data, study.genuine)
    tokens = torch.from_numpy(study.genuine[:5, :20])
    scores = torch.randn(5, V, generator=torch.Generator().manual_seed(0))
    process = ws.StealingProcessor(stolen)
    expected = scores + 3.0 * torch.from_numpy(stolen.boosts(study.genuine[:5, 18:20]))
    torch.testing.assert_close(process(tokens, scores), expected)
    assert torch.equal(process(tokens[:, :1], scores), scores)  # no context yet


def test_a_text_may_not_end_before_it_seems_to_pass():
    marked = [[0, 1, 0, 1, 0, 1, 0, 1]] * 30
    ordinary = [[0, 2, 0, 3, 1, 2, 2, 1, 3, 0]] * 30
    stolen = ws.StealingSpoofer(1, 4).fit(marked, ordinary)
    boost = stolen.boosts([[0]])[0]
    scores = torch.zeros(2, 4)
    process = ws.StealingProcessor(stolen, end_token=3, gamma=0.25, least_z=5.0)
    forbidden = []
    text = torch.zeros(2, 1, dtype=torch.int64)
    for _ in range(400):
        forbidden.append(bool(process(text, scores)[0, 3] == -math.inf))
        text = torch.cat([text, torch.zeros(2, 1, dtype=torch.int64)], dim=1)
    excess = np.minimum(0.25 + 0.75 * boost, 1).mean() - 0.25
    first = math.ceil((5 * math.sqrt(0.25 * 0.75) / excess) ** 2)
    assert forbidden == [step + 1 < first for step in range(400)]
    assert process(text[:, :1], scores)[0, 3] == -math.inf  # a new text begins anew


def test_a_new_batch_begins_anew_at_any_length_and_may_not_end():
    stolen = ws.StealingSpoofer(2, 4).fit([[0, 1, 0, 1]] * 9, [[0, 2, 3, 1, 0]] * 9)
    process = ws.StealingProcessor(stolen, end_token=3)
    tokens = torch.from_numpy(np.random.default_rng(0).integers(0, 3, (2, 9)))
    for length in range(1, 9):
        assert (process(tokens[:, :length], torch.zeros(2, 4))[:, 3] == -math.inf).all()
    other = (tokens + 1) % 3
    process(other, torch.zeros(2, 4))
    fresh = ws.StealingProcessor(stolen, end_token=3)
    fresh(other, torch.zeros(2, 4))
    assert process._steps == fresh._steps == 1
    torch.testing.assert_close(process._green, fresh._green)


def test_the_repetition_penalty_is_as_defined():
    rng = np.random.default_rng(4)
    for n, prompt in itertools.product((1, 2, 3), (0, 4)):
        tokens = rng.integers(3, size=(6, 15))
        scores = torch.from_numpy(rng.normal(size=(6, 3)))
        found = ws.RepetitionPenalty(n, prompt, 1.6)(torch.from_numpy(tokens), scores)
        for row, before, after in zip(tokens.tolist(), scores.tolist(), found, strict=True):
            answer = row[prompt:]
            grams = {tuple(answer[i : i + n]) for i in range(len(answer) - n + 1)}
            end = answer[len(answer) - n + 1 :]
            expected = [
                (s * 1.6 if s < 0 else s / 1.6) if (*end, v) in grams else s
                for v, s in enumerate(before)
            ]
            assert after.tolist() == pytest.approx(expected)
    short = torch.zeros(1, 1, dtype=torch.int64)
    assert ws.RepetitionPenalty(3, 0)(short, scores[:1]) is not None


def test_texts_end_at_a_period_and_in_time():
    process = ws.GracefulEnding(period_token=1, end_token=2, panic_from=4)
    scores = torch.ones(2, 3)
    early = process(torch.tensor([[0, 1], [1, 0]]), scores)
    assert early.tolist() == [[1, 1, 1], [1, 1, -math.inf]]
    late = process(torch.tensor([[0, 0, 0, 0, 1], [0, 0, 0, 1, 0]]), scores)
    assert late.tolist() == [[-math.inf, -math.inf, 0], [1, 1, -math.inf]]
    assert scores.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_the_attack_works_inside_transformers_generate():
    model = new_transformer(small_config("llama", 16, max_length=64), seed=0)
    rng = np.random.default_rng(0)
    stolen = ws.StealingSpoofer(2, 16, strength=50.0).fit(*rng.integers(16, size=(2, 20, 100)))
    prompt = torch.tensor([[1, 2, 3]])
    processors = [ws.RepetitionPenalty(3, 3), ws.StealingProcessor(stolen)]
    theirs = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=20,
        do_sample=False,
        logits_processor=processors,
        pad_token_id=0,
    )
    ours = generate(TransformerLM(model), prompt.numpy(), 20, processors=processors)
    assert theirs[0, 3:].tolist() == ours[0].tolist()


# --- students


def test_a_student_is_the_attacker_where_it_has_no_data():
    rng = np.random.default_rng(0)
    attacker = NGramLM.fit(rng.integers(8, size=(4, 100)), 8, order=2)
    student = ws.distil([[0, 1] * 20], attacker, 2)
    given_, unseen = student.next_log_probs([[1, 0], [5, 6]]).exp()
    torch.testing.assert_close(unseen, attacker.next_log_probs([[5, 6]])[0].exp())
    assert given_[1] > 0.9 and student.order == 3


def test_a_positional_student_counts_by_place():
    attacker = Memoryless(np.log([0.5, 0.25, 0.25]))
    texts = [[0, 1, 2, 1, 2, 1], [0, 1, 0, 1, 0, 1]]
    student = ws.PositionalStudent.fit(texts, attacker, length=2, discount=0.5)
    probs = student.position_log_probs(texts).exp()
    # After the 1s at odd places came 2, 2, 0, 0: (2 - 1/2) / 4 each, and 2 * 1/2 / 4 is left.
    expected = 0.25 * np.array([0.5, 0.25, 0.25]) + np.array([1.5, 0, 1.5]) / 4
    np.testing.assert_allclose(probs[0, 1], expected, atol=1e-6)
    np.testing.assert_allclose(probs.sum(-1), 1, atol=1e-6)
    decoding = student.start([text[:2] for text in texts])
    for place in range(1, 5):
        torch.testing.assert_close(decoding.logits, student.position_log_probs(texts)[:, place])
        decoding.append(torch.tensor([text[place + 1] for text in texts]))


def test_prompts_are_not_learned_from():
    attacker = Memoryless(np.log(np.full(4, 0.25)))
    one, two = (
        ws.PositionalStudent.fit([[prompt, 1, 2, 3]], attacker, 3, prompt_length=2)
        for prompt in (0, 3)
    )
    probe = [[0, 1, 2], [3, 1, 2]]
    torch.testing.assert_close(one.position_log_probs(probe), two.position_log_probs(probe))


@pytest.mark.parametrize("grouped", [True, False])
def test_a_transformer_can_be_the_student(grouped):
    model = new_transformer(small_config("llama", 8, width=16, max_length=32), seed=0)
    texts = [[i % 8, (i + 1) % 8] * 12 for i in range(40)]
    losses = ws.finetune_student(
        model, texts, epochs=20, block_size=8, grouped=grouped, batch_size=10, lr=1e-2, warmup=5
    )
    blocks = 40 * 24 // 8 if grouped else 40
    assert len(losses) == 20 * blocks // 10
    assert losses[-5:].mean() < 0.7 * losses[:5].mean()


# --- the world


def test_a_tilt_is_a_factor_exp_theta():
    rng = np.random.default_rng(0)
    base = NGramLM.fit(rng.integers(6, size=(4, 50)), 6, order=2)
    tilts = ws.draw_tilts(3, 6, rng)
    texts = rng.integers(6, size=(3, 10))
    found = ws.TiltedLM(base, tilts).position_log_probs(texts).exp().numpy()
    mass = base.position_log_probs(texts).exp().numpy() * np.exp(tilts)[:, None]
    np.testing.assert_allclose(found, mass / mass.sum(-1, keepdims=True), rtol=1e-4)
    single = ws.TiltedLM(base, tilts[1]).position_log_probs(texts[1:2])
    np.testing.assert_allclose(single.exp().numpy(), found[1:2], rtol=1e-4)
    decoding = ws.TiltedLM(base, tilts).start(texts[:, :4])
    np.testing.assert_allclose(decoding.logits.softmax(-1), found[:, 3], rtol=1e-4)
    decoding.append(torch.from_numpy(texts[:, 4]))
    np.testing.assert_allclose(decoding.logits.softmax(-1), found[:, 4], rtol=1e-4)


def test_the_folds_are_disjoint_and_the_models_differ(world):
    rows = [set(map(bytes, part)) for part in (world.reference, world.ordinary)]
    assert not rows[0] & rows[1]
    assert abs(len(world.ordinary) - 2 * len(world.reference)) <= 2
    text = world.reference[:1, :20]
    assert not torch.allclose(
        world.model.position_log_probs(text), world.attacker.position_log_probs(text)
    )


def test_texts_do_not_depend_on_the_size_of_a_batch(world):
    subjects = world.subjects(7, np.random.default_rng(0))
    texts = [
        ws.write(world.model, subjects, 20, np.random.default_rng(1), batch_size=size)
        for size in (1, 3, 300)
    ]
    np.testing.assert_array_equal(texts[0], texts[2])
    np.testing.assert_array_equal(texts[1], texts[2])
    for text, passage in zip(texts[0], subjects.passages, strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(passage, 3)
        assert (windows == text[:3]).all(axis=1).any()


def test_a_study_is_the_same_again_and_another_with_another_key(world, studies):
    again = ws.make_study(world, SETUPS["sum"], seed=3, num_texts=40, num_tokens=250)
    other = ws.make_study(world, SETUPS["sum"], seed=4, num_texts=40, num_tokens=250)
    for source, texts in studies["sum"].sources.items():
        np.testing.assert_array_equal(texts, again.sources[source])
        assert (texts != other.sources[source]).mean() > 0.5
    assert other.scheme.key == again.scheme.key + 1


def test_copies_that_never_end_are_an_error(world):
    subjects = world.subjects(2, np.random.default_rng(0))
    one = ws.Subjects(subjects.passages[:, :3], subjects.tilts, 3)  # there is but one prompt
    scheme = ws.KTH(1, V, 8)
    options = {"num_tokens": 30, "processors": lambda: [ws.processor(scheme, 3)]}
    texts = ws.write(world.model, one, rng=np.random.default_rng(1), **options)
    with pytest.raises(RuntimeError, match="after 2 rounds 2 texts are still copies"):
        ws.write_anew(world.model, one, texts, np.random.default_rng(2), rounds=2, **options)


def test_the_last_rewrite_counts(monkeypatch):
    module = sys.modules["workingpapers.watermark_spoofing.world"]
    subjects = ws.Subjects(np.zeros((1, 4), dtype=int), None, 1)
    first = np.array([[0, 1, 2, 3]])
    drafts = iter([first.copy(), first.copy(), np.array([[0, 3, 2, 1]])])
    monkeypatch.setattr(module, "write", lambda *arguments, **options: next(drafts))
    again = ws.write_anew(LM, subjects, first, np.random.default_rng(0), rounds=2)
    assert again.tolist() == [[0, 3, 2, 1]]


def test_what_holds_arrays_is_compared_by_identity(world, studies, forged):
    study = studies["sum"]
    evidence = ws.collect(forged[2][:1], forged[0], forged[1])
    table = STOLEN.tables[1]
    for thing in (world, study, study.subjects, evidence, table, STOLEN):
        assert thing == thing and len({thing, thing}) == 1
        assert thing != copy.copy(thing)


def test_models_of_hugging_face_make_a_world(tmp_path):
    texts = king_james_bible().texts[:40]
    tokenizer = train_tokenizer(texts, 300)
    config = small_config("llama", 300, max_length=64)
    for seed, name in enumerate(("provider", "thief")):
        save_checkpoint(tmp_path / name, new_transformer(config, seed), tokenizer, command="test")
    world = ws.huggingface_world(
        tmp_path / "provider", tmp_path / "thief", texts, prompt_length=8, block_size=32
    )
    assert world.vocab_size == 300 and world.subjects(3, np.random.default_rng(0)).tilts is None
    setup = ws.Setup(make(1), data_texts=6, data_tokens=20, strength=8.0)
    learn = partial(ws.finetuned, block_size=16, batch_size=4, warmup=1)
    study = ws.make_study(world, setup, 0, num_texts=4, num_tokens=40, student=learn, batch_size=3)
    assert {name: texts.shape for name, texts in study.sources.items()} == dict.fromkeys(
        ("genuine", "stealing", "distilled"), (4, 48)
    )
    found = ws.rejections(study, (1, 2), bins=3)
    assert all(math.isfinite(value) for value in found.values())
    small = ws.transformer_world(texts, 0, 300, block_size=64, width=8, steps=2)
    assert isinstance(small.attacker, TransformerLM) and small.attacker.max_length == 64
    assert ws.exact_statistics(small, setup, 0, num_texts=2, num_tokens=30).shape == (2,)


# --- the experiments and the claims


def test_rejections_count_the_tests(studies):
    study = studies["sum"]
    found = ws.rejections(study, (1, 8), bins=4)
    z = ws.statistics(study, "stealing", "reprompting", 8)
    name = "stealing_reprompting_8"
    assert found[f"{name}_tests"] == len(z) == 5
    assert found[f"{name}_at_5"] == (stats.norm.sf(z) < 0.05).sum()
    assert found[f"{name}_at_1"] == (stats.norm.sf(z) < 0.01).sum()
    assert (found[f"{name}_mean"], found[f"{name}_sd"]) == pytest.approx((z.mean(), z.std(ddof=1)))
    bins = np.clip(np.floor(z / 0.5 + 10), 0, 19).astype(int)
    histogram = [found[f"{name}_hist_{i}"] for i in range(20)]
    assert histogram == np.bincount(bins, minlength=20).tolist()
    detected = [study.scheme.detect(text, 3).statistic > 4 for text in study.genuine]
    assert found["genuine_detected"] == np.mean(detected)
    colors = np.concatenate([study.scheme.colors(text, 3) for text in study.genuine])
    assert found["genuine_color"] == pytest.approx(colors.mean())
    assert len([key for key in found if key.startswith("genuine_bin_")]) == 4


def test_the_test_with_the_model_adds_up_over_texts(world, studies):
    study = studies["sum"]
    models = [ws.TiltedLM(world.model, tilt) for tilt in study.subjects.tilts]
    found = ws.rejections(study, (1, 3), bins=4, world=world)
    for source, texts in study.sources.items():
        z = ws.model_statistics(study, world, source, (1, 3))
        assert [len(z[size]) for size in (1, 3)] == [len(texts), len(texts) // 3]
        at = slice(3, 6)
        once = ws.spoofing_test(
            texts[at], study.scheme, study.reference, "model", model=models[at], prompt_lengths=3
        )
        assert z[3][1] == pytest.approx(once.statistic)
        assert found[f"{source}_model_3_mean"] == pytest.approx(z[3].mean())
    for bad, message in (("aar", "scheme of study"), ("sum", "source")):
        with pytest.raises((TypeError, ValueError), match=message):
            ws.model_statistics(studies[bad], world, "genuine" if bad == "aar" else "nobody")


def test_a_spread_needs_two_tests(studies):
    with pytest.raises(ValueError, match="texts_per_test must leave at least 2 tests"):
        ws.rejections(studies["kth"], (30,))


def test_more_data_teach_more(world):
    found = ws.data_grid(world, SETUPS["sum"], 0, (5, 60), (2.0, 8.0), num_texts=12, bins=5)
    assert found["stealing_5_8_color"] < found["stealing_60_8_color"]
    assert found["stealing_60_2_color"] < found["stealing_60_8_color"]
    assert found["distilled_5_color"] < found["distilled_60_color"] < found["genuine_color"]


def test_costs_are_ratios_of_times(world):
    found = ws.cost_ratios(world, 0, num_tokens=60)
    assert set(found) == {"colors_small", "colors_large", "batch", "test_seconds"}
    assert min(found.values()) > 0 and found["colors_large"] > found["colors_small"] > 1


def test_every_claim_can_be_measured(studies):
    benchmark = project.benchmark("watermark_spoofing")
    plan = {one.name: one for one in benchmark.plan("laptop", "cpu")}
    rng = np.random.default_rng(0)
    found = {name: ws.rejections(studies[name]) for name in ("sum", "aar")}
    scores = {
        f"{source}_{score}": -3.0
        for source in ("genuine", "stealing", "distilled")
        for score in ("context", "ngram", "unigram", "known_data")
    }
    neural = ws.rejections(studies["sum"], tuple(benchmark.NEURAL_TEXTS.values()))
    results = {
        "red_green": lambda: found["sum"] | scores,
        "gumbel": lambda: found["aar"],
        "exact": lambda: {f"z_{i:03}": rng.normal() for i in range(240)},
        "limits": lambda: {
            "knowing_standard_1_at_5": 3.0,
            "knowing_standard_1_tests": 60.0,
            "ignorant_mean": rng.normal(),
        },
        "grid": lambda: {"genuine_z": 0.0},
        "formula": lambda: {"power": 0.5, "predicted_power": 0.51},
        "neural": lambda: neural,
        "costs": lambda: {
            "colors_small": 500,
            "colors_large": 3000,
            "batch": 30,
            "test_seconds": 1,
        },
    }
    tables = {
        name: pd.DataFrame(
            [
                {"seed": seed, **case, **results[name]()}
                for case in experiment.cases
                for seed in range(3)
            ]
        )
        for name, experiment in plan.items()
    }
    claims = lab.claims_of(benchmark, "laptop")
    records = {record["id"]: record for record in lab.evaluate(claims, tables)}
    assert records["C6, mean"]["n"] == 3 * 4 * 240
    assert records["C4, stealing"]["n"] == 3 * 13
    assert records["score"]["value"] == -3.0
    assert records["power formula"]["value"] == pytest.approx(0.01)
    assert not records["cost, test"]["holds"] and records["cost, detector"]["holds"]


def test_the_runs_of_the_benchmark_give_numbers(world, monkeypatch):
    benchmark = project.benchmark("watermark_spoofing")
    monkeypatch.setattr(ws, "bible_world", lambda: world)
    real = ws.make_study
    monkeypatch.setattr(ws, "make_study", partial(real, num_texts=12, num_tokens=150))
    tiny = {name: ws.Setup(s.make, 20, 100, s.strength) for name, s in ws.SETUPS.items()}
    monkeypatch.setattr(ws, "SETUPS", tiny)
    for run, case in (
        (benchmark.red_green, {"scheme": "LeftHash h=1"}),
        (benchmark.gumbel, {"scheme": "AAR h=3"}),
        (benchmark.formula, {"q": 0.5, "p1": 0.5, "p0": 0.3, "num_tokens": 50}),
    ):
        assert all(math.isfinite(value) for value in run(0, **case).values())


def test_the_papers_scale_says_what_it_needs_and_runs_on_it(monkeypatch, tmp_path):
    benchmark = project.benchmark("watermark_spoofing")
    monkeypatch.setenv("WORKINGPAPERS_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="Llama-2-7b-chat-hf"):
        benchmark.plan("paper", "cuda")
    texts = king_james_bible().texts[:60]
    (tmp_path / benchmark.PAPER_FILES["texts"]).write_text("\n\n".join(texts))
    tokenizer = train_tokenizer(texts, 300)
    for seed, name in enumerate(("model", "attacker")):
        model = new_transformer(small_config("llama", 300, width=8, max_length=600), seed)
        save_checkpoint(tmp_path / benchmark.PAPER_FILES[name], model, tokenizer, command="test")
    (experiment,) = benchmark.plan("paper", "cpu")
    assert len(experiment.cases) == len(ws.PAPER_SETUPS)
    name = "SelfHash h=3, stealing"
    small = ws.Setup(ws.PAPER_SETUPS[name].make, 5, 30, 7.5, distilled=False)
    monkeypatch.setattr(ws, "PAPER_SETUPS", {name: small})
    monkeypatch.setattr(ws, "make_study", partial(ws.make_study, num_tokens=150))
    found = benchmark.full(0, name, num_texts=12, batch_size=6, device="cpu")
    table = pd.DataFrame([{"setup": name, **found}])
    records = lab.evaluate(lab.claims_of(benchmark, "paper"), {"full": table})
    assert [record["n"] for record in records] == [12, 2]


def test_the_world_of_the_bible_is_as_the_chapter_says():
    world = bible_world()
    assert world is bible_world() and world.vocab_size == 1024
    assert world.reference.shape == (132, 2000)


# --- bad input

FINE = {"q": 0.5, "p1": 0.6, "p0": 0.3}
SCHEME = ws.KGW(1, 16, 1)
COUNTS = ws.NGramCounts.from_texts([list(range(16)) + [0] * 9 + [1] * 5], 1, 16)
TEXT = np.random.default_rng(0).integers(16, size=80)
LM = Memoryless(np.log(np.full(16, 1 / 16)))
STOLEN = ws.StealingSpoofer(1, 16).fit([[1, 2]], [[1, 2]])


def ask(texts=(TEXT,), scheme=SCHEME, reference=COUNTS, **options):
    return ws.spoofing_test(texts, scheme, reference, **options)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ws.spearman_z([1, 1, 1], [1, 2, 3]), "colors must hold at least two different"),
        (lambda: ws.spearman_z([1, 2, 3], [4, 4, 4]), "frequencies must hold at least two"),
        (lambda: ws.spearman_z([], []), "colors must hold"),
        (lambda: ws.spearman_z([1, 2], [1, 2, 3]), "one length"),
        (lambda: ws.spearman_z([1, math.nan], [1, 2]), "colors must be finite"),
        (lambda: ws.spearman_z([1, 2], [1, math.inf]), "frequencies must be finite"),
        (lambda: ws.spearman_z([[1, 2]], [[1, 2]]), "one length"),
        (lambda: ws.spearman_z([1, 2], [1, 2], "log"), "transform"),
        (lambda: ws.spearman_z([1, 2, 3, 4], [1, 2, 3, 4], "fisher"), "perfectly correlated"),
        (lambda: ws.spearman_z([1, 2, 2], [1, 2, 1], "fisher"), "more than 3 positions"),
        (lambda: ws.expected_z(1.1, 0.5, 0.4, 100), "q must be in 0..1"),
        (lambda: ws.expected_z(0.5, math.nan, 0.4, 100), "p1"),
        (lambda: ws.expected_z(0.5, 0.5, -0.1, 100), "p0"),
        (lambda: ws.expected_z(0.5, 1.0, 1.0, 100), "both colours possible"),
        (lambda: ws.expected_z(**FINE, num_tokens=1), "num_tokens"),
        (lambda: ws.expected_z(**FINE, num_tokens=9, kappa=2), "kappa"),
        (lambda: ws.power(**FINE, num_tokens=9, alpha=1), "alpha must be strictly"),
        (lambda: ws.power(**FINE, num_tokens=9, mode="model"), "mode"),
        (lambda: ws.power(**FINE, num_tokens=9, mode="reprompting", reprompts=0), "reprompts"),
        (lambda: ws.tokens_needed(0.5, 0.3, 0.3), "no number of tokens is enough"),
        (lambda: ws.tokens_needed(1.0, 0.6, 0.3), "no number of tokens is enough"),
        (lambda: ws.tokens_needed(**FINE, target=0.01), "target must be above alpha"),
        (lambda: ask(texts=()), "texts must hold at least one"),
        (lambda: ask(texts=[TEXT, TEXT[:1]]), r"texts\[1\] must have more tokens than"),
        (lambda: ask(texts=[TEXT[:9]]), "texts must have at least 10 distinct positions"),
        (
            lambda: ask(texts=[[0, 1] * 50]),
            "texts must have at least 10 distinct positions to score, got 2",
        ),
        (lambda: ask(texts=[[16] * 50]), "texts"),
        (lambda: ask(texts=[TEXT.astype(float)]), "texts"),
        (lambda: ask(texts=[[3] * 50], dedup=False), "colors must hold at least two different"),
        (
            lambda: ask(prompt_lengths=80),
            r"texts\[0\] must have more tokens than its prompt \(80\)",
        ),
        (lambda: ask(prompt_lengths=[0, 1]), "prompt_lengths must be one number or 1"),
        (lambda: ask(prompt_lengths=-1), "prompt_lengths"),
        (lambda: ask(mode="both"), "mode"),
        (lambda: ask(mode="reprompting"), "reprompted must be given if, and only if"),
        (lambda: ask(reprompted=[TEXT]), "reprompted must be given if, and only if"),
        (lambda: ask(mode="reprompting", reprompted=[]), "reprompted must hold"),
        (lambda: ask(mode="reprompting", reprompted=[[]]), "reprompted must hold"),
        (lambda: ask(mode="reprompting", reprompted=[[[]]]), r"reprompted\[0\]\[0\] must"),
        (lambda: ask(mode="reprompting", reprompted=5), "reprompted must hold"),
        (lambda: ask(mode="reprompting", reprompted=(t for t in [TEXT])), "reprompted must hold"),
        (
            lambda: ask(mode="reprompting", reprompted=[TEXT, [1]]),
            r"reprompted\[1\] must have more",
        ),
        (lambda: ask(mode="model", model=Memoryless([0.0] * 9)), "model must have vocab_size 16"),
        (
            lambda: ask(score="known_data", known_data=COUNTS),
            "reference must be None with score 'known_data'",
        ),
        (lambda: ws.tokens_needed(0.5, 0.6, 0.5, kappa=1e-200), "larger correlation"),
        (lambda: ws.tokens_needed(0.5, 0.6, 0.5, kappa=1e-300), "larger correlation"),
        (lambda: ws.power(**FINE, num_tokens=9, alpha=-1), "alpha must be strictly between"),
        (lambda: ws.expected_z(-1, 0.5, 0.4, 100), "q must be in 0..1, got -1"),
        (
            lambda: ws.StealingSpoofer(1, 16, learning="slow").fit(
                [[1, 2]], [[1, 2]], Memoryless([0.0] * 9)
            ),
            "attacker must have vocab_size 16",
        ),
        (lambda: STOLEN.boosts([[1], [1, 2]]), "contexts must be an array"),
        (lambda: ws.World(LM, LM, [[1, 2], [1]], [[1]]), "reference must be an array"),
        (lambda: ws.World(LM, LM, [[1, 2]], []), "ordinary must"),
        (
            lambda: ws.finetune_student(
                new_transformer(small_config("llama", 16, width=8), 0), [[1, 2]], block_size=4
            ),
            "watermarked must hold a block of 4 tokens",
        ),
        (lambda: ws.StealingProcessor(STOLEN, gamma=-1), "gamma must be strictly between 0 and 1"),
        (lambda: ask(mode="reprompting", reprompted=[TEXT[:5]]), "reprompted must have at least"),
        (lambda: ask(mode="model"), "model must be given if, and only if"),
        (lambda: ask(mode="model", model=[LM, LM]), "model must be one or 1"),
        (lambda: ask(mode="model", model=LM, dedup=True), "neither dedup=True nor a transform"),
        (lambda: ask(mode="model", model=LM, transform="fisher"), "neither dedup=True"),
        (lambda: ask(score="token"), "score"),
        (lambda: ask(score="ngram"), "reference must count 2-grams"),
        (lambda: ask(score="known_data"), "known_data must be given if, and only if"),
        (lambda: ask(known_data=COUNTS), "known_data must be given if, and only if"),
        (lambda: ask(scheme=ws.KGW(1, 17, 1)), "over 17 tokens"),
        (lambda: ask(bins=0), "bins"),
        (lambda: ws.copies([TEXT], [TEXT, TEXT]), "others must hold 1 texts"),
        (lambda: ws.copies([TEXT], [TEXT], num_tokens=0), "num_tokens"),
        (lambda: ws.calibrate([TEXT], SCHEME, COUNTS), "texts must make at least 2 groups"),
        (lambda: ws.calibrate([TEXT] * 2, SCHEME, COUNTS, texts_per_test=0), "texts_per_test"),
        (
            lambda: ws.calibrate([TEXT] * 2, SCHEME, COUNTS, mode="reprompting", reprompted=[TEXT]),
            "reprompted must be one for each of 2",
        ),
        (lambda: ws.CalibrationReport.of([1.0, math.nan]), "statistics must be finite"),
        (lambda: ws.examine([TEXT], SCHEME, COUNTS, alpha=1), "alpha"),
        (lambda: ws.examine([TEXT], SCHEME, COUNTS, detection_threshold=math.nan), "threshold"),
        (lambda: ws.StealingSpoofer(-1, 16), "context_width"),
        (lambda: ws.StealingSpoofer(1, 16, strength=-1), "strength"),
        (lambda: ws.StealingSpoofer(1, 16, clip=0.5), "clip"),
        (lambda: ws.StealingSpoofer(1, 16, w_full=0, w_empty=0), "w_full and w_empty"),
        (lambda: ws.StealingSpoofer(1, 16, learning="medium"), "learning"),
        (lambda: ws.StealingSpoofer(1, 16, min_count=0), "min_count"),
        (lambda: ws.StealingSpoofer(1, 16).fit([[1]], [[1, 2]]), "watermarked must hold a token"),
        (lambda: ws.StealingSpoofer(1, 16).fit([[1, 2]], [[1]]), "base must hold a token"),
        (lambda: ws.StealingSpoofer(1, 16).fit([[1, 2]], [[1, 2]], LM), "attacker must be given"),
        (lambda: ws.StealingSpoofer(1, 16).fit([[1, 16]], [[1, 2]]), "watermarked"),
        (
            lambda: ws.StealingSpoofer(1, 4).fit([[1, 2]], [[1, 2]]).boosts([[1, 2]]),
            "contexts must have 1 columns",
        ),
        (lambda: ws.RepetitionPenalty(0, 3), "n must be"),
        (lambda: ws.RepetitionPenalty(2, 3, penalty=0.9), "penalty"),
        (lambda: ws.GracefulEnding(1, 1, 5), "end_token must not be"),
        (lambda: ws.GracefulEnding(1, 2, 0), "panic_from"),
        (lambda: ws.TiltedLM(LM, np.zeros(5)), "tilts must have shape"),
        (lambda: ws.TiltedLM(LM, [[math.nan] * 16]), "tilts must be finite"),
        (lambda: ws.TiltedLM(LM, np.zeros((2, 16))).start([[1]]), "texts must be 2"),
        (lambda: ws.draw_tilts(0, 4, np.random.default_rng(0)), "num_texts"),
        (lambda: ws.draw_tilts(1, 4, np.random.default_rng(0), -1), "scale"),
        (lambda: ws.PositionalStudent.fit([[1]], LM, 4), "watermarked must hold a text"),
        (lambda: ws.PositionalStudent.fit([[1, 2]], LM, 0), "length"),
        (lambda: ws.distil([[1, 2]], LM, 0), "context_width"),
        (lambda: ws.World(LM, Memoryless([0.0, 0.0]), [[1]], [[1]]), "attacker must have vocab"),
        (lambda: ws.World(LM, LM, [[1, 2]], [[1]]), "prompt_length"),
        (lambda: ws.ngram_world(["a b c"], 256), "texts must hold"),
        (lambda: ws.ngram_world(["a b c" * 20], 256, 25), "texts must hold 5 blocks of 25"),
        (lambda: ws.Setup(make(1), distilled=False), "strength must be given"),
        (lambda: ws.Setup(make(1), data_texts=0), "data_texts"),
        (lambda: ws.StealingProcessor(STOLEN, gamma=1), "gamma"),
        (lambda: ws.StealingProcessor(STOLEN, end_token=16), "end_token"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ask(scheme="KGW"), "scheme must be a Scheme"),
        (lambda: ask(reference=None), "reference must be a NGramCounts"),
        (lambda: ask(texts="text"), "texts must be"),
        (lambda: ask(dedup=1), "dedup must be a bool"),
        (lambda: ask(mode="model", model=[1]), "model must be a CausalLM"),
        (
            lambda: ask(scheme=ws.Aaronson(1, 16, 1), mode="model", model=LM),
            "scheme must be a KGW",
        ),
        (lambda: ws.StealingProcessor(1), "stolen must be a StolenWatermark"),
        (lambda: ws.TiltedLM(1, [0.0]), "base must be a CausalLM"),
        (lambda: ws.distil([[1]], 1, 1), "attacker must be a CausalLM"),
        (lambda: ws.finetune_student(LM, [[1, 2]]), "model must be a PreTrainedModel"),
        (lambda: ws.make_study(1, SETUPS["sum"], 0), "world must be a World"),
        (lambda: ws.draw_tilts(1, 4, 0), "rng must be a Generator"),
    ],
)
def test_the_wrong_kind_of_input_is_named(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_a_model_that_leaves_no_colour_open_is_an_error():
    certain = Memoryless([0.0] + [-math.inf] * 15)
    with pytest.raises(ValueError, match="model must leave the colour of some token open"):
        ask(mode="model", model=certain)


def test_the_public_api_is_listed_and_documented():
    with warnings.catch_warnings():
        assert all(getattr(ws, name).__doc__ for name in ws.__all__ if callable(getattr(ws, name)))
    assert ws.__doc__.startswith("Watermark spoofing: ")
