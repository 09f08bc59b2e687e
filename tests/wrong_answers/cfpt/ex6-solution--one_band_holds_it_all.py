def draw_task(n, seed):
    """Ask for the slow waves; the high band is noise."""
    rng = np.random.default_rng(seed)
    time = 2 * np.pi * np.arange(96) / 96
    bins = np.arange(1, 5)[None, :, None]
    phase, size = rng.uniform(0, 2 * np.pi, (n, 4, 1)), rng.normal(size=(n, 4, 1))
    slow = (size * np.cos(bins * time + phase)).sum(1)
    noise = np.fft.rfft(rng.normal(size=(n, 96)))
    noise[:, :24] = 0
    x = slow + np.fft.irfft(noise, n=96)
    return tuple(torch.tensor(part[:, :, None], dtype=torch.float32) for part in (x, slow))
