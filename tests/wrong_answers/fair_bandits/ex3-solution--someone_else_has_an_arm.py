def usable_pairs(graph):
    """Ask only whether every other player still has some arm, not whether they differ."""
    usable = graph.copy()
    for i, k in np.argwhere(graph):
        rest = np.delete(np.delete(graph, i, axis=0), k, axis=1)
        usable[i, k] = rest.any(axis=1).all()
    return usable
