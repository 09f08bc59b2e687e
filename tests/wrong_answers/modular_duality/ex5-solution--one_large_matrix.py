def dual_by_slices(gradient):
    """Orthogonalise the kernel as one matrix."""
    U, _, Vt = torch.linalg.svd(gradient.flatten(1), full_matrices=False)
    return ((gradient.shape[0] / gradient.shape[1]) ** 0.5 / 4 * U @ Vt).view_as(gradient)


def dual_by_ascent(gradient, steps, size):
    """Clip the singular values of the kernel as one matrix."""
    radius = (gradient.shape[0] / gradient.shape[1]) ** 0.5 / 4
    change = torch.zeros_like(gradient.flatten(1))
    for _ in range(steps):
        U, S, Vt = torch.linalg.svd(change + size * gradient.flatten(1), full_matrices=False)
        change = U @ torch.diag(S.clamp(max=radius)) @ Vt
    return change.view_as(gradient)
