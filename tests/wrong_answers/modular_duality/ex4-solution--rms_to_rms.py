def scale_norm(weight):
    """Take the norm for inputs that are measured by RMS."""
    return weight.abs().max()


def scale_dual_norm(gradient):
    """Return its dual norm."""
    return gradient.abs().sum()


def scale_dualize(gradient):
    """Return its dual."""
    return gradient.sign()
