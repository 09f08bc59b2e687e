def best_of_win_rate(F, n):
    """With the worst of n."""
    u = np.linspace(0, 1, len(F))
    return float(n * np.trapezoid((1 - F) ** n * (1 - u) ** (n - 1), u))


def distilled(m, n):
    """As in the text."""
    return m / (m + 1)
