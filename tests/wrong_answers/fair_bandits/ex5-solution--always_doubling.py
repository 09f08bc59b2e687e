def latest_epoch(gap, horizon, c, sigma, growth):
    """Use the formula for doubling whatever the growth."""
    return fb.elimination_epoch(gap, horizon, c, sigma)
