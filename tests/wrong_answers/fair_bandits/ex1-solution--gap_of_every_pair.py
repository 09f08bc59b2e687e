def max_min(means):
    """Take gaps in both directions."""
    num_players, num_arms = means.shape
    players = np.arange(num_players)
    worst, matching = max(
        (means[players, list(arms)].min(), arms)
        for arms in permutations(range(num_arms), num_players)
    )
    gaps = np.abs(worst - means)
    return float(worst), list(matching), float(gaps[gaps > 1e-12].min(initial=np.inf))
