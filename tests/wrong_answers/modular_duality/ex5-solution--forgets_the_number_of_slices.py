def dual_by_slices(gradient):
    """Give every slice a norm of 1."""
    U, _, Vt = torch.linalg.svd(gradient.permute(2, 3, 0, 1), full_matrices=False)
    radius = (gradient.shape[0] / gradient.shape[1]) ** 0.5
    return (radius * U @ Vt).permute(2, 3, 0, 1)


def dual_by_ascent(gradient, steps, size):
    """Clip at a norm of 1 for every slice."""
    slices = gradient.permute(2, 3, 0, 1)
    radius = (gradient.shape[0] / gradient.shape[1]) ** 0.5
    change = torch.zeros_like(slices)
    for _ in range(steps):
        U, S, Vt = torch.linalg.svd(change + size * slices, full_matrices=False)
        change = U @ torch.diag_embed(S.clamp(max=radius)) @ Vt
    return change.permute(2, 3, 0, 1)
