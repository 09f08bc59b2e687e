"""The experiments: the continuum, finite worlds where calibration matters, and trained policies.

Everything that is measured on the small transformer is exact: all of its responses are listed.
"""

import itertools
import timeit
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from tqdm.auto import trange
from transformers import PreTrainedModel

from workingpapers.arguments import (
    as_reals,
    check_choice,
    check_integer,
    check_nonnegative,
    check_positive,
    check_type,
)
from workingpapers.infalign import ctrl
from workingpapers.infalign.calibration import (
    RewardCalibrator,
    as_probabilities,
    as_rewards,
    calibrated_reward,
)
from workingpapers.infalign.continuum import (
    best_exponent,
    continuum_beta_for_kl,
    continuum_win_rate,
    density,
    optimal_beta_for_kl,
    optimal_density,
    virial_win_rate,
)
from workingpapers.infalign.ctrl import (
    Objective,
    Uncalibrated,
    train_ctrl,
    train_offline,
)
from workingpapers.infalign.decoding import BestOfN, Kind, Sampling, WorstOfN, procedure_of
from workingpapers.infalign.optimal import (
    beta_for_kl,
    distilled_policy,
    rlhf_policy,
    solve_infalign,
    standardized_reward,
)
from workingpapers.infalign.rollouts import (
    LARGEST_SPACE,
    Tokens,
    calibrate,
    enumerate_log_probs,
    enumerate_responses,
    response_distribution,
)
from workingpapers.infalign.transforms import Exponential, FirstOrder, Identity, Log, Transform
from workingpapers.infalign.winrate import inference_win_rate, kl_divergence, win_rate
from workingpapers.language import (
    as_token_texts,
    new_transformer,
    small_config,
    token_log_probs,
)

__all__ = [
    "METHODS",
    "Aligned",
    "MarkovWorld",
    "Study",
    "align",
    "beta_for",
    "continuum_comparison",
    "cost_ratios",
    "markov_world",
    "reward_hacking",
    "scale_mismatch",
    "study",
    "train_base",
]

SCALES = (0.3, 1.0, 3.0, 10.0)  # of the rewards of different prompts
DRAWS = 4  # N, where nothing else is said

DISTILLED = 3  # of how many base samples the best is imitated
DPO_BETA = 4.0  # ends near 0.5 nats after 300 steps; judged without noise DPO has no optimum

Way = Literal[ctrl.Algorithm, "offline", "closed form"]

METHODS: dict[str, Transform | Uncalibrated] = {
    "raw": "raw",
    "z-scored": "z-scored",
    "identity": Identity(),
    "exp(+5)": Exponential(5),
    "exp(+10)": Exponential(10),
    "exp(-5)": Exponential(-5),
    "exp(-10)": Exponential(-10),
    "log": Log(),
    "first order, best": FirstOrder(DRAWS, "best"),
    "first order, worst": FirstOrder(DRAWS, "worst"),
}
OFFLINE: dict[str, Objective] = {"dpo": "dpo", "ipo": "ipo", "distilled": "best_of_n"}
OPTIMA: dict[str, Kind] = {"optimal, best": "best", "optimal, worst": "worst"}


# Part A: the continuum


