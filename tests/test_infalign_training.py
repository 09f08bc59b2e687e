"""CTRL training, its losses, Monte-Carlo win rates and experiments, against enumeration and trl."""

import gzip
import importlib.util
import itertools
import json
import math
import shutil
import sys
from copy import deepcopy
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.special import log_expit, logsumexp
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

from workingpapers import infalign, lab, project
from workingpapers.contexts import seeded
from workingpapers.infalign import (
    BestOfN,
    Exponential,
    FirstOrder,
    Identity,
    Log,
    RewardCalibrator,
    Sampling,
    WorstOfN,
    calibrate,
    calibrated_reward,
    classifier_reward,
    ctrl,
    dpo_loss,
    enumerate_log_probs,
    enumerate_responses,
    estimate_win_rate,
    exact_loss,
    experiments,
    full_scale,
    inference_win_rate,
    ipo_loss,
    kl_divergence,
    leave_one_out,
    ppo_loss,
    response_distribution,
    rlhf_policy,
    rloo_loss,
    sample_responses,
    sequence_log_probs,
    shaped_reward,
    train_ctrl,
    train_offline,
)
from workingpapers.infalign.rollouts import score, stream
from workingpapers.language import new_transformer, response_log_probs, small_config

torch.set_num_threads(1)

NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
PROMPTS = [np.array([0]), np.array([1, 2, 0]), np.array([2, 1])]  # of different lengths
VOCAB, LENGTH = 3, 3
REWARDS = np.random.default_rng(7).normal(size=(len(PROMPTS), VOCAB**LENGTH))
PLACES = VOCAB ** np.arange(LENGTH)[::-1]


def reward(prompts, responses):
    """Look a reward up; the first token tells the prompts apart."""
    return REWARDS[[prompt[0] for prompt in prompts], np.stack(responses) @ PLACES]


REWARDS_IN_ORDER = REWARDS[[prompt[0] for prompt in PROMPTS]]


@cache
def base_model():
    """A random base policy with a distribution that is far from flat."""
    model = new_transformer(small_config("gpt2", VOCAB, 1, 2, 16, max_length=12), seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(8)
    return model


@cache
def other_model():
    """A policy away from the base."""
    model = deepcopy(base_model())
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


@cache
def calibrator():
    return calibrate(base_model(), PROMPTS, reward, 50, num_tokens=LENGTH, seed=0)


def train(transform=None, beta=0.5, **options):
    """Train a copy of the base policy; return it and the run."""
    policy = deepcopy(options.pop("policy", base_model()))
    defaults = {"num_tokens": LENGTH, "rollouts_per_prompt": 8, "steps": 3, "seed": 0}
    arguments = {"reference": base_model(), "prompts": PROMPTS, "reward_fn": reward}
    arguments |= {"calibrator": calibrator(), **defaults, **options}
    run = train_ctrl(
        policy, transform=Identity() if transform is None else transform, beta=beta, **arguments
    )
    return policy, run


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def same_runs(a, b, **tolerance):
    return all(np.allclose(getattr(a, name), getattr(b, name), **tolerance) for name in vars(a))


def floats(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


# Losses


def test_dpo_and_ipo_are_their_closed_forms():
    rng = np.random.default_rng(0)
    policy_chosen, policy_rejected, chosen, rejected = rng.normal(-5, 2, size=(4, 6))
    h = (policy_chosen - chosen) - (policy_rejected - rejected)
    given = [torch.from_numpy(x) for x in (policy_chosen, policy_rejected, chosen, rejected)]
    assert float(dpo_loss(*given, 0.3)) == pytest.approx(-log_expit(0.3 * h).mean(), rel=1e-12)
    assert float(ipo_loss(*given, 0.3)) == pytest.approx(np.mean((h - 1 / 0.6) ** 2), rel=1e-12)


def test_pair_losses_ignore_what_policy_and_reference_share():
    given = [floats(-1, -2), floats(-2, -2), floats(-1.5, -3), floats(-1, -4)]
    shifted = [x + c for x, c in zip(given, (3, -1, 3, -1), strict=True)]
    for loss in (dpo_loss, ipo_loss):
        assert float(loss(*given, 0.4)) == pytest.approx(float(loss(*shifted, 0.4)), rel=1e-12)


def test_ipo_on_all_pairs_of_a_flat_base_is_least_at_identity_ctrl():
    rewards, beta = np.array([3.0, -1.0, 0.2, 5.0, 0.1]), 0.7
    scores = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    pairs = [(i, j) for i, j in itertools.permutations(range(5), 2) if rewards[i] > rewards[j]]
    chosen, rejected = map(list, zip(*pairs, strict=True))
    zeros = torch.zeros(len(pairs), dtype=torch.float64)
    optimizer = torch.optim.LBFGS([scores], max_iter=200, tolerance_grad=1e-13)

    def loss():
        optimizer.zero_grad()
        value = ipo_loss(scores[chosen], scores[rejected], zeros, zeros, beta)
        value.backward()
        return value

    optimizer.step(loss)
    base = np.full(5, 0.2)
    expected = rlhf_policy(base, calibrated_reward(rewards, base), beta)
    np.testing.assert_allclose(scores.detach().softmax(-1).numpy(), expected, atol=1e-8)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_best_of_n_weights_are_those_of_all_subsets(n):
    rewards = np.array([[1, 2, 2, 0, 2, 5], [0, 0, 0, 1, 1, 3], [4, 4, 4, 4, 4, 4]])
    expected = np.zeros(rewards.shape)
    subsets = list(itertools.combinations(range(6), n))
    for row, weights in zip(rewards, expected, strict=True):
        for subset in subsets:
            best = [i for i in subset if row[i] == max(row[list(subset)])]
            weights[best] += 1 / len(best) / len(subsets)
    np.testing.assert_allclose(infalign.best_of_n_weights(rewards, n), expected, atol=1e-12)


@settings(max_examples=50, deadline=None)
@given(arrays(float, st.integers(1, 300), elements=st.integers(-5, 5).map(float)), st.data())
def test_best_of_n_weights_sum_to_one_and_rise_with_the_reward(rewards, data):
    n = data.draw(st.integers(1, len(rewards)))
    weights = infalign.best_of_n_weights(rewards, n)
    assert weights.sum() == pytest.approx(1, abs=1e-9)
    assert (weights >= 0).all()
    order = np.argsort(rewards, kind="stable")
    by_value = {r: weights[rewards == r].sum() / (rewards == r).mean() for r in set(rewards)}
    values = [by_value[r] for r in dict.fromkeys(rewards[order])]
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(values))


@pytest.mark.parametrize(("samples", "n"), [(5000, 3), (5000, 2500), (3000, 2999), (4000, 1)])
def test_best_of_n_weights_of_many_samples_are_exact(samples, n):
    rewards = np.arange(samples) // 2  # pairs of ties
    weights = infalign.best_of_n_weights(rewards, n)
    whole = math.comb(samples, n)
    for k in (samples, samples - 2, samples - 100, n + n % 2, 2):
        share = Fraction(math.comb(k, n) - math.comb(k - 2, n), 2 * whole)
        assert weights[k - 1] == weights[k - 2] == pytest.approx(float(share), rel=1e-9, abs=1e-300)
    assert weights.sum() == pytest.approx(1, abs=1e-12)


def test_losses_stay_finite_where_floats_end():
    ratio = torch.tensor([100.0], requires_grad=True)
    loss = ppo_loss(ratio, torch.tensor([0.0]), torch.tensor([0.0]))
    assert float(loss.detach()) == 0
    for advantage in (1.0, -1.0):
        loss = ppo_loss(ratio, torch.tensor([0.0]), torch.tensor([advantage]))
        assert torch.autograd.grad(loss, ratio)[0].isfinite().all()
    half = leave_one_out(torch.tensor([6e4, 6e4, 0.0], dtype=torch.float16))
    np.testing.assert_allclose(half.numpy(), np.array([3, 3, -6]) * half[0].item() / 3, rtol=1e-12)
    wide = leave_one_out(torch.tensor([3e38, -3e38]))
    np.testing.assert_allclose(wide.numpy(), [6e38, -6e38], rtol=1e-6)
    half = torch.full((3,), 6e4, dtype=torch.float16)
    assert float(rloo_loss(half, half)) == pytest.approx(-3.6e9, rel=1e-2)


def test_messages_do_not_print_whole_tensors():
    long = torch.zeros(5000, dtype=torch.float64)
    long[1234] = math.nan
    with pytest.raises(ValueError, match=r"returns must be finite, got nan at \(1234,\)") as error:
        leave_one_out(long)
    assert len(str(error.value)) < 100


def test_best_of_n_sft_loss_is_the_mean_over_the_winners():
    log_probs = floats([-1, -2, -3], [-4, -5, -6])
    rewards = [[0, 1, 5], [2, 2, 1]]
    assert float(infalign.best_of_n_sft_loss(log_probs, rewards, 3)) == pytest.approx(
        (3 + 4.5) / 2, rel=1e-12
    )
    assert float(infalign.best_of_n_sft_loss(log_probs, rewards, 1)) == pytest.approx(
        3.5, rel=1e-12
    )


def test_leave_one_out_compares_with_the_others():
    returns = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 5)))
    expected = [[row[i] - np.delete(row, i).mean() for i in range(5)] for row in returns.numpy()]
    np.testing.assert_allclose(leave_one_out(returns).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_rloo_gradient_is_unbiased(n):
    """The mean over all M^n outcomes of a step is the exact gradient."""
    rng = np.random.default_rng(3)
    logits = torch.from_numpy(rng.normal(size=3)).requires_grad_()
    base = torch.from_numpy(rng.normal(size=3)).log_softmax(-1)
    rewards, beta = torch.from_numpy(rng.normal(size=3)), 0.4
    exact = torch.autograd.grad(exact_loss(logits.log_softmax(-1), base, rewards, beta), logits)[0]
    mean = torch.zeros(3, dtype=torch.float64)
    for draws in itertools.product(range(3), repeat=n):
        log_probs = logits.log_softmax(-1)[list(draws)]
        returns = rewards[list(draws)] / beta - (log_probs - base[list(draws)]).detach()
        loss = rloo_loss(log_probs, leave_one_out(returns))
        chance = log_probs.detach().sum().exp()
        mean += chance * torch.autograd.grad(loss, logits)[0]
    np.testing.assert_allclose(mean.numpy(), exact.numpy(), atol=1e-12)


def test_ppo_gradient_is_that_of_rloo_where_nothing_has_moved():
    log_probs = floats(-1, -2, -0.5).requires_grad_()
    advantages = floats(0.3, -2, 1.7)
    one = torch.autograd.grad(rloo_loss(log_probs, advantages), log_probs)[0]
    other = torch.autograd.grad(ppo_loss(log_probs, log_probs.detach(), advantages), log_probs)[0]
    np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12)


