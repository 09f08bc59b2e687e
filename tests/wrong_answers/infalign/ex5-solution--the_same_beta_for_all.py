U = np.linspace(0, 1, 20_001)


def best_t(n, kl):
    """Compare exponents at the same beta."""

    def rate(t):
        f = np.exp((np.exp(t * (U - 1)) - 1) / 0.2)
        f = f / np.trapezoid(f, U)
        F = np.concatenate([[0.0], np.cumsum((f[1:] + f[:-1]) / 2) * (U[1] - U[0])])
        return 1 - np.trapezoid(F**n * n * U ** (n - 1), U)

    grid = np.exp(np.linspace(0, 5.5, 60))
    return float(grid[np.argmax([rate(t) for t in grid])])


def growth(kl):
    """Slope of the fit."""
    sizes = np.array([2, 4, 8, 16])
    best = [best_t(n, kl) for n in sizes]
    return float(np.polyfit(np.log(sizes), np.log(best), 1)[0])
