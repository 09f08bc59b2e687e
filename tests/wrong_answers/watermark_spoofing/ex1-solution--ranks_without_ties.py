def statistic(X, Y):
    """Ranks by sorting twice."""
    ranks = [np.argsort(np.argsort(v, kind="stable"), kind="stable") for v in (X, Y)]
    return float(np.corrcoef(*ranks)[0, 1] * np.sqrt(len(X) - 1))