def test_ppo_stops_where_the_clip_binds():
    old = floats(-1, -1, -1, -1)
    log_probs = (old + floats(0.5, 0.5, -0.5, -0.5)).requires_grad_()
    advantages = floats(1, -1, 1, -1)
    gradient = torch.autograd.grad(ppo_loss(log_probs, old, advantages, 0.2), log_probs)[0]
    # It binds where a good answer has become likelier, or a bad one less likely, by more than 0.2.
    assert (gradient != 0).tolist() == [False, True, True, False]


def test_exact_loss_is_least_at_the_gibbs_policy():
    rng = np.random.default_rng(0)
    base, rewards, beta = rng.dirichlet(np.ones(6)), rng.normal(size=6), 0.3
    gibbs = rlhf_policy(base, rewards, beta)
    log_probs = torch.from_numpy(np.log(gibbs)).requires_grad_()
    tables = torch.from_numpy(np.log(base)), torch.from_numpy(rewards)
    loss = exact_loss(log_probs, *tables, beta).detach()
    assert float(loss) == pytest.approx(-logsumexp(rewards / beta, b=base), rel=1e-12)
    for seed in range(5):
        pi = np.random.default_rng(seed).dirichlet(np.ones(6))
        value = float(exact_loss(torch.from_numpy(np.log(pi)), *tables, beta))
        assert value - float(loss) == pytest.approx(kl_divergence(pi, gibbs), abs=1e-10)


@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="trl is not installed")
@pytest.mark.filterwarnings("ignore")  # of a library that is not ours
@pytest.mark.parametrize(("kind", "loss"), [("sigmoid", dpo_loss), ("ipo", ipo_loss)])
def test_pair_losses_agree_with_trl(tmp_path, kind, loss):
    trainer, batch = _trainer_and_batch(tmp_path, kind, beta=0.3)
    with torch.no_grad():
        expected = float(trainer.compute_loss(trainer.model, dict(batch)))
    prompts, responses = [], []
    rows = zip(batch["input_ids"], batch["attention_mask"], batch["completion_mask"], strict=True)
    for ids, mask, answered in rows:
        prompts.append(ids[(mask == 1) & (answered == 0)].numpy())
        responses.append(ids[answered == 1].numpy())
    assert len({len(response) for response in responses}) > 1
    tables = [sequence_log_probs(m, prompts, responses) for m in (other_model(), base_model())]
    if kind == "ipo":  # trl's is per token
        tables = [x / torch.tensor([len(response) for response in responses]) for x in tables]
    (policy, rejected), (base, base_rejected) = (table.chunk(2) for table in tables)
    assert float(loss(policy, rejected, base, base_rejected, 0.3)) == pytest.approx(
        expected, abs=1e-5
    )


def _trainer_and_batch(folder, kind, beta):
    """Let trl prepare three pairs of responses of different lengths."""
    from datasets import IterableDataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from trl import DPOConfig, DPOTrainer

    words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="c"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="c", pad_token="c")
    pairs = [("a b", " b a", " a"), ("b", " a a a", " b b"), ("a a", " b", " a b a")]
    data = [dict(zip(("prompt", "chosen", "rejected"), pair, strict=True)) for pair in pairs]
    config = DPOConfig(
        output_dir=str(folder), beta=beta, loss_type=[kind], report_to=[], use_cpu=True,
        bf16=False, gradient_checkpointing=False, per_device_train_batch_size=3,
        dataloader_pin_memory=False, disable_tqdm=True, max_steps=1,
    )  # fmt: skip
    trainer = DPOTrainer(
        model=deepcopy(other_model()),
        ref_model=deepcopy(base_model()),
        args=config,
        train_dataset=IterableDataset.from_generator(lambda: iter(data)),
        processing_class=tokenizer,
    )
    return trainer, next(iter(trainer.get_train_dataloader()))


# Responses: samples, enumeration, rewards


def test_enumeration_agrees_with_reading_every_response_by_itself():
    responses = enumerate_responses(VOCAB, LENGTH)
    table = enumerate_log_probs(other_model(), PROMPTS, LENGTH).detach()
    for prompt, row in zip(PROMPTS, table, strict=True):
        alone = response_log_probs(other_model(), [prompt] * len(responses), responses)
        np.testing.assert_allclose(row.numpy(), alone.detach().numpy(), atol=2e-5)
    probs = response_distribution(other_model(), PROMPTS, LENGTH)
    np.testing.assert_allclose(np.log(probs), table.numpy(), atol=2e-5)
    np.testing.assert_allclose(probs.sum(1), 1, atol=1e-12)


def test_enumerated_responses_are_in_alphabetical_order():
    assert enumerate_responses(3, 2).tolist() == sorted(itertools.product(range(3), repeat=2)) or (
        enumerate_responses(3, 2).tolist()
        == [list(pair) for pair in itertools.product(range(3), repeat=2)]
    )
    assert enumerate_responses(4, 0).shape == (1, 0)
    assert enumerate_responses(1, 65).tolist() == [[0] * 65]
    assert enumerate_responses(10**8, 0).shape == (1, 0)


def test_a_policy_in_double_precision_is_enumerated_in_it():
    model = deepcopy(other_model()).double()
    table = enumerate_log_probs(model, PROMPTS, LENGTH)
    assert table.dtype == torch.float64
    sums = table.detach().exp().sum(1).numpy()
    np.testing.assert_allclose(sums, 1, atol=1e-13)


def test_samples_follow_the_enumerated_distribution():
    asked = [prompt for prompt in PROMPTS for _ in range(3000)]
    drawn = sample_responses(base_model(), asked, LENGTH, np.random.default_rng(0))
    index = (np.stack(drawn) @ PLACES).reshape(len(PROMPTS), -1)
    probs = response_distribution(base_model(), PROMPTS, LENGTH)
    for row, expected in zip(index, probs, strict=True):
        counts = np.bincount(row, minlength=VOCAB**LENGTH)
        often = expected * len(row) >= 5
        merged = [np.append(x[often], x[~often].sum()) for x in (counts, expected * len(row))]
        seen = merged[1] > 0
        assert stats.chisquare(merged[0][seen], merged[1][seen]).pvalue > 1e-6


def test_samples_do_not_depend_on_the_batch_size():
    drawn = [
        sample_responses(base_model(), PROMPTS * 5, 4, np.random.default_rng(0), batch_size=size)
        for size in (1, 4, 256)
    ]
    for other in drawn[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(drawn[0], other, strict=True))


def test_stopped_responses_end_with_the_stop_token_and_their_chances_sum_to_one():
    drawn = sample_responses(base_model(), PROMPTS * 100, 4, np.random.default_rng(0), stop=1)
    for response in drawn:
        assert 1 not in response[:-1]
        assert len(response) == 4 or response[-1] == 1
    assert len({len(response) for response in drawn}) > 1
    ended = [
        np.array(response)
        for length in (1, 2, 3)
        for response in itertools.product(range(VOCAB), repeat=length)
        if 1 not in response[:-1] and (length == 3 or response[-1] == 1)
    ]
    log_probs = sequence_log_probs(base_model(), [PROMPTS[1]] * len(ended), ended, batch_size=5)
    assert float(log_probs.exp().sum()) == pytest.approx(1, abs=1e-5)


def classifier(vocab, seed=0):
    config = small_config("llama", vocab, 1, 2, 8, max_length=64)
    config.num_labels, config.pad_token_id = 1, 0
    with seeded(seed):
        return AutoModelForSequenceClassification.from_config(config).eval()


