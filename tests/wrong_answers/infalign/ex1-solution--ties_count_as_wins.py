def calibrated(rewards, base):
    """Probability of a reward at most as large."""
    return (rewards[:, None] >= rewards[None, :]) @ base
