def sign_duality(gradient):
    """Give the step a Euclidean norm of 1."""
    return gradient.sign() / gradient.numel() ** 0.5, gradient.abs().sum()
