"""Watermark schemes: hash, colours, sampling, detectors and reference counts against oracles."""

import itertools
import math
import tracemalloc
from collections import Counter

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from workingpapers.language import (
    CausalLM,
    Decoding,
    TransformerLM,
    generate,
    new_transformer,
    small_config,
)
from workingpapers.language.lookup import mix64
from workingpapers.watermark_spoofing import (
    KGW,
    KTH,
    Aaronson,
    NGramCounts,
    TokenPRF,
    first_occurrences,
    processor,
)
from workingpapers.watermark_spoofing.kth import alignment_scores, skip_places
from workingpapers.watermark_spoofing.prf import to_unit, unit_threshold

KEY = 15485863
WORD = 2**64
MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
GOLDEN = 0x9E3779B97F4A7C15


class Memoryless(CausalLM):
    """A language model whose next token has one law, whatever came before."""

    def __init__(self, log_probs):
        self.log_probs = torch.as_tensor(log_probs, dtype=torch.float32)
        self.vocab_size = len(self.log_probs)

    def start(self, prompts):
        return _Fixed(self.log_probs.expand(len(prompts), -1))

    def position_log_probs(self, batch):
        return self.log_probs.expand(*np.shape(batch), -1)


class _Fixed(Decoding):
    def __init__(self, logits):
        self.logits = logits

    def append(self, tokens):
        pass


def flat(vocab_size):
    return Memoryless(np.zeros(vocab_size))


def slow_mix(word):
    """SplitMix64's finaliser in Python's integers."""
    word = (word ^ (word >> 30)) * MULTIPLIERS[0] % WORD
    word = (word ^ (word >> 27)) * MULTIPLIERS[1] % WORD
    return word ^ (word >> 31)


def slow_uniform(key, seeding, context, token):
    """u(c, v) from its description, one number at a time."""
    hashed = [slow_mix((v + 1) * GOLDEN % WORD) | 1 for v in (*context, token)]
    k = slow_mix((key + GOLDEN) % WORD) | 1
    if seeding == "sum":
        seed = slow_mix(k * (1 + sum(context)) % WORD)
    elif seeding == "self":
        seed = min(k * h * hashed[-1] % WORD for h in hashed)
    else:
        seed = k
        for h in hashed[:-1]:
            seed = slow_mix((seed * GOLDEN + h) % WORD)
    return ((slow_mix(seed ^ hashed[-1]) >> 12) + 0.5) / 2**52


def every_scheme(vocab_size=64, key=KEY):
    return [
        KGW(key, vocab_size),
        KGW(key, vocab_size, 3),
        KGW(key, vocab_size, seeding="self"),
        KGW(key, vocab_size, seeding="self", top_candidates=8),
        KGW(key, vocab_size, seeding="unigram"),
        Aaronson(key, vocab_size),
        Aaronson(key, vocab_size, 0),
        KTH(key, vocab_size, 24),
    ]


def names(scheme):
    return scheme.name.replace(" ", "-")


# ---------------------------------------------------------------------------------------------- PRF


def test_mix64_is_splitmix64():
    """The published first outputs of SplitMix64 from seed 0."""
    words = np.arange(1, 4, dtype=np.uint64) * np.uint64(GOLDEN)
    mixed = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert mix64(words).tolist() == mixed
    assert words.tolist() == mixed  # in place


@settings(max_examples=60, deadline=None)
@given(
    key=st.integers(0, WORD - 1),
    seeding=st.sampled_from(["ordered", "sum", "self"]),
    context=st.lists(st.integers(0, 40), max_size=5),
    token=st.integers(0, 40),
)
def test_prf_in_arrays_is_the_prf_in_python_integers(key, seeding, context, token):
    prf = TokenPRF(key, 41, seeding)
    expected = slow_uniform(key, seeding, context, token)
    contexts = np.array([context], dtype=int)
    assert prf.uniform(contexts, [token]).tolist() == [expected]
    assert prf.uniform_all(contexts)[0, token] == expected
    assert 0 < expected < 1


@pytest.mark.parametrize("seeding", ["ordered", "sum", "self"])
def test_prf_does_not_depend_on_the_batch(seeding):
    """200 rows of 1000 tokens are mixed in four chunks."""
    prf, rng = TokenPRF(3, 1000, seeding), np.random.default_rng(0)
    contexts, tokens = rng.integers(0, 1000, (200, 2)), rng.integers(0, 1000, 200)
    together = prf.uniform_all(contexts)
    assert (together[np.arange(200), tokens] == prf.uniform(contexts, tokens)).all()
    for row in (0, 64, 65, 66, 199):
        assert (prf.uniform_all(contexts[row : row + 1]) == together[row]).all()


@pytest.mark.parametrize("seeding", ["ordered", "sum", "self"])
def test_prf_is_uniform(seeding):
    contexts = np.stack(np.divmod(np.arange(400), 20), axis=1)
    values = np.unique(TokenPRF(7, 512, seeding).uniform_all(contexts))  # seeds may be shared
    counts = np.bincount((values * 64).astype(int), minlength=64)
    assert stats.chisquare(counts).pvalue > 1e-6


@pytest.mark.parametrize("neighbour", ["token", "context", "key"])
def test_neighbours_of_the_prf_are_independent(neighbour):
    """Pairs that differ by 1 in one argument fill a square evenly."""
    contexts = np.stack(np.divmod(np.arange(400), 20), axis=1)
    u, other = (TokenPRF(key, 512).uniform_all(contexts) for key in (7, 8))
    pairs = {"token": (u[:, ::2], u[:, 1::2]), "context": (u[::2], u[1::2]), "key": (u, other)}
    first, second = ((values.ravel() * 8).astype(int) for values in pairs[neighbour])
    counts = np.bincount(8 * first + second, minlength=64)
    assert stats.chisquare(counts).pvalue > 1e-6


def test_seedings_hear_what_they_should():
    context, permuted, other = [[3, 9, 9]], [[9, 3, 9]], [[3, 9, 10]]
    ordered, additive, anchored = (TokenPRF(1, 50, s) for s in ("ordered", "sum", "self"))
    assert (ordered.uniform_all(context) != ordered.uniform_all(permuted)).all()
    assert (additive.uniform_all(context) == additive.uniform_all(permuted)).all()
    assert (additive.uniform_all(context) == additive.uniform_all([[1, 20]])).all()
    assert (additive.uniform_all(context) != additive.uniform_all(other)).all()
    assert (anchored.uniform_all(context) == anchored.uniform_all(permuted)).all()


def test_one_changed_token_changes_two_fifths_of_the_self_seeds():
    """The minimum over four pairs notices if the new or the old pair is the least of five."""
    prf, rng = TokenPRF(5, 5000, "self"), np.random.default_rng(1)
    tokens = np.array([rng.choice(5000, 5, replace=False) for _ in range(20_000)])
    before = prf.uniform(tokens[:, :3], tokens[:, 4])
    after = prf.uniform(tokens[:, 1:4], tokens[:, 4])
    assert abs(np.mean(before != after) - 0.4) < 5 * math.sqrt(0.24 / 20_000)


def test_every_key_rules_every_context():
    """Also a context of sum 0, whose seed in the public code is 0 under every key."""
    for seeding in ("ordered", "sum", "self"):
        values = [TokenPRF(key, 16, seeding).uniform_all([[0]]) for key in range(50)]
        assert len(np.unique(values)) == 50 * 16


