"""Experiments: genuine and spoofed texts of every scheme, and how often the tests are right.

A *key* is one run: with it the provider writes the data D that the thief learns from, and genuine
texts; the provider writes again on the same subjects; and the thief writes on them too. Tests then
take one text (T = 500), or join several to reach a larger T.
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from transformers import PretrainedConfig, WatermarkDetector, WatermarkingConfig

from workingpapers.arguments import check_choice, check_integer, check_type
from workingpapers.lab import spawn_generators
from workingpapers.language import CausalLM, TransformerLM
from workingpapers.watermark_spoofing.distillation import (
    PositionalStudent,
    distil,
    finetune_student,
)
from workingpapers.watermark_spoofing.evidence import collect, gram_width
from workingpapers.watermark_spoofing.kth import KTH
from workingpapers.watermark_spoofing.processors import processor
from workingpapers.watermark_spoofing.reference import NGramCounts
from workingpapers.watermark_spoofing.schemes import KGW, Aaronson, Scheme
from workingpapers.watermark_spoofing.spoofers import (
    RepetitionPenalty,
    StealingProcessor,
    StealingSpoofer,
)
from workingpapers.watermark_spoofing.spoofing_test import (
    martingale_z,
    spearman_z,
    spoofing_test,
    surplus_green,
)
from workingpapers.watermark_spoofing.tilt import TiltedLM
from workingpapers.watermark_spoofing.world import Subjects, World, write, write_anew

__all__ = [
    "PAPER_SETUPS",
    "SETUPS",
    "Setup",
    "Study",
    "cost_ratios",
    "data_grid",
    "exact_statistics",
    "finetuned",
    "limits",
    "make_study",
    "model_statistics",
    "rejections",
    "score_means",
    "simulated_power",
    "statistics",
]

KEY = 15485863  # the public implementation's default, to which the number of the run is added
DETECTION = 4.0  # z-score from which on the detector says "watermarked"


@dataclass(frozen=True)
class Setup:
    """A watermark, how much of it the thief has seen, and what he does with it.

    Attributes
    ----------
    make : callable
        ``make(key, vocab_size) -> Scheme``.
    data_texts : int, default 250
        Number of texts in D.
    data_tokens : int, default 500
        Tokens of each of them.
    strength : float or None
        Of the stealing attack; None for schemes that it does not know.
    distilled : bool, default True
        Whether a student is trained as well.
    skip_repeated : bool, default False
        Whether M writes without the mark in contexts that a text has been in before.
    """

    make: Callable[[int, int], Scheme]
    data_texts: int = 250
    data_tokens: int = 500
    strength: float | None = None
    distilled: bool = True
    skip_repeated: bool = False

    def __post_init__(self) -> None:
        check_integer("data_texts", self.data_texts)
        check_integer("data_tokens", self.data_tokens)
        if self.strength is None and not self.distilled:
            raise ValueError("strength must be given, or distilled be true: there is no attack")


def _sum(width: int, delta: float = 2.0) -> Callable[[int, int], Scheme]:
    return lambda key, vocab_size: KGW(key, vocab_size, width, delta=delta)


def _self(delta: float = 2.0) -> Callable[[int, int], Scheme]:
    return lambda key, vocab_size: KGW(key, vocab_size, delta=delta, seeding="self")


def _gumbel(width: int) -> Callable[[int, int], Scheme]:
    return lambda key, vocab_size: Aaronson(key, vocab_size, width)


def _sequence(length: int) -> Callable[[int, int], Scheme]:
    return lambda key, vocab_size: KTH(key, vocab_size, length)


# With one context token and 1024 words a large D teaches everything, hence the small one.
SETUPS = {
    "LeftHash h=1": Setup(_sum(1), data_texts=60, strength=5.0),
    "SumHash h=2": Setup(_sum(2), strength=6.0),
    "SumHash h=3": Setup(_sum(3), strength=6.0),
    "SelfHash h=3": Setup(_self(), strength=6.0),
    "AAR h=2": Setup(_gumbel(2), data_texts=400, skip_repeated=True),
    "AAR h=3": Setup(_gumbel(3), skip_repeated=True),
    "KTH n=64": Setup(_sequence(64)),
}

# What the studies of the two attacks used, on models of 7 billion parameters.
_STEALING = {"data_texts": 30_000, "data_tokens": 800, "distilled": False}
_LEARNING = {"data_texts": 640_000, "data_tokens": 256}
PAPER_SETUPS = {
    "LeftHash h=1, stealing": Setup(_sum(1, 4.0), strength=7.5, **_STEALING),
    "SumHash h=3, stealing": Setup(_sum(3, 4.0), strength=7.5, **_STEALING),
    "SelfHash h=3, stealing": Setup(_self(4.0), strength=7.5, **_STEALING),
    "LeftHash h=1, distilled": Setup(_sum(1), **_LEARNING),
    "SumHash h=2, distilled": Setup(_sum(2), **_LEARNING),
    "SelfHash h=3, distilled": Setup(_self(), **_LEARNING),
    "AAR h=2, distilled": Setup(_gumbel(2), skip_repeated=True, **_LEARNING),
    "AAR h=3, distilled": Setup(_gumbel(3), skip_repeated=True, **_LEARNING),
    "AAR h=4, distilled": Setup(_gumbel(4), skip_repeated=True, **_LEARNING),
    "KTH n=256, distilled": Setup(_sequence(256), **_LEARNING),
}


@dataclass(frozen=True, eq=False)
class Study:
    """All texts of one key, prompts included, and what is needed to test them.

    Attributes
    ----------
    scheme : Scheme
    reference : NGramCounts
        Counts of contexts in the reference.
    prompt_length : int
    subjects : Subjects
        Of the texts below, which correspond row by row.
    data : (N, L) int64 array
        D, on subjects of its own.
    genuine, reprompted : (B, L) int64 array
        Two texts of M on each subject.
    spoofed : dict of str to (B, L) int64 array
        What the thief wrote, by attack: "stealing", "distilled".
    """

    scheme: Scheme
    reference: NGramCounts
    prompt_length: int
    subjects: Subjects
    data: NDArray[np.int64]
    genuine: NDArray[np.int64]
    reprompted: NDArray[np.int64]
    spoofed: dict[str, NDArray[np.int64]]

    @property
    def sources(self) -> dict[str, NDArray[np.int64]]:
        """All texts that are tested, by who wrote them."""
        return {"genuine": self.genuine, **self.spoofed}


def make_study(
    world: World,
    setup: Setup,
    seed: int,
    num_texts: int = 240,
    num_tokens: int = 500,
    student: Callable[[World, Scheme, NDArray[np.int64]], CausalLM] | None = None,
    batch_size: int = 300,
    progress: bool = False,
) -> Study:
    """Write all texts of one key.

    Parameters
    ----------
    world : World
    setup : Setup
        Of ``SETUPS``, or another.
    seed : int
        Number of the run, at least 0; it makes the secret key and all randomness.
    num_texts : int, default 240
        Texts of each source, at least 1.
    num_tokens : int, default 500
        Tokens of each text after its prompt.
    student : callable, optional
        ``student(world, scheme, data)`` is the model that has learned D; by default an n-gram model
        over the attacker's.
    batch_size : int, default 300
        Texts that are written at a time.
    progress : bool, default False
        Show progress bars.

    Returns
    -------
    Study

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described.
    """
    check_type("world", world, World)
    check_type("setup", setup, Setup)
    for_data, for_subjects, for_genuine, again, stealing, copying = spawn_generators(seed, 6)
    scheme, reference = _keyed(world, setup, seed)
    options = {"batch_size": batch_size, "progress": progress}

    def mark() -> list:
        return [processor(scheme, world.prompt_length, skip_repeated=setup.skip_repeated)]

    about = world.subjects(setup.data_texts, for_data)
    data = write(world.model, about, setup.data_tokens, for_data, mark, **options)
    options["num_tokens"] = num_tokens
    subjects = world.subjects(num_texts, for_subjects)
    genuine = write(world.model, subjects, rng=for_genuine, processors=mark, **options)
    spoofed = {}
    if setup.strength is not None:
        steal = stealer(world, scheme, data, setup.strength)
        spoofed["stealing"] = write(
            world.attacker, subjects, rng=stealing, processors=steal, **options
        )
    if setup.distilled:
        learned = (student or student_of)(world, scheme, data)
        spoofed["distilled"] = write(learned, subjects, rng=copying, **options)
    return Study(
        scheme=scheme,
        reference=reference,
        prompt_length=world.prompt_length,
        subjects=subjects,
        data=data,
        genuine=genuine,
        reprompted=write_anew(
            world.model, subjects, genuine, rng=again, processors=mark, **options
        ),
        spoofed=spoofed,
    )


def _keyed(world: World, setup: Setup, seed: int) -> tuple[Scheme, NGramCounts]:
    """Return the watermark with the key of a run, and the counts that its test looks into."""
    scheme = setup.make(KEY + check_integer("seed", seed, low=0), world.vocab_size)
    width = gram_width(scheme)
    return scheme, NGramCounts.from_texts(world.reference, width, world.vocab_size)


def stealer(
    world: World, scheme: Scheme, data: NDArray[np.int64], strength: float
) -> Callable[[], list]:
    """Return a maker of the processors with which the thief's model writes."""
    width = scheme.context_width
    spoofer = StealingSpoofer(width, world.vocab_size, strength=strength)
    stolen = spoofer.fit(data[:, world.prompt_length :], world.ordinary)
    return lambda: [RepetitionPenalty(width + 1, world.prompt_length), StealingProcessor(stolen)]


