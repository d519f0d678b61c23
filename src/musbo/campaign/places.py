"""What stands where in the directory of a campaign."""

LEDGER = "ledger.sqlite"
STORE = "store"
SETTINGS = "settings.json"


def new_place(name: str) -> str:
    """The name of the directory in which a campaign called `name` is made, before it is moved to its place."""
    return f".{name}.new"
