"""Small causal language models: corpora, tokenizer, n-grams, transformers, training, generation."""

from workingpapers.language.causal import CausalLM, Decoding, perplexity
from workingpapers.language.corpora import Corpus, king_james_bible, python_topics, read_corpus
from workingpapers.language.generation import generate
from workingpapers.language.ngram import ContextTable, NGramLM
from workingpapers.language.tokens import (
    as_token_texts,
    blocks,
    encode,
    pad,
    train_tokenizer,
    window_keys,
)
from workingpapers.language.training import Checkpoint, load_checkpoint, save_checkpoint, train
from workingpapers.language.transformer import (
    TransformerLM,
    new_transformer,
    response_log_probs,
    reward_scores,
    small_config,
    token_log_probs,
)

__all__ = [
    "CausalLM",
    "Checkpoint",
    "ContextTable",
    "Corpus",
    "Decoding",
    "NGramLM",
    "TransformerLM",
    "as_token_texts",
    "blocks",
    "encode",
    "generate",
    "king_james_bible",
    "load_checkpoint",
    "new_transformer",
    "pad",
    "perplexity",
    "python_topics",
    "read_corpus",
    "response_log_probs",
    "reward_scores",
    "save_checkpoint",
    "small_config",
    "token_log_probs",
    "train",
    "train_tokenizer",
    "window_keys",
]
