"""What Snowflake says where it does not do a statement: number, SQLSTATE, words."""

from __future__ import annotations


class Refusal(Exception):
    """One statement is not done; the others go on."""

    def __init__(self, message: str, code: str = "002000", state: str = "42000") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.state = state


def syntax(text: str) -> Refusal:
    return Refusal(f"SQL compilation error:\nsyntax error: unexpected '{text}'.", "001003")


def absent(kind: str, name: tuple[str, ...]) -> Refusal:
    """Also where it may not be seen: the two are not told apart."""
    message = (
        f"SQL compilation error:\n{kind.capitalize()} '{'.'.join(name)}' does not exist or not authorized."
    )
    return Refusal(message, "002003", "02000")


def forbidden(kind: str, name: tuple[str, ...]) -> Refusal:
    message = (
        f"SQL access control error:\nInsufficient privileges to operate on {kind.lower()} '{'.'.join(name)}'"
    )
    return Refusal(message, "003001", "42501")