def test_a_classifier_judges_tokens_and_text_alike():
    prompts, responses = [np.array([1, 2]), np.array([2])], [np.array([2, 2, 1]), np.array([1])]
    model = classifier(5)
    by_tokens = classifier_reward(model, batch_size=1)(prompts, responses)
    wholes = [np.concatenate(pair) for pair in zip(prompts, responses, strict=True)]
    with torch.no_grad():
        alone = [float(model(input_ids=torch.from_numpy(x)[None]).logits[0, 0]) for x in wholes]
    np.testing.assert_allclose(by_tokens, alone, atol=1e-6)
    by_text = classifier_reward(
        model,
        decode=lambda ids: "".join("xab"[i] for i in ids),
        encode=lambda t: ["xab".index(c) for c in t],
    )(prompts, responses)
    np.testing.assert_allclose(by_text, by_tokens, atol=1e-6)


def test_calibration_holds_the_rewards_of_base_samples():
    found = calibrator()
    assert found.base_rewards.shape == (len(PROMPTS), 50)
    for row, rewards in zip(found.base_rewards, REWARDS_IN_ORDER, strict=True):
        assert set(row) <= set(rewards)
    again = calibrate(base_model(), PROMPTS, reward, 50, num_tokens=LENGTH, seed=0, batch_size=7)
    np.testing.assert_array_equal(found.base_rewards, again.base_rewards)
    probs = response_distribution(base_model(), PROMPTS, LENGTH)
    exact = calibrated_reward(REWARDS_IN_ORDER, probs)
    index = np.arange(3).repeat(VOCAB**LENGTH)
    estimate = found.transform(index, REWARDS_IN_ORDER.flatten()).reshape(exact.shape)
    assert np.abs(estimate - exact).max() < infalign.dkw_band(50, 1 - 1e-7)


def test_rewards_may_be_tensors():
    for make in (
        lambda p, r: torch.ones(len(r)),
        lambda p, r: torch.ones(len(r), dtype=torch.bfloat16),
        lambda p, r: torch.ones(len(r), requires_grad=True),
        lambda p, r: torch.ones(len(r), dtype=torch.int32),
        lambda p, r: [torch.ones((), requires_grad=True) for _ in r],
        lambda p, r: tuple(torch.ones((), dtype=torch.bfloat16) for _ in r),
        lambda p, r: [1 for _ in r],
    ):
        assert score(make, PROMPTS, PROMPTS).tolist() == [1, 1, 1]


# Training


def test_shaped_rewards():
    known = RewardCalibrator().fit([[0.0, 1.0, 2.0, 3.0], [0.0, 10.0, 20.0, 30.0]])
    index, rewards = [0, 1, 1], [1.5, 15.0, 40.0]
    u, shaped = shaped_reward(Exponential(2), known, index, rewards)
    np.testing.assert_allclose(u, [0.5, 0.5, 1.0])
    np.testing.assert_allclose(shaped, np.exp(2 * u))
    np.testing.assert_allclose(shaped_reward("raw", known, index, rewards)[1], rewards)
    sd = np.std([0, 1, 2, 3])
    np.testing.assert_allclose(
        shaped_reward("z-scored", known, index, rewards)[1], [0, 0, 2.5 / sd], atol=1e-12
    )


@pytest.mark.parametrize("algorithm", ["rloo", "ppo", "exact"])
def test_one_seed_gives_one_run(algorithm):
    first, run = train(algorithm=algorithm)
    again, same = train(algorithm=algorithm)
    assert torch.equal(flat(first), flat(again))
    assert same_runs(run, same, rtol=0, atol=0)
    other, _ = train(algorithm=algorithm, seed=1)
    assert torch.equal(flat(first), flat(other)) == (algorithm == "exact")


@pytest.mark.parametrize("algorithm", ["rloo", "ppo", "exact"])
@pytest.mark.parametrize(
    ("transform", "beta"),
    [(Exponential(103.9), 3e44), (Exponential(-700), 1e-120), (Exponential(700), 1e303),
     (FirstOrder(64, "worst"), 5e-27), (FirstOrder(64, "best"), 6.8)],
)  # fmt: skip
def test_steep_transforms_can_be_trained(transform, beta, algorithm):
    policy, run = train(transform, beta, algorithm=algorithm, steps=4)
    assert all(np.isfinite(values).all() for values in vars(run).values())
    assert flat(policy).isfinite().all()
    assert not torch.equal(flat(policy), flat(base_model()))


@pytest.mark.parametrize("algorithm", ["rloo", "exact"])
def test_training_depends_on_the_ratio_of_reward_and_beta_only(algorithm):
    small, run = train("raw", 0.5, algorithm=algorithm)
    for scale in (2.0**100, 2.0**-100, 2.0**900):
        known = RewardCalibrator().fit(calibrator().base_rewards * scale)
        other, same = train(
            "raw", 0.5 * scale, algorithm=algorithm, calibrator=known,
            reward_fn=lambda p, r, scale=scale: reward(p, r) * scale,
        )  # fmt: skip
        np.testing.assert_allclose(flat(small), flat(other), atol=1e-6)
        np.testing.assert_allclose(run.kl, same.kl, atol=1e-6)


@pytest.mark.parametrize(("objective", "strength"), [("dpo", 2.0), ("ipo", 0.4), ("best_of_n", 3)])
def test_offline_training_does_not_depend_on_the_batch_size(objective, strength):
    results = []
    for size in (256, 5):
        policy = deepcopy(base_model())
        losses = train_offline(
            policy, base_model(), PROMPTS, reward, objective, strength, num_tokens=LENGTH, steps=3,
            samples_per_prompt=8, batch_size=size, seed=0,
        )  # fmt: skip
        results.append((losses, enumerate_log_probs(policy, PROMPTS, LENGTH).detach()))
    (losses, table), (same, other) = results
    np.testing.assert_allclose(losses, same, rtol=1e-3)
    np.testing.assert_allclose(table, other, atol=2e-3)


def test_no_tied_pair_is_read(monkeypatch):
    read = []

    def spy(model, prompts, responses):
        read.extend(map(tuple, responses))
        return response_log_probs(model, prompts, responses)

    monkeypatch.setattr(ctrl, "response_log_probs", spy)
    train_offline(
        deepcopy(base_model()), base_model(), PROMPTS, lambda p, r: [x[0] == 0 for x in r], "dpo",
        1.0, num_tokens=LENGTH, steps=1, samples_per_prompt=16, seed=0,
    )  # fmt: skip
    assert 0 < len(read) < 48
    assert sum(response[0] == 0 for response in read) == len(read) / 2


def test_training_does_not_touch_the_reference_nor_the_modes_nor_the_global_generator():
    before, state = flat(base_model()).clone(), torch.get_rng_state()
    policy = deepcopy(base_model()).train()
    train(policy=policy)
    assert torch.equal(before, flat(base_model()))
    assert torch.equal(state, torch.get_rng_state())
    assert not base_model().training
    assert policy.training


def test_dropout_is_off_in_training():
    config = small_config("gpt2", VOCAB, 1, 2, 16, max_length=12)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.5
    policy = new_transformer(config, 0).train()
    policy.load_state_dict(base_model().state_dict())
    plain, run = train()
    dropped, same = train(policy=policy)
    assert torch.equal(flat(plain), flat(dropped))
    assert same_runs(run, same, rtol=0, atol=0)


@pytest.mark.parametrize("algorithm", ["rloo", "ppo"])
def test_a_run_does_not_depend_on_the_batch_size(algorithm):
    whole, run = train(algorithm=algorithm)
    for size in (5, 12):
        parts, same = train(algorithm=algorithm, batch_size=size)
        # Weights that do not matter, such as biases of keys, may drift apart.
        tables = [enumerate_log_probs(model, PROMPTS, LENGTH).detach() for model in (whole, parts)]
        np.testing.assert_allclose(*tables, atol=1e-3)
        assert same_runs(run, same, atol=1e-3)


def test_the_first_step_of_ppo_is_that_of_rloo():
    one, _ = train(steps=1)
    other, _ = train(steps=1, algorithm="ppo", ppo_epochs=1)
    np.testing.assert_allclose(flat(one), flat(other), atol=1e-6)
    twice, _ = train(steps=1, algorithm="ppo", ppo_epochs=2)
    assert float((flat(one) - flat(twice)).abs().max()) > 1e-4


@pytest.mark.parametrize("algorithm", ["rloo", "exact"])
def test_training_is_invariant_to_increasing_maps_of_the_reward(algorithm):
    first, run = train(Exponential(3), algorithm=algorithm)
    for change in (np.exp, lambda r: r**3, lambda r: 100 * r - 7):

        def changed(prompts, responses, change=change):
            return change(reward(prompts, responses))

        known = calibrate(base_model(), PROMPTS, changed, 50, num_tokens=LENGTH, seed=0)
        other, same = train(
            Exponential(3), algorithm=algorithm, reward_fn=changed, calibrator=known
        )
        assert torch.equal(flat(first), flat(other))
        assert same_runs(run, same, rtol=0, atol=0)
    raw, _ = train("raw", algorithm=algorithm)
    scaled, _ = train("raw", algorithm=algorithm, reward_fn=lambda p, r: 3 * reward(p, r))
    assert not torch.equal(flat(raw), flat(scaled))


