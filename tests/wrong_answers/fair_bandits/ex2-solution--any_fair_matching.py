def price_of_fairness(means):
    """Take the first fair matching that comes."""
    players, arms = linear_sum_assignment(means, maximize=True)
    _, fair = fb.bottleneck_matching(means)
    return float(means[players, arms].min()), float(means[players, fair].sum())
