"""Errors meant for a person: one sentence that says what is wrong, where, and what to do next."""


class UserError(Exception):
    """Something the user can fix. The command line prints the message alone and exits with 2."""
