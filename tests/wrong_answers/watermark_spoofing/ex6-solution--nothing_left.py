def withhold(boosts, frequency, rng):
    """No boost in any context that could be known."""
    return boosts * (frequency < 3)[:, None]