def test_a_run_starts_at_the_base_and_notes_what_it_sees():
    _, run = train(Exponential(2), steps=1, rollouts_per_prompt=40)
    asked = [prompt for prompt in PROMPTS for _ in range(40)]
    answers = sample_responses(base_model(), asked, LENGTH, stream(0, "training"))
    u = calibrator().transform(np.arange(3).repeat(40), reward(asked, answers))
    assert run.kl[0] == pytest.approx(0, abs=1e-7)
    assert run.quantile[0] == pytest.approx(u.mean(), abs=1e-12)
    assert run.reward[0] == pytest.approx(np.exp(2 * u).mean(), abs=1e-12)
    assert run.above[0] == pytest.approx((u > 0.9).mean(), abs=1e-12)
    assert run.below[0] == pytest.approx((u < 0.1).mean(), abs=1e-12)


def test_an_exact_run_notes_exact_means():
    _, run = train(policy=other_model(), steps=1, algorithm="exact")
    pi, base = (response_distribution(m, PROMPTS, LENGTH) for m in (other_model(), base_model()))
    index = np.arange(3).repeat(VOCAB**LENGTH)
    u = calibrator().transform(index, REWARDS_IN_ORDER.flatten()).reshape(pi.shape)
    assert run.kl[0] == pytest.approx(kl_divergence(pi, base).mean(), rel=1e-4)
    assert run.quantile[0] == pytest.approx((pi * u).sum(1).mean(), rel=1e-5)
    assert run.above[0] == pytest.approx((pi * (u > 0.9)).sum(1).mean(), rel=1e-4)


def test_sampled_gradients_have_the_exact_gradient_as_their_mean():
    """Along the exact gradient and along a random direction; five standard errors."""
    policy, base, beta = deepcopy(other_model()), base_model(), 2.0
    index = np.arange(3).repeat(VOCAB**LENGTH)
    u = calibrator().transform(index, REWARDS_IN_ORDER.flatten()).reshape(3, -1)
    tables = [enumerate_log_probs(model, PROMPTS, LENGTH) for model in (policy, base)]
    loss = exact_loss(tables[0], tables[1].detach(), torch.from_numpy(u).float(), beta)
    exact = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(policy.parameters()))])
    random = torch.randn(exact.shape, generator=torch.Generator().manual_seed(0))
    directions = torch.stack([exact / exact.norm(), random / random.norm()])
    questions = [prompt for prompt in PROMPTS for _ in range(4)]
    rng, seen = np.random.default_rng(5), []
    for _ in range(250):
        answers = sample_responses(policy, questions, LENGTH, rng)
        log_probs = response_log_probs(policy, questions, answers)
        base_log_probs = sequence_log_probs(base, questions, answers)
        quantile = calibrator().transform(np.arange(3).repeat(4), reward(questions, answers))
        returns = torch.from_numpy(quantile) / beta - (log_probs - base_log_probs).detach()
        advantages = leave_one_out(returns.float().reshape(3, 4)).flatten()
        gradient = torch.autograd.grad(rloo_loss(log_probs, advantages), list(policy.parameters()))
        seen.append((directions @ torch.cat([g.flatten() for g in gradient])).numpy())
    mean, error = np.mean(seen, 0), np.std(seen, 0, ddof=1) / math.sqrt(len(seen))
    assert (np.abs(mean - (directions @ exact).numpy()) < 5 * error).all()
    assert mean[0] > 5 * error[0]  # there is something to be seen


def test_exact_training_reaches_the_gibbs_policy():
    policy, run = train(beta=0.4, algorithm="exact", steps=250, lr=1e-2)
    base = response_distribution(base_model(), PROMPTS, LENGTH)
    index = np.arange(3).repeat(VOCAB**LENGTH)
    u = calibrator().transform(index, REWARDS_IN_ORDER.flatten()).reshape(base.shape)
    gibbs = rlhf_policy(base, u, 0.4)
    reached = response_distribution(policy, PROMPTS, LENGTH)
    assert kl_divergence(base, gibbs).mean() > 0.1
    assert kl_divergence(reached, gibbs).max() < 0.01
    assert run.kl[-1] == pytest.approx(kl_divergence(gibbs, base).mean(), abs=0.02)


@pytest.mark.parametrize("algorithm", ["rloo", "ppo"])
def test_sampled_training_comes_close_to_the_gibbs_policy(algorithm):
    epochs = {"ppo_epochs": 2} if algorithm == "ppo" else {}
    policy, run = train(
        beta=0.4, algorithm=algorithm, steps=80, lr=1e-2, rollouts_per_prompt=48, **epochs
    )
    base = response_distribution(base_model(), PROMPTS, LENGTH)
    gibbs = rlhf_policy(base, calibrated_reward(REWARDS_IN_ORDER, base), 0.4)
    reached = response_distribution(policy, PROMPTS, LENGTH)
    assert kl_divergence(reached, gibbs).mean() < 0.4 * kl_divergence(base, gibbs).mean()
    assert run.quantile[-10:].mean() > run.quantile[:10].mean() + 0.04
    assert run.above[-10:].mean() > run.above[:10].mean()
    assert run.below[-10:].mean() < run.below[:10].mean()


def test_training_with_a_stop_token_a_classifier_and_some_prompts_a_step():
    model = new_transformer(small_config("llama", 6, 1, 2, 16, max_length=16), seed=0)
    judge = classifier_reward(classifier(6))
    options = {"num_tokens": 5, "stop": 0}
    known = calibrate(model, PROMPTS, judge, 32, seed=0, **options)
    policy = deepcopy(model)
    run = train_ctrl(
        policy, model, PROMPTS, judge, Identity(), 0.1, known, seed=0, steps=40, lr=1e-2,
        rollouts_per_prompt=16, prompts_per_step=2, **options,
    )  # fmt: skip
    assert run.quantile.shape == (40,)
    assert run.quantile[-8:].mean() > run.quantile[:8].mean() + 0.1
    found = estimate_win_rate(policy, model, PROMPTS, judge, Sampling(), 60, seed=1, **options)
    assert found.value > 0.5 + 3 * found.sampling_error


def test_only_parameters_that_ask_for_gradients_are_trained():
    policy = deepcopy(base_model())
    policy.transformer.wte.weight.requires_grad_(False)
    trained, _ = train(policy=policy)
    assert torch.equal(trained.transformer.wte.weight, base_model().transformer.wte.weight)
    assert not torch.equal(trained.transformer.wpe.weight, base_model().transformer.wpe.weight)


def test_distillation_comes_close_to_the_best_of_n_distribution():
    policy = deepcopy(base_model())
    losses = train_offline(
        policy, base_model(), PROMPTS, reward, "best_of_n", 3, num_tokens=LENGTH, steps=80,
        lr=1e-2, samples_per_prompt=48, seed=0,
    )  # fmt: skip
    base = response_distribution(base_model(), PROMPTS, LENGTH)
    target = BestOfN(3).distribution(base, REWARDS_IN_ORDER)
    reached = response_distribution(policy, PROMPTS, LENGTH)
    assert kl_divergence(target, reached).mean() < 0.4 * kl_divergence(target, base).mean()
    assert losses.shape == (80,)


@pytest.mark.parametrize(("objective", "strength"), [("dpo", 2.0), ("ipo", 0.4)])
def test_pair_losses_raise_the_win_rate(objective, strength):
    policy = deepcopy(base_model())
    losses = train_offline(
        policy, base_model(), PROMPTS, reward, objective, strength, num_tokens=LENGTH, steps=70,
        lr=1e-2, samples_per_prompt=48, seed=0,
    )  # fmt: skip
    base, reached = (response_distribution(m, PROMPTS, LENGTH) for m in (base_model(), policy))
    assert inference_win_rate(reached, base, REWARDS_IN_ORDER, Sampling()).mean() > 0.6
    assert losses[-10:].mean() < losses[0]
    if objective == "ipo":  # at its optimum, which is that of identity CTRL
        gibbs = rlhf_policy(base, calibrated_reward(REWARDS_IN_ORDER, base), strength)
        assert kl_divergence(reached, gibbs).mean() < 0.4 * kl_divergence(base, gibbs).mean()


@NEEDS_CUDA
def test_training_on_a_gpu():
    policy, run = train(device="cuda", steps=3)
    assert policy.device.type == "cuda"
    assert np.isfinite(run.kl).all()
    base_model().to("cpu")


# Monte Carlo


@pytest.mark.parametrize("procedure", [Sampling(), BestOfN(4), WorstOfN(4)])
def test_monte_carlo_agrees_with_enumeration(procedure):
    """Win rate and divergence, within 5 standard errors."""
    found = estimate_win_rate(
        other_model(), base_model(), PROMPTS, reward, procedure, 400, num_tokens=LENGTH, seed=3
    )
    policy, base = (
        response_distribution(m, PROMPTS, LENGTH) for m in (other_model(), base_model())
    )
    exact = inference_win_rate(policy, base, REWARDS_IN_ORDER, procedure)
    assert (np.abs(found.win_rates - exact) < 5 * found.win_rate_errors).all()
    assert abs(found.value - exact.mean()) < 5 * found.sampling_error
    divergence = kl_divergence(policy, base)
    assert (np.abs(found.kls - divergence) < 5 * found.kl_errors).all()
    assert abs(found.kl - divergence.mean()) < 5 * found.kl_error
    assert found.kl > 5 * found.kl_error  # there is something to be seen


