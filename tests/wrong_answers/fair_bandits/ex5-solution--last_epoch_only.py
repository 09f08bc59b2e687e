def latest_epoch(gap, horizon, c, sigma, growth):
    """Count the plays of the last epoch only."""
    epoch = 0
    while 4 * sigma * np.sqrt(c * np.log(horizon) / np.ceil(growth**epoch)) >= gap:
        epoch += 1
    return epoch
