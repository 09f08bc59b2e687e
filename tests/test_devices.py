"""What takes a device gives the same on another device than the CPU; see `other_device`."""

import math
from copy import deepcopy
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from transformers import AutoModelForSequenceClassification

from workingpapers import cfpt, infalign
from workingpapers import modular_duality as md
from workingpapers import watermark_spoofing as ws
from workingpapers.contexts import seeded
from workingpapers.infalign import experiments, full_scale
from workingpapers.language import (
    NGramLM,
    TransformerLM,
    generate,
    king_james_bible,
    load_checkpoint,
    new_transformer,
    perplexity,
    response_log_probs,
    reward_scores,
    save_checkpoint,
    small_config,
    train,
    train_tokenizer,
)

try:
    from other_device import DEVICE, parameters_kept
except (ImportError, AttributeError) as error:  # private parts of torch, which may change
    pytest.skip(
        f"torch {torch.__version__} cannot have a device made in Python: {error}",
        allow_module_level=True,
    )

torch.set_num_threads(1)
# torch's first forward-mode derivative still uses torch.jit.script.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")

VOCAB = 12
PROMPTS = [np.array([0]), np.array([1, 2, 0]), np.array([2, 1]), np.array([3, 4, 5])]


@pytest.fixture(autouse=True)
def _parameters_kept():
    with parameters_kept():
        yield


def assert_same_on_both(run, rtol=1e-5, atol=1e-6):
    """Run with either device: the numbers are equal, and tensors are where they should be."""
    expected, found = (pytree.tree_leaves(run(device)) for device in ("cpu", DEVICE))
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        if isinstance(one, torch.Tensor):
            assert (one.device.type, other.device.type) == (DEVICE, "cpu")
            one, other = one.detach().cpu(), other.detach()
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def normal(*shape, seed=0, device="cpu"):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def with_gradients(model, output):
    """Return an output and the gradients of the mean of its square."""
    output.square().mean().backward()
    return [output, *(p.grad for p in model.parameters() if p.grad is not None)]


# The device itself


def mixed(device):
    """Operations with a tensor on a device and one, or an index, on the CPU."""
    here, there, place = torch.ones(2, 2), torch.ones(2, 2, device=device), torch.tensor([[0, 1]])
    return {
        "add": lambda: there + here,
        "add in place": lambda: here.add_(there),
        "add to a number in place": lambda: torch.tensor(1.0).add_(there[0, 0]),
        "multiply matrices": lambda: here @ there,
        "concatenate": lambda: torch.cat([there, here]),
        "stack numbers": lambda: torch.stack([there[0, 0], torch.tensor(1.0)]),
        "compare": lambda: torch.equal(there, here),
        "look up": lambda: F.embedding(place, there),
        "gather": lambda: there.gather(0, place),
        "assign": lambda: there.__setitem__([0], here[:1]),
        "index the CPU": lambda: here[place[0].to(device)],
    }


@pytest.mark.parametrize("name", mixed("cpu"))
def test_tensors_of_two_devices_do_not_mix(name):
    with pytest.raises(RuntimeError, match="on the same device"):
        mixed(DEVICE)[name]()


def test_numbers_indices_and_copies_cross_between_devices():
    def run(device):
        x, place = torch.arange(6.0, device=device).reshape(2, 3), torch.tensor([1, 0])
        masked = x.clone()
        masked[x > 2] = -1
        masked[0] = torch.tensor([7.0, 8.0, 9.0], device=device)
        masked[1, 0] = torch.tensor(5.0)
        back = torch.zeros(2, 3)
        back[1] = x[0]
        more = torch.zeros(3, device=device).copy_(torch.ones(3))
        scaled = x + torch.tensor(2.0), torch.maximum(torch.tensor(1.0), x), x.where(x > 1, 0.0)
        read = back, x.tolist(), float(x.sum()), x.to("cpu")
        taken = x[place], x[[1]], x[np.array([0])], x[:, 1:], x[torch.tensor([True, False])]
        return masked, more, scaled, taken, [np.asarray(one) for one in read]

    assert_same_on_both(run)


