def dualize_l1(gradient):
    """Put the whole step on the largest entry."""
    dual = torch.zeros_like(gradient)
    dual[gradient.abs().argmax()] = 1.0
    return dual
