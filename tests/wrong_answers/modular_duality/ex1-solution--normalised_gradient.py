def dualize_l1(gradient):
    """Divide the gradient by its norm."""
    return gradient / gradient.abs().sum().clamp(min=1e-12)
