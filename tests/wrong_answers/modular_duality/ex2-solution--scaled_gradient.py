def sign_duality(gradient):
    """Scale the gradient to a largest entry of 1."""
    dual = gradient / gradient.abs().max()
    return dual, (gradient * dual).sum()
