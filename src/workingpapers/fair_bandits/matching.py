"""Matchings of players to arms: the bottleneck problem, allowed pairs, and covers.

A *graph* is a boolean matrix of shape (N, K): entry (i, k) says that player i may take arm k.
A *matching* is an integer vector m of length N with distinct entries: player i takes arm m[i].
Every player is matched, arms may stay free, so N <= K throughout.
"""

from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from workingpapers.arguments import (
    as_array,
    as_reals,
    check_choice,
    check_integer,
)

__all__ = [
    "allowed_pairs",
    "bottleneck_matching",
    "edge_coloring",
    "exploration_cover",
    "forced_matching",
    "has_saturating_matching",
    "maximum_matching",
]

Cover = Literal["structured", "pairwise", "greedy"]


def bottleneck_matching(weights: ArrayLike) -> tuple[float, NDArray[np.int_]]:
    """Find the matching whose smallest weight is largest.

    The value is one of the entries, and "there is a matching inside {weights >= x}" can only
    turn from true to false as x grows: so bisect over the sorted entries, with one
    maximum-cardinality matching a step.

    Parameters
    ----------
    weights : array_like, shape (N, K)
        Weight of every pair, N <= K. Infinite entries are allowed (the confidence bounds of a
        pair that was never played); NaN is not.

    Returns
    -------
    value : float
        ``max over matchings m of min_i weights[i, m[i]]``: gamma* if the weights are the means.
    matching : ndarray of int, shape (N,)
        A matching that attains it.

    Raises
    ------
    ValueError
        If ``weights`` is not two-dimensional, is empty, has more rows than columns, holds NaN, is
        masked, or holds other things than real numbers.

    Examples
    --------
    >>> value, matching = bottleneck_matching([[0.9, 0.5], [0.8, 0.3]])
    >>> value, matching.tolist()
    (0.5, [1, 0])
    """
    weights = as_reals("weights", weights, infinite=True)
    check_pairs("weights", weights)
    values = np.unique(weights)
    feasible, infeasible = 0, len(values)  # every pair reaches the smallest entry
    while infeasible - feasible > 1:
        middle = (feasible + infeasible) // 2
        if has_saturating_matching(weights >= values[middle]):
            feasible = middle
        else:
            infeasible = middle
    return float(values[feasible]), maximum_matching(weights >= values[feasible])


def maximum_matching(graph: ArrayLike) -> NDArray[np.int_]:
    """Match as many players as can be matched inside the graph at once.

    Parameters
    ----------
    graph : array_like of bool, shape (N, K)
        The pairs that may be used.

    Returns
    -------
    ndarray of int, shape (N,)
        Arm of each player, -1 for a player left out.

    Raises
    ------
    ValueError
        If ``graph`` is not a boolean matrix with 1 <= N <= K.
    """
    graph = as_graph(graph)
    # With weight 1 on the pairs of the graph, the heaviest assignment uses the most of them.
    player, arm = linear_sum_assignment(graph, maximize=True)
    return np.where(graph[player, arm], arm, -1)


def has_saturating_matching(graph: ArrayLike) -> bool:
    """Say whether all players can be matched inside the graph at once.

    Parameters
    ----------
    graph : array_like of bool, shape (N, K)
        The pairs that may be used.

    Returns
    -------
    bool
        True if some matching lies inside the graph.

    Raises
    ------
    ValueError
        If ``graph`` is not a boolean matrix with 1 <= N <= K.
    """
    return bool((maximum_matching(graph) >= 0).all())


