"""The reward and the end of `plant.toml`, of one step."""


def reward(obs, act, next_obs):
    return next_obs[0] - 0.5 * act[0]


def over(next_obs):
    return next_obs[0] > 150
