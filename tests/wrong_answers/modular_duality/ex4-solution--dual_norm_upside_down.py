def scale_norm(weight):
    """Return the operator norm."""
    return weight.abs().max() / len(weight) ** 0.5


def scale_dual_norm(gradient):
    """Divide by the root once more."""
    return gradient.abs().sum() / len(gradient) ** 0.5


def scale_dualize(gradient):
    """Return the dual."""
    return len(gradient) ** 0.5 * gradient.sign()
