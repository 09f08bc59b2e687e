def flat_quintic(slope):
    """Take the derivative for a + 2b + 3c."""
    a = float(slope)
    return a, a - 3 + 0.0 * a, 4 - 2 * a


def worst_error(coefficients, steps, low):
    """Return the largest distance to 1."""
    a, b, c = coefficients
    x = np.linspace(low, 1, 10_001)
    for _ in range(steps):
        x = a * x + b * x**3 + c * x**5
    return float(np.abs(x - 1).max())