@settings(max_examples=200, deadline=None)
@given(share=st.floats(1e-18, 1, exclude_max=True), offset=st.integers(-3, 3), low=st.booleans())
def test_threshold_on_bits_is_the_threshold_on_uniforms(share, offset, low):
    border = int(unit_threshold(share))
    word = min(max(border + offset * (1 if low else 4096), 0), WORD - 1)
    bits = np.array([word], dtype=np.uint64)
    assert (bits < unit_threshold(share)) == (to_unit(bits) < share)


# ------------------------------------------------------------------------------------ colours (all)


@pytest.mark.parametrize("scheme", every_scheme(), ids=names)
def test_which_positions_are_scored(scheme):
    text, width = np.random.default_rng(2).integers(0, 64, 30), scheme.context_width
    for prompt_length in (0, 1, 3, 4, 29):
        start = max(prompt_length, width)
        assert scheme.positions(text, prompt_length).tolist() == list(range(start, 30))
        shape = (30 - start,)
        assert scheme.colors(text, prompt_length).shape == shape
        assert scheme.keys(text, prompt_length).shape[:1] == shape
        contexts = scheme.contexts(text, prompt_length)
        assert contexts.tolist() == [text[t - width : t].tolist() for t in range(start, 30)]
    if not isinstance(scheme, KTH):  # whose colours count from the end of the prompt
        assert (scheme.colors(text, 10) == scheme.colors(text, 5)[5:]).all()
    assert (scheme.colors(text.tolist()) == scheme.colors(torch.from_numpy(text))).all()


@pytest.mark.parametrize("scheme", every_scheme(), ids=names)
def test_colours_are_those_of_the_slow_description(scheme):
    text, h = np.random.default_rng(3).integers(0, 64, 40).tolist(), scheme.context_width
    colors = scheme.colors(text, 5)
    for t, color in zip(range(5, 40), colors, strict=True):
        if isinstance(scheme, KTH):
            u = scheme.sequence[(t - 5) % scheme.length, text[t]]
        else:
            u = slow_uniform(KEY, scheme.prf.seeding, text[t - h : t], text[t])
        expected = float(u < 0.25) if isinstance(scheme, KGW) else -math.log(1 - u)
        assert color == pytest.approx(expected, rel=1e-12)


def test_names():
    assert [scheme.name for scheme in every_scheme()] == [
        "LeftHash h=1",
        "SumHash h=3",
        "SelfHash h=3",
        "SelfHash h=3",
        "Unigram",
        "AAR h=3",
        "AAR h=0",
        "KTH n=24",
    ]


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.tuples(*[st.integers(-2, 2)] * 2), max_size=30))
def test_first_occurrences_are_what_a_set_has_not_seen(rows):
    seen, expected = set(), []
    for row in rows:
        expected.append(row not in seen)
        seen.add(row)
    keys = np.array(rows, dtype=int).reshape(-1, 2)
    assert first_occurrences(keys).tolist() == expected


def test_repeats_are_counted_once():
    text = np.random.default_rng(4).integers(0, 64, 50)
    for scheme in (KGW(1, 64), KGW(1, 64, seeding="self"), Aaronson(1, 64)):
        h = scheme.context_width
        again = scheme.detect(np.concatenate([text, text, text]))
        circle = scheme.detect(np.concatenate([text, text[:h]]))  # the text and its seam
        assert again == circle
        keys = scheme.keys(np.concatenate([text, text])).tolist()
        if scheme.name.startswith("SelfHash"):
            keys = [(self_seed(scheme.key, key), key[-1]) for key in keys]
        assert again.num_tokens == len(set(map(tuple, keys)))


def self_seed(key, window):
    """The seed of SelfHash from its description, in Python's integers."""
    k = slow_mix((key + GOLDEN) % WORD) | 1
    hashed = [slow_mix((v + 1) * GOLDEN % WORD) | 1 for v in window]
    return min(k * one * hashed[-1] % WORD for one in hashed)


def test_contexts_of_one_sum_are_one_draw():
    scheme = KGW(1, 64, 2)
    assert scheme.detect([1, 5, 9, 5, 1, 9]).num_tokens == 3  # (1, 5) and (5, 1) before the 9


def natural_texts(num_texts, length):
    """Unmarked texts in which some tokens and bigrams are much more frequent than others."""
    weights = 1 / np.arange(1, 257)
    return np.random.default_rng(33).choice(256, (num_texts, length), p=weights / weights.sum())


@pytest.mark.parametrize(
    "make",
    [
        lambda key: KGW(key, 256),
        lambda key: KGW(key, 256, 2),
        lambda key: KGW(key, 256, seeding="self"),
        lambda key: KGW(key, 256, seeding="unigram"),
        lambda key: Aaronson(key, 256, 1),
        lambda key: KTH(key, 256, 8),
    ],
)
def test_texts_taken_together_are_as_one_under_many_keys(make):
    texts = natural_texts(20, 200)
    z = [make(key).detect_texts(texts, [3] * 20).statistic for key in range(60)]
    assert abs(np.mean(z)) < 6 / math.sqrt(60)
    assert np.std(z) < 1.5  # a false alarm of less than one in a million
    assert make(0).detect(texts[0], 3) == make(0).detect_texts(texts[:1], [3])


def test_the_same_text_twice_is_no_more_evidence():
    text = natural_texts(1, 200)[0]
    for scheme in (KGW(1, 256), KGW(1, 256, seeding="self"), Aaronson(1, 256)):
        assert scheme.detect_texts([text] * 3, [0] * 3) == scheme.detect(text)
    once, thrice = (KTH(1, 256, 16).detect_texts([text] * n, [0] * n, rng=0) for n in (1, 3))
    assert thrice.statistic == pytest.approx(once.statistic)
    assert (thrice.pvalue, thrice.num_tokens, thrice.shift) == (once.pvalue, 597, None)


# ---------------------------------------------------------------------------------------------- KGW


@pytest.mark.parametrize("seeding", ["sum", "self", "unigram"])
@pytest.mark.parametrize("gamma", [0.1, 0.25, 0.5])
def test_share_of_green_is_gamma(seeding, gamma):
    rng, vocab = np.random.default_rng(5), 4096
    greens = []
    for key in range(100):
        scheme = KGW(key, vocab, gamma=gamma, seeding=seeding)
        contexts = rng.integers(0, vocab, (1, scheme.context_width))
        greens.append(scheme.green(contexts).mean())
    error = math.sqrt(gamma * (1 - gamma) / (100 * vocab))
    # min-hash shares seeds between few tokens only: here they are all but independent
    assert abs(np.mean(greens) - gamma) < 5 * error


@pytest.mark.parametrize("seeding", ["sum", "self"])
def test_green_lists_are_the_colours_of_all_candidates(seeding):
    scheme, text = KGW(9, 50, seeding=seeding), np.random.default_rng(6).integers(0, 50, 20)
    green = scheme.green(scheme.contexts(text))
    for t, row in zip(scheme.positions(text), green, strict=True):
        lone = [scheme.colors([*text[:t], v])[-1] for v in range(50)]
        assert row.tolist() == lone


