def uncouple(new_low, new_high, s1, t1, s2, t2):
    """Undo the updates in the order in which they were made."""
    low = (new_low - t1(new_high)) * torch.exp(-s1(new_high))
    high = (new_high - t2(low)) * torch.exp(-s2(low))
    return low, high
