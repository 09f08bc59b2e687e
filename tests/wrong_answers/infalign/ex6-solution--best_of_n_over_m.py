def one_of_top(probs, rewards, n, m):
    """Take it for the best of n / m draws."""
    return infalign.BestOfN(max(1, n // m)).distribution(probs, rewards)


def top_win_rate(policy, base, rewards, n, m, base_n):
    """Win rate of that."""
    ours, theirs = one_of_top(policy, rewards, n, m), one_of_top(base, rewards, base_n, m)
    return infalign.win_rate(ours, theirs, rewards)


def curvature(F, n, m):
    """Of the power n / m."""
    k = n / m
    return k * (k - 1) * np.asarray(F) ** max(k - 2, 0)
