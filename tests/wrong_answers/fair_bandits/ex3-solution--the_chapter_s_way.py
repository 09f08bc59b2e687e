def usable_pairs(graph):
    """Ask for a new matching for every pair."""
    usable = np.zeros_like(graph)
    for i, k in np.argwhere(graph):
        others = np.delete(graph, i, axis=0)
        others[:, k] = False
        usable[i, k] = len(others) == 0 or (fb.maximum_matching(others) >= 0).all()
    return usable
