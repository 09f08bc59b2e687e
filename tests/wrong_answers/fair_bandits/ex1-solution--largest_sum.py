def max_min(means):
    """Take the worst player of the matching with the largest sum."""
    players, matching = linear_sum_assignment(means, maximize=True)
    worst = means[players, matching].min()
    gaps = worst - means
    return float(worst), list(matching), float(gaps[gaps > 1e-12].min(initial=np.inf))