def student_of(world: World, scheme: Scheme, data: NDArray[np.int64]) -> CausalLM:
    """Return the thief's student: counts of D over the thief's own model."""
    if isinstance(scheme, KTH):
        return PositionalStudent.fit(data, world.attacker, scheme.length, world.prompt_length)
    return distil(data, world.attacker, scheme.context_width)


def finetuned(
    world: World, scheme: Scheme, data: NDArray[np.int64], **settings: object
) -> TransformerLM:
    """Return the thief's student: a copy of the thief's transformer, trained on D.

    Parameters
    ----------
    world : World
        With a :class:`TransformerLM` for attacker.
    scheme : Scheme
    data : (N, L) int64 array
        D.
    **settings
        Of :func:`finetune_student`.

    Returns
    -------
    TransformerLM
    """
    check_type("attacker", world.attacker, TransformerLM)
    model = copy.deepcopy(world.attacker.model)
    finetune_student(model, data, grouped=not isinstance(scheme, KTH), **settings)
    return TransformerLM(model)


def statistics(
    study: Study, source: str, mode: str = "standard", texts_per_test: int = 1
) -> NDArray[np.float64]:
    """Test the texts of a source, one by one or joined.

    Parameters
    ----------
    study : Study
    source : str
        "genuine", or an attack.
    mode : {"standard", "reprompting"}
    texts_per_test : int, default 1
        Number of texts that are joined to reach a larger T; what is left over is not used.

    Returns
    -------
    ndarray of float
        Z of each test.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    check_choice("mode", mode, ("standard", "reprompting"))
    texts = study.sources[check_choice("source", source, tuple(study.sources))]
    size = check_integer("texts_per_test", texts_per_test, 1, len(texts))
    found = []
    for start in range(0, len(texts) - size + 1, size):
        chosen = slice(start, start + size)
        result = spoofing_test(
            texts[chosen],
            study.scheme,
            study.reference,
            mode,
            reprompted=study.reprompted[chosen] if mode == "reprompting" else None,
            prompt_lengths=study.prompt_length,
        )
        found.append(result.statistic)
    return np.array(found)


def model_statistics(
    study: Study, world: World, source: str, texts_per_test: Sequence[int] = (1,)
) -> dict[int, NDArray[np.float64]]:
    """Test the texts of a source with the model at hand, one by one or joined.

    Parameters
    ----------
    study : Study
        Of a red-green scheme.
    world : World
        That of the study.
    source : str
        "genuine", or an attack.
    texts_per_test : sequence of int, default (1,)
        Numbers of texts that are joined; what is left over is not used.

    Returns
    -------
    dict of int to ndarray of float
        Z_M of each test, by number of texts.

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described.
    """
    check_type("scheme of study", study.scheme, KGW)
    texts = study.sources[check_choice("source", source, tuple(study.sources))]
    sums = np.array(
        [
            surplus_green((text, study.prompt_length), study.scheme, lm, study.reference)
            for text, lm in zip(texts, _models_on(world, study.subjects), strict=True)
        ]
    )
    found = {}
    for size in texts_per_test:
        size = check_integer("texts_per_test", size, 1, len(texts))
        joined = sums[: len(sums) // size * size].reshape(-1, size, 2).sum(1)
        found[size] = np.array([martingale_z(*pair) for pair in joined])
    return found


def _models_on(world: World, subjects: Subjects) -> list[CausalLM]:
    """Return M as it writes on each subject, without its watermark."""
    if subjects.tilts is None:
        return [world.model] * len(subjects)
    return [TiltedLM(world.model, tilt) for tilt in subjects.tilts]


def rejections(
    study: Study,
    texts_per_test: Sequence[int] = (1, 3, 6),
    bins: int = 10,
    world: World | None = None,
) -> dict[str, float]:
    """Count how often each test rejects texts of each source, and describe these texts.

    Parameters
    ----------
    study : Study
    texts_per_test : sequence of int, default (1, 3, 6)
        Numbers of texts that are joined; at least 2 tests of each.
    bins : int, default 10
        Groups of rising context frequency.
    world : World, optional
        That of the study, whose scheme is red and green: the test with the model is run as well.

    Returns
    -------
    dict of str to float
        ``{source}_{mode}_{texts}_{mean, sd, at_1, at_5, tests}``: mean and standard deviation of
        Z, numbers of rejections at 1% and 5%, number of tests; ``..._hist_{i}``: numbers of Z in
        20 bins from -5 to 5, the outer ones open. ``{source}_{color, detected,
        detector_z}``: mean colour (repeats included), share of texts that the detector accepts,
        and its mean z. ``{source}_bin_{i}``: mean colour by context frequency, over all texts; with
        fewer groups than asked for, the last one's again.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    found: dict[str, float] = {}
    most = len(study.genuine) // 2
    for size in texts_per_test:
        if check_integer("texts_per_test", size) > most:
            raise ValueError(
                f"texts_per_test must leave at least 2 tests of {len(study.genuine)} texts, "
                f"got {size}"
            )
    for source, texts in study.sources.items():
        for size in texts_per_test:
            for mode in ("standard", "reprompting"):
                name = f"{source}_{mode}_{size}"
                z = statistics(study, source, mode, size)
                found |= _summary(name, z) | _histogram(name, z)
        if world is not None:
            for size, z in model_statistics(study, world, source, texts_per_test).items():
                name = f"{source}_model_{size}"
                found |= _summary(name, z) | _histogram(name, z)
        picture = _picture(study.scheme, study.reference, texts, study.prompt_length, bins)
        found |= {f"{source}_{key}": value for key, value in picture.items()}
    return found


