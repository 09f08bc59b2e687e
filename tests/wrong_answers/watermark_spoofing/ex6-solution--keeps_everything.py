def withhold(boosts, frequency, rng):
    """Keep nothing back."""
    return boosts
