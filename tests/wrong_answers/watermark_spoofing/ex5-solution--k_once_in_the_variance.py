def combined(rho, T, rhos, lengths):
    """Variance of the sum over k."""
    rhos, lengths = np.asarray(rhos), np.asarray(lengths)
    variance = 1 / (T - 1) + (1 / (lengths - 1)).sum() / len(rhos)
    return float((rho - rhos.mean()) / np.sqrt(variance))


def smallest_k(loss):
    """As it should be."""
    return int(np.floor(1 / (1 / (1 - loss) ** 2 - 1))) + 1


def same_power(T, k):
    """As it should be."""
    return int(np.ceil(1 + (T - 1) * (1 + 1 / k)))
