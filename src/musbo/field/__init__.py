"""The other side of the fence: where a policy acts and data come from."""
