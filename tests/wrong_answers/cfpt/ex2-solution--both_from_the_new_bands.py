def uncouple(new_low, new_high, s1, t1, s2, t2):
    """Undo both updates at once."""
    high = (new_high - t2(new_low)) * torch.exp(-s2(new_low))
    low = (new_low - t1(new_high)) * torch.exp(-s1(new_high))
    return low, high
