U = np.linspace(0, 1, 20_001)


def best_t(n, kl):
    """The default for n = 4, in proportion."""
    return 2.5 * n


def growth(kl):
    """As for a line."""
    return 1.0