def _picture(
    scheme: Scheme, reference: NGramCounts, texts: NDArray[np.int64], prompt_length: int, bins: int
) -> dict[str, float]:
    """Return mean colours by context frequency, and what the detector says."""
    z = np.array([scheme.detect(text, prompt_length).statistic for text in texts])
    evidence = collect(texts, scheme, reference, prompt_lengths=prompt_length)
    groups = [group.mean_color for group in evidence.frequency_bins(bins)]
    groups += [groups[-1]] * (bins - len(groups))
    return {
        "color": float(evidence.colors.mean()),
        "detected": float(np.mean(z > DETECTION)),
        "detector_z": float(z.mean()),
        **{f"bin_{i}": color for i, color in enumerate(groups)},
    }


def _summary(name: str, z: NDArray[np.float64]) -> dict[str, float]:
    return {
        f"{name}_mean": float(z.mean()),
        f"{name}_sd": float(z.std(ddof=1)),
        f"{name}_at_1": float(np.sum(norm.sf(z) < 0.01)),
        f"{name}_at_5": float(np.sum(norm.sf(z) < 0.05)),
        f"{name}_tests": float(len(z)),
    }


def _histogram(name: str, z: NDArray[np.float64]) -> dict[str, float]:
    """Count statistics in 20 bins from -5 to 5; the outer ones hold what is beyond."""
    counts, _ = np.histogram(np.clip(z, -5, 5), bins=20, range=(-5, 5))
    return {f"{name}_hist_{i}": float(count) for i, count in enumerate(counts)}