def test_errors_over_prompts_are_those_of_their_means():
    found = estimate_win_rate(
        other_model(), base_model(), PROMPTS, reward, Sampling(), 50, num_tokens=LENGTH, seed=0
    )
    assert found.standard_error == pytest.approx(stats.sem(found.win_rates), rel=1e-12)
    interval = found.interval()
    t = stats.t.ppf(0.975, 2)
    assert interval.high - interval.value == pytest.approx(t * found.standard_error, rel=1e-9)


def test_the_base_against_itself_is_level_and_estimates_do_not_depend_on_the_batch_size():
    options = {"num_tokens": LENGTH, "seed": 0}
    task = base_model(), base_model(), PROMPTS, reward, BestOfN(2), 60
    found = estimate_win_rate(*task, **options)
    assert abs(found.value - 0.5) < 5 * found.sampling_error
    np.testing.assert_allclose(found.kls, 0, atol=1e-6)
    again = estimate_win_rate(*task, batch_size=17, **options)
    np.testing.assert_array_equal(found.win_rates, again.win_rates)


def test_ties_count_half():
    found = estimate_win_rate(
        other_model(), base_model(), PROMPTS, lambda p, r: np.ones(len(r)), BestOfN(2), 5,
        num_tokens=1, seed=0,
    )  # fmt: skip
    np.testing.assert_array_equal(found.win_rates, 0.5)


# Experiments


BRIEF_TABLE = {
    ("best", 4, 0.5): {"identity": 0.7998, "log": 0.7682, "exp5": 0.8566, "exp10": 0.8715,
                       "best_exp": 0.8726, "first_order": 0.8665, "optimal": 0.8732},
    ("worst", 4, 0.5): {"identity": 0.8860, "log": 0.9270, "exp5": 0.9439, "exp10": 0.9476,
                        "best_exp": 0.9476, "first_order": 0.9475, "optimal": 0.9479},
}  # fmt: skip


@pytest.mark.parametrize("case", BRIEF_TABLE)
def test_the_continuum_comparison_gives_the_tabulated_win_rates(case):
    found = infalign.continuum_comparison(*case)
    for name, expected in BRIEF_TABLE[case].items():
        assert found[name] == pytest.approx(expected, abs=5e-4), name
    assert found["virial"] < 1e-5


def test_scales_do_not_matter_once_rewards_are_calibrated():
    one, other = infalign.scale_mismatch(0), infalign.scale_mismatch(0, scales=(1.0,) * 4)
    assert one["calibrated"] == pytest.approx(other["calibrated"], abs=1e-9)
    assert one["z_scored"] == pytest.approx(other["z_scored"], abs=1e-9)
    assert 0.77 < one["calibrated"] < 0.777
    assert 0.65 < one["raw"] < 0.68
    assert 0.75 < other["raw"] < 0.77
    assert one["raw_kl_last"] > 1 > other["raw_kl_last"]


def test_calibration_limits_what_a_bonus_can_buy():
    rows = [infalign.reward_hacking(seed, bonus=20.0) for seed in range(4)]
    mean = {name: np.mean([row[name] for row in rows]) for name in rows[0]}
    assert mean["raw"] == pytest.approx(0.533, abs=0.02)
    assert mean["calibrated"] == pytest.approx(0.715, abs=0.02)
    assert mean["raw_mass"] == pytest.approx(0.378, abs=0.02)
    assert mean["calibrated_mass"] == pytest.approx(0.194, abs=0.02)
    none = infalign.reward_hacking(0, bonus=0.0)
    assert none["raw_mass"] == pytest.approx(0.05, abs=0.02)


