"""What the problem is: sizes, bounds, episode length, reward and termination."""
