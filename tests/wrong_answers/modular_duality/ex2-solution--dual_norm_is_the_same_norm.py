def sign_duality(gradient):
    """Measure the gradient by the norm of the weights."""
    return gradient.sign(), gradient.abs().max()
