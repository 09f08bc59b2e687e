def flat_quintic(slope):
    """Return the coefficients of the example."""
    return 2.5, -2.5, 1.0


def worst_error(coefficients, steps, low):
    """Return the largest distance to 1."""
    a, b, c = coefficients
    x = np.linspace(low, 1, 10_001)
    for _ in range(steps):
        x = a * x + b * x**3 + c * x**5
    return float(np.abs(x - 1).max())
