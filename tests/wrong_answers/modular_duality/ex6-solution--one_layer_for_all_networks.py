def dualize_sum(net, gradients):
    """Choose one layer for all networks together."""
    pairs = zip(net.atoms, gradients, net.shares, strict=True)
    sizes = [float((share * atom.gradient_norm(g)).sum()) for atom, g, share in pairs]
    duals = net.dualize(gradients)
    best = int(np.argmax(sizes))
    return [dual if layer == best else 0 * dual for layer, dual in enumerate(duals)]


def dualize_root(net, gradients):
    """Divide the step by the sizes of all networks together."""
    pairs = zip(net.atoms, gradients, net.shares, strict=True)
    sizes = np.array([float((share * atom.gradient_norm(g)).sum()) for atom, g, share in pairs])
    parts = sizes / np.linalg.norm(sizes)
    return [part * dual for part, dual in zip(parts.tolist(), net.dualize(gradients), strict=True)]