def score_means(study: Study, world: World, num_texts: int = 60) -> dict[str, float]:
    """Compare what Y may count: mean Z_S of single texts, by source and score.

    Parameters
    ----------
    study : Study
    world : World
        That of the study.
    num_texts : int, default 60
        Number of texts of each source that are looked at.

    Returns
    -------
    dict of str to float
        ``{source}_{score}`` for the scores "context", "ngram", "unigram" and "known_data".
    """
    scheme, size = study.scheme, world.vocab_size
    found = {}
    for score in ("context", "ngram", "unigram", "known_data"):
        corpus = study.data if score == "known_data" else world.reference
        counts = NGramCounts.from_texts(corpus, gram_width(scheme, score), size)
        where = {"known_data": counts} if score == "known_data" else {}
        for source, texts in study.sources.items():
            z = [
                spoofing_test(
                    [text],
                    scheme,
                    None if where else counts,
                    score=score,
                    prompt_lengths=study.prompt_length,
                    **where,
                ).statistic
                for text in texts[:num_texts]
            ]
            found[f"{source}_{score}"] = float(np.mean(z))
    return found


def exact_statistics(
    world: World, setup: Setup, seed: int, num_texts: int = 240, num_tokens: int = 500
) -> NDArray[np.float64]:
    """Return Z_M of genuine texts, the statistic that needs no independence.

    Parameters
    ----------
    world, setup, seed, num_texts, num_tokens
        As for :func:`make_study`; a red-green scheme.

    Returns
    -------
    (num_texts,) float array
    """
    scheme, counts = _keyed(world, setup, seed)
    (rng,) = spawn_generators(seed, 1)
    subjects = world.subjects(num_texts, rng)
    texts = write(
        world.model,
        subjects,
        num_tokens,
        rng,
        lambda: [processor(scheme, world.prompt_length)],
    )
    sums = [
        surplus_green((text, world.prompt_length), scheme, lm, counts)
        for text, lm in zip(texts, _models_on(world, subjects), strict=True)
    ]
    return np.array([martingale_z(*pair) for pair in sums])


