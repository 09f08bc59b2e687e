def uncouple(new_low, new_high, s1, t1, s2, t2):
    """Divide first, subtract then."""
    high = new_high * torch.exp(-s2(new_low)) - t2(new_low)
    low = new_low * torch.exp(-s1(high)) - t1(high)
    return low, high
