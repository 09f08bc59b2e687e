def band_energy(x, c):
    """Count first and last bin once, whatever the length."""
    energy = 2 * np.abs(np.fft.rfft(x)) ** 2
    energy[0] /= 2
    energy[-1] /= 2
    low = energy[:c].sum() / energy.sum()
    return float(low), float(1 - low)