def allowed_pairs(graph: ArrayLike) -> NDArray[np.bool_]:
    """Find the pairs that lie in at least one matching of the graph.

    Take any matching m. Pair (i, k) can be used if player i can move from m[i] to k and the
    others can give way: along a cycle of moves back to m[i], or along a path to a free arm.
    With a directed graph on arms (m[i] -> every arm of player i) and one extra node that links
    the free arms back to every arm, both are directed cycles through the edge m[i] -> k. So the
    pair is allowed exactly when m[i] and k are in the same strongly connected component.

    Parameters
    ----------
    graph : array_like of bool, shape (N, K)
        The pairs that may be used.

    Returns
    -------
    ndarray of bool, shape (N, K)
        A subset of ``graph``; all False if the graph has no matching.

    Raises
    ------
    ValueError
        If ``graph`` is not a boolean matrix with 1 <= N <= K.
    """
    graph = as_graph(graph)
    matching = maximum_matching(graph)
    if (matching < 0).any():
        return np.zeros_like(graph)
    num_arms = graph.shape[1]
    moves = np.zeros((num_arms + 1, num_arms + 1), dtype=bool)
    moves[matching, :-1] = graph
    moves[np.setdiff1d(np.arange(num_arms), matching), -1] = True
    moves[-1, :-1] = True
    _, component = connected_components(csr_array(moves), directed=True, connection="strong")
    return graph & (component[matching][:, None] == component[:-1])


def forced_matching(
    graph: ArrayLike, player: int, arm: int, prefer: ArrayLike | None = None
) -> NDArray[np.int_]:
    """Find a matching of the graph in which the given player takes the given arm.

    Parameters
    ----------
    graph : array_like of bool, shape (N, K)
        The pairs that may be used.
    player : int
        Player i, in 0..N-1.
    arm : int
        Arm k, in 0..K-1.
    prefer : array_like, shape (N, K), optional
        Finite weights; among the matchings through (i, k) one of largest total weight is taken.
        Without it, any.

    Returns
    -------
    ndarray of int, shape (N,)
        The matching.

    Raises
    ------
    ValueError
        If no matching of the graph contains the pair, or an argument is out of its range.
    """
    graph = as_graph(graph)
    player = check_integer("player", player, low=0, high=graph.shape[0] - 1)
    arm = check_integer("arm", arm, low=0, high=graph.shape[1] - 1)
    weights = 0.0 if prefer is None else as_reals("prefer", prefer, graph.shape)
    cost = np.where(graph, -weights, np.inf)
    cost[player, np.arange(graph.shape[1]) != arm] = np.inf
    try:
        return linear_sum_assignment(cost)[1]
    except ValueError as error:
        raise ValueError(f"no matching of the graph contains pair ({player}, {arm})") from error


def edge_coloring(graph: ArrayLike) -> NDArray[np.int_]:
    """Colour the edges of a bipartite graph so that edges that meet differ in colour.

    By König's theorem as many colours suffice as the largest degree D, because some matching
    touches every vertex of degree D: take it as a colour, and D falls by one. A matching of
    largest weight, where an edge weighs the number of its ends that have degree D, is one.

    Parameters
    ----------
    graph : array_like of bool, shape (N, M)
        Any boolean matrix; here M may be smaller than N, or zero.

    Returns
    -------
    ndarray of int, shape (N, M)
        Colours 0..D-1 where there is an edge, -1 elsewhere.

    Raises
    ------
    ValueError
        If ``graph`` is not a boolean matrix.
    """
    left = as_array("graph", graph, "boolean").copy()
    if left.ndim != 2:
        raise ValueError(f"graph must be 2-D, got {left.ndim}-D")
    colors = np.full(left.shape, -1)
    color = 0
    while left.any():
        rows, columns = left.sum(axis=1, keepdims=True), left.sum(axis=0, keepdims=True)
        degree = max(rows.max(), columns.max())
        weight = left * ((rows == degree) + 1 * (columns == degree))
        row, column = linear_sum_assignment(weight, maximize=True)
        taken = left[row, column]
        colors[row[taken], column[taken]] = color
        left[row[taken], column[taken]] = False
        color += 1
    return colors