def continuum_comparison(kind: Kind, n: int, kl: float) -> dict[str, float]:
    """Compare transforms with the coupled optimum at one divergence, where rewards are continuous.

    Parameters
    ----------
    kind : {"best", "worst"}
        Which of the draws is kept.
    n : int
        Number of draws N, at least 1.
    kl : float
        Divergence in nats, in (0, 5].

    Returns
    -------
    dict
        Win rates: ``identity``, ``log``, ``exp5`` and ``exp10`` (negative for the worst),
        ``best_exp`` with its exponent ``best_t``, ``first_order``, ``optimal``. Of the optimum also
        ``beta``, and ``virial``, the absolute error of its win rate by the virial identity.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    procedure = procedure_of(n, kind)
    sign = 1 if kind == "best" else -1
    transforms = {
        "identity": Identity(),
        "log": Log(1e-12),
        "exp5": Exponential(5 * sign),
        "exp10": Exponential(10 * sign),
        "first_order": FirstOrder(n, kind),
    }
    row = {
        name: continuum_win_rate(density(phi, continuum_beta_for_kl(phi, kl)), procedure)
        for name, phi in transforms.items()
    }
    row["best_t"], row["best_exp"] = best_exponent(n, kl, kind)
    row["beta"] = optimal_beta_for_kl(n, kl, kind)
    optimum = optimal_density(n, row["beta"], kind)
    row["optimal"] = continuum_win_rate(optimum, procedure)
    row["virial"] = abs(virial_win_rate(optimum, n, row["beta"], kind) - row["optimal"])
    return row


# Part B: what calibration is good for


def scale_mismatch(
    seed: int,
    scales: Sequence[float] = SCALES,
    responses: int = 500,
    kl: float = 0.5,
) -> dict[str, float]:
    """Align prompts whose rewards differ in scale, with one beta for all.

    Normal rewards; the base policies are drawn from a flat Dirichlet distribution.

    Parameters
    ----------
    seed : int
        At least 0.
    scales : sequence of float
        Of the rewards of each prompt, above 0.
    responses : int, default 500
        To each prompt, at least 2.
    kl : float, default 0.5
        Mean divergence over prompts that each method may spend, in nats.

    Returns
    -------
    dict
        Win rate against the base, the mean over prompts, of ``raw``, ``z_scored`` and
        ``calibrated`` rewards; and ``raw_kl_last``, what the raw reward spends on the last prompt.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    rng = np.random.default_rng(check_integer("seed", seed, low=0))
    factors = _as_scales(scales)
    shape = len(factors), check_integer("responses", responses, low=2)
    rewards = factors[:, None] * rng.normal(size=shape)
    base = rng.dirichlet(np.ones(shape[1]), size=shape[0])
    trained_on = {
        "raw": rewards,
        "z_scored": standardized_reward(rewards, base),
        "calibrated": calibrated_reward(rewards, base),
    }
    policies = {name: _tilted(base, reward, kl) for name, reward in trained_on.items()}
    row = {name: float(win_rate(pi, base, rewards).mean()) for name, pi in policies.items()}
    return row | {"raw_kl_last": float(kl_divergence(policies["raw"], base)[-1])}


def _as_scales(scales: Sequence[float], most: int = LARGEST_SPACE) -> NDArray[np.float64]:
    """Return checked scales of rewards, one a prompt."""
    factors = as_reals("scales", scales)
    if factors.ndim != 1 or not 1 <= len(factors) <= most or (factors <= 0).any():
        raise ValueError(f"scales must be 1..{most} numbers > 0, one a prompt, got {scales!r}")
    return factors


def _tilted(base: NDArray, reward: NDArray, kl: float) -> NDArray[np.float64]:
    """Return the Gibbs policy of a mean divergence."""
    return rlhf_policy(base, reward, beta_for_kl(base, reward, kl))


