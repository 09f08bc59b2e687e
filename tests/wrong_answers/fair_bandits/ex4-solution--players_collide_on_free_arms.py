def structured_cover(graph):
    """Send all players along their free arms in step, without colours."""
    num_players, num_arms = graph.shape
    base = fb.maximum_matching(graph)
    free = np.setdiff1d(np.arange(num_arms), base)
    cover = [list(base)]
    for k in free:
        cover.append([k if graph[i, k] else base[i] for i in range(num_players)])
    for i, k in np.argwhere(graph):
        if k not in free:
            cover.append(list(fb.forced_matching(graph, i, k)))
    return cover
