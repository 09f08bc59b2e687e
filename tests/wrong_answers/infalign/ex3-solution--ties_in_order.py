def best_of_n(probs, rewards, n):
    """Sort and take differences, ties in the order in which they stand."""
    order = np.argsort(rewards, kind="stable")
    F = np.minimum(np.cumsum(probs[order]), 1.0)
    best = np.empty_like(probs)
    best[order] = np.diff(np.concatenate([[0.0], F]) ** n)
    return best
