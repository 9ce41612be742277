"""The statements that the stand-in knows, read strictly: by sqlglot's words of Snowflake's dialect, and by nothing looser.

sqlglot itself takes a statement that it cannot read for a text; here it is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlglot import Token, TokenType, tokenize
from sqlglot.errors import TokenError

from tests.standins.snowflake.refusals import syntax

KINDS = (
    "CATALOG INTEGRATION", "EXTERNAL VOLUME", "ICEBERG TABLE", "DATABASE", "INTEGRATION", "SCHEMA", "USER", "ROLE",
    "WAREHOUSE",
)  # fmt: skip
PRIVILEGES = ("MODIFY PROGRAMMATIC AUTHENTICATION METHODS", "CREATE ICEBERG TABLE", "USAGE", "SELECT")

Name = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement: what is done (`verb`), to what, and how. `many`: ALL or FUTURE, where a grant is of many."""

    verb: str
    kind: str = ""
    name: Name = ()
    options: dict[str, Any] = field(default_factory=dict)
    privilege: str = ""
    to: Name = ()
    many: str = ""
    within: str = ""


def parse(sql: str) -> Statement:
    """Read a statement.

    Raises:
        Refusal: it is none that the stand-in knows.
    """
    try:
        words = tokenize(sql, dialect="snowflake")
    except TokenError as error:
        raise syntax(sql[:40]) from error
    reader = _Reader(words)
    statement = reader.statement()
    if reader.left:
        raise syntax(reader.left[0].text)
    return statement


class _Reader:
    """Reads words from left to right."""

    def __init__(self, words: list[Token]) -> None:
        self.left = words

    def statement(self) -> Statement:
        for verb, read in (
            ("CREATE", self._create),
            ("ALTER", self._alter),
            ("DROP", self._drop),
            ("GRANT", self._grant),
            ("DESC", self._desc),
            ("SHOW", self._show),
            ("SELECT", self._select),
        ):
            if self._take(verb):
                return read()
        raise syntax(self._next().text)

    def _create(self) -> Statement:
        kind = self._kind()
        self._need("IF NOT EXISTS")
        return Statement("CREATE", kind, self._name(), self._options())

    def _alter(self) -> Statement:
        kind = self._kind()
        name = self._name()
        if kind == "ICEBERG TABLE" and self._take("REFRESH"):
            return Statement("REFRESH", kind, name)
        self._need("SET")
        return Statement("ALTER", kind, name, self._options())

    def _drop(self) -> Statement:
        kind = self._kind()
        self._need("IF EXISTS")
        return Statement("DROP", kind, self._name())

    def _grant(self) -> Statement:
        if self._take("ROLE"):
            role = self._name()
            self._need("TO")
            kind = self._kind()
            return Statement("GRANT ROLE", kind, role, to=self._name())
        privilege = next((each for each in PRIVILEGES if self._take(each)), None)
        if privilege is None:
            raise syntax(self._next().text)
        self._need("ON")
        many = next((each for each in ("ALL", "FUTURE") if self._take(each)), "")
        within = ""
        if many:
            kind = self._kind(plural=True)
            self._need("IN")
            within = self._kind()
        else:
            kind = self._kind()
        name = self._name()
        self._need("TO ROLE")
        return Statement("GRANT", kind, name, privilege=privilege, to=self._name(), many=many, within=within)

    def _desc(self) -> Statement:
        return Statement("DESC", self._kind(), self._name())

    def _show(self) -> Statement:
        kind = "OBJECTS" if self._take("OBJECTS") else self._kind(plural=True)
        options = {"LIKE": self._string()} if self._take("LIKE") else {}
        within, name = (self._kind(), self._name()) if self._take("IN") else ("", ())
        return Statement("SHOW", kind, name, options, within=within)

    def _select(self) -> Statement:
        function = self._next().text.upper()
        if function == "COUNT":
            self._need("( * ) FROM")
            return Statement("COUNT", "ICEBERG TABLE", self._name())
        self._need("(")
        arguments: list[str] = []
        while not self._take(")"):
            if arguments:
                self._need(",")
            arguments.append(self._string())
        if self._take("AS"):
            self._next()
        return Statement("SELECT", function, tuple(arguments))

    def _options(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.left and self.left[0].token_type != TokenType.R_PAREN:
            self._take(",")
            key = self._next().text.upper()
            if key in found:
                raise syntax(key)
            self._need("=")
            found[key] = self._value()
        return found

    def _value(self) -> Any:
        if self._take("("):
            value = self._group()
            self._need(")")
            return value
        word = self._next()
        match word.token_type:
            case TokenType.STRING:
                return word.text
            case TokenType.NUMBER:
                return int(word.text)
            case TokenType.TRUE | TokenType.FALSE:
                return word.token_type == TokenType.TRUE
        return Word(word.text.upper())

    def _group(self) -> Any:
        """`(KEY = value ...)` is a mapping, `(value, ...)` a list."""
        if len(self.left) > 1 and self.left[1].token_type == TokenType.EQ:
            return self._options()
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
        return values

    def _kind(self, *, plural: bool = False) -> str:
        for kind in KINDS:
            if self._take(f"{kind}S" if plural else kind):
                return kind
        raise syntax(self._next().text)

    def _name(self) -> Name:
        parts = [self._part()]
        while self._take("."):
            parts.append(self._part())
        return tuple(parts)

    def _part(self) -> str:
        word = self._next()
        if word.token_type != TokenType.IDENTIFIER:
            raise syntax(f"{word.text} (the stand-in wants every name in quotes)")
        return word.text

    def _string(self) -> str:
        word = self._next()
        if word.token_type != TokenType.STRING:
            raise syntax(word.text)
        return word.text

    def _next(self) -> Token:
        if not self.left:
            raise syntax("<EOF>")
        word, *self.left = self.left
        return word

    def _take(self, text: str) -> bool:
        """Go past these words, if they come next; sqlglot has some pairs of words as one."""
        ahead = self.left
        wanted = text.split()
        while wanted:
            if not ahead or ahead[0].token_type in (TokenType.STRING, TokenType.IDENTIFIER):
                return False
            said = ahead[0].text.upper().split()
            if wanted[: len(said)] != said:
                return False
            wanted, ahead = wanted[len(said) :], ahead[1:]
        self.left = ahead
        return True

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise syntax(self._next().text)


class Word(str):
    """A word without quotes."""

    __slots__ = ()
