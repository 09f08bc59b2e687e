def worst_of_n_reward(policy, base, rewards, n):
    """The derivative at the base policy."""
    _, group = np.unique(rewards, return_inverse=True)
    tail = np.concatenate([[1.0], 1 - np.cumsum(np.bincount(group, weights=base))])
    loses = 1 - np.maximum(tail, 0) ** n
    wins = (loses[1:] + loses[:-1]) / 2
    slope = n * np.maximum(tail[1:-1], 0) ** (n - 1) * np.diff(wins)
    return np.concatenate([[0.0], np.cumsum(slope)])[group]
