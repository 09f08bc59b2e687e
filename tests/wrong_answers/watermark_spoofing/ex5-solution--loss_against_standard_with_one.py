def combined(rho, T, rhos, lengths):
    """As it should be."""
    rhos, lengths = np.asarray(rhos), np.asarray(lengths)
    variance = 1 / (T - 1) + (1 / (lengths - 1)).sum() / len(rhos) ** 2
    return float((rho - rhos.mean()) / np.sqrt(variance))


def smallest_k(loss):
    """Where 1/k is below the loss."""
    return int(np.floor(1 / loss)) + 1


def same_power(T, k):
    """T plus T over k."""
    return int(np.ceil(T * (1 + 1 / np.sqrt(k))))
