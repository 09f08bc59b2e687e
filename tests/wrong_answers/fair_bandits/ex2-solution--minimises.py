def price_of_fairness(means):
    """Forget that the assignment minimises."""
    players, arms = linear_sum_assignment(means)
    worst = means[players, arms].min()
    gamma_star, _ = fb.bottleneck_matching(means)
    players, arms = linear_sum_assignment(np.where(means >= gamma_star, means, 1e3))
    return float(worst), float(means[players, arms].sum())
