def price_of_fairness(means):
    """Give unfair pairs the value -1, which large means outweigh."""
    players, arms = linear_sum_assignment(means, maximize=True)
    worst = means[players, arms].min()
    gamma_star, _ = fb.bottleneck_matching(means)
    only_fair = np.where(means >= gamma_star, means, -1.0)
    players, arms = linear_sum_assignment(only_fair, maximize=True)
    return float(worst), float(means[players, arms].sum())
