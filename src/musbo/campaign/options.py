"""What `musbo run` and `musbo resume` both take. Nothing here is slow to import: help reads it."""

import argparse


def add_output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="one object on standard output and nothing else; progress on standard error"
    )
    parser.add_argument(
        "--checkpoint-seconds", type=_seconds, default=20.0, metavar="S",
        help="write training down this often; a kill loses no more, or one epoch or update (default: 20)",
    )  # fmt: skip


def _seconds(word: str) -> float:
    seconds = float(word)
    if not seconds >= 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, not {word}")
    return seconds
