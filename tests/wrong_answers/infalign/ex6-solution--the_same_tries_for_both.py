def one_of_top(probs, rewards, n, m):
    """Return the distribution of one of the m best of n draws."""
    from scipy.stats import binom

    _, group = np.unique(rewards, return_inverse=True)
    mass = np.bincount(group, weights=probs)
    F = np.clip(np.concatenate([[0.0], np.cumsum(mass)]), 0, 1)
    k = np.arange(n + 1)
    G = binom.pmf(k, n, F[:, None]) @ (np.maximum(k - (n - m), 0) / m)
    share = np.divide(np.diff(G), mass, out=np.zeros_like(mass), where=mass > 0)
    return probs * share[group]


def top_win_rate(policy, base, rewards, n, m, base_n):
    """Both sides draw n."""
    ours, theirs = one_of_top(policy, rewards, n, m), one_of_top(base, rewards, n, m)
    return infalign.win_rate(ours, theirs, rewards)


def curvature(F, n, m):
    """As it should be."""
    from scipy.stats import binom

    F = np.asarray(F, dtype=float)
    if m == n:
        return np.zeros_like(F)
    return n * (n - 1) / m * binom.pmf(n - m - 1, n - 2, F)
