def best_of_n(probs, rewards, n):
    """Weigh by a power of the distribution function."""
    _, group = np.unique(rewards, return_inverse=True)
    F = np.cumsum(np.bincount(group, weights=probs))
    weights = probs * F[group] ** (n - 1)
    return weights / weights.sum()
