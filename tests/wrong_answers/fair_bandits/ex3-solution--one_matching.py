def usable_pairs(graph):
    """Return the pairs of one matching only."""
    usable = np.zeros_like(graph)
    usable[np.arange(len(graph)), fb.maximum_matching(graph)] = True
    return usable
