def z_of(text, scheme, counts):
    """As it should be."""
    _, first = np.unique(scheme.keys(text), axis=0, return_index=True)
    frequencies = counts.count(scheme.contexts(text))
    return ws.spearman_z(scheme.colors(text)[first], frequencies[first])[1]


def false_alarms(genuine, again, scheme, counts):
    """Without the root of 2."""
    one = np.array([z_of(text, scheme, counts) for text in genuine])
    two = np.array([z_of(text, scheme, counts) for text in again])
    limit = norm.isf(0.05)
    return np.mean(one > limit), np.mean(one - two > limit)