def limits(world: World, setup: Setup, seed: int, num_texts: int = 240) -> dict[str, float]:
    """Test thieves at both ends: one who knows every colour, and one who has seen no data.

    The first writes with his own model and the true key; the second with his own model alone. The
    test can find neither: the one leaves no border between known and unknown contexts, the other
    leaves no watermark.

    Parameters
    ----------
    world, setup, seed, num_texts
        As for :func:`make_study`.

    Returns
    -------
    dict of str to float
        ``knowing_standard_1_...``: as in :func:`rejections`, for the Standard test of single texts.
        ``ignorant_{mean, sd}``: of the detector's z.
    """
    scheme, counts = _keyed(world, setup, seed)
    (rng,) = spawn_generators(seed, 1)
    subjects = world.subjects(num_texts, rng)
    length = world.prompt_length
    marked = write(world.attacker, subjects, 500, rng, lambda: [processor(scheme, length)])
    plain = write(world.attacker, subjects, 500, rng)
    z = [spoofing_test([text], scheme, counts, prompt_lengths=length).statistic for text in marked]
    detected = np.array([scheme.detect(text, length).statistic for text in plain])
    return {
        **_summary("knowing_standard_1", np.array(z)),
        "ignorant_mean": float(detected.mean()),
        "ignorant_sd": float(detected.std(ddof=1)),
    }


def data_grid(
    world: World,
    setup: Setup,
    seed: int,
    data_texts: Sequence[int] = (25, 50, 100, 200, 400, 800),
    strengths: Sequence[float] = (3.0, 6.0, 9.0),
    num_texts: int = 36,
    bins: int = 10,
) -> dict[str, float]:
    """Vary how much the thief has seen, and how hard he pushes.

    Parameters
    ----------
    world, setup, seed, num_texts
        As for :func:`make_study`; a red-green scheme.
    data_texts : sequence of int
        Sizes of D, in texts of 500 tokens; smaller ones are parts of the largest.
    strengths : sequence of float
        Strengths of the stealing attack.
    bins : int, default 10
        Groups of rising context frequency.

    Returns
    -------
    dict of str to float
        For ``genuine``, ``distilled_{size}`` and ``stealing_{size}_{strength}``: what
        :func:`rejections` says of a source's texts, and ``..._z``, the mean of Z_S over groups of
        six texts (T = 3000).
    """
    scheme, counts = _keyed(world, setup, seed)
    rng, for_subjects = spawn_generators(seed, 2)
    length = world.prompt_length

    def mark() -> list:
        return [processor(scheme, length)]

    data = write(world.model, world.subjects(max(data_texts), rng), 500, rng, mark)
    subjects = world.subjects(num_texts, for_subjects)
    found = {}

    def describe(source: str, texts: NDArray[np.int64]) -> None:
        picture = _picture(scheme, counts, texts, length, bins)
        joined = [texts[i : i + 6] for i in range(0, len(texts) - 5, 6)]
        z = [spoofing_test(six, scheme, counts, prompt_lengths=length).statistic for six in joined]
        values = {**picture, "z": float(np.mean(z))}
        found.update({f"{source}_{key}": value for key, value in values.items()})

    describe("genuine", write(world.model, subjects, 500, rng, mark))
    for size in data_texts:
        student = student_of(world, scheme, data[:size])
        describe(f"distilled_{size}", write(student, subjects, 500, rng))
        for strength in strengths:
            steal = stealer(world, scheme, data[:size], strength)
            texts = write(world.attacker, subjects, 500, rng, steal)
            describe(f"stealing_{size}_{strength:g}", texts)
    return found


