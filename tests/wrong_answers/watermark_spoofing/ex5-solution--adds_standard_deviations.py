def combined(rho, T, rhos, lengths):
    """Divide by the sum of standard deviations."""
    rhos, lengths = np.asarray(rhos), np.asarray(lengths)
    spread = 1 / np.sqrt(T - 1) + (1 / np.sqrt(lengths - 1)).mean()
    return float((rho - rhos.mean()) / spread)


def smallest_k(loss):
    """From that."""
    return int(np.ceil(1 / loss))


def same_power(T, k):
    """Four times."""
    return 4 * T
