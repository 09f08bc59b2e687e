def regret_of_growth(instance, horizon, growth, communication, n_seeds, rng):
    """Forget to pass the growth on."""
    algorithm = fb.DFE(communication=communication)
    return float(algorithm.simulate(instance, horizon, n_seeds, rng).final.mean())


def choose_growth(num_players, num_arms, horizon, min_gap):
    """Return the middle of the range."""
    return 1.5
