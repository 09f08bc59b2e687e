def best_of_win_rate(F, n):
    """Best of n against one draw of the base policy."""
    u = np.linspace(0, 1, len(F))
    return float(1 - np.trapezoid(F**n, u))


def distilled(m, n):
    """The best of m n draws against one."""
    return m * n / (m * n + 1)