def test_boost_in_flat_logits_gives_the_closed_form():
    """gamma e^d / (1 + (e^d - 1) gamma) = 0.7112 at d = 2."""
    vocab, gamma = 4096, 0.25
    scheme = KGW(KEY, vocab, gamma=gamma, delta=2.0)
    closed = gamma * math.e**2 / (1 + (math.e**2 - 1) * gamma)
    assert closed == pytest.approx(0.7112, abs=5e-5)
    prompts = np.arange(100)[:, None]
    out = generate(flat(vocab), prompts, 100, np.random.default_rng(7), [processor(scheme, 1)])
    texts = np.concatenate([prompts, out], axis=1)
    colors = np.concatenate([scheme.colors(text, 1) for text in texts])
    assert abs(colors.mean() - closed) < 5 * math.sqrt(closed * (1 - closed) / len(colors))
    chance = scheme.green_probability(prompts, np.zeros((100, vocab)))
    share = scheme.green(prompts).mean(axis=1)
    assert chance == pytest.approx(share * math.e**2 / (1 + (math.e**2 - 1) * share), rel=1e-12)


def test_two_tokens_by_hand():
    """Of two tokens one is green: delta = ln 3 turns 1/2 into 3/4, and 1/10 into 1/4."""
    key = next(k for k in range(99) if KGW(k, 2, gamma=0.5).green([[0]])[0].tolist() == [1, 0])
    scheme = KGW(key, 2, gamma=0.5, delta=math.log(3))
    assert scheme.process([[0]], [[0.0, 0.0]]).tolist() == [[math.log(3), 0.0]]
    logits = np.log([[0.5, 0.5], [0.1, 0.9]])
    chance = scheme.green_probability([[0], [0]], logits)
    assert chance == pytest.approx([3 / 4, 1 / 4], rel=1e-12)
    assert scheme.green_probability([[0]], [[0.0, -np.inf]]) == pytest.approx([1.0])
    assert scheme.green_probability([[0]], [[-np.inf, 0.0]]) == pytest.approx([0.0])
    result = scheme.detect([0, 0, 1])  # token 0 after 0 is green, token 1 is red
    assert (result.num_tokens, result.mean_color, result.statistic) == (2, 0.5, 0.0)
    assert result.pvalue == pytest.approx(3 / 4)  # of at least one green in two


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_largest_boost_forbids_red_and_makes_no_nan(dtype):
    scheme, logits = KGW(1, 64, delta=1000), np.linspace(-9, 9, 64, dtype=dtype)[None]
    green = scheme.green([[5]])
    marked = scheme.process([[5]], logits)
    assert np.isfinite(marked).all() and marked[green].min() > marked[~green].max()
    assert scheme.green_probability([[5]], logits).tolist() == [1.0]


def test_the_largest_vocabulary_costs_nothing_but_its_tokens():
    for scheme in (KGW(1, 2**31), KGW(1, 2**31, seeding="self"), Aaronson(1, 2**31)):
        text = [0, 2**31 - 1, 5, 7, 2**31 - 2]
        expected = slow_uniform(
            1, scheme.prf.seeding, text[-1 - scheme.context_width : -1], text[-1]
        )
        assert scheme.prf.uniform(scheme.keys(text)[-1:, :-1], text[-1:]) == expected


def test_a_scheme_does_not_print_its_key():
    for scheme in every_scheme(key=KEY):
        assert str(KEY) not in repr(scheme)
    assert str(KEY) not in repr(TokenPRF(KEY, 8))


def test_no_boost_changes_nothing():
    model, prompts = flat(32), np.zeros((5, 3), dtype=int)
    plain = generate(model, prompts, 40, np.random.default_rng(8))
    for seeding in ("sum", "self", "unigram"):
        mark = processor(KGW(1, 32, delta=0, seeding=seeding), 3)
        assert (generate(model, prompts, 40, np.random.default_rng(8), [mark]) == plain).all()


@pytest.mark.parametrize("top", [1, 5, 31, 32])
def test_top_candidates_only(top):
    scheme = KGW(2, 32, seeding="self", top_candidates=top)
    everyone = KGW(2, 32, seeding="self")
    rng = np.random.default_rng(9)
    contexts, logits = rng.integers(0, 32, (20, 3)), rng.standard_normal((20, 32))
    boost = scheme.process(contexts, logits) - logits
    green = everyone.green(contexts)
    for row in range(20):
        best = set(np.argsort(logits[row])[-top:].tolist())
        expected = [2.0 if green[row, v] and v in best else 0.0 for v in range(32)]
        assert boost[row] == pytest.approx(expected, abs=1e-12)
    weights = np.exp(scheme.process(contexts, logits))
    chance = (weights * green).sum(axis=1) / weights.sum(axis=1)
    assert scheme.green_probability(contexts, logits) == pytest.approx(chance, rel=1e-12)
    assert (scheme.colors(np.arange(32)) == everyone.colors(np.arange(32))).all()


def test_green_z_of_unmarked_text_is_standard_normal():
    rng, scheme = np.random.default_rng(10), KGW(KEY, 1024, 3)
    results = [scheme.detect(text) for text in rng.integers(0, 1024, (2500, 203))]
    z = np.array([result.statistic for result in results])
    assert abs(z.mean()) < 0.1
    assert abs(z.std() - 1) < 0.1
    pvalues = np.array([result.pvalue for result in results])
    for level in (0.01, 0.05, 0.5):  # a discrete p-value never promises too much
        assert (pvalues <= level).sum() <= stats.binom.isf(1e-6, 2500, level)


def test_colours_of_selfhash_are_more_dependent_than_they_look():
    """One natural text under many keys: the pairs behind the seeds recur, though no 4-gram does."""
    weights = 1 / np.arange(1, 1025)
    text = np.random.default_rng(33).choice(1024, 600, p=weights / weights.sum())
    naive = []
    for seeding in ("sum", "self"):
        schemes = [KGW(key, 1024, 3, seeding=seeding) for key in range(500)]
        z = [scheme.detect(text).statistic for scheme in schemes]
        assert abs(np.mean(z)) < 5.5 / math.sqrt(500)
        assert abs(np.var(z) - 1) < 0.4
        new = first_occurrences(schemes[0].keys(text))
        rates = [scheme.colors(text)[new].mean() for scheme in schemes]
        naive.append(np.var(rates) * new.sum() / (0.25 * 0.75))
    assert abs(naive[0] - 1) < 0.4 and naive[1] > 2


def test_green_count_has_the_binomial_tail():
    scheme = KGW(1, 256, gamma=0.5)
    text = np.random.default_rng(11).permutation(256)[:11]
    green = round(scheme.colors(text).sum())
    tail = sum(math.comb(10, k) for k in range(green, 11)) / 2**10
    result = scheme.detect(text)
    assert result.pvalue == pytest.approx(tail)
    assert result.statistic == pytest.approx((green - 5) / math.sqrt(2.5))


