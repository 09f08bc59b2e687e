def regret_of_growth(instance, horizon, growth, communication, n_seeds, rng):
    """Return the mean regret of DFE with epochs of length growth**p."""
    algorithm = fb.DFE(growth=growth, communication=communication)
    return float(algorithm.simulate(instance, horizon, n_seeds, rng).final.mean())


def choose_growth(num_players, num_arms, horizon, min_gap):
    """Look at exploration only."""
    return 1.1