def test_numpy_and_the_cpus_generators_are_refused_on_a_device():
    x = torch.ones(2, device=DEVICE)
    for to_numpy in (x.numpy, x.detach().numpy, lambda: np.asarray(x)):
        with pytest.raises(TypeError, match="numpy"):
            to_numpy()
    with pytest.raises(RuntimeError, match="generator"):
        torch.randn(2, generator=torch.Generator(), device=DEVICE)


def test_gradients_flow_through_views_and_changes_in_place():
    def run(device):
        w = normal(3, 4, device=device).requires_grad_()
        y = 2 * (w.T @ w).softmax(-1)
        y[1:3].mul_(5)
        y.view(2, 8)[1].add_(w.sum())
        y[:, 0] = 0
        (y.flatten() ** 3).mean().backward()
        shared = torch.zeros(4, device=device)
        shared[1:].sub_(1)
        return w.grad, y, shared

    assert_same_on_both(run)


@pytest.mark.parametrize("options", [{}, {"fused": True}, {"foreach": False}])
def test_adamw_on_a_device_takes_the_steps_of_the_cpu(options):
    def run(device):
        model = cfpt.seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 1)), 0)
        optimizer = torch.optim.AdamW(model.to(device).parameters(), **options)
        for seed in range(3):
            optimizer.zero_grad()
            model(normal(5, 3, seed=seed, device=device)).square().mean().backward()
            optimizer.step()
        return list(model.parameters())

    assert_same_on_both(run)


def test_a_model_keeps_its_parameters_on_the_way_to_a_device_and_back():
    model = new_transformer(small_config("gpt2", VOCAB), 0)
    before = {name: id(p) for name, p in model.named_parameters(remove_duplicate=False)}
    assert len(set(before.values())) < len(before)  # tied
    for device in (DEVICE, DEVICE, "cpu"):
        model.to(device)
        after = model.named_parameters(remove_duplicate=False)
        assert {name: id(p) for name, p in after} == before
        assert {p.device.type for p in model.parameters()} == {device}


# Modular duality

TREES = {
    "MLP": (md.MLP(3, 5, 8, 3), (4, 5)),
    "ResMLP": (md.ResMLP(3, 5, 8, 2), (4, 5)),
    "ResCNN": (md.ResCNN(3, 2, 4, 2), (2, 2, 6, 6)),
    "Attention": (md.Attention(2, 6, 4, 3), (2, 5, 6)),
    "GPT": (md.GPT(7, 2, 6, 4, 3, 2), None),
    "biased": (md.Bias(3) @ md.Linear(3, 8) @ md.GELU() @ md.Scale(8) @ md.Linear(8, 5), (4, 5)),
}


@pytest.mark.parametrize("method", [*md.SCHEMES, "svd", "inverse_root", "sketch", "spectral"])
def test_orthogonalisation_on_a_device(method):
    def run(device):
        options = {"method": method}
        if method == "spectral":
            options = {"normalize": "spectral"}
        elif method == "sketch":
            options |= {"rank": 2, "generator": torch.Generator().manual_seed(0)}
        return [
            md.orthogonalize(normal(*shape, device=device), **options)
            for shape in ((5, 3), (2, 3, 5))
        ]

    assert_same_on_both(run)


def test_norms_and_their_duals_on_a_device():
    def run(device):
        matrix, kernel = normal(4, 3, device=device), normal(4, 3, 3, 3, device=device)
        of_matrices = md.rms_norm, md.linear_norm, md.linear_dual_norm, md.embed_norm
        of_matrices += md.embed_dual_norm, md.stable_rank, md.singular_value_map, md.shampoo
        duals = [
            dual(matrix, p)
            for dual in (md.lp_dualize, md.schatten_dualize)
            for p in (2, 3.0, math.inf)
        ]
        halves = md.linear_norm(matrix.bfloat16()), md.orthogonalize(matrix.bfloat16()).float()
        convolved = md.conv2d_norm(kernel), md.conv2d_dual_norm(kernel)
        return [f(matrix) for f in of_matrices], convolved, duals, halves

    assert_same_on_both(run)


