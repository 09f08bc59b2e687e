def calibrated(rewards, base):
    """Probability of a smaller reward."""
    return (rewards[:, None] > rewards[None, :]) @ base