@pytest.mark.parametrize("seeding", ["sum", "self"])
def test_green_is_as_probable_as_the_model_says(seeding):
    """The exact martingale test on text of a peaked model: mean 0, deviation 1."""
    rng, vocab = np.random.default_rng(12), 128
    scheme = KGW(KEY, vocab, seeding=seeding)
    model = Memoryless(np.log(rng.dirichlet(np.full(vocab, 0.3))))
    prompts = rng.integers(0, vocab, (400, 3))
    out = generate(model, prompts, 100, rng, [processor(scheme, 3)])
    z = []
    for text in np.concatenate([prompts, out], axis=1):
        logits = model.log_probs.numpy()[None].repeat(100, axis=0)
        chance = scheme.green_probability(scheme.contexts(text, 3), logits)
        excess = scheme.colors(text, 3) - chance
        z.append(excess.sum() / math.sqrt((chance * (1 - chance)).sum()))
    assert abs(np.mean(z)) < 0.25  # five standard errors
    assert abs(np.std(z) - 1) < 0.2
    assert stats.kstest(z, "norm").pvalue > 1e-6


# ------------------------------------------------------------------------- KGW against transformers


def peer(vocab_size, seeding="lefthash", width=1, **options):
    config = transformers.GPT2Config(vocab_size=vocab_size, bos_token_id=vocab_size - 1)
    mark = transformers.WatermarkingConfig(seeding_scheme=seeding, context_width=width)
    detector = transformers.WatermarkDetector(config, "cpu", mark, **options)
    return detector, detector.processor


class PeerLists(KGW):
    """Our detector with the green lists of transformers, and one draw an n-gram."""

    def hashes(self, tokens, prompt_length=0):
        _, place = np.unique(self.keys(tokens, prompt_length), axis=0, return_inverse=True)
        red = 1 - self.colors(tokens, prompt_length)
        return place.reshape(-1).astype(np.uint64) + red.astype(np.uint64) * np.uint64(2**63)

    def colors(self, tokens, prompt_length=0):
        lists = peer(self.vocab_size, "selfhash" if self.seeding == "self" else "lefthash")[1]
        lists.context_width = self.context_width + (self.seeding == "self")
        greens = []
        for row in torch.from_numpy(self.keys(tokens, prompt_length).copy()):
            window = row if self.seeding == "self" else row[:-1]
            greens.append(bool(row[-1] in lists._get_greenlist_ids(window)))
        return np.array(greens, dtype=float)


@pytest.mark.parametrize(
    ("seeding", "theirs", "width"), [("sum", "lefthash", 1), ("self", "selfhash", 3)]
)
def test_detector_agrees_with_transformers_on_their_lists(seeding, theirs, width):
    text = np.random.default_rng(13).integers(0, 4, 300)  # few tokens, so that n-grams recur
    detector, _ = peer(12, theirs, width + (seeding == "self"), ignore_repeated_ngrams=True)
    expected = detector(torch.from_numpy(text[None]), return_dict=True)
    result = PeerLists(KEY, 12, seeding=seeding).detect(text)
    assert result.mean_color == expected.green_fraction[0]
    assert result.num_tokens == expected.num_tokens_scored[0] < len(text) - width
    assert result.statistic == pytest.approx(expected.z_score[0], rel=1e-12)


def test_lefthash_of_transformers_hears_one_token_whatever_its_width():
    _, lists = peer(64, "lefthash", width=3)
    same_end, other_end = torch.tensor([[1, 2, 3], [9, 9, 3]]), torch.tensor([9, 9, 4])
    first, second = (lists._get_greenlist_ids(window).tolist() for window in same_end)
    assert first == second != lists._get_greenlist_ids(other_end).tolist()
    ours = KGW(KEY, 64, 3).green([[1, 2, 3], [9, 9, 3]])
    assert (ours[0] != ours[1]).any()


# ---------------------------------------------------------------------------------------------- AAR


