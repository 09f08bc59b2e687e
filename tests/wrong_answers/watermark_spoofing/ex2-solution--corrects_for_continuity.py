def mann_whitney(X, Y):
    """With a half taken off."""
    X, Y = np.asarray(X), np.asarray(Y)
    green, red = Y[X == 1], Y[X == 0]
    U = (green[:, None] > red).sum() + (green[:, None] == red).sum() / 2
    T, pairs = len(X), len(green) * len(red)
    ties = np.unique(Y, return_counts=True)[1].astype(float)
    variance = pairs / 12 * (T + 1 - (ties**3 - ties).sum() / (T * (T - 1)))
    return float((U - pairs / 2 - 0.5) / np.sqrt(variance))
