def structured_cover(graph):
    """Make a matching for every single pair."""
    return [list(fb.forced_matching(graph, i, k)) for i, k in np.argwhere(graph)]
