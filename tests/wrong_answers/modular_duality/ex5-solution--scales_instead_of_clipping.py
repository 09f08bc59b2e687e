def dual_by_slices(gradient):
    """Return the dual by the lemma."""
    U, _, Vt = torch.linalg.svd(gradient.permute(2, 3, 0, 1), full_matrices=False)
    radius = (gradient.shape[0] / gradient.shape[1]) ** 0.5 / 4
    return (radius * U @ Vt).permute(2, 3, 0, 1)


def dual_by_ascent(gradient, steps, size):
    """Divide by the norm where it is above 1."""
    change = torch.zeros_like(gradient)
    for _ in range(steps):
        change = change + size * gradient
        change = change / md.conv2d_norm(change).clamp(min=1.0)
    return change
