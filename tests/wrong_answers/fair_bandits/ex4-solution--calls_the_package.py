def structured_cover(graph):
    """Call the function that is to be written."""
    return fb.exploration_cover(graph, "structured").tolist()
