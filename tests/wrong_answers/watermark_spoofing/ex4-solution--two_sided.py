def z_of(text, scheme, counts):
    """As it should be."""
    _, first = np.unique(scheme.keys(text), axis=0, return_index=True)
    frequencies = counts.count(scheme.contexts(text))
    return ws.spearman_z(scheme.colors(text)[first], frequencies[first])[1]


def false_alarms(genuine, again, scheme, counts):
    """In both directions."""
    one = np.array([z_of(text, scheme, counts) for text in genuine])
    two = np.array([z_of(text, scheme, counts) for text in again])
    limit = norm.isf(0.025)
    return np.mean(abs(one) > limit), np.mean(abs(one - two) / np.sqrt(2) > limit)