def exploration_cover(graph: ArrayLike, mode: Cover = "structured") -> NDArray[np.int_]:
    """List matchings inside the graph that together use every one of its pairs.

    Parameters
    ----------
    graph : array_like of bool, shape (N, K)
        The plausible pairs. Each must lie in some matching of the graph (see `allowed_pairs`).
    mode : {"structured", "pairwise", "greedy"}
        ``structured``: a base matching leaves K - N arms free. The pairs with free arms are
        edge-coloured, and each colour is one matching: its players go to their free arms, the
        others keep their base arm. Then the base matching and, for each of the N^2 - N other
        pairs of its arms, one matching: unless an earlier one has used the pair. At most
        N^2 - N + 1 + max(N, K - N) matchings: where the N^2 + K of the regret bound comes from.
        ``pairwise``: one matching for each pair, N K on a complete graph.
        ``greedy``: for the first pair not used so far, the matching through it that uses the
        most new pairs; a Latin square, so K matchings, on a complete graph.

    Returns
    -------
    ndarray of int, shape (L, N)
        The matchings, in the order of play.

    Raises
    ------
    ValueError
        If the graph has no pair, a pair lies in no matching, ``mode`` is unknown, or ``graph`` is
        not a boolean matrix with 1 <= N <= K.
    """
    graph = as_graph(graph)
    check_choice("mode", mode, get_args(Cover))
    return _cover(graph.tobytes(), graph.shape, mode).copy()


# All runs share their first epochs, and the covers are most of the work: remember them.
@lru_cache(maxsize=1024)
def _cover(graph_bytes: bytes, shape: tuple[int, int], mode: Cover) -> NDArray[np.int_]:
    graph = np.frombuffer(graph_bytes, dtype=bool).reshape(shape)
    if not graph.any() or (allowed_pairs(graph) != graph).any():
        raise ValueError("graph must have a pair, and each of its pairs must lie in a matching")
    if mode == "pairwise":
        return np.array([forced_matching(graph, i, k) for i, k in np.argwhere(graph)])
    if mode == "greedy":
        return np.array(_complete_cover(graph, [], prefer_new=True))
    return np.array(_complete_cover(graph, _base_matchings(graph), prefer_new=False))


def _base_matchings(graph: NDArray[np.bool_]) -> list[NDArray[np.int_]]:
    """Move a base matching onto the free arms, once for each colour of their pairs."""
    base = maximum_matching(graph)
    free = np.setdiff1d(np.arange(graph.shape[1]), base)
    colors = edge_coloring(graph[:, free])
    matchings = []
    for color in range(colors.max(initial=-1) + 1):
        player, arm = np.nonzero(colors == color)
        matchings.append(base.copy())
        matchings[-1][player] = free[arm]
    # A player with an edge of every colour was never left at its base arm.
    if ((colors >= 0).sum(axis=1) == len(matchings)).any():
        matchings.append(base)
    return matchings


def _complete_cover(
    graph: NDArray[np.bool_], matchings: list[NDArray[np.int_]], prefer_new: bool
) -> list[NDArray[np.int_]]:
    """Add forced matchings until every pair of the graph is used."""
    players = np.arange(graph.shape[0])
    missing = graph.copy()
    for matching in matchings:
        missing[players, matching] = False
    for i, k in np.argwhere(graph):
        if missing[i, k]:
            matchings.append(forced_matching(graph, i, k, missing if prefer_new else None))
            missing[players, matchings[-1]] = False
    return matchings


def as_graph(graph: ArrayLike, name: str = "graph") -> NDArray[np.bool_]:
    """Return a boolean matrix with 1 <= N <= K; raise ValueError for anything else."""
    graph = as_array(name, graph, "boolean")
    check_pairs(name, graph)
    return graph


def check_pairs(name: str, matrix: NDArray) -> None:
    """Raise ValueError unless rows can be players and columns arms: 1 <= N <= K."""
    if matrix.ndim != 2 or not 1 <= matrix.shape[0] <= matrix.shape[1]:
        raise ValueError(
            f"{name} must be 2-D, a row a player and at least as many arms as players, "
            f"got shape {matrix.shape}"
        )
