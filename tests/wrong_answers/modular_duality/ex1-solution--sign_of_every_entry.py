def dualize_l1(gradient):
    """Take the dual of the largest entry, scaled to l1 norm 1."""
    return gradient.sign() / gradient.ne(0).sum().clamp(min=1)
