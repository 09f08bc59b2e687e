def z_of(text, scheme, counts):
    """With every position."""
    return ws.spearman_z(scheme.colors(text), counts.count(scheme.contexts(text)))[1]


def false_alarms(genuine, again, scheme, counts):
    """As it should be."""
    one = np.array([z_of(text, scheme, counts) for text in genuine])
    two = np.array([z_of(text, scheme, counts) for text in again])
    limit = norm.isf(0.05)
    return np.mean(one > limit), np.mean((one - two) / np.sqrt(2) > limit)