def simulated_power(
    q: float,
    p1: float,
    p0: float,
    num_tokens: int,
    seed: int,
    runs: int = 1000,
    alpha: float = 0.01,
) -> dict[str, float]:
    """Test sequences drawn from the model behind :func:`power`, with frequency = "was learned".

    Parameters
    ----------
    q, p1, p0, num_tokens, alpha
        As for :func:`power`.
    seed : int
        At least 0.
    runs : int, default 1000
        Number of tests.

    Returns
    -------
    dict of str to float
        ``mean`` of Z_S and ``power``: the share of rejections.
    """
    (rng,) = spawn_generators(seed, 1)
    z = []
    for _ in range(check_integer("runs", runs)):
        learned = rng.random(num_tokens) < q
        green = rng.random(num_tokens) < np.where(learned, p1, p0)
        z.append(spearman_z(green, learned)[1])
    return {"mean": float(np.mean(z)), "power": float(np.mean(norm.sf(z) < alpha))}


def peer_detector(vocab_size: int) -> WatermarkDetector:
    """Return the detector of transformers, which keeps no green list in mind."""
    config = PretrainedConfig(vocab_size=vocab_size)
    config.bos_token_id = -1  # it drops a first token that is this one
    mark = WatermarkingConfig(seeding_scheme="lefthash", context_width=1)
    return WatermarkDetector(config, "cpu", mark, ignore_repeated_ngrams=True, max_cache_size=1)


def _seconds(task: Callable[[], object]) -> float:
    """Return the shortest time that a task took in three runs, after one that does not count."""
    task()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        task()
        times.append(time.perf_counter() - start)
    return min(times)


def cost_ratios(world: World, seed: int, num_tokens: int = 1000) -> dict[str, float]:
    """Time our ways beside plain ones, on the same task.

    Parameters
    ----------
    world : World
    seed : int
        At least 0.
    num_tokens : int, default 1000
        Length T of the text whose colours are told.

    Returns
    -------
    dict of str to float
        ``colors_small``, ``colors_large``: seconds of the detector of transformers, which draws a
        green list for each token, over seconds of ours, which hashes each token, for this world's
        vocabulary and for 32 000 tokens. ``batch``: seconds a token of writing one text at a time,
        over seconds a token of writing 256 at a time. ``test_seconds``: of one Standard test
        of 3000 scored positions, in text of the reference (over again where it is too short).
        Each time is the least of three runs.
    """
    (rng,) = spawn_generators(seed, 1)
    scheme, counts = _keyed(world, SETUPS["SumHash h=2"], seed)
    texts = np.resize(world.reference, (6, 500 + scheme.context_width))
    many, one = (_writing_seconds(world, scheme, number, rng) for number in (256, 1))
    return {
        "colors_small": _detector_ratio(
            rng.integers(world.vocab_size, size=num_tokens), world.vocab_size
        ),
        "colors_large": _detector_ratio(rng.integers(32_000, size=num_tokens), 32_000),
        "batch": one / many,
        "test_seconds": _seconds(lambda: spoofing_test(texts, scheme, counts)),
    }


def _detector_ratio(text: NDArray[np.int64], vocab_size: int) -> float:
    """Return the seconds of the peer over our own, for the green rate of one text."""
    scheme, peer, batch = (
        KGW(KEY, vocab_size),
        peer_detector(vocab_size),
        torch.from_numpy(text)[None],
    )
    peer_seconds = _seconds(lambda: peer(batch, return_dict=True))
    return peer_seconds / _seconds(lambda: scheme.detect(text))


def _writing_seconds(
    world: World, scheme: Scheme, num_texts: int, rng: np.random.Generator, num_tokens: int = 100
) -> float:
    """Return the seconds a token of writing texts together."""
    subjects = world.subjects(num_texts, rng)

    def task() -> None:
        marks = [processor(scheme, world.prompt_length)]
        write(world.model, subjects, num_tokens, np.random.default_rng(0), lambda: marks)

    return _seconds(task) / (num_texts * num_tokens)
