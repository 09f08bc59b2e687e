def worst_of_n_reward(policy, base, rewards, n):
    """The formula of the chapter."""
    return infalign.win_rate_gradient(policy, base, rewards, infalign.BestOfN(n))
