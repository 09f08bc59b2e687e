def statistic(X, Y):
    """With the root of T."""

    def ranks(values):
        values = np.asarray(values)
        smaller = (values[:, None] > values).sum(axis=1)
        equal = (values[:, None] == values).sum(axis=1)
        return smaller + (equal + 1) / 2

    return float(np.corrcoef(ranks(X), ranks(Y))[0, 1] * np.sqrt(len(X)))