def test_a_world_is_a_distribution_with_standardised_rewards():
    world = infalign.markov_world(0)
    assert world.base.shape == world.rewards.shape == (4, 1024)
    np.testing.assert_allclose(world.base.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(world.rewards.std(1), [0.3, 1, 3, 10], rtol=1e-12)
    np.testing.assert_allclose(world.rewards.mean(1), 0, atol=1e-12)
    assert (world.alphabet, world.length) == (4, 5)
    asked = [world.prompts[2], world.prompts[0]]
    answers = [np.array([0, 0, 0, 1, 2]), np.array([3, 3, 3, 3, 3])]
    np.testing.assert_array_equal(
        world.reward(asked, answers), [world.rewards[2, 6], world.rewards[0, 1023]]
    )


def test_a_world_is_a_markov_chain():
    """Given a token, what came before does not matter for what comes next."""
    table = infalign.markov_world(3).base[1].reshape(4, 4, 4, 4, 4)
    pairs = table.sum((0, 3, 4)), table.sum((3, 4))
    given_one = pairs[0] / pairs[0].sum(1, keepdims=True)
    given_two = pairs[1] / pairs[1].sum(2, keepdims=True)
    np.testing.assert_allclose(given_two, np.broadcast_to(given_one, (4, 4, 4)), atol=1e-9)


@cache
def small_study():
    world = infalign.markov_world(0, scales=(0.3, 3.0), alphabet=3, length=3)
    model = infalign.train_base(world, 0, steps=150)
    base = response_distribution(model, world.prompts, world.length)
    known = calibrate(model, world.prompts, world.reward, num_tokens=3, seed=0)
    return infalign.Study(world, model, base, known)


def test_the_base_model_learns_its_world():
    found = small_study()
    assert kl_divergence(found.world.base, found.base).max() < 0.01


@pytest.mark.parametrize(
    ("method", "kl"),
    [*itertools.product(experiments.METHODS, [0.3]), ("ipo", 0.3), ("distilled", None)],
)
def test_closed_forms_have_the_divergence_that_is_asked_for(method, kl):
    found = infalign.align(small_study(), method, kl or 0.5, "closed form")
    if kl is not None:
        assert found.kl.mean() == pytest.approx(kl, abs=1e-6)
    assert (found.sampling > 0.5).all() or method == "raw"


def test_controls_are_the_base_and_the_best_of_its_answers():
    base = infalign.align(small_study(), "base", 0.5, "closed form")
    for rate in (base.sampling, base.best, base.worst):
        assert rate == pytest.approx(0.5)
    assert (base.kl == 0).all()
    best = infalign.align(small_study(), "best of base", 0.5, "closed form")
    start, rewards = small_study().base, small_study().world.rewards
    kept = BestOfN(4).distribution(start, rewards)
    assert best.kl == pytest.approx((kept * np.log(kept / start)).sum(1))
    assert best.sampling == pytest.approx((kept * calibrated_reward(rewards, start)).sum(1))


@pytest.mark.parametrize("kind", ["best", "worst"])
def test_the_coupled_optimum_is_at_least_as_good_as_any_method_at_its_divergence(kind):
    optimum = infalign.align(small_study(), f"optimal, {kind}", 0.4, "closed form")
    index = {"best": "best", "worst": "worst"}[kind]
    for row in range(2):  # each prompt is a problem of its own
        only = infalign.Study(
            infalign.MarkovWorld(
                small_study().world.prompts[:1], small_study().world.responses,
                small_study().world.base[row : row + 1], small_study().world.rewards[row : row + 1],
            ),
            small_study().model, small_study().base[row : row + 1], small_study().calibrator,
        )  # fmt: skip
        for method in experiments.METHODS:
            other = infalign.align(only, method, float(optimum.kl[row]), "closed form")
            assert getattr(optimum, index)[row] >= getattr(other, index)[0] - 1e-6


@pytest.mark.parametrize(
    ("method", "algorithm"),
    [("raw", "rloo"), ("z-scored", "ppo"), ("exp(+10)", "exact"),
     ("dpo", "offline"), ("ipo", "offline"), ("distilled", "offline")],
)  # fmt: skip
def test_every_way_of_aligning_trains(method, algorithm):
    found = infalign.align(small_study(), method, 0.2, algorithm, steps=15)
    assert (found.kl > 0).all()
    assert found.sampling.mean() > 0.5


def test_beta_for_asks_the_rewards_only_where_there_is_no_calibration():
    base, rewards = small_study().base, small_study().world.rewards
    for method in ("raw", "z-scored"):
        beta = infalign.beta_for(method, 0.3, base, rewards)
        target = rewards if method == "raw" else infalign.standardized_reward(rewards, base)
        assert kl_divergence(rlhf_policy(base, target, beta), base).mean() == pytest.approx(0.3)
    assert infalign.beta_for(Log(), 0.3, base, rewards) == infalign.continuum_beta_for_kl(
        Log(), 0.3
    )


def test_a_study_is_made_once(monkeypatch):
    monkeypatch.setattr(experiments, "train_base", lambda *_, **__: base_model_of_four())
    for cached in (experiments._study, experiments._based):
        cached.cache_clear()
    assert infalign.study(0) is infalign.study(0)
    assert infalign.study(0).base.shape == (4, 1024)
    more = infalign.study(0, num_samples=200)
    assert more.model is infalign.study(0).model
    assert more.calibrator.base_rewards.shape == (4, 200)
    for cached in (experiments._study, experiments._based):
        cached.cache_clear()


@cache
def base_model_of_four():
    return new_transformer(small_config("gpt2", 4, 1, 2, 8, max_length=6), 0)


def test_fast_ways_are_faster_and_give_the_same():
    ratios = infalign.cost_ratios(0, repeats=1)
    assert ratios["prefixes"] > 1.2
    assert ratios["formula"] > 1000
    assert ratios["lookup"] > 1
    rng = np.random.default_rng(0)
    probs, rewards = rng.dirichlet(np.ones(5)), np.array([1.0, 0.0, 1.0, 2.0, 0.0])
    np.testing.assert_allclose(
        experiments._best_by_tuples(probs, rewards, 3),
        BestOfN(3).distribution(probs, rewards),
        atol=1e-12,
    )
    base_rewards, asked = rng.integers(5, size=(2, 20)) * 1.0, rng.integers(5, size=50) * 1.0
    index = rng.integers(2, size=50)
    np.testing.assert_allclose(
        experiments._compared(base_rewards, index, asked),
        RewardCalibrator().fit(base_rewards).transform(index, asked),
        atol=1e-12,
    )


# Full scale


def test_a_file_is_locked_at_its_first_use(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n')
    assert full_scale.locked(file) == file == full_scale.locked(file)
    file.write_text('{"prompt": "b"}\n')
    with pytest.raises(ValueError, match="not that of its first use"):
        full_scale.locked(file)
    with pytest.raises(FileNotFoundError):
        full_scale.locked(tmp_path / "none")
    assert not (tmp_path / "none.sha256").exists()


@pytest.mark.parametrize("lock", [b"", b"\xff\xfe", "sha256: é".encode(), b"0" * 63 + b" file"])
def test_a_broken_lock_is_blamed_on_the_lock(tmp_path, lock):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n')
    (tmp_path / "prompts.jsonl.sha256").write_bytes(lock)
    with pytest.raises(ValueError, match=r"lock .*prompts\.jsonl\.sha256 must begin"):
        full_scale.locked(file)


def test_a_lock_is_whole_or_not_there(tmp_path, monkeypatch):
    file = tmp_path / "füße.jsonl"
    file.write_text('{"prompt": "a"}\n')

    def crash(*_):
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(OSError, match="no space"):
            full_scale.locked(file)
    assert not (tmp_path / "füße.jsonl.sha256").exists()
    assert full_scale.locked(file) == full_scale.locked(file) == file


BROKEN = {
    "binary": b'{"prompt": "a"}\n\xff\xfe\n',
    "nesting": b'{"prompt": "a"}\n' + b"[" * 100_000,
    "huge number": b'{"prompt": "a"}\n{"prompt": ' + b"9" * 5000 + b"}",
    "half a surrogate pair": b'{"prompt": "a"}\n{"prompt": "\\ud800"}',
    "number": b'{"prompt": "a"}\n{"prompt": 5, "chosen": "x\\n\\nAssistant: y"}',
    "title": b'{"prompt": "a"}\n{"info": {"post": "x", "title": [1]}}',
    "empty": b'{"prompt": "a"}\n{"prompt": ""}',
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("name", ["prompts.jsonl", "prompts.JSONL.GZ"])
def test_a_broken_line_is_named(tmp_path, kind, name):
    packed = name.endswith("GZ")
    (tmp_path / name).write_bytes(gzip.compress(BROKEN[kind]) if packed else BROKEN[kind])
    with pytest.raises(ValueError, match=rf"{name}:2 must"):
        full_scale.read_prompts(tmp_path / name)


def test_broken_gzip_is_named(tmp_path):
    packed = gzip.compress(b'{"prompt": "a"}\n' * 9)
    for content in (b"no gzip", packed[:-12], packed[:10] + b"\xff" * 20, packed[:-8] + b"\0" * 8):
        (tmp_path / "prompts.jsonl.gz").write_bytes(content)
        with pytest.raises(ValueError, match=r"prompts\.jsonl\.gz is broken after line"):
            full_scale.read_prompts(tmp_path / "prompts.jsonl.gz")


def test_prompts_of_three_kinds_are_read_once_each(tmp_path):
    dialogue = "\n\nHuman: Hello\n\nAssistant: Hi\n\nHuman: Why?\n\nAssistant:"
    lines = [
        {"prompt": "Say it."},
        {"chosen": dialogue + " Because.", "rejected": dialogue + " No."},
        {"info": {"post": "Long story.", "title": "Cats"}},
        {"prompt": "Say it."},
        {"info": {"post": "Short."}},
    ]
    text = "\n".join(map(json.dumps, lines))
    expected = [
        "Say it.",
        dialogue,
        "TITLE: Cats\nPOST: Long story.\nTL;DR:",
        "POST: Short.\nTL;DR:",
    ]
    (tmp_path / "plain.jsonl").write_text(text)
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("plain.jsonl", "packed.jsonl.gz"):
        assert full_scale.read_prompts(tmp_path / name) == expected


@pytest.mark.parametrize("text", ["", "[]\n", "{nonsense\n", '{"chosen": "no dialogue"}\n'])
def test_a_file_without_prompts_is_refused(tmp_path, text):
    file = tmp_path / "prompts.jsonl"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"prompts\.jsonl"):
        full_scale.read_prompts(file)


SMALL = {
    "num_train": 4, "num_test": 3, "num_samples": 6, "num_comparisons": 2, "num_tokens": 4,
    "rollouts_per_prompt": 3, "prompts_per_step": 2, "steps": 2, "seed": 0,
}  # fmt: skip


def test_a_language_model_is_aligned_from_folders(tmp_path, capfd):
    texts = [f"Human: What is {a} plus {b}?\n\nAssistant:" for a in range(3) for b in range(3)]
    full_scale.write_rehearsal(tmp_path, texts)
    prompts = full_scale.read_prompts(full_scale.locked(tmp_path / "prompts.jsonl"))
    assert prompts == texts
    assistant = full_scale.load_assistant(tmp_path / "policy", tmp_path / "reward_model")
    before = flat(assistant.model).clone()
    row = full_scale.align_language_model(assistant, prompts, "exp(+10)", 0.5, **SMALL)
    assert torch.equal(before, flat(assistant.model))
    assert set(row) == {"reached"} | {
        name + end for name in full_scale.PROCEDURES for end in ("", "_error")
    }
    assert all(math.isfinite(value) for value in row.values())
    assert row == full_scale.align_language_model(assistant, prompts, "exp(+10)", 0.5, **SMALL)
    raw = full_scale.align_language_model(assistant, prompts, "raw", 0.3, algorithm="ppo", **SMALL)
    assert all(math.isfinite(value) for value in raw.values())
    assert capfd.readouterr() == ("", "")
    with pytest.raises(ValueError, match="prompts must hold"):
        full_scale.align_language_model(
            assistant, prompts, "raw", 0.3, **(SMALL | {"num_train": 40})
        )
    judge = (
        tmp_path / "reward_model" / "config.json"
    )  # without a padding token: the end token is it
    judge.write_text(json.dumps(json.loads(judge.read_text()) | {"pad_token_id": None}))
    unpadded = full_scale.load_assistant(tmp_path / "policy", tmp_path / "reward_model")
    asked = [np.array([1, 2, 3]), np.array([4])]
    np.testing.assert_allclose(
        unpadded.reward(asked, asked), assistant.reward(asked, asked), atol=1e-6
    )
    with pytest.raises(FileNotFoundError, match="no folder"):
        full_scale.load_assistant(tmp_path / "none", tmp_path / "reward_model")
    with pytest.raises(ValueError, match="dtype"):
        full_scale.load_assistant(tmp_path / "policy", tmp_path / "reward_model", dtype="int8")


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rehearsal")
    texts = [f"Human: What is {a} plus {b}?\n\nAssistant:" for a in range(3) for b in range(3)]
    full_scale.write_rehearsal(folder, texts)
    return folder, full_scale.load_assistant(folder / "policy", folder / "reward_model"), texts


def no_training(*_, **__):
    raise AssertionError("nothing must be trained on bad input")


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("num_comparisons", {"num_comparisons": 1}),
        ("steps", {"steps": 0}),
        ("lr", {"lr": 0}),
        ("kl", {"kl": -1.0}),
        ("prompts_per_step", {"prompts_per_step": 0}),
        ("rollouts_per_prompt", {"rollouts_per_prompt": 1}),
        ("batch_size", {"batch_size": 0}),
        ("seed", {"seed": -1}),
        ("lora_rank", {"lora_rank": 0}),
        ("lora_rank", {"lora_rank": 2.5}),
        ("prompts must", {"prompts": "abc"}),
        (r"prompts\[1\]", {"prompts": ["a", 1]}),
        ("prompts must differ", {"prompts": ["hello there"] * 9}),
        ("assistant", {"assistant": None}),
    ],
)
def test_bad_input_is_found_before_anything_is_sampled(rehearsal, monkeypatch, message, change):
    monkeypatch.setattr(full_scale, "calibrate", no_training)
    options = {"assistant": rehearsal[1], "prompts": rehearsal[2], "method": "raw", "kl": 0.3}
    with pytest.raises((TypeError, ValueError), match=message):
        full_scale.align_language_model(**(options | SMALL | change))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_adapters_change_nothing_at_first_and_are_all_that_is_trained(family):
    base = new_transformer(small_config(family, 4, 1, 2, 8, max_length=8), 0)
    policy = deepcopy(base)
    full_scale._add_adapters(policy, 2, seed=0)
    tokens = torch.tensor([[0, 3, 1]])
    assert torch.equal(policy(tokens).logits, base(tokens).logits)
    before = {name: weight.detach().clone() for name, weight in policy.named_parameters()}
    prompts, calibrator = [np.array([0]), np.array([1])], RewardCalibrator().fit([[1.0, 2.0]] * 2)
    train_ctrl(
        policy, base, prompts, lambda _, answers: [float(a[0]) for a in answers], Identity(), 0.1,
        calibrator, num_tokens=2, rollouts_per_prompt=8, steps=3, lr=1e-2, seed=0,
    )  # fmt: skip
    for name, weight in policy.named_parameters():
        assert torch.equal(weight, before[name]) == ("lora_" not in name), name
        assert weight.requires_grad == ("lora_" in name)


