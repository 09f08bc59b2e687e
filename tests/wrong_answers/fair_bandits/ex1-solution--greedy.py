def max_min(means):
    """Give each player in turn the best arm that is left."""
    free, matching = list(range(means.shape[1])), []
    for row in means:
        arm = max(free, key=lambda k: row[k])
        free.remove(arm)
        matching.append(arm)
    worst = means[np.arange(len(means)), matching].min()
    gaps = worst - means
    return float(worst), matching, float(gaps[gaps > 1e-12].min(initial=np.inf))
