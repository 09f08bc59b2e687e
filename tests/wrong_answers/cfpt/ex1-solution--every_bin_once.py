def band_energy(x, c):
    """Count every bin once."""
    energy = np.abs(np.fft.rfft(x)) ** 2
    low = energy[:c].sum() / energy.sum()
    return float(low), float(1 - low)
