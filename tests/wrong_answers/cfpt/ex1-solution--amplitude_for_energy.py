def band_energy(x, c):
    """Add up amplitudes."""
    size = np.abs(np.fft.rfft(x))
    low = size[:c].sum() / size.sum()
    return float(low), float(1 - low)
