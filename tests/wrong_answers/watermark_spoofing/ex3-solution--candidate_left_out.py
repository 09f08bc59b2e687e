def self_hash(key, contexts):
    """The three pairs with the context."""
    candidates, contexts = np.arange(V), np.asarray(contexts)
    pairs = pair_hash(key, contexts[:, :, None], candidates)
    return unit(pairs.min(axis=1), candidates) < GAMMA
