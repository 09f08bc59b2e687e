def worst_of_n_reward(policy, base, rewards, n):
    """Turn the order round and forget the sign."""
    return infalign.win_rate_gradient(policy, base, -rewards, infalign.BestOfN(n))