@pytest.mark.parametrize("name", TREES)
def test_modules_on_a_device(name):
    module, shape = TREES[name]

    def run(device):
        weights = module.initialize(torch.Generator().manual_seed(0), device)
        x = normal(*shape, device=device) if shape else torch.arange(10, device=device) % 7
        output = module(x if shape else x.reshape(2, 5), [w.requires_grad_() for w in weights])
        gradients = torch.autograd.grad(output.square().sum(), weights)
        weights = [w.detach() for w in weights]
        sizes = module.norm(weights), module.dual_norm(gradients)
        maps = module.dualize(gradients, 0.5), module.sharp(gradients), module.project(weights)
        return weights, output, gradients, sizes, maps

    assert_same_on_both(run, rtol=1e-4, atol=1e-5)


def descend(model, optimizer, x, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("options", [{}, {"momentum": 0.8}, {"momentum": 0.8, "sharp": True}])
def test_dualised_steps_of_a_module_on_a_device(options):
    module, shape = TREES["biased"]

    def run(device):
        weights = module.initialize(torch.Generator().manual_seed(0), device)
        weights = [w.requires_grad_() for w in weights]
        optimizer = md.DualizedSGD(weights, module, lr=0.1, weight_decay=0.1, **options)
        descend(lambda x: module(x, weights), optimizer, normal(*shape, device=device), 4)
        return weights

    assert_same_on_both(run, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kept_on", ["the CPU", "the device"])
def test_dualised_steps_of_a_torch_network_go_on_from_a_kept_state_on_a_device(kept_on):
    layers = nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)

    def start(device, seed, states=()):
        model = cfpt.seeded(lambda: nn.Sequential(*deepcopy(layers)), seed).to(device)
        network = md.from_torch(model)
        optimizer = md.DualizedSGD(network.parameters(), network, lr=0.1, momentum=0.8)
        for part, state in zip((model, optimizer), states, strict=False):
            part.load_state_dict(state)
        return model, optimizer

    def run(device):
        x = normal(2, 2, 6, 6, device=device)
        model, optimizer = start(device, 0)
        descend(model, optimizer, x, 3)
        states = deepcopy([model.state_dict(), optimizer.state_dict()])
        if kept_on == "the CPU":
            states = pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, states)
        descend(model, optimizer, x, 3)
        again, other = start(device, 1, states)
        descend(again, other, x, 3)
        for first, second in zip(model.parameters(), again.parameters(), strict=True):
            assert torch.equal(first, second)
        buffers = [state["momentum_buffer"] for state in other.state.values()]
        return list(again.parameters()), buffers

    assert_same_on_both(run, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", md.METHODS)
def test_sweeps_on_a_device(method):
    rates = list(md.METHODS[method].log2_lrs)[:3]
    assert_same_on_both(
        lambda device: md.sweep(method, 8, [0, 1], log2_lrs=rates, steps=4, device=device),
        rtol=1e-4,
    )


EXPERIMENTS = {
    "feature change": lambda device: md.feature_change(0, 16, device=device),
    "sign change": lambda device: md.feature_change(0, 16, update="sign", device=device),
    "stable ranks": lambda device: md.stable_ranks(0, 16, batch=32, device=device),
    "gain": lambda device: md.well_normedness(0, device=device),
    "erasure": lambda device: md.weight_erasure(0, 16, 0.1, steps=3, device=device),
    "control": lambda device: md.weight_erasure(0, 16, 0.1, "control", steps=3, device=device),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_of_modular_duality_on_a_device(name):
    assert_same_on_both(EXPERIMENTS[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["dual", "adam"])
def test_language_models_of_modules_train_on_a_device(optimizer):
    options = {"seed": 0, "optimizer": optimizer, "lr": 0.05, "steps": 4, "batch": 4, "context": 6}
    tokens = torch.arange(60) ** 2 % 7
    assert_same_on_both(
        lambda device: md.train_language_model(TREES["GPT"][0], tokens, device=device, **options),
        rtol=1e-4,
    )


# CFPT


def forecast_task(device, seq_len=24, pred_len=24):
    hours, rng = np.arange(240), np.random.default_rng(0)
    values = np.sin(2 * np.pi * hours / 24)[:, None] + 0.3 * rng.normal(size=(240, 3))
    stamps = np.datetime64("2024-01-01", "s") + hours * np.timedelta64(1, "h")
    series = cfpt.TimeSeries(stamps, values, ("a", "b", "c"))
    return cfpt.prepare(series, seq_len, pred_len, ("hour",), device=device)


SETTINGS = {**cfpt.SMALL, "d_model": 16}


def test_windows_and_standardised_units_on_a_device():
    def run(device):
        task = forecast_task(device)
        batches = task.train.batch([0, 5]), task.test.batch(torch.tensor([1])), task.val[-1]
        return task.mean, task.sd, batches, task.train.batches(64), task.train.checked(range(3))

    assert_same_on_both(run)


@pytest.mark.parametrize("name", [*cfpt.VARIANTS, *cfpt.BASELINES])
def test_forecasting_models_and_their_gradients_on_a_device(name):
    def run(device):
        task = forecast_task(device)
        model = cfpt.build(name, task, 0, SETTINGS)
        if isinstance(model, cfpt.PhaseClimatology):
            model.fit(task.train)
        batch = task.train.batch(range(4))
        with seeded(0):  # for dropout
            output = model(batch.x, batch.future_marks, batch.history_marks)
        trained = any(p.requires_grad for p in model.parameters())
        return with_gradients(model, output) if trained else output

    assert_same_on_both(run, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["CFPT", *cfpt.BASELINES])
def test_forecasting_models_train_and_are_scored_on_a_device(name):
    training = cfpt.Training(epochs=2, fraction=0.3)

    def run(device):
        task = forecast_task(device)
        model, history = cfpt.train(name, task, 0, training, SETTINGS)
        errors = cfpt.evaluate(model, task.test, task.sd)
        shown = cfpt.forecasts({name: model}, task, [0, 3])
        pictures = shown.history, shown.truth, shown.predictions
        predicted = cfpt.predict(model, task.test, [1, 2])
        return history.train_loss, history.val_mse, errors, predicted, pictures

    assert_same_on_both(run, rtol=1e-3, atol=1e-4)


def test_branches_phases_and_their_best_mixture_on_a_device():
    def run(device):
        task = forecast_task(device)
        model = cfpt.build("CFPT", task, 0, SETTINGS)
        marks = [task.test.batch(places).future_marks for places in ([0, 1, 24], [2, 0])]
        table = cfpt.PhaseTable(model.ptm)
        shown = cfpt.branch_forecasts(model, task, [0, 3])
        batch = task.test.batch([0, 1])
        errors = [part - batch.y for part in model.branches(batch.x, batch.future_marks)]
        low, high = cfpt.split_bands(batch.x.mT)
        coupling = cfpt.seeded(lambda: cfpt.AffineCoupling(4), 0).to(device)
        halves = normal(3, 2, device=device), normal(3, 2, seed=1, device=device)
        coupled = coupling.inverse(*coupling(*halves)), coupling.log_det(*halves)
        parts = low.real, low.imag, high.real, high.imag
        looked_up = [table(some) for some in marks]
        return looked_up, shown.predictions, cfpt.optimal_gamma(*errors), parts, coupled

    assert_same_on_both(run, rtol=1e-4, atol=1e-5)


def test_a_climatology_is_saved_and_loaded_on_a_device():
    def run(device):
        task = forecast_task(device)
        model = cfpt.build("climatology", task, 0).fit(task.train)
        other = cfpt.build("climatology", task, 0)
        other.load_state_dict(model.state_dict())
        return other.phases, other.table

    assert_same_on_both(run)


@pytest.mark.parametrize("model", cfpt.CROSS_BAND_MODELS)
def test_the_cross_band_experiment_on_a_device(model):
    sizes = {"epochs": 2, "d_model": 8, "n_train": 40, "n_test": 20, "batch_size": 20}
    assert_same_on_both(
        lambda device: cfpt.cross_band(model, 0, device=device, **sizes), rtol=1e-3, atol=1e-4
    )


# Language models

KINDS = "gpt2", "llama"


def transformer(kind, device, seed=0, vocab_size=VOCAB, max_length=32):
    """Build a random model whose distributions are far from flat."""
    config = small_config(kind, vocab_size, 2, 2, 16, max_length=max_length)
    model = new_transformer(config, seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(6)
    return model.to(device)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampled", [False, True])
def test_generation_on_a_device(kind, sampled):
    def run(device):
        def check(tokens, logits):
            assert tokens.device.type == logits.device.type == device
            return logits

        rng = np.random.default_rng(0) if sampled else None
        return generate(TransformerLM(transformer(kind, device)), PROMPTS, 8, rng, [check], 7)

    assert_same_on_both(run)


@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_on_a_device(kind):
    def run(device):
        model = transformer(kind, device)
        lm, texts = TransformerLM(model), np.arange(20).reshape(4, 5) % VOCAB
        log_probs = response_log_probs(model, PROMPTS, texts)
        whole = lm.position_log_probs(texts), lm.token_log_probs(torch.from_numpy(texts).to(device))
        following = lm.next_log_probs(PROMPTS), perplexity(lm, PROMPTS[1:])
        return with_gradients(model, log_probs), whole, following

    assert_same_on_both(run, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_training_a_transformer_on_a_device(kind):
    def run(device):
        config = small_config(kind, VOCAB, 2, 2, 16)
        if kind == "gpt2":
            config.resid_pdrop = 0.1
        model = new_transformer(config, 0).to(device)
        examples, mask = np.arange(60).reshape(6, 10) % VOCAB, np.arange(60).reshape(6, 10) % 3 > 0
        losses = train(model, examples, 4, mask=mask, batch_size=3, warmup=1, seed=1)
        return losses, TransformerLM(model).position_log_probs(examples)

    assert_same_on_both(run, rtol=1e-4, atol=1e-4)


def judge(kind, device):
    config = small_config(kind, VOCAB, 1, 2, 16)
    config.num_labels = 1
    with seeded(0):
        return AutoModelForSequenceClassification.from_config(config).eval().to(device)


@pytest.mark.parametrize("kind", KINDS)
def test_reward_scores_on_a_device(kind):
    assert_same_on_both(lambda device: reward_scores(judge(kind, device), PROMPTS))


def test_a_model_on_a_device_is_saved_as_on_the_cpu(tmp_path):
    def run(device):
        save_checkpoint(tmp_path / device, transformer("llama", device), command="test")
        loaded = load_checkpoint(tmp_path / device).model
        assert loaded.device.type == "cpu"
        return [p.detach().numpy() for p in loaded.parameters()]

    assert_same_on_both(run)


def test_n_grams_on_the_cpu_fall_back_on_a_model_on_a_device():
    def run(device):
        prior = TransformerLM(transformer("llama", device))
        lm = NGramLM.fit(PROMPTS, VOCAB, 3, prior=prior)
        texts = generate(lm, PROMPTS, 6, np.random.default_rng(0))
        return lm.position_log_probs(texts).numpy(), lm.token_log_probs(texts).numpy(), texts

    assert_same_on_both(run)


# Watermark spoofing

SCHEMES = {
    "KGW": ws.KGW(1, VOCAB, 2),
    "SelfHash": ws.KGW(1, VOCAB, seeding="self"),
    "AAR": ws.Aaronson(1, VOCAB, 2),
    "KTH": ws.KTH(1, VOCAB, 16),
}
TEXTS = np.random.default_rng(5).integers(VOCAB, size=(30, 20))


def mark(name):
    return ws.processor(SCHEMES[name], 3, skip_repeated=name == "AAR")


@pytest.mark.parametrize("name", SCHEMES)
def test_a_watermark_in_logits_on_a_device(name):
    def run(device):
        tokens = torch.from_numpy(TEXTS[:4, :6]).to(device)
        return mark(name)(tokens, normal(4, VOCAB, device=device))

    assert_same_on_both(run)


@pytest.mark.parametrize("name", SCHEMES)
def test_writing_with_a_watermark_on_a_device(name):
    def run(device):
        lm = TransformerLM(transformer("llama", device))
        return generate(lm, TEXTS[:5, :3], 10, np.random.default_rng(0), [mark(name)])

    assert_same_on_both(run)


def test_transformers_own_generation_takes_a_watermark_on_a_device():
    def run(device):
        prompts = torch.from_numpy(TEXTS[:5, :3]).to(device)
        options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
        options["attention_mask"] = torch.ones_like(prompts)
        return transformer("llama", device).generate(
            prompts, logits_processor=[mark("KGW")], **options
        )

    assert_same_on_both(run)


@pytest.mark.parametrize("end_token", [None, 7])
def test_a_thief_writes_on_a_device(end_token):
    spoofer = ws.StealingSpoofer(2, VOCAB, strength=6.0)
    stolen = spoofer.fit(TEXTS[:15], TEXTS[15:])

    def run(device):
        rng, steal = np.random.default_rng(0), ws.StealingProcessor(stolen, end_token)
        processors = [ws.RepetitionPenalty(2, 3), steal, ws.GracefulEnding(1, 7, 8)]
        models = [TransformerLM(transformer("llama", place)) for place in (device, "cpu", device)]
        return [generate(lm, TEXTS[:5, :3], 10, rng, processors) for lm in models]

    assert_same_on_both(run)


def test_a_thief_learns_with_a_model_on_a_device():
    spoofer = ws.StealingSpoofer(2, VOCAB, learning="slow")

    def run(device):
        attacker = TransformerLM(transformer("llama", device))
        return spoofer.fit(TEXTS[:15], TEXTS[15:], attacker).boosts(TEXTS[:5, :2])

    assert_same_on_both(run)


def test_students_that_count_fall_back_on_a_model_on_a_device():
    def run(device):
        attacker = TransformerLM(transformer("llama", device))
        students = ws.distil(TEXTS, attacker, 2), ws.PositionalStudent.fit(TEXTS, attacker, 4)
        return [
            (lm.position_log_probs(TEXTS[:3]).numpy(), generate(lm, TEXTS[:3, :3], 5))
            for lm in students
        ]

    assert_same_on_both(run)


def test_subjects_of_a_model_on_a_device():
    tilts = ws.draw_tilts(3, VOCAB, np.random.default_rng(0))

    def run(device):
        lm = ws.TiltedLM(TransformerLM(transformer("gpt2", device)), tilts)
        whole = lm.position_log_probs(TEXTS[:3]), lm.token_log_probs(TEXTS[:3])
        return whole, generate(lm, TEXTS[:3, :3], 5)

    assert_same_on_both(run, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["KGW", "KTH"])
def test_a_student_is_finetuned_on_a_device(name):
    def run(device):
        models = [TransformerLM(transformer("llama", device, seed)) for seed in (0, 1)]
        world = ws.World(*models, TEXTS, TEXTS, tilt_scale=0.0)
        settings = {"block_size": 10, "batch_size": 4, "warmup": 1, "lr": 1e-3}
        student = ws.finetuned(world, SCHEMES[name], TEXTS, **settings)
        untouched = [p.detach().cpu().numpy() for p in models[1].model.parameters()]
        return student.position_log_probs(TEXTS[:2]), untouched

    assert_same_on_both(run, rtol=1e-3, atol=1e-3)


def test_the_spoofing_test_with_the_model_on_a_device():
    counts = ws.NGramCounts.from_texts(TEXTS, 2, VOCAB)

    def run(device):
        lm = TransformerLM(transformer("llama", device))
        return ws.spoofing_test(TEXTS[:10], SCHEMES["KGW"], counts, "model", model=lm).statistic

    assert_same_on_both(run)


def test_a_world_of_transformers_and_its_study_on_a_device():
    texts = king_james_bible().texts[:40]
    setup = ws.Setup(lambda key, size: ws.KGW(key, size, 1), 6, 20, strength=6.0)

    def run(device):
        sizes = {"block_size": 64, "width": 8, "steps": 2, "prompt_length": 4, "device": device}
        world = ws.transformer_world(texts, 0, 300, **sizes)
        assert world.model.device.type == world.attacker.device.type == device
        study = ws.make_study(world, setup, 0, num_texts=3, num_tokens=12)
        return study.data, study.genuine, study.reprompted, study.spoofed

    assert_same_on_both(run)


def test_worlds_of_saved_models_on_a_device(tmp_path):
    texts = king_james_bible().texts[:40]
    tokenizer = train_tokenizer(texts, 300)
    for seed, name in enumerate(("provider", "thief")):
        config = small_config("llama", 300, width=8, max_length=64)
        save_checkpoint(tmp_path / name, new_transformer(config, seed), tokenizer, command="test")

    def run(device):
        folders = tmp_path / "provider", tmp_path / "thief"
        world = ws.huggingface_world(*folders, texts, 4, 16, device)
        return world.attacker.position_log_probs(world.reference[:2])

    assert_same_on_both(run)


# InfAlign

TASK = infalign.markov_world(0, alphabet=3, length=3, scales=(1.0, 4.0, 0.5))
SIZES = {"num_tokens": TASK.length, "seed": 0}


def policy(device, seed=0, drift=0.0):
    model = transformer("gpt2", "cpu", seed, TASK.alphabet, 8)
    with torch.no_grad():
        for place, parameter in enumerate(model.parameters()):
            parameter.add_(drift * normal(*parameter.shape, seed=place))
    return model.to(device)


def answers_of(model):
    """Compare these and not the weights: biases of keys have no gradient but rounding errors."""
    return infalign.response_distribution(model, TASK.prompts, TASK.length)


def calibrator(device, method="empirical"):
    return infalign.calibrate(policy(device), TASK.prompts, TASK.reward, 20, method=method, **SIZES)


@pytest.mark.parametrize("stop", [None, 0])
def test_responses_of_a_policy_on_a_device(stop):
    def run(device):
        rng = np.random.default_rng(0)
        drawn = infalign.sample_responses(policy(device), TASK.prompts * 4, 3, rng, stop, 5)
        log_probs = infalign.sequence_log_probs(policy(device), TASK.prompts * 4, drawn, 5)
        return drawn, log_probs

    assert_same_on_both(run)


def test_distributions_over_all_responses_on_a_device():
    def run(device):
        model = policy(device)
        log_probs = infalign.enumerate_log_probs(model, TASK.prompts, TASK.length)
        whole = infalign.response_distribution(model, TASK.prompts, TASK.length)
        return with_gradients(model, log_probs), whole

    assert_same_on_both(run, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", ["empirical", "quantile"])
def test_rewards_are_calibrated_on_a_device(method):
    assert_same_on_both(lambda device: calibrator(device, method).base_rewards)


def test_rewards_may_be_tensors_on_a_device():
    def run(device):
        def reward(prompts, responses):
            return torch.tensor([float(len(r) + r[0]) for r in responses], device=device)

        model, prompts = policy(device), TASK.prompts
        listed = infalign.calibrate(model, prompts, lambda p, r: list(reward(p, r)), 5, **SIZES)
        return infalign.calibrate(model, prompts, reward, 5, **SIZES).base_rewards, (
            listed.base_rewards
        )

    assert_same_on_both(run)


def test_a_classifier_on_a_device_is_a_reward():
    def run(device):
        reward = infalign.classifier_reward(judge("llama", device))
        return infalign.calibrate(policy(device), TASK.prompts, reward, 5, **SIZES).base_rewards

    assert_same_on_both(run)


@pytest.mark.parametrize(("batch_size", "given"), [(256, True), (7, False)])
@pytest.mark.parametrize("algorithm", ["rloo", "ppo", "exact"])
def test_policies_are_trained_on_a_device(algorithm, batch_size, given):
    """On the device that is given, or else where the policy lies."""
    options = {"algorithm": algorithm, "batch_size": batch_size, "steps": 2, **SIZES}
    if algorithm != "exact":
        options["rollouts_per_prompt"] = 4

    def run(device):
        rule = infalign.Exponential(5), 0.5, calibrator("cpu")
        trained, base = (policy("cpu" if given else device, drift=d) for d in (0.05, 0.0))
        if not given:
            base.to("cpu")
        task = trained, base, TASK.prompts, TASK.reward
        found = infalign.train_ctrl(*task, *rule, device=device if given else None, **options)
        assert base.device.type == device
        return vars(found), answers_of(trained)

    assert_same_on_both(run, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("objective", ["dpo", "ipo", "best_of_n"])
@pytest.mark.parametrize("batch_size", [256, 7])
def test_policies_are_trained_offline_on_a_device(objective, batch_size):
    options = {"samples_per_prompt": 4, "steps": 2, "batch_size": batch_size, **SIZES}

    def run(device):
        trained, base = policy("cpu", drift=0.05), policy("cpu")
        task = trained, base, TASK.prompts, TASK.reward, objective, 2
        losses = infalign.train_offline(*task, device=device, **options)
        return losses, answers_of(trained)

    assert_same_on_both(run, rtol=1e-3, atol=1e-4)


def test_monte_carlo_win_rates_on_a_device():
    def run(device):
        models = policy(device, drift=0.05), policy(device)
        task = *models, TASK.prompts, TASK.reward, infalign.BestOfN(2), 6
        return vars(infalign.estimate_win_rate(*task, batch_size=10, **SIZES))

    assert_same_on_both(run, rtol=1e-3, atol=1e-4)


def test_a_study_and_its_alignment_on_a_device(monkeypatch):
    monkeypatch.setattr(experiments, "markov_world", lambda seed: TASK)
    monkeypatch.setattr(experiments, "train_base", partial(infalign.train_base, steps=4))
    for cached in (experiments._study, experiments._based):
        cached.cache_clear()

    def run(device):
        study = infalign.study(0, device)
        assert study.model.device.type == device
        found = [
            infalign.align(study, method, 0.1, algorithm, steps=2)
            for method, algorithm in (("exp(+5)", "rloo"), ("raw", "exact"), ("ipo", "offline"))
        ]
        return study.base, study.calibrator.base_rewards, [vars(one) for one in found]

    assert_same_on_both(run, rtol=1e-3, atol=1e-4)
    for cached in (experiments._study, experiments._based):
        cached.cache_clear()


def test_an_assistant_is_loaded_and_aligned_on_a_device(tmp_path, monkeypatch):
    prompts = [f"{first} {second}" for first, second in pairwise("abcdefghi")]
    full_scale.write_rehearsal(tmp_path, prompts)
    judges = []

    def classifier_reward(model, **options):
        judges.append(model)
        return infalign.classifier_reward(model, **options)

    monkeypatch.setattr(full_scale, "classifier_reward", classifier_reward)
    numbers = {"num_train": 3, "num_test": 2, "num_samples": 4, "num_comparisons": 2}
    numbers |= {"num_tokens": 4, "rollouts_per_prompt": 2, "prompts_per_step": 2, "steps": 2}

    def run(device):
        folders = tmp_path / "policy", tmp_path / "reward_model"
        assistant = infalign.load_assistant(*folders, device=device)
        assert assistant.model.device.type == judges[-1].device.type == device
        return infalign.align_language_model(assistant, prompts, "identity", 0.1, seed=0, **numbers)

    assert_same_on_both(run, rtol=1e-3, atol=1e-4)


def test_gradients_of_losses_on_a_device():
    def run(device):
        first, second, third, fourth = (
            normal(6, seed=seed, device=device).requires_grad_() for seed in range(4)
        )
        advantages = infalign.leave_one_out(third.detach().reshape(2, 3)).flatten()
        losses = [
            infalign.rloo_loss(first, advantages),
            infalign.ppo_loss(first, second, advantages),
            infalign.exact_loss(first.log_softmax(-1), second.log_softmax(-1), third, 0.5),
            infalign.dpo_loss(first, second, third, fourth, 0.5),
            infalign.ipo_loss(first, second, third, fourth, 0.5),
            infalign.best_of_n_sft_loss(first.reshape(2, 3), np.arange(6).reshape(2, 3), 2),
        ]
        return losses, [torch.autograd.grad(loss, first) for loss in losses]

    assert_same_on_both(run)