def test_aaronson_does_not_distort():
    """Over 10^5 contexts the tokens come as often as the model wants them."""
    probs, scheme = np.array([0.5, 0.3, 0.2]), Aaronson(KEY, 3, 16)
    contexts = np.random.default_rng(14).integers(0, 3, (100_000, 16))
    out = scheme.process(contexts, np.broadcast_to(np.log(probs), (100_000, 3)))
    assert (np.isfinite(out).sum(axis=1) == 1).all()
    shares = np.bincount(out.argmax(axis=1), minlength=3) / 100_000
    assert (abs(shares - probs) < 5.5 * np.sqrt(probs * (1 - probs) / 100_000)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_aaronson_takes_the_largest_power(dtype):
    """argmax of u^(1/p), forbidden tokens never."""
    scheme, rng = Aaronson(3, 20, 2), np.random.default_rng(15)
    contexts, probs = rng.integers(0, 20, (300, 2)), rng.dirichlet(np.ones(20), 300)
    probs[:, 7] = 0
    with np.errstate(divide="ignore"):
        logits, powers = (
            np.log(probs).astype(dtype) + 3,
            scheme.prf.uniform_all(contexts) ** (1 / probs),
        )
    out = scheme.process(contexts, logits)
    assert out.dtype == dtype
    assert (out.max(axis=1) == 0).all()
    assert (out.argmax(axis=1) == powers.argmax(axis=1)).all()
    assert not (out.argmax(axis=1) == 7).any()


@pytest.mark.parametrize("make", [lambda key: Aaronson(key, 8, 4), lambda key: KTH(key, 8, 300)])
def test_marked_colour_is_the_harmonic_number(make):
    """Of V equal chances the largest u wins: -log(1 - max of V uniforms) has mean 1 + ... + 1/V."""
    colors = []
    for key in range(30):
        scheme = make(key)
        prompts = np.random.default_rng(key).integers(0, 8, (1, 4))
        out = generate(flat(8), prompts, 100, np.random.default_rng(0), [processor(scheme, 4)])
        text = np.concatenate([prompts, out], axis=1)[0]
        new = first_occurrences(scheme.keys(text, 4))
        colors.append(scheme.colors(text, 4)[new])
    colors = np.concatenate(colors)
    harmonic, variance = (sum(1 / v**power for v in range(1, 9)) for power in (1, 2))
    assert abs(colors.mean() - harmonic) < 5.5 * math.sqrt(variance / len(colors))


def test_aaronson_pvalues_of_unmarked_text_are_uniform():
    texts = np.random.default_rng(16).integers(0, 1024, (1500, 103))
    results = [Aaronson(KEY, 1024).detect(text) for text in texts]
    assert stats.kstest([result.pvalue for result in results], "uniform").pvalue > 1e-6
    z = np.array([result.statistic for result in results])
    assert abs(z.mean()) < 5 / math.sqrt(1500)
    assert abs(z.std() - 1) < 0.1


@pytest.mark.parametrize("length", [2, 30, 1000])
def test_pvalues_of_detectors_are_those_of_scipy(length):
    size = 2**24  # so that no two windows share their hash
    text = np.random.default_rng(34).integers(0, size, length + 3)
    for scheme in (KGW(5, size, 3), Aaronson(5, size), KGW(5, size, 3, gamma=0.999)):
        colors, result = scheme.colors(text), scheme.detect(text)
        law = stats.gamma(length)
        if isinstance(scheme, KGW):
            law = stats.binom(length, scheme.gamma)
        expected = law.sf(colors.sum()) + (law.pmf(colors.sum()) if hasattr(law, "pmf") else 0)
        assert result.pvalue == pytest.approx(expected, rel=1e-9)


def test_sum_of_exponential_colours_has_the_poisson_tail():
    """P(Gamma(T) > s) is the chance of fewer than T events in time s."""
    scheme, text = Aaronson(1, 256, 1), np.random.default_rng(17).permutation(256)[:9]
    total = scheme.colors(text).sum()
    tail = sum(math.exp(-total) * total**k / math.factorial(k) for k in range(8))
    assert scheme.detect(text).pvalue == pytest.approx(tail, rel=1e-12)


def test_same_prompt_same_text():
    """Given the prompt (and the shift), nothing is left to chance."""
    prompts, model = [[1, 2, 3]], flat(64)
    keyed = KTH(1, 64, 32, shifts=32)
    for scheme, same, other in [
        (Aaronson(1, 64), {}, None),
        (keyed, {"shifts": 5}, {"shifts": 6}),
    ]:
        first, second = (
            generate(
                model, prompts, 30, np.random.default_rng(seed), [processor(scheme, 3, **same)]
            )
            for seed in (0, 1)
        )
        assert (first == second).all()
        changed = prompts if other else [[1, 2, 4]]
        mark = processor(scheme, 3, **(other or {}))
        third = generate(model, changed, 30, np.random.default_rng(0), [mark])
        assert (third != first).mean() > 0.5


def test_aaronson_turns_in_a_circle_unless_repeats_are_skipped():
    model, scheme, prompts = flat(6), Aaronson(KEY, 6, 2), [[0, 1]]
    plain, skipping = (
        generate(
            model, prompts, 300, np.random.default_rng(0), [processor(scheme, 2, skip_repeated=s)]
        )[0]
        for s in (False, True)
    )
    assert len(np.unique(scheme.keys(plain), axis=0)) <= 36  # a context has one successor
    assert len(np.unique(scheme.keys(skipping), axis=0)) > 100


# ---------------------------------------------------------------------------------------------- KTH


def test_key_sequence_and_its_starts():
    scheme = KTH(KEY, 100, 250, shifts=4)
    assert scheme.sequence.shape == (250, 100)
    assert not scheme.sequence.flags.writeable
    cells = (scheme.sequence.ravel() * 50).astype(int)
    assert stats.chisquare(np.bincount(cells, minlength=50)).pvalue > 1e-6
    assert scheme.starts.tolist() == [0, 62, 125, 187]
    assert KTH(KEY, 2, 3, shifts=3).starts.tolist() == [0, 1, 2]
    assert (KTH(KEY, 8, 250).sequence == scheme.sequence[:, :8]).all()
    assert (KTH(KEY + 1, 8, 250).sequence != scheme.sequence[:, :8]).all()


def test_shifts_are_drawn_evenly_and_one_after_the_other():
    scheme = KTH(1, 4, 256, shifts=4)
    shifts = scheme.draw_shifts(4000, np.random.default_rng(18))
    assert stats.chisquare(np.unique(shifts, return_counts=True)[1]).pvalue > 1e-6
    rng = np.random.default_rng(18)
    parts = [scheme.draw_shifts(n, rng) for n in (1, 17, 3982)]
    assert (np.concatenate(parts) == shifts).all()


def test_position_keyed_colours_by_hand():
    scheme = KTH(KEY, 5, length=3, shifts=3)
    text = [4, 0, 1, 2, 3]  # prompt: 4, 0; then numbers 0, 1, 2 at shift 2: places 2, 0, 1
    u = [scheme.sequence[2, 1], scheme.sequence[0, 2], scheme.sequence[1, 3]]
    expected = [-math.log(1 - value) for value in u]
    assert scheme.colors(text, 2, shift=2) == pytest.approx(expected, rel=1e-12)
    assert scheme.keys(text, 2, shift=2).tolist() == [[2, 0, 1], [0, 1, 2], [1, 2, 3]]
    best = max(range(3), key=lambda shift: scheme.colors(text, 2, shift).sum())
    assert (scheme.colors(text, 2) == scheme.colors(text, 2, best)).all()
    assert scheme.keys(text, 2)[0, 0] == best
    # Without a prompt the first token has no context, and the second is number 1.
    assert scheme.keys(text, 0, shift=0)[:, 0].tolist() == [1, 2, 0, 1]


def kth_texts(scheme, num_texts, length, rng):
    """Marked texts of a flat model, each after one token of prompt, and their shifts."""
    shifts = scheme.draw_shifts(num_texts, rng)
    prompts = rng.integers(0, scheme.vocab_size, (num_texts, 1))
    marks = [processor(scheme, 1, shifts=shifts)]
    out = generate(flat(scheme.vocab_size), prompts, length, rng, marks)
    return np.concatenate([prompts, out], axis=1), shifts


def test_detector_finds_shift_of_each_text():
    scheme = KTH(KEY, 30, 64, shifts=16)
    texts, shifts = kth_texts(scheme, 12, 50, np.random.default_rng(19))
    for text, shift in zip(texts, shifts, strict=True):
        result = scheme.detect(text, 1)
        assert result.shift == shift
        assert result.pvalue == 0.01  # the least that 99 sequences can show
        assert result.statistic > 10
        assert result.num_tokens == 50
        assert result.mean_color == pytest.approx(scheme.colors(text, 1, shift).mean())
        assert (scheme.colors(text, 1) == scheme.colors(text, 1, shift)).all()
        assert scheme.detect(text, 1, edit_cost=1e6).shift == shift


@pytest.mark.parametrize("edit", ["delete", "insert"])
def test_detector_finds_shift_after_edits_of_the_text(edit):
    scheme = KTH(KEY, 40, 64, shifts=64)
    texts, shifts = kth_texts(scheme, 10, 90, np.random.default_rng(20))
    places = [21, 37, 38, 59, 74]
    for text, shift in zip(texts, shifts, strict=True):
        edited = np.delete(text, places) if edit == "delete" else np.insert(text, places, text[1])
        plain = scheme.detect(edited, 1)
        aligned = scheme.detect(edited, 1, edit_cost=2.0)
        assert aligned.shift == shift
        assert aligned.statistic > 2 * plain.statistic
        assert aligned.pvalue == 0.01
        assert aligned.mean_color > plain.mean_color


def slow_alignment(colors, text, cost, place):
    """Levenshtein by recursion over all paths of few edits, from a given place on."""
    n = colors.shape[1]

    def best(i, j, skips):
        options = (
            [0.0]
            if i == len(text)
            else [
                colors[text[i], j % n] + best(i + 1, j + 1, n),
                best(i + 1, j, n) - cost,
            ]
        )
        if skips > 1 and i < len(text):
            options.append(best(i, j + 1, skips - 1) - cost)
        return max(options)

    return best(0, place, n)


@pytest.mark.parametrize("cost", [0.1, 0.7, 3.0])
def test_alignment_is_the_best_of_all_paths(cost):
    rng = np.random.default_rng(21)
    colors, text = rng.standard_exponential((4, 3, 3)), rng.integers(0, 3, 4)
    scores = alignment_scores(colors, text, cost)
    for sequence, place in itertools.product(range(4), range(3)):
        expected = slow_alignment(colors[sequence], text, cost, place)
        assert scores[sequence, place] == pytest.approx(expected, rel=1e-12)


def test_alignment_without_edits_is_a_sum():
    rng = np.random.default_rng(22)
    colors, text = rng.standard_exponential((2, 5, 7)), rng.integers(0, 5, 30)
    scores = alignment_scores(colors, text, None)
    for sequence, place in itertools.product(range(2), range(7)):
        total = sum(colors[sequence, v, (i + place) % 7] for i, v in enumerate(text))
        assert scores[sequence, place] == pytest.approx(total, rel=1e-12)
    assert alignment_scores(colors, text, 1e4) == pytest.approx(scores, rel=1e-9)
    assert (alignment_scores(colors, text, 0.5) >= scores - 1e-12).all()


@settings(max_examples=50, deadline=None)
@given(
    score=st.lists(st.floats(-9, 9), min_size=1, max_size=8),
    cost=st.floats(0.01, 9),
)
def test_skipping_places_is_the_best_of_all_skips(score, cost):
    n = len(score)
    expected = [max(score[(j + d) % n] - d * cost for d in range(n)) for j in range(n)]
    assert skip_places(np.array([score]), cost)[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("edit_cost", [None, 1.0])
def test_permutation_pvalues_of_unmarked_text_are_uniform(edit_cost):
    """Also where tokens repeat: 20 values of p come equally often."""
    rng = np.random.default_rng(23)
    ranks = []
    for key in range(400):
        text = rng.integers(0, 3, 12)
        result = KTH(key, 3, 6).detect(text, edit_cost=edit_cost, resamples=19, rng=rng)
        ranks.append(round(20 * result.pvalue))
    assert stats.chisquare(np.bincount(ranks, minlength=21)[1:]).pvalue > 1e-6


def test_permutation_pvalues_are_exact_without_a_seed():
    """Other texts meet other sequences, even of equally many kinds of token."""
    texts = np.random.default_rng(25).permuted(np.tile(np.arange(12), (600, 1)), axis=1)
    schemes = [KTH(key, 12, 6) for key in range(600)]
    results = [
        scheme.detect(text, resamples=19) for scheme, text in zip(schemes, texts, strict=True)
    ]
    ranks = [round(20 * result.pvalue) for result in results]
    assert stats.chisquare(np.bincount(ranks, minlength=21)[1:]).pvalue > 1e-6
    assert results[0] == schemes[0].detect(texts[0], resamples=19)
    expected = schemes[0].detect(texts[0], resamples=19, rng=0)
    assert results[0].shift == expected.shift and results[0].statistic != expected.statistic


def test_long_texts_take_little_time_and_memory():
    text = np.random.default_rng(26).integers(0, 50, 300_000)
    for shifts in (1, 4):
        scheme = KTH(1, 50, 1024, shifts)
        tracemalloc.start()
        scheme.colors(text)
        assert tracemalloc.get_traced_memory()[1] < 60e6
        tracemalloc.stop()
    assert KTH(1, 50, 16).detect(text).num_tokens == len(text) - 1


def test_permutation_test_depends_on_its_seed_only():
    scheme, text = KTH(1, 300, 256), np.random.default_rng(24).integers(0, 300, 400)
    first = scheme.detect(text, rng=3)
    assert first == scheme.detect(text, rng=np.random.default_rng(3))
    assert first != scheme.detect(text, rng=4)
    # 99 sequences of 256 x 250 colours are drawn in parts; the first part is the same
    assert scheme.detect(text, resamples=50, rng=3).shift == first.shift


# --------------------------------------------------------------------------------------- processors


@pytest.mark.parametrize("scheme", every_scheme(), ids=names)
def test_processor_is_the_scheme_row_by_row(scheme):
    rng, h = np.random.default_rng(25), scheme.context_width
    tokens, logits = rng.integers(0, 64, (70, 9)), rng.standard_normal((70, 64)).astype(np.float32)
    scores = torch.from_numpy(logits.copy())
    out = processor(scheme, 4)(torch.from_numpy(tokens), scores)
    assert out.dtype == torch.float32
    assert (scores.numpy() == logits).all()  # nothing is done in place
    for row in (0, 13, 69):
        alone = scheme.process(tokens[row : row + 1, 9 - h :], logits[row : row + 1], 5)
        assert (out[row].numpy() == alone[0]).all()
    changed = out.numpy() - logits
    if isinstance(scheme, KGW):
        boosted = np.isclose(changed, 2, atol=1e-5)
        assert (boosted | (changed == 0)).all()
        for v in np.flatnonzero(boosted[0]):
            assert scheme.colors([*tokens[0], v])[-1] == 1
    else:
        assert (np.isfinite(changed).sum(axis=1) == 1).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_processor_keeps_the_dtype(dtype):
    tokens, scores = torch.tensor([[1, 2, 3]]), torch.zeros((1, 64), dtype=dtype)
    for scheme in every_scheme():
        out = processor(scheme, 3)(tokens, scores)
        wide = processor(scheme, 3)(tokens, scores.double())
        assert out.dtype == dtype
        assert (out.double() == wide).all()  # 0, 2 and -inf are exact in all of them


def test_processor_without_context_leaves_the_logits_alone():
    scores = torch.randn((2, 64), generator=torch.Generator().manual_seed(0))
    short = torch.tensor([[1, 2], [3, 4]])
    for scheme in (KGW(1, 64, 3), Aaronson(1, 64, 3)):
        assert processor(scheme, 0)(short, scores) is scores


@pytest.mark.parametrize("prompt_length", [0, 2, 5])
def test_repeated_contexts_are_those_of_a_set(prompt_length):
    rng, width = np.random.default_rng(26), 2
    scheme = Aaronson(1, 3, width)
    tokens, scores = rng.integers(0, 3, (60, 9)), torch.zeros((60, 3))
    out = processor(scheme, prompt_length, skip_repeated=True)(torch.from_numpy(tokens), scores)
    found = torch.isfinite(out).all(dim=1).numpy()
    for text, skipped in zip(tokens.tolist(), found, strict=True):
        start = max(prompt_length, width)
        seen = {tuple(text[t - width : t]) for t in range(start, 9)}
        assert skipped == (tuple(text[-width:]) in seen)
    assert 0 < found.mean() < 1


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("scheme", every_scheme(), ids=names)
def test_generate_of_transformers_writes_the_same_text(kind, scheme):
    model = new_transformer(small_config(kind, 64), seed=1)
    prompts = np.random.default_rng(27).integers(0, 64, (3, 4))
    skip = not isinstance(scheme, KTH) and scheme.context_width > 0
    ours = generate(
        TransformerLM(model), prompts, 30, None, [processor(scheme, 4, skip_repeated=skip)]
    )
    theirs = model.generate(
        torch.from_numpy(prompts),
        attention_mask=torch.ones(3, 4, dtype=torch.int64),
        max_new_tokens=30,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
        logits_processor=transformers.LogitsProcessorList(
            [processor(scheme, 4, skip_repeated=skip)]
        ),
    )
    assert (theirs[:, 4:].numpy() == ours).all()
    colors = [scheme.colors(text, 4) for text in theirs.numpy()]
    plain = generate(TransformerLM(model), prompts, 30)
    assert (plain != ours).any()
    unmarked = [scheme.colors(np.r_[p, t], 4) for p, t in zip(prompts, plain, strict=True)]
    assert np.mean(colors) > np.mean(unmarked)


@pytest.mark.parametrize("scheme", every_scheme(16), ids=names)
def test_text_does_not_depend_on_the_batch(scheme):
    model = Memoryless(np.log(np.random.default_rng(28).dirichlet(np.ones(16))))
    prompts = np.random.default_rng(29).integers(0, 16, (7, 3))
    skip = not isinstance(scheme, KTH) and scheme.context_width > 0

    def texts(parts):
        rng, start, out = np.random.default_rng(30), 0, []
        for size in parts:
            mark = processor(scheme, 3, skip_repeated=skip)
            out.append(generate(model, prompts[start : start + size], 40, rng, [mark]))
            start += size
        return np.concatenate(out)

    assert (texts([7]) == texts([1, 4, 2])).all()


def test_drawn_shifts_do_not_depend_on_the_batch():
    scheme, model, prompts = KTH(1, 16, 32, shifts=8), flat(16), np.zeros((6, 1), dtype=int)

    def texts(parts):
        rng = np.random.default_rng(31)
        marks = [processor(scheme, 1, rng=rng) for _ in parts]
        return np.concatenate(
            [
                generate(model, prompts[:size], 20, np.random.default_rng(0), [mark])
                for size, mark in zip(parts, marks, strict=True)
            ]
        )

    assert (texts([6]) == texts([2, 4])).all()
    assert len(np.unique(texts([6]), axis=0)) > 1


# ----------------------------------------------------------------------------------------- counting


@settings(max_examples=50, deadline=None)
@given(
    texts=st.lists(st.lists(st.integers(0, 4), max_size=12), min_size=1, max_size=4),
    n=st.integers(1, 3),
)
def test_counts_are_those_of_a_counter(texts, n):
    expected = Counter(tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1))
    if not expected:
        with pytest.raises(ValueError, match="texts"):
            NGramCounts.from_texts(texts, n, 5)
        return
    counts = NGramCounts.from_texts(texts, n, 5)
    windows = list(itertools.product(range(5), repeat=n))
    assert counts.count(windows).tolist() == [expected[w] for w in windows]
    assert counts.total == expected.total()


def test_windows_do_not_cross_the_border_of_a_text():
    counts = NGramCounts.from_texts([[0, 1], [2, 3]], 2, 4)
    assert counts.count([[0, 1], [1, 2], [2, 3]]).tolist() == [1, 0, 1]


def test_windows_beyond_64_bits_are_hashed():
    text = np.random.default_rng(32).integers(0, 100_000, 3000)
    counts = NGramCounts.from_texts([text, text], 5, 100_000)  # 83 bits a window
    windows = np.lib.stride_tricks.sliding_window_view(text, 5)
    assert (counts.count(windows) == 2).all()
    assert (counts.count(windows[:, ::-1]) == 0).all()
    assert (
        counts.count(windows + np.array([0, 0, 0, 0, 1]) * (windows < 99_999)) == 0
    ).mean() > 0.99


def test_counts_come_back_from_a_file(tmp_path):
    counts = NGramCounts.from_texts([np.arange(50) % 7], 3, 10)
    counts.save(tmp_path / "counts")
    again = NGramCounts.load(tmp_path / "counts")
    assert (again.n, again.vocab_size) == (3, 10)
    assert again.windows.tolist() == counts.windows.tolist()
    assert again.counts.tolist() == counts.counts.tolist()
    np.savez(tmp_path / "other.npz", n=3)
    with pytest.raises(ValueError, match=r"path .* lacks"):
        NGramCounts.load(tmp_path / "other.npz")
    np.savez(tmp_path / "objects.npz", n=3, vocab_size=2, windows=np.array([None]), counts=[1])
    with pytest.raises(ValueError, match="pickle"):
        NGramCounts.load(tmp_path / "objects.npz")


FINE = {"n": 1, "vocab_size": 9, "windows": [2, 5], "counts": [1, 3]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("windows", [5, 2]),
        ("windows", [2, 2]),
        ("windows", [[2, 5]]),
        ("windows", []),
        ("windows", [2.0, 5.0]),
        ("counts", [1.5, 2]),
        ("counts", [1, math.nan]),
        ("counts", [1, 0]),
        ("counts", [1]),
        ("counts", []),
        ("n", 0),
        ("n", 1.5),
        ("n", [1, 2]),
        ("n", "one"),
        ("vocab_size", -1),
    ],
)
def test_a_file_of_nonsense_is_refused(tmp_path, name, value):
    np.savez(tmp_path / "fine.npz", **FINE)
    assert NGramCounts.load(tmp_path / "fine.npz").count([[5], [4]]).tolist() == [3, 0]
    np.savez(tmp_path / "wrong.npz", **{**FINE, name: value})
    with pytest.raises(ValueError, match=rf"wrong.npz.*{name}"):
        NGramCounts.load(tmp_path / "wrong.npz")


