def scale_norm(weight):
    """Measure the weights by their RMS."""
    return md.rms_norm(weight)


def scale_dual_norm(gradient):
    """Return its dual norm."""
    return len(gradient) * md.rms_norm(gradient)


def scale_dualize(gradient):
    """Return its dual."""
    return gradient / md.rms_norm(gradient).clamp(min=1e-12)
