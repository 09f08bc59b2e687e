def one_of_top(probs, rewards, n, m):
    """Return the m-th best of n draws."""
    from scipy.stats import binom

    _, group = np.unique(rewards, return_inverse=True)
    mass = np.bincount(group, weights=probs)
    F = np.clip(np.concatenate([[0.0], np.cumsum(mass)]), 0, 1)
    G = binom.sf(n - m, n, F)
    share = np.divide(np.diff(G), mass, out=np.zeros_like(mass), where=mass > 0)
    return probs * share[group]


def top_win_rate(policy, base, rewards, n, m, base_n):
    """Win rate of the m-th best."""
    ours, theirs = one_of_top(policy, rewards, n, m), one_of_top(base, rewards, base_n, m)
    return infalign.win_rate(ours, theirs, rewards)


def curvature(F, n, m):
    """Of the power."""
    return n * (n - 1) * np.asarray(F) ** (n - 2)
