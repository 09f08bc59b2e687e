def best_weight(err_cfi, err_ptm):
    """Return the weight of the first forecast in the best mixture."""
    apart = err_ptm - err_cfi
    return float((err_ptm * apart).sum() / (apart**2).sum())


def mixed_error(square_cfi, square_ptm, correlation):
    """Take equal weights."""
    cross = correlation * (square_cfi * square_ptm) ** 0.5
    return float((square_cfi + square_ptm + 2 * cross) / 4)
