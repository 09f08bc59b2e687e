def self_hash(key, contexts):
    """The largest instead of the smallest."""
    candidates = np.arange(V)
    seeds = pair_hash(key, candidates, candidates)[None, :]
    for column in np.asarray(contexts).T:
        seeds = np.maximum(seeds, pair_hash(key, column[:, None], candidates))
    return unit(seeds, candidates) < GAMMA
