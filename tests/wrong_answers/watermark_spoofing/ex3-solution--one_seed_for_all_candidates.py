def self_hash(key, contexts):
    """The smallest hash within the context."""
    candidates, contexts = np.arange(V), np.asarray(contexts)
    pairs = pair_hash(key, contexts[:, :, None], contexts[:, None, :])
    return unit(pairs.min(axis=(1, 2))[:, None], candidates) < GAMMA