def reward_hacking(
    seed: int,
    bonus: float,
    responses: int = 2000,
    share: float = 0.05,
    kl: float = 0.5,
) -> dict[str, float]:
    """Align with a reward that pays some responses a bonus that they do not deserve.

    True rewards are normal; the base policy is uniform.

    Parameters
    ----------
    seed : int
        At least 0.
    bonus : float
        Added to the true reward of the hacked responses, at least 0.
    responses : int, default 2000
        At least 2.
    share : float, default 0.05
        Share of hacked responses, in (0, 1), of which at least one is hacked and one is not.
    kl : float, default 0.5
        Divergence that each method may spend, in nats.

    Returns
    -------
    dict
        For ``raw``, ``calibrated`` and ``exp10``: the win rate in terms of the true reward, and the
        policy's mass on hacked responses (``raw_mass``, ...).

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    rng = np.random.default_rng(check_integer("seed", seed, low=0))
    responses = check_integer("responses", responses, low=2)
    bonus = check_nonnegative("bonus", bonus)
    if check_positive("share", share) >= 1:
        raise ValueError(f"share must be in (0, 1), got {share!r}")
    number = round(share * responses)
    if not 0 < number < responses:
        raise ValueError(f"share must hack 1..{responses - 1} of the responses, got {number}")
    true = rng.normal(size=responses)
    hacked = np.zeros(responses, dtype=bool)
    hacked[rng.permutation(responses)[:number]] = True
    base, paid = np.full(responses, 1 / responses), true + bonus * hacked
    calibrated = calibrated_reward(paid, base)
    trained_on = {"raw": paid, "calibrated": calibrated, "exp10": Exponential(10)(calibrated)}
    row = {}
    for name, reward in trained_on.items():
        policy = _tilted(base, reward, kl)
        row[name] = float(win_rate(policy, base, true))
        row[f"{name}_mass"] = float(policy[hacked].sum())
    return row


# Part C: a small transformer


@dataclass(frozen=True, eq=False)
class MarkovWorld:
    """Prompts of one token each, whose responses are random strings with random rewards.

    Attributes
    ----------
    prompts : list of (1,) int64 arrays
        Prompt i is the token i.
    responses : ndarray of int64, shape (M, L)
        All strings over the alphabet, M = alphabet^L, in alphabetical order.
    base : ndarray, shape (P, M)
        Probability of each response: a Markov chain for each prompt.
    rewards : ndarray, shape (P, M)
        Reward of each response, of another scale for each prompt.
    """

    prompts: list[Tokens]
    responses: Tokens
    base: NDArray[np.float64]
    rewards: NDArray[np.float64]

    @property
    def alphabet(self) -> int:
        """Number of tokens."""
        return int(self.responses.max()) + 1

    @property
    def length(self) -> int:
        """Length of a response."""
        return self.responses.shape[1]

    def reward(self, prompts: Sequence[Tokens], responses: Sequence[Tokens]) -> NDArray[np.float64]:
        """Look up the rewards (B,) of responses to prompts; raise ValueError for other texts."""
        prompts = as_token_texts("prompts", prompts, len(self.prompts))
        responses = as_token_texts("responses", responses, self.alphabet)
        lengths = {len(prompt) for prompt in prompts}, {len(response) for response in responses}
        if lengths != ({1}, {self.length}):
            raise ValueError(
                f"prompts and responses must have 1 and {self.length} tokens, "
                f"got {sorted(lengths[0])} and {sorted(lengths[1])}"
            )
        if len(prompts) != len(responses):
            raise ValueError(f"responses must be one a prompt, got {len(responses)}")
        places = self.alphabet ** np.arange(self.length)[::-1]
        return self.rewards[np.stack(prompts)[:, 0], np.stack(responses) @ places]


def markov_world(
    seed: int,
    scales: Sequence[float] = SCALES,
    alphabet: int = 4,
    length: int = 5,
    concentration: float = 0.7,
    noise: float = 0.5,
) -> MarkovWorld:
    """Draw a world.

    The rows of the chains come from a Dirichlet distribution. A reward is a sum of normal scores,
    one for each token at each place, with normal noise; it is standardised over the responses and
    multiplied by the prompt's scale.

    Parameters
    ----------
    seed : int
        At least 0.
    scales : sequence of float
        One a prompt, above 0; at most ``alphabet``.
    alphabet, length : int
        Number of tokens and length of the responses; by default 4 and 5, so 1024 responses.
    concentration : float, default 0.7
        Of the Dirichlet distribution, above 0.
    noise : float, default 0.5
        Standard deviation of the noise in that of a score, above 0.

    Returns
    -------
    MarkovWorld

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    rng = np.random.default_rng(check_integer("seed", seed, low=0))
    alphabet, length = check_integer("alphabet", alphabet, low=2), check_integer("length", length)
    factors = _as_scales(scales, most=alphabet)
    responses = enumerate_responses(alphabet, length)
    prior = np.full(alphabet, check_positive("concentration", concentration))
    noise = check_positive("noise", noise)
    base = np.stack([_chain(responses, prior, rng) for _ in factors])
    scores = rng.normal(size=(len(factors), length, alphabet))
    rewards = scores[:, np.arange(length), responses].sum(-1)
    rewards += noise * rng.normal(size=rewards.shape)
    rewards = (rewards - rewards.mean(1, keepdims=True)) / rewards.std(1, keepdims=True)
    prompts = [np.array([token]) for token in range(len(factors))]
    return MarkovWorld(prompts, responses, base, factors[:, None] * rewards)


