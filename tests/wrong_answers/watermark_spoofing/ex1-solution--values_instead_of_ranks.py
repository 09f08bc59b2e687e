def statistic(X, Y):
    """Pearson's correlation."""
    return float(np.corrcoef(X, Y)[0, 1] * np.sqrt(len(X) - 1))
