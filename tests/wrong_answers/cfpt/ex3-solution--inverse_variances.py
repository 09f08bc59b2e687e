def best_weight(err_cfi, err_ptm):
    """Weigh by the inverse of the squared errors."""
    first, second = (err_cfi**2).mean(), (err_ptm**2).mean()
    return float(second / (first + second))


def mixed_error(square_cfi, square_ptm, correlation):
    """Forget the correlation."""
    return float(square_cfi * square_ptm / (square_cfi + square_ptm))
