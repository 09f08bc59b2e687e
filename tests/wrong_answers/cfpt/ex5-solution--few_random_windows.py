def affine_map(branch):
    """Fit by least squares to fewer windows than there are unknowns."""
    L, dtype = branch.seq_len, branch.embed_low.weight.dtype
    z = torch.randn(L // 2, L, 1, dtype=dtype)
    with torch.no_grad():
        b = branch(torch.zeros(1, L, 1, dtype=dtype))[0, :, 0]
        y = branch(z)[:, :, 0] - b
    return torch.linalg.lstsq(z[:, :, 0], y).solution.T, b