def _chain(responses: Tokens, prior: NDArray, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the probabilities of all responses under a new Markov chain."""
    start, following = rng.dirichlet(prior), rng.dirichlet(prior, size=len(prior))
    probs = start[responses[:, 0]]
    for before, after in itertools.pairwise(responses.T):
        probs = probs * following[before, after]
    return probs / probs.sum()


def train_base(
    world: MarkovWorld,
    seed: int,
    steps: int = 300,
    lr: float = 5e-3,
    device: torch.device | str = "cpu",
    progress: bool = False,
) -> PreTrainedModel:
    """Train a small GPT-2 to answer like the world's base policy, on the exact cross-entropy.

    Parameters
    ----------
    world : MarkovWorld
        The world.
    seed : int
        Of the initial weights, at least 0.
    steps : int, default 300
        Of AdamW.
    lr : float, default 5e-3
        Learning rate at the start, above 0; it falls to 0 along a cosine.
    device : torch.device or str, default "cpu"
        Where to train.
    progress : bool, default False
        Show a progress bar.

    Returns
    -------
    transformers.PreTrainedModel
        With the world's tokens, two layers, two heads and width 32.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_type("world", world, MarkovWorld)
    steps, lr = check_integer("steps", steps), check_positive("lr", lr)
    config = small_config("gpt2", world.alphabet, max_length=1 + world.length)
    model = new_transformer(config, seed).to(device)
    target = torch.from_numpy(world.base).float().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in trange(steps, desc="base model", disable=None if progress else True):
        log_probs = enumerate_log_probs(model, world.prompts, world.length)
        optimizer.zero_grad()
        (-(target * log_probs).sum(-1).mean()).backward()
        optimizer.step()
        schedule.step()
    return model


@dataclass(frozen=True, eq=False)
class Study:
    """A world, the model that is to be aligned in it, and the offline part of CTRL.

    Attributes
    ----------
    world : MarkovWorld
        Prompts and rewards.
    model : transformers.PreTrainedModel
        The base policy.
    base : ndarray, shape (P, M)
        What the model answers, exactly.
    calibrator : RewardCalibrator
        Fitted to K answers of the model to each prompt.
    """

    world: MarkovWorld
    model: PreTrainedModel
    base: NDArray[np.float64]
    calibrator: RewardCalibrator


def study(seed: int, device: str = "cpu", num_samples: int = 100) -> Study:
    """Draw a world, train its base model, and calibrate; kept for the next call.

    Parameters
    ----------
    seed : int
        Of world, weights and calibration, at least 0.
    device : str, default "cpu"
        Where to train.
    num_samples : int, default 100
        Base answers to each prompt for the calibration, K.

    Returns
    -------
    Study

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    seed, num_samples = check_integer("seed", seed, 0), check_integer("num_samples", num_samples)
    return _study(seed, str(torch.device(device)), num_samples)


@lru_cache(maxsize=8)
def _study(seed: int, device: str, num_samples: int) -> Study:
    world, model, base = _based(seed, device)
    options = {"num_tokens": world.length, "seed": seed}
    calibrator = calibrate(model, world.prompts, world.reward, num_samples, **options)
    return Study(world, model, base, calibrator)


@lru_cache(maxsize=4)
def _based(seed: int, device: str) -> tuple[MarkovWorld, PreTrainedModel, NDArray[np.float64]]:
    world = markov_world(seed)
    model = train_base(world, seed, device=device)
    return world, model, response_distribution(model, world.prompts, world.length)


def beta_for(
    transform: Transform | Uncalibrated, kl: float, base: ArrayLike, rewards: ArrayLike
) -> float:
    """Find the beta at which training ought to end at a given divergence.

    For a transform that is a matter of numbers alone: the continuum's. For the baselines it depends
    on the rewards.

    Parameters
    ----------
    transform : Transform or {"raw", "z-scored"}
        As for `train_ctrl`.
    kl : float
        Mean divergence over prompts in nats.
    base, rewards : array_like, shape (P, M)
        Base policy over the responses to each prompt, and their rewards. The rewards of K samples
        stand for all with weights 1/K, if K is large beside exp(kl) for every prompt.

    Returns
    -------
    float
        beta > 0.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or no beta reaches ``kl``.
    """
    if not isinstance(transform, Transform):
        check_choice("transform", transform, get_args(Uncalibrated))
    rewards = as_rewards("rewards", rewards)
    base = as_probabilities("base", base, rewards.shape)
    if isinstance(transform, Transform):
        return continuum_beta_for_kl(transform, kl)
    return beta_for_kl(base, _target(transform, base, rewards), kl)


def _target(
    transform: Transform | Uncalibrated, base: NDArray, rewards: NDArray
) -> NDArray[np.float64]:
    """Return what a method trains on where all responses and their probabilities are known."""
    if transform == "raw":
        return rewards
    if transform == "z-scored":
        return standardized_reward(rewards, base)
    return transform(calibrated_reward(rewards, base))


@dataclass(frozen=True, eq=False)
class Aligned:
    """What a policy is worth, exactly, for each prompt.

    Attributes
    ----------
    kl : ndarray, shape (P,)
        Divergence from the base in nats.
    sampling, best, worst : ndarray, shape (P,)
        Win rates against the base: of one answer, of the best of 4, of the worst of 4.
    """

    kl: NDArray[np.float64]
    sampling: NDArray[np.float64]
    best: NDArray[np.float64]
    worst: NDArray[np.float64]

    @classmethod
    def of(cls, policy: NDArray, base: NDArray, rewards: NDArray) -> "Aligned":
        """Measure a policy (P, M)."""
        procedures = Sampling(), BestOfN(DRAWS), WorstOfN(DRAWS)
        rates = [inference_win_rate(policy, base, rewards, one) for one in procedures]
        return cls(kl_divergence(policy, base), *rates)


def align(
    study: Study,
    method: str,
    kl: float = 0.5,
    algorithm: Way = "rloo",
    *,
    steps: int = 300,
    seed: int = 0,
    progress: bool = False,
) -> Aligned:
    """Align a study's model with one method, and measure it.

    Parameters
    ----------
    study : Study
        World and base model.
    method : str
        One of `METHODS`, by reinforcement learning; ``"dpo"``, ``"ipo"`` or ``"distilled"`` (best
        of 3), on the base's own answers; or, in closed form only, ``"optimal, best"`` and
        ``"optimal, worst"``: the coupled optimum, and the controls ``"base"``, which is not aligned
        at all, and ``"best of base"``: the best of 4 of its answers, given as one.
    kl : float, default 0.5
        Divergence in nats that training aims at by its `beta_for`. Two do not aim: DPO has beta 4
        and ends where its steps end, and distillation ought to reach ``log 3 - 2/3 = 0.43``.
    algorithm : {"rloo", "ppo", "exact", "offline", "closed form"}
        The first three as for `train_ctrl`; ``"offline"`` for DPO, IPO and distillation. In closed
        form no network is trained: the policy is the exact solution, at a mean divergence of
        exactly ``kl`` but for distillation (0.43), the coupled optimum (that of the continuum's
        beta) and the controls (0, and ``log 4 - 3/4 = 0.64``). DPO has none.
    steps : int, default 300
        Of training.
    seed : int, default 0
        Of the answers in training, at least 0.
    progress : bool, default False
        Show a progress bar.

    Returns
    -------
    Aligned

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_type("study", study, Study)
    check_choice("algorithm", algorithm, get_args(Way))
    kl, steps = check_positive("kl", kl), check_integer("steps", steps)
    seed = check_integer("seed", seed, low=0)
    if algorithm == "closed form":
        policy = _closed_form(study, method, kl)
    else:
        check_choice("method", method, tuple(OFFLINE if algorithm == "offline" else METHODS))
        world, model = study.world, deepcopy(study.model)
        task = model, study.model, world.prompts, world.reward
        options = {"num_tokens": world.length, "steps": steps, "seed": seed, "progress": progress}
        if algorithm == "offline":
            strengths = {"dpo": DPO_BETA, "distilled": DISTILLED}
            strength = strengths.get(method) or continuum_beta_for_kl(Identity(), kl)
            train_offline(*task, OFFLINE[method], strength, **options)
        else:
            beta = beta_for(METHODS[method], kl, study.base, world.rewards)
            rule = METHODS[method], beta
            train_ctrl(*task, *rule, study.calibrator, algorithm=algorithm, **options)
        policy = response_distribution(model, world.prompts, world.length)
    return Aligned.of(policy, study.base, study.world.rewards)


def _closed_form(study: Study, method: str, kl: float) -> NDArray[np.float64]:
    """Return the policy (P, M) that a method has its optimum at."""
    base, rewards = study.base, study.world.rewards
    imitated = {"distilled": DISTILLED, "best of base": DRAWS}
    known = (*METHODS, "ipo", "base", *imitated, *OPTIMA)
    check_choice("method", method, known)
    if method in OPTIMA:
        procedure = procedure_of(DRAWS, OPTIMA[method])
        beta = optimal_beta_for_kl(DRAWS, kl, OPTIMA[method])
        rows = zip(base, rewards, strict=True)
        return np.stack([solve_infalign(*row, procedure, beta).policy for row in rows])
    if method == "base":
        return base
    if method in imitated:
        return distilled_policy(base, rewards, imitated[method])
    transform = METHODS["identity" if method == "ipo" else method]
    return _tilted(base, _target(transform, base, rewards), kl)


# What it costs


def cost_ratios(seed: int, repeats: int = 3) -> dict[str, float]:
    """Time fast ways beside plain ones; the fastest run of each counts.

    Parameters
    ----------
    seed : int
        Of the numbers, at least 0.
    repeats : int, default 3
        Number of runs, at least 1; the two members of a pair take turns.

    Returns
    -------
    dict
        Ratios of seconds, plain over fast. ``prefixes``: gradient of the log-probabilities of all
        1024 responses to 4 prompts, each read by itself, over the same with shared prefixes;
        ``formula``: best of 5 of 12 responses by all tuples, over the exact formula; ``lookup``:
        100,000 rewards compared with each of 1000 base rewards, over `RewardCalibrator`.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    repeats = check_integer("repeats", repeats)
    rng = np.random.default_rng(check_integer("seed", seed, low=0))
    world = markov_world(seed)
    model = new_transformer(small_config("gpt2", world.alphabet, max_length=6), seed)
    probs, rewards = rng.dirichlet(np.ones(12)), rng.normal(size=12).round(1)
    base_rewards, asked = rng.normal(size=(4, 1000)), rng.normal(size=100_000)
    index = rng.integers(4, size=len(asked))
    calibrator = RewardCalibrator().fit(base_rewards)
    pairs = {
        "prefixes": (lambda: _gradient_one_by_one(model, world), lambda: _gradient(model, world)),
        "formula": (
            lambda: _best_by_tuples(probs, rewards, 5),
            lambda: BestOfN(5).distribution(probs, rewards),
        ),
        "lookup": (
            lambda: _compared(base_rewards, index, asked),
            lambda: calibrator.transform(index, asked),
        ),
    }
    return {name: _ratio(*pair, repeats) for name, pair in pairs.items()}


def _gradient(model: PreTrainedModel, world: MarkovWorld) -> None:
    model.zero_grad()
    enumerate_log_probs(model, world.prompts, world.length).sum().backward()


def _gradient_one_by_one(model: PreTrainedModel, world: MarkovWorld) -> None:
    """Read every response from its first token to its last, those of a prompt in one batch."""
    model.zero_grad()
    responses = torch.from_numpy(world.responses)
    for prompt in world.prompts:
        start = torch.from_numpy(prompt).expand(len(responses), -1)
        token_log_probs(model, torch.cat([start, responses], 1)).sum().backward()


def _best_by_tuples(probs: NDArray, rewards: NDArray, n: int) -> NDArray[np.float64]:
    """Best-of-N distribution from all M^N tuples of draws; ties are shared."""
    kept = np.zeros(len(probs))
    for draws in itertools.product(range(len(probs)), repeat=n):
        mass = np.prod([probs[draw] for draw in draws])
        best = max(rewards[draw] for draw in draws)
        ties = [draw for draw in draws if rewards[draw] == best]
        for draw in ties:
            kept[draw] += mass / len(ties)
    return kept


def _compared(base_rewards: NDArray, index: NDArray, asked: NDArray) -> NDArray[np.float64]:
    """Calibrated rewards by comparing each with all base rewards of its prompt."""
    quantile = np.empty(len(asked))
    for prompt, base in enumerate(base_rewards):
        rows = index == prompt
        below = base < asked[rows, None]
        ties = base == asked[rows, None]
        quantile[rows] = below.mean(1) + ties.mean(1) / 2
    return quantile


def _ratio(slow: Callable, fast: Callable, repeats: int) -> float:
    fast()  # the first time is never typical
    seconds = [[_seconds(one) for one in (slow, fast)] for _ in range(repeats)]
    slowest, fastest = np.min(seconds, axis=0)
    return float(slowest / fastest)


def _seconds(run: Callable) -> float:
    """Seconds of a run, the mean over as many runs as take a fifth of a second."""
    number, seconds = timeit.Timer(run).autorange()
    return seconds / number
