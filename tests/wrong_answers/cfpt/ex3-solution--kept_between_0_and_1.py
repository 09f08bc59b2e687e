def best_weight(err_cfi, err_ptm):
    """Clip the weight to [0, 1]."""
    apart = err_ptm - err_cfi
    return float(np.clip((err_ptm * apart).sum() / (apart**2).sum(), 0, 1))


def mixed_error(square_cfi, square_ptm, correlation):
    """Return the mean squared error of the best mixture."""
    cross = correlation * (square_cfi * square_ptm) ** 0.5
    product = square_cfi * square_ptm * (1 - correlation**2)
    return float(product / (square_cfi + square_ptm - 2 * cross))
