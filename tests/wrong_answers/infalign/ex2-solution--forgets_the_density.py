def best_of_win_rate(F, n):
    """Without the factor n."""
    u = np.linspace(0, 1, len(F))
    return float(1 - np.trapezoid(F**n * u ** (n - 1), u))


def distilled(m, n):
    """As in the text."""
    return m / (m + 1)
