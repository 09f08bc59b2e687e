def usable_pairs(graph):
    """Forget that a chain of moves may end on a free arm."""
    matching = fb.maximum_matching(graph)
    num_arms = graph.shape[1]
    reach = np.eye(num_arms, dtype=bool)
    reach[matching, :] |= graph
    for middle in range(num_arms):
        reach |= reach[:, [middle]] & reach[[middle], :]
    return graph & reach[:, matching].T
