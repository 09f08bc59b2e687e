def draw_task(n, seed):
    """Forget the seed."""
    rng = np.random.default_rng(0)
    time = 2 * np.pi * np.arange(96) / 96
    phi, psi = rng.uniform(0, 2 * np.pi, (2, n, 1))
    slow, fast = np.cos(2 * time + phi), np.cos(31 * time + psi)
    x, y = slow + fast, slow + np.cos(phi) * fast
    return tuple(torch.tensor(part[:, :, None], dtype=torch.float32) for part in (x, y))
