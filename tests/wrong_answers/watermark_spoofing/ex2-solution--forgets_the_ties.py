def mann_whitney(X, Y):
    """Without the correction of the variance."""
    X, Y = np.asarray(X), np.asarray(Y)
    green, red = Y[X == 1], Y[X == 0]
    U = (green[:, None] > red).sum() + (green[:, None] == red).sum() / 2
    pairs = len(green) * len(red)
    return float((U - pairs / 2) / np.sqrt(pairs / 12 * (len(X) + 1)))
