"""Running experiments: seeds, parallel runs, confidence intervals, claims, result files."""

from workingpapers.lab.claims import Claim, check, evaluate
from workingpapers.lab.experiments import Experiment, product, run_experiment, spawn_generators
from workingpapers.lab.provenance import fingerprint
from workingpapers.lab.reproduction import claims_of, reproduce
from workingpapers.lab.results import Results, read_results, write_results
from workingpapers.lab.statistics import (
    Estimate,
    LinearFit,
    bootstrap_interval,
    interquartile_mean,
    iqm_interval,
    linear_fit,
    mean_interval,
    paired_difference,
    paired_ratio,
    proportion_interval,
)

__all__ = [
    "Claim",
    "Estimate",
    "Experiment",
    "LinearFit",
    "Results",
    "bootstrap_interval",
    "check",
    "claims_of",
    "evaluate",
    "fingerprint",
    "interquartile_mean",
    "iqm_interval",
    "linear_fit",
    "mean_interval",
    "paired_difference",
    "paired_ratio",
    "product",
    "proportion_interval",
    "read_results",
    "reproduce",
    "run_experiment",
    "spawn_generators",
    "write_results",
]
