def dualize_sum(net, gradients):
    """Return the dual for the sum."""
    pairs = zip(net.atoms, gradients, net.shares, strict=True)
    sizes = torch.stack([share * atom.gradient_norm(g) for atom, g, share in pairs])
    chosen = torch.nn.functional.one_hot(sizes.argmax(0), len(sizes)).T
    duals = zip(chosen, net.dualize(gradients), strict=True)
    return [take[:, None, None] * dual for take, dual in duals]


def dualize_root(net, gradients):
    """Give every layer the same part."""
    return [dual / len(gradients) ** 0.5 for dual in net.dualize(gradients)]