def test_what_is_no_file_of_counts_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "whole", **FINE)
    whole = (tmp_path / "whole.npz").read_bytes()
    for content in (b"", b"text", whole[:50], whole[:-30], whole[:80] + b"\xff" * 40 + whole[120:]):
        (tmp_path / "broken").write_bytes(content)
        with pytest.raises(ValueError, match="path must name a file of counts"):
            NGramCounts.load(tmp_path / "broken")
    np.save(tmp_path / "array.npy", np.arange(3))
    with pytest.raises(ValueError, match="path must name a file of counts"):
        NGramCounts.load(tmp_path / "array.npy")
    with pytest.raises(FileNotFoundError):
        NGramCounts.load(tmp_path / "gone")


# ---------------------------------------------------------------------------------------- bad input

NAN = float("nan")
BAD = [
    ("key", lambda: TokenPRF(-1, 8)),
    ("key", lambda: KGW(2**64, 8)),
    ("key", lambda: Aaronson(1.5, 8)),
    ("key", lambda: KTH(-1, 8)),
    ("vocab_size", lambda: TokenPRF(1, 0)),
    ("vocab_size", lambda: KGW(1, 0)),
    ("vocab_size", lambda: Aaronson(1, NAN)),
    ("vocab_size", lambda: KTH(1, 0)),
    ("seeding", lambda: TokenPRF(1, 8, "left")),
    ("seeding", lambda: KGW(1, 8, seeding="ordered")),
    ("context_width", lambda: KGW(1, 8, -1)),
    ("context_width", lambda: KGW(1, 8, 0)),
    ("context_width", lambda: KGW(1, 8, 1, seeding="unigram")),
    ("context_width", lambda: KGW(1, 8, 0, seeding="self")),
    ("context_width", lambda: Aaronson(1, 8, -1)),
    ("gamma", lambda: KGW(1, 8, gamma=0)),
    ("gamma", lambda: KGW(1, 8, gamma=1)),
    ("gamma", lambda: KGW(1, 8, gamma=NAN)),
    ("delta", lambda: KGW(1, 8, delta=-0.1)),
    ("delta", lambda: KGW(1, 8, delta=NAN)),
    ("delta", lambda: KGW(1, 8, delta=math.inf)),
    ("delta must be at most 1000", lambda: KGW(1, 8, delta=1e39)),
    ("gamma must be strictly between 0 and 1, got -1", lambda: KGW(1, 8, gamma=-1)),
    ("gamma must be strictly between 0 and 1, got nan", lambda: KGW(1, 8, gamma=NAN)),
    ("tokens must be an array", lambda: KGW(1, 8).colors([[1, 2], [3]])),
    ("tokens must be an array", lambda: KGW(1, 8).colors(torch.ones(3, dtype=torch.bfloat16))),
    ("context must be an array", lambda: TokenPRF(1, 8).uniform_all([[1, 2], [3]])),
    ("logits must be an array", lambda: KGW(1, 2).process([[1]], [[0.0, 1.0], [2.0]])),
    (
        "logits must be an array",
        lambda: KGW(1, 8).process([[1]], torch.ones(1, 8, dtype=torch.bfloat16)),
    ),
    ("top_candidates", lambda: KGW(1, 8, top_candidates=0)),
    ("top_candidates", lambda: KGW(1, 8, top_candidates=9)),
    ("length", lambda: KTH(1, 8, 0)),
    ("shifts", lambda: KTH(1, 8, 4, shifts=5)),
    ("shifts", lambda: KTH(1, 8, 4, shifts=0)),
    ("context", lambda: TokenPRF(1, 8).uniform([1, 2], [1, 2])),
    ("context", lambda: TokenPRF(1, 8).uniform_all([[8]])),
    ("context", lambda: TokenPRF(1, 8).uniform_all([[-1]])),
    ("context", lambda: TokenPRF(1, 8).uniform_all([[0.5]])),
    ("token", lambda: TokenPRF(1, 8).uniform([[1]], [8])),
    ("token", lambda: TokenPRF(1, 8).uniform([[1]], [1, 2])),
    ("tokens", lambda: KGW(1, 8).colors([1, 8])),
    ("tokens", lambda: KGW(1, 8).colors([-1, 2])),
    ("tokens", lambda: KGW(1, 8).colors([1.0, 2.0])),
    ("tokens", lambda: KGW(1, 8).colors([NAN, 2.0])),
    ("tokens", lambda: KGW(1, 8).colors([[1, 2]])),
    ("tokens", lambda: KGW(1, 8).colors([1])),
    ("tokens", lambda: KGW(1, 8).colors([])),
    ("tokens", lambda: KGW(1, 8, 3).detect([1, 2, 3])),
    ("tokens", lambda: KGW(1, 8, seeding="self").positions([1, 2, 3])),
    ("tokens", lambda: Aaronson(1, 8).keys([1, 2, 3, 4], 4)),
    ("tokens", lambda: KTH(1, 8).detect([1])),
    ("prompt_length", lambda: Aaronson(1, 8).detect([1, 2, 3, 4], -1)),
    ("prompt_length", lambda: KTH(1, 8).colors([1, 2, 3, 4], 1.5)),
    ("shift", lambda: KTH(1, 8, 4).colors([1, 2], shift=4)),
    ("shift", lambda: KTH(1, 8, 4).keys([1, 2], shift=-1)),
    ("edit_cost", lambda: KTH(1, 8, 4).detect([1, 2], edit_cost=0)),
    ("edit_cost", lambda: KTH(1, 8, 4).detect([1, 2], edit_cost=NAN)),
    ("resamples", lambda: KTH(1, 8, 4).detect([1, 2], resamples=1)),
    ("rng", lambda: KTH(1, 8, 4).detect([1, 2], rng=-1)),
    ("rng", lambda: KTH(1, 8, 4).detect([1, 2], rng=True)),
    ("rng", lambda: KTH(1, 8, 4).draw_shifts(3, 0)),
    ("num_texts", lambda: KTH(1, 8, 4).draw_shifts(0, np.random.default_rng(0))),
    ("contexts", lambda: KGW(1, 8).green([[8]])),
    ("contexts", lambda: KGW(1, 8).green([[1, 2]])),
    ("contexts", lambda: KGW(1, 8).process([[1, 2]], np.zeros((1, 8)))),
    ("contexts", lambda: Aaronson(1, 8).process([1, 2, 3], np.zeros((1, 8)))),
    ("logits", lambda: KGW(1, 8).process([[1]], np.zeros((1, 7)))),
    ("logits", lambda: KGW(1, 8).process([[1]], np.zeros((2, 8)))),
    ("logits", lambda: KGW(1, 2).process([[1]], [[NAN, 0.0]])),
    ("logits", lambda: KGW(1, 2).process([[1]], [[math.inf, 0.0]])),
    ("logits", lambda: KGW(1, 2).process([[1]], [["a", "b"]])),
    ("logits", lambda: KGW(1, 2).green_probability([[1]], [[NAN, 0.0]])),
    ("logits", lambda: Aaronson(1, 2, 1).process([[1]], [[-math.inf, -math.inf]])),
    ("logits", lambda: KTH(1, 2).process([[1]], [[0.0, NAN]])),
    ("index", lambda: KTH(1, 2).process([[1]], [[0.0, 0.0]], -1)),
    ("shifts", lambda: KTH(1, 2, 4).process([[1]], [[0.0, 0.0]], 0, [1, 2])),
    ("shifts", lambda: KTH(1, 2, 4).process([[1]], [[0.0, 0.0]], 0, [4])),
    ("shifts", lambda: KTH(1, 2, 4).process([[1]], [[0.0, 0.0]], 0, 0.5)),
    ("scheme", lambda: processor("KGW", 1)),
    ("prompt_length", lambda: processor(KGW(1, 8), -1)),
    ("prompt_length", lambda: processor(KGW(1, 8), 3)(torch.tensor([[1, 2]]), torch.zeros(1, 8))),
    ("skip_repeated", lambda: processor(KGW(1, 8), 1, skip_repeated=1)),
    ("skip_repeated", lambda: processor(KGW(1, 8, seeding="unigram"), 1, skip_repeated=True)),
    ("skip_repeated", lambda: processor(KTH(1, 8), 1, skip_repeated=True)),
    ("rng", lambda: processor(KGW(1, 8), 1, rng=np.random.default_rng(0))),
    ("shifts", lambda: processor(Aaronson(1, 8), 1, shifts=0)),
    ("rng", lambda: processor(KTH(1, 8, shifts=2), 1)),
    ("rng", lambda: processor(KTH(1, 8, shifts=2), 1, rng=0)),
    ("shifts", lambda: processor(KTH(1, 8), 1, rng=np.random.default_rng(0), shifts=0)),
    ("shifts", lambda: processor(KTH(1, 8, 4), 1, shifts=4)),
    ("keys", lambda: first_occurrences([1, 2])),
    ("keys", lambda: first_occurrences([[0.5]])),
    ("keys", lambda: first_occurrences(np.zeros((3, 0), dtype=int))),
    ("texts", lambda: NGramCounts.from_texts([[0, 9]], 1, 9)),
    ("texts", lambda: NGramCounts.from_texts([[[0]]], 1, 9)),
    ("texts", lambda: NGramCounts.from_texts([], 1, 9)),
    ("n", lambda: NGramCounts.from_texts([[0]], 0, 9)),
    ("vocab_size", lambda: NGramCounts.from_texts([[0]], 1, 0)),
    ("windows", lambda: NGramCounts.from_texts([[0]], 1, 9).count([[0, 1]])),
    ("windows", lambda: NGramCounts.from_texts([[0]], 1, 9).count([[9]])),
    ("windows", lambda: NGramCounts.from_texts([[0]], 1, 9).count([0])),
]


@pytest.mark.parametrize(("name", "call"), BAD)
def test_bad_input_is_refused_by_name(name, call):
    with pytest.raises((ValueError, TypeError), match=rf"\b{name}\b"):
        call()
