def dualize_sum(net, gradients):
    """Choose the layer with the largest gradient, by its length."""
    sizes = torch.stack([g.flatten(1).norm(dim=1) for g in gradients])
    chosen = torch.nn.functional.one_hot(sizes.argmin(0), len(sizes)).T
    duals = zip(chosen, net.dualize(gradients), strict=True)
    return [take[:, None, None] * dual for take, dual in duals]


def dualize_root(net, gradients):
    """Divide the step by the gradients' lengths."""
    sizes = torch.stack([g.flatten(1).norm(dim=1) for g in gradients])
    parts = sizes / torch.linalg.vector_norm(sizes, dim=0).clamp(min=1e-30)
    duals = zip(parts, net.dualize(gradients), strict=True)
    return [part[:, None, None] * dual for part, dual in duals]
