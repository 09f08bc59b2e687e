"""Max-min fair bandits: sharing arms so that the worst-off player does best.

Zilong Wang, Zhiyao Zhang and Shuai Li, "Optimal Algorithm for Max-Min Fair Bandit", Proceedings of
the 42nd International Conference on Machine Learning (ICML), PMLR 267, 2025.
https://openreview.net/forum?id=hOxq91N1Sb
"""

from workingpapers.fair_bandits.baselines import (
    CentralizedUCB,
    ExploreThenCommit,
    LeshemAuction,
    MyFairBandit,
    Oracle,
    SumOptimal,
    UniformPlay,
)
from workingpapers.fair_bandits.communication import code_length, decode, encode
from workingpapers.fair_bandits.elimination import DFE, EpochRecord, eliminate
from workingpapers.fair_bandits.instances import (
    MU10,
    MaxMinInstance,
    RunResult,
    hard_instance,
    random_instance,
)
from workingpapers.fair_bandits.matching import (
    allowed_pairs,
    bottleneck_matching,
    edge_coloring,
    exploration_cover,
    forced_matching,
    has_saturating_matching,
    maximum_matching,
)
from workingpapers.fair_bandits.protocol import (
    DFEPlayer,
    Environment,
    play,
    simulate_round_by_round,
)
from workingpapers.fair_bandits.theory import (
    confidence_radius,
    cover_bound,
    elimination_epoch,
    failure_probability,
    lower_bound_slope,
    upper_bound,
)

__all__ = [
    "DFE",
    "MU10",
    "CentralizedUCB",
    "DFEPlayer",
    "Environment",
    "EpochRecord",
    "ExploreThenCommit",
    "LeshemAuction",
    "MaxMinInstance",
    "MyFairBandit",
    "Oracle",
    "RunResult",
    "SumOptimal",
    "UniformPlay",
    "allowed_pairs",
    "bottleneck_matching",
    "code_length",
    "confidence_radius",
    "cover_bound",
    "decode",
    "edge_coloring",
    "eliminate",
    "elimination_epoch",
    "encode",
    "exploration_cover",
    "failure_probability",
    "forced_matching",
    "hard_instance",
    "has_saturating_matching",
    "lower_bound_slope",
    "maximum_matching",
    "play",
    "random_instance",
    "simulate_round_by_round",
    "upper_bound",
]
