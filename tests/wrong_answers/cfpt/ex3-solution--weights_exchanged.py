def best_weight(err_cfi, err_ptm):
    """Return the weight of the other forecast."""
    apart = err_cfi - err_ptm
    return float((err_cfi * apart).sum() / (apart**2).sum())


def mixed_error(square_cfi, square_ptm, correlation):
    """Return the mean squared error of the best mixture."""
    cross = correlation * (square_cfi * square_ptm) ** 0.5
    product = square_cfi * square_ptm * (1 - correlation**2)
    return float(product / (square_cfi + square_ptm - 2 * cross))
