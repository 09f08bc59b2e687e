"""Watermark spoofing: telling text that a watermarked language model wrote from forgeries of it.

Thibaud Gloaguen, Nikola Jovanović, Robin Staab and Martin Vechev, "Discovering Spoofing Attempts on
Language Model Watermarks", Proceedings of the 42nd International Conference on Machine Learning
(ICML), PMLR 267, pages 19562-19584, 2025. https://openreview.net/forum?id=hSCxEZLvxI
"""

from workingpapers.watermark_spoofing.detection import DetectionResult, first_occurrences
from workingpapers.watermark_spoofing.distillation import (
    PositionalStudent,
    distil,
    finetune_student,
)
from workingpapers.watermark_spoofing.evidence import Evidence, FrequencyBin, collect, gram_width
from workingpapers.watermark_spoofing.experiments import (
    PAPER_SETUPS,
    SETUPS,
    Setup,
    Study,
    cost_ratios,
    data_grid,
    exact_statistics,
    finetuned,
    limits,
    make_study,
    model_statistics,
    rejections,
    score_means,
    simulated_power,
    statistics,
)
from workingpapers.watermark_spoofing.kth import KTH
from workingpapers.watermark_spoofing.power import expected_z, power, tokens_needed
from workingpapers.watermark_spoofing.prf import TokenPRF
from workingpapers.watermark_spoofing.procedure import (
    CalibrationReport,
    Examination,
    calibrate,
    examine,
)
from workingpapers.watermark_spoofing.processors import WatermarkProcessor, processor
from workingpapers.watermark_spoofing.reference import NGramCounts
from workingpapers.watermark_spoofing.schemes import KGW, Aaronson, Scheme
from workingpapers.watermark_spoofing.spoofers import (
    BoostTable,
    GracefulEnding,
    RepetitionPenalty,
    StealingProcessor,
    StealingSpoofer,
    StolenWatermark,
)
from workingpapers.watermark_spoofing.spoofing_test import (
    SpoofingTestResult,
    copies,
    spearman_z,
    spoofing_test,
)
from workingpapers.watermark_spoofing.tilt import TiltedLM, draw_tilts
from workingpapers.watermark_spoofing.world import (
    Subjects,
    World,
    bible_world,
    huggingface_world,
    llama_world,
    ngram_world,
    transformer_world,
    write,
    write_anew,
)

__all__ = [
    "KGW",
    "KTH",
    "PAPER_SETUPS",
    "SETUPS",
    "Aaronson",
    "BoostTable",
    "CalibrationReport",
    "DetectionResult",
    "Evidence",
    "Examination",
    "FrequencyBin",
    "GracefulEnding",
    "NGramCounts",
    "PositionalStudent",
    "RepetitionPenalty",
    "Scheme",
    "Setup",
    "SpoofingTestResult",
    "StealingProcessor",
    "StealingSpoofer",
    "StolenWatermark",
    "Study",
    "Subjects",
    "TiltedLM",
    "TokenPRF",
    "WatermarkProcessor",
    "World",
    "bible_world",
    "calibrate",
    "collect",
    "copies",
    "cost_ratios",
    "data_grid",
    "distil",
    "draw_tilts",
    "exact_statistics",
    "examine",
    "expected_z",
    "finetune_student",
    "finetuned",
    "first_occurrences",
    "gram_width",
    "huggingface_world",
    "limits",
    "llama_world",
    "make_study",
    "model_statistics",
    "ngram_world",
    "power",
    "processor",
    "rejections",
    "score_means",
    "simulated_power",
    "spearman_z",
    "spoofing_test",
    "statistics",
    "tokens_needed",
    "transformer_world",
    "write",
    "write_anew",
]
