def calibrated(rewards, base):
    """Share of the responses that it beats."""
    wins = rewards[:, None] > rewards[None, :]
    ties = rewards[:, None] == rewards[None, :]
    return (wins + ties / 2).mean(axis=1)
