import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.errors import Suspended
from calve.modes.measures import (
    Arithmetic,
    Cast,
    ColumnAt,
    MeasureProblem,
    Number,
    columns_in,
    parse,
    type_of,
    typed,
)
from calve.schema.columns import field, list_of, struct

COLUMNS = struct(
    field("price", "int"),
    field("quantity", "long"),
    field("amount", "decimal(12, 2)"),
    field("rate", "decimal(30, 10)"),
    field("weight", "double"),
    field("side", "string"),
    field("day", "date"),
    field("of", struct(field("shop", "long"))),
    field("tags", list_of("string")),
)
A, B, C = (ColumnAt(name) for name in "abc")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("sum(a)", A),
        ("sum(a + b * c)", Arithmetic("+", A, Arithmetic("*", B, C))),
        ("sum((a + b) * c)", Arithmetic("*", Arithmetic("+", A, B), C)),
        ("sum(a - b - c)", Arithmetic("-", Arithmetic("-", A, B), C)),
        ("sum(a - (b - c))", Arithmetic("-", A, Arithmetic("-", B, C))),
        ("sum(-a)", Arithmetic("-", Number("0"), A)),
        ("SUM(of.shop*1.50)", Arithmetic("*", ColumnAt("of.shop"), Number("1.50"))),
        ("sum(cast(a as DECIMAL(18,4)))", Cast(A, "decimal(18, 4)")),
        ("sum(cast)", ColumnAt("cast")),
        ("count( * )", None),
    ],
)
def test_a_text_is_a_tree(text: str, tree: object) -> None:
    assert parse(text).of == tree


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "ends too early"),
        ("sum(a", "ends too early"),
        ("sum(a) b", '"b" at character 8 is after the end'),
        ("sum(a b)", '"b" at character 7 is where "\\)" is expected'),
        ("sum(*)", '"\\*" at character 5'),
        ("sum(a / b)", '"/" at character 7 cannot be used: a quotient would be rounded'),
        ("avg(price)", "keep sum\\(x\\) and count\\(x\\)"),
        ("median(price)", "use count, sum, min or max"),
        ("sum(a; drop table b)", '";" at character 6'),
        ("sum('a')", '"\'" at character 5'),
        ("sum(cast(a as int))", '"int" at character 15 is not a type of a cast: write decimal\\(18, 4\\)'),
        ("sum(cast(a as decimal(39, 2)))", "decimal\\(39, 2\\) is not a type"),
        ("sum(cast(a as decimal(4, 5)))", "decimal\\(4, 5\\) is not a type"),
        ("sum(cast(a as decimal(x, 5)))", '"x" at character 23 is not a number of digits'),
        ("sum(1234567890123456789)", "too many digits"),
        (f"sum({'(' * 300}", "more than 300 characters"),
    ],
)
def test_a_text_that_is_no_measure_says_where(text: str, says: str) -> None:
    with pytest.raises(MeasureProblem, match=says):
        parse(text)


NAMES = st.sampled_from(["a", "b.c", "cast", "sum"]).map(ColumnAt)
NUMBERS = st.from_regex(r"(0|[1-9][0-9]{0,5})(\.[0-9]{1,3})?", fullmatch=True).map(Number)
TREES = st.recursive(
    NAMES | NUMBERS,
    lambda inner: (
        st.builds(Arithmetic, st.sampled_from("+-*"), inner, inner)
        | st.builds(Cast, inner, st.sampled_from(["decimal(18, 4)", "decimal(38, 0)"]))
    ),
    max_leaves=12,
)


@given(TREES)
def test_every_tree_is_read_back_from_its_text(tree: Arithmetic) -> None:
    text = f"sum({tree})"
    assert parse(text).of == tree
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("count(*)", "long"),
        ("count(side)", "long"),
        ("sum(price)", "long"),
        ("sum(price * quantity)", "long"),
        ("sum(amount)", "decimal(38, 2)"),
        ("sum(amount * price)", "decimal(38, 2)"),
        ("sum(amount * 1.5)", "decimal(38, 3)"),
        ("sum(amount - quantity)", "decimal(38, 2)"),
        ("sum(cast(weight as decimal(18, 4)) * price)", "decimal(38, 4)"),
        ("min(side)", "string"),
        ("min(price)", "long"),
        ("max(amount)", "decimal(38, 2)"),
        ("max(weight)", "double"),
        ("max(day)", "date"),
        ("max(of.shop)", "long"),
    ],
)
def test_a_measure_has_the_widest_type_of_its_kind(text: str, kind: str) -> None:
    assert type_of(parse(text), COLUMNS) == kind


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sum(weight)", "depends on the order"),
        ("sum(weight * price)", "weight is a double, which is not exact"),
        ("sum(side)", "a string cannot be added up"),
        ("sum(side + 1)", "side is a string, which is not a number"),
        ("sum(cast(side as decimal(18, 4)))", "side is a string, which is not a number"),
        ("sum(cast(weight as decimal(19, 4)))", "a double has fewer digits than 19"),
        ("max(tags)", "tags is a list"),
        ("max(of)", "of is a struct"),
        ("max(nothing)", "no column nothing"),
        ("max(price.of)", "no column price.of"),
        ("count(tags.x)", "no column tags.x"),
        ("sum(rate * rate)", "may have 61 digits, 20 of them after the point"),
        ("sum(rate * amount * price)", "digits"),
    ],
)
def test_what_cannot_be_computed_exactly_is_refused(text: str, says: str) -> None:
    with pytest.raises(Suspended, match=says) as caught:
        type_of(parse(text), COLUMNS)
    assert caught.value.code == "measure_unusable"


def test_whole_numbers_are_multiplied_as_longs_and_others_as_decimals() -> None:
    whole, mixed = (parse(f"sum({text})").of for text in ("price * quantity", "amount * 3"))
    assert whole is not None
    assert mixed is not None
    assert str(typed(whole, COLUMNS).of) == "cast(price as long) * cast(quantity as long)"
    assert str(typed(mixed, COLUMNS).of) == "cast(amount as decimal(12, 2)) * cast(3 as decimal(1, 0))"
    assert list(columns_in(typed(whole, COLUMNS).of)) == ["price", "quantity"]
