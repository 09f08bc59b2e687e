def structured_cover(graph):
    """Cover the free arms only."""
    base = fb.maximum_matching(graph)
    free = np.setdiff1d(np.arange(graph.shape[1]), base)
    colors = fb.edge_coloring(graph[:, free])
    cover = [list(base)]
    for color in range(colors.max(initial=-1) + 1):
        moved = list(base)
        for i, j in np.argwhere(colors == color):
            moved[i] = free[j]
        cover.append(moved)
    return cover
