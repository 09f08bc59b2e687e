def flat_quintic(slope):
    """Return (a, b, c)."""
    a = float(slope)
    return a, (5 - 4 * a) / 2, (2 * a - 3) / 2


def worst_error(coefficients, steps, low):
    """Follow the smallest value only."""
    a, b, c = coefficients
    x = low
    for _ in range(steps):
        x = a * x + b * x**3 + c * x**5
    return abs(x - 1)
