def latest_epoch(gap, horizon, c, sigma, growth):
    """Let each interval reach to one side only."""
    epoch, plays = 0, 1
    while 2 * sigma * np.sqrt(c * np.log(horizon) / plays) >= gap:
        epoch += 1
        plays += int(np.ceil(growth**epoch))
    return epoch
