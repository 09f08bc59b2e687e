def phase_table(x, y, phase, n_phases):
    """Weigh by the spread instead of its square."""
    _, mu, sd = cfpt.standardise_window(x)
    top = torch.zeros(n_phases, *y.shape[1:], dtype=x.dtype)
    bottom = torch.zeros(n_phases, 1, y.shape[2], dtype=x.dtype)
    top.index_add_(0, phase, y - mu)
    bottom.index_add_(0, phase, sd)
    return top / bottom
