def withhold(boosts, frequency, rng):
    """Half of the boosts at random."""
    return boosts * (rng.random(len(boosts)) < 0.5)[:, None]