def test_a_language_model_in_bfloat16_is_aligned_by_adapters(rehearsal):
    folder, _, texts = rehearsal
    folders = folder / "policy", folder / "reward_model"
    assistant = full_scale.load_assistant(*folders, dtype="bfloat16")
    options = SMALL | {"lora_rank": 2, "lr": 0.05, "steps": 8}
    found = full_scale.align_language_model(assistant, texts, "identity", 0.5, **options)
    assert all(math.isfinite(value) for value in found.values())
    assert found["reached"] > 0
    assert all(weight.requires_grad for weight in assistant.model.parameters())


def test_adapters_without_their_library_are_a_clear_error(rehearsal, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ModuleNotFoundError, match="pip install peft"):
        full_scale.align_language_model(
            rehearsal[1], rehearsal[2], "raw", 0.3, **(SMALL | {"lora_rank": 2})
        )


def test_a_judge_that_cannot_read_the_test_prompts_is_found_before_training(rehearsal, monkeypatch):
    monkeypatch.setattr(full_scale, "train_ctrl", no_training)
    _, found, texts = rehearsal
    tested = next(found.encode(texts[5:], 256))

    def judge(prompts, responses):
        if any(np.array_equal(prompt, tested) for prompt in prompts):
            raise ValueError("texts must have <= 6 tokens")
        return np.arange(len(responses)) % 5

    assistant = full_scale.Assistant(found.model, found.tokenizer, judge)
    with pytest.raises(ValueError, match="texts must"):
        full_scale.align_language_model(assistant, texts, "raw", 0.3, **SMALL)


def test_only_as_many_prompts_are_encoded_as_are_used(rehearsal):
    _, found, texts = rehearsal
    seen = []

    class Counting(full_scale.Assistant):
        def encode(self, prompts, longest):
            for tokens in super().encode(prompts, longest):
                seen.append(tokens)
                yield tokens

    assistant = Counting(found.model, found.tokenizer, found.reward)
    full_scale.align_language_model(assistant, texts, "raw", 0.3, **SMALL)
    assert len(seen) == 7


def test_models_with_missing_weights_are_refused(rehearsal, tmp_path):
    folder, _, _ = rehearsal
    with pytest.raises(ValueError, match=r"reward_model must hold all weights.*score"):
        full_scale.load_assistant(folder / "policy", folder / "policy")
    for policy in ("", tmp_path / "none"):
        with pytest.raises(FileNotFoundError, match="policy"):
            full_scale.load_assistant(policy, folder / "reward_model")
    several = tmp_path / "several"
    shutil.copytree(folder / "reward_model", several)
    config = small_config("llama", 300, max_length=64)
    config.num_labels = 2
    AutoModelForSequenceClassification.from_config(config).save_pretrained(several)
    with pytest.raises(ValueError, match="one label"):
        full_scale.load_assistant(folder / "policy", several)


