def latest_epoch(gap, horizon, c, sigma, growth):
    """Take growth**p rounds, whole or not."""
    epoch, plays = 0, 1.0
    while 4 * sigma * np.sqrt(c * np.log(horizon) / plays) >= gap:
        epoch += 1
        plays += growth**epoch
    return epoch