def test_a_dry_run_at_paper_scale_takes_two_steps_with_a_tiny_model(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKINGPAPERS_DATA", str(tmp_path / "nothing here"))
    place = {"folder": tmp_path / "out", "sources": [Path(__file__)], "command": "a test"}
    benchmark = project.benchmark("infalign")
    assert lab.reproduce(
        benchmark, "infalign", scale="paper", dry_run=True, jobs=1, progress=False, **place
    ) is None  # fmt: skip
    assert not (tmp_path / "out").exists()
    with pytest.raises(FileNotFoundError, match=r"prompts\.jsonl"):
        benchmark.language_model(0, "given", "identity", 0.5, "cpu")


def test_worst_of_n_is_compared_with_the_identity_at_equal_divergence():
    """On a straight curve, inside of it and beyond its end."""
    benchmark = project.benchmark("infalign")
    rows = []
    for seed, (method, kl) in itertools.product(
        range(2), [*(("identity", kl) for kl in (0.1, 0.2, 0.3, 0.5)), ("exp(-10)", 0.2)]
    ):
        reached = np.array([0.9 * kl, 1.1 * kl, kl, 4 * kl])
        gain = 0.03 if method == "exp(-10)" else 0.0
        row = {"seed": seed, "method": method, "algorithm": "rloo", "kl": kl}
        row |= {f"kl_{p}": reached[p] for p in range(4)}
        rows.append(row | {f"worst_{p}": 0.5 + 0.2 * reached[p] + gain for p in range(4)})
    estimate = benchmark.exp_for_worst(pd.DataFrame(rows))
    assert estimate.value == pytest.approx(0.03, abs=1e-9)
    assert estimate.n == 8


# Bad input

ROW = floats(-1, -2)
NAN = floats(-1, math.nan)


def never(prompts, responses):
    raise AssertionError("the reward must not be asked for")


def two_labels():
    model = classifier(5)
    model.config.num_labels = 2
    return model


def untrainable(prompts, responses):
    return np.full(len(responses), np.nan)


BAD = {
    "dpo, beta": ("beta", lambda: dpo_loss(ROW, ROW, ROW, ROW, 0)),
    "ipo, beta": ("beta", lambda: ipo_loss(ROW, ROW, ROW, ROW, math.inf)),
    "dpo, shape": ("reference_chosen", lambda: dpo_loss(ROW, ROW, ROW[:1], ROW, 1)),
    "dpo, NaN": ("policy_rejected", lambda: dpo_loss(ROW, NAN, ROW, ROW, 1)),
    "dpo, axes": ("policy_chosen", lambda: dpo_loss(*[ROW[None]] * 4, 1)),
    "dpo, type": ("policy_chosen", lambda: dpo_loss([1.0], ROW, ROW, ROW, 1)),
    "weights, n": ("n must", lambda: infalign.best_of_n_weights([1.0, 2.0], 3)),
    "weights, n = 0": ("n must", lambda: infalign.best_of_n_weights([1.0, 2.0], 0)),
    "weights, NaN": ("rewards", lambda: infalign.best_of_n_weights([1.0, math.nan], 1)),
    "weights, scalar": ("rewards", lambda: infalign.best_of_n_weights(1.0, 1)),
    "sft, axes": ("log_probs", lambda: infalign.best_of_n_sft_loss(ROW, [1.0, 2.0], 1)),
    "sft, rewards": ("rewards", lambda: infalign.best_of_n_sft_loss(ROW[None], [1.0, 2.0], 1)),
    "leave one out, alone": ("returns", lambda: leave_one_out(ROW[:1])),
    "leave one out, NaN": ("returns", lambda: leave_one_out(NAN)),
    "leave one out, integers": ("returns", lambda: leave_one_out(torch.tensor([1, 2]))),
    "rloo, shape": ("advantages", lambda: rloo_loss(ROW, ROW[:1])),
    "ppo, clip": ("clip", lambda: ppo_loss(ROW, ROW, ROW, 1.0)),
    "ppo, clip 0": ("clip", lambda: ppo_loss(ROW, ROW, ROW, 0.0)),
    "exact, beta": ("beta", lambda: exact_loss(ROW, ROW, ROW, -1)),
    "exact, rewards": ("rewards", lambda: exact_loss(ROW, ROW, NAN, 1)),
    "space": ("length", lambda: enumerate_responses(10, 7)),
    "sample, tokens": (
        "num_tokens",
        lambda: sample_responses(base_model(), PROMPTS, 0, np.random.default_rng(0)),
    ),
    "sample, too long": (
        "max_length",
        lambda: sample_responses(base_model(), PROMPTS, 13, np.random.default_rng(0)),
    ),
    "sample, batch": (
        "batch_size",
        lambda: sample_responses(base_model(), PROMPTS, 1, np.random.default_rng(0), batch_size=0),
    ),
    "sample, prompt": (
        "prompts",
        lambda: sample_responses(base_model(), [[3]], 1, np.random.default_rng(0)),
    ),
    "calibrate, K": (
        "num_samples",
        lambda: calibrate(base_model(), PROMPTS, reward, 0, num_tokens=1, seed=0),
    ),
    "calibrate, seed": (
        "seed",
        lambda: calibrate(base_model(), PROMPTS, reward, 5, num_tokens=3, seed=-1),
    ),
    "reward, NaN": ("rewards", lambda: score(untrainable, PROMPTS, PROMPTS)),
    "reward, shape": ("rewards", lambda: score(lambda p, r: [1.0], PROMPTS, PROMPTS)),
    "reward, type": ("reward_fn", lambda: score("r", PROMPTS, PROMPTS)),
    "classifier": ("model", lambda: classifier_reward("reward")),
    "classifier, decode": ("decode", lambda: classifier_reward(classifier(5), decode=str)),
    "transform": ("transform", lambda: train("identity")),
    "beta": ("beta", lambda: train(beta=0.0)),
    "algorithm": ("algorithm", lambda: train(algorithm="reinforce")),
    "steps": ("steps", lambda: train(steps=0)),
    "lr": ("lr", lambda: train(lr=math.nan)),
    "rollouts": ("rollouts_per_prompt", lambda: train(rollouts_per_prompt=1)),
    "prompts a step": ("prompts_per_step", lambda: train(prompts_per_step=0)),
    "epochs": ("ppo_epochs", lambda: train(algorithm="ppo", ppo_epochs=0)),
    "clip": ("clip", lambda: train(algorithm="ppo", ppo_clip=2.0)),
    "batch": ("batch_size", lambda: train(batch_size=0)),
    "seed": ("seed", lambda: train(seed=1.5)),
    "stop": ("stop", lambda: train(algorithm="exact", stop=1)),
    "unlisted stop": ("stop", lambda: train(stop=VOCAB)),
    "calibrator": ("calibrator", lambda: train(calibrator=None)),
    "calibrator, prompts": ("calibrator", lambda: train(prompts=PROMPTS[:2])),
    "z-scored, constant": (
        "z-scored",
        lambda: train("z-scored", calibrator=RewardCalibrator().fit(np.ones((3, 2)))),
    ),
    "same model": (
        "reference",
        lambda: train_ctrl(
            base_model(),
            base_model(),
            PROMPTS,
            reward,
            Identity(),
            1.0,
            calibrator(),
            num_tokens=1,
            seed=0,
        ),
    ),
    "vocabulary": ("reference", lambda: train(reference=base_model_of_four())),
    "not a model": ("model", lambda: train(reference="gpt2")),
    "too long": ("max_length", lambda: train(num_tokens=12)),
    "offline, objective": ("objective", lambda: offline("slic")),
    "offline, odd": ("samples_per_prompt", lambda: offline("dpo", samples_per_prompt=5)),
    "offline, strength": ("strength", lambda: offline("ipo", -1.0)),
    "offline, N": ("strength", lambda: offline("best_of_n", 9)),
    "offline, batch": ("batch_size", lambda: offline("dpo", batch_size=0)),
    "offline, lr": ("lr", lambda: offline("dpo", lr=-1)),
    "clip, at the door": ("ppo_clip", lambda: train(algorithm="ppo", ppo_clip=9, reward_fn=never)),
    "lr, exact": ("lr", lambda: train(algorithm="exact", lr=-1, reward_fn=never)),
    "exact, prompts a step": (
        "prompts_per_step",
        lambda: train(algorithm="exact", prompts_per_step=2),
    ),
    "exact, epochs": ("ppo_epochs", lambda: train(algorithm="exact", ppo_epochs=7)),
    "rloo, clip": ("ppo_clip", lambda: train(ppo_clip=0.3)),
    "frozen policy": (
        "policy must",
        lambda: train(policy=deepcopy(base_model()).requires_grad_(False)),
    ),
    "half-precision policy": ("policy must", lambda: train(policy=deepcopy(base_model()).half())),
    "exact, too long": (
        "max_length",
        lambda: train(algorithm="exact", num_tokens=10, reward_fn=never),
    ),
    "reward, at the door": ("reward_fn", lambda: train(reward_fn=None)),
    "tiny beta": ("beta", lambda: train("raw", beta=1e-310)),
    "z-scored, rounding": (
        "vary",
        lambda: shaped_reward(
            "z-scored", RewardCalibrator().fit(np.full((2, 3), 0.1)), [0, 1], [0.1, 0.2]
        ),
    ),
    "z-scored, huge": (
        "vary",
        lambda: shaped_reward("z-scored", RewardCalibrator().fit([[-1e308, 1e308]]), [0], [0.1]),
    ),
    "log-probs, numbers": (
        "responses",
        lambda: sequence_log_probs(base_model(), [[0]] * 2, [[1]] * 5, batch_size=2),
    ),
    "log-probs, none": ("prompts", lambda: sequence_log_probs(base_model(), [], [])),
    "sample, rng": ("rng", lambda: sample_responses(base_model(), PROMPTS, 2, None)),
    "space, power": ("length", lambda: enumerate_responses(3, 10**8)),
    "space, prefixes fit": ("length", lambda: enumerate_log_probs(base_model(), PROMPTS, 13)),
    "reward, None": ("rewards of reward_fn", lambda: score(lambda p, r: None, PROMPTS, PROMPTS)),
    "classifier, labels": ("label", lambda: classifier_reward(two_labels())),
    "classifier, batch": ("batch_size", lambda: classifier_reward(classifier(5), batch_size=0)),
    "win rate, vocabulary": (
        "reference",
        lambda: estimate_win_rate(
            base_model(), base_model_of_four(), PROMPTS, reward, Sampling(), num_tokens=1, seed=0
        ),
    ),
    "leave one out, range": ("returns", lambda: leave_one_out(floats(1.7e308, -1.7e308))),
    "scales, none": ("scales", lambda: infalign.scale_mismatch(0, [])),
    "world, one scale": ("scales", lambda: infalign.markov_world(0, 3.0)),
    "hacking nobody": ("share", lambda: infalign.reward_hacking(0, 2.0, responses=2)),
    "study": ("seed", lambda: infalign.study([1])),
    "K": ("num_samples", lambda: infalign.study(0, num_samples=0)),
    "align, steps": (
        "steps",
        lambda: infalign.align(small_study(), "raw", 0.5, "closed form", steps=-1),
    ),
    "beta for, rewards": ("rewards", lambda: infalign.beta_for(Identity(), 0.5, "junk", None)),
    "world, token": (
        "responses",
        lambda: small_study().world.reward([[0], [0]], [[0, 0, 1], [0, 0, 9]]),
    ),
    "world, length": ("responses", lambda: small_study().world.reward([[0]], [[0, 0]])),
    "world, number": ("responses", lambda: small_study().world.reward([[0]], [[0, 0, 0]] * 2)),
    "offline, ties": ("reward_fn", lambda: offline("dpo", reward_fn=lambda p, r: np.ones(len(r)))),
    "win rate, procedure": ("procedure", lambda: estimate("best")),
    "win rate, comparisons": ("num_comparisons", lambda: estimate(num_comparisons=1)),
    "win rate, prompts": ("prompts", lambda: estimate(prompts=PROMPTS[:1])),
    "win rate, reward": ("rewards", lambda: estimate(reward_fn=untrainable)),
    "continuum, kind": ("kind", lambda: infalign.continuum_comparison("middle", 4, 0.5)),
    "scales": ("scales", lambda: infalign.scale_mismatch(0, scales=(1.0, 0.0))),
    "responses": ("responses", lambda: infalign.scale_mismatch(0, responses=1)),
    "hacking, bonus": ("bonus", lambda: infalign.reward_hacking(0, -1.0)),
    "hacking, share": ("share", lambda: infalign.reward_hacking(0, 1.0, share=1.0)),
    "world, scales": ("scales", lambda: infalign.markov_world(0, scales=(1.0,) * 5)),
    "world, alphabet": ("alphabet", lambda: infalign.markov_world(0, alphabet=1)),
    "world, concentration": ("concentration", lambda: infalign.markov_world(0, concentration=0)),
    "base, world": ("world", lambda: infalign.train_base("world", 0)),
    "base, lr": ("lr", lambda: infalign.train_base(small_study().world, 0, lr=0)),
    "align, study": ("study", lambda: infalign.align("study", "raw")),
    "align, method": ("method", lambda: infalign.align(small_study(), "ppo")),
    "align, algorithm": ("algorithm", lambda: infalign.align(small_study(), "raw", 0.5, "sgd")),
    "align, closed DPO": (
        "method",
        lambda: infalign.align(small_study(), "dpo", 0.5, "closed form"),
    ),
    "align, offline": ("method", lambda: infalign.align(small_study(), "raw", 0.5, "offline")),
    "align, trained optimum": ("method", lambda: infalign.align(small_study(), "optimal, best")),
    "align, kl": ("kl", lambda: infalign.align(small_study(), "identity", 0.0)),
    "beta for": (
        "transform",
        lambda: infalign.beta_for("identity", 0.5, small_study().base, small_study().world.rewards),
    ),
    "costs": ("repeats", lambda: infalign.cost_ratios(0, repeats=0)),
}


def offline(objective, strength=1.0, reward_fn=reward, **options):
    options = {"samples_per_prompt": 4, **options}
    return train_offline(
        deepcopy(base_model()), base_model(), PROMPTS, reward_fn, objective, strength,
        num_tokens=LENGTH, steps=1, seed=0, **options,
    )  # fmt: skip


def estimate(procedure=None, prompts=PROMPTS, reward_fn=reward, num_comparisons=4):
    return estimate_win_rate(
        other_model(), base_model(), prompts, reward_fn, procedure or Sampling(), num_comparisons,
        num_tokens=LENGTH, seed=0,
    )  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_by_name(name):
    message, call = BAD[name]
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_a_gradient_that_is_not_finite_is_an_error():
    policy = deepcopy(base_model())
    policy.transformer.wpe.weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(FloatingPointError, match="lr"):
        train_ctrl(
            policy, base_model(), PROMPTS, reward, Identity(), 1.0, calibrator(),
            num_tokens=LENGTH, steps=1, seed=0,
        )  # fmt: skip
