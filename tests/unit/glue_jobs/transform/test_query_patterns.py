"""What a regular expression costs is told by its text."""

import pytest

from glue_jobs.transform.query_costs import NotJudged, growth, like_growth

LOG = r'^(\S+) (\S+) \[([^\]]+)\] "([^"]*)" (\d+)'


@pytest.mark.parametrize(
    ("pattern", "power"),
    [
        ("abc", 1),
        ("[^0-9]", 1),
        ("[0-9]+", 1),
        (r"\p{L}+|[\p{L}\d]*", 1),
        (r"^[a-z]+-[0-9]+$", 1),
        (LOG, 1),
        ("^(foo|bar)[0-9]*$", 1),
        (r"\d{3}-\d{4}", 1),
        ("^.*foo", 1),
        ("(?i)^abc.*$", 1),
        (r"\s+$", 2),
        (r"^\s+|\s+$", 2),
        ("a{1,5000}b", 2),
        ("a++b", 2),
        (".*foo", 2),
        ("foo.*?bar", 2),
        (r"^[^@]+@[^@]+\.[^@]+$", 2),
        ("(?m)^.*foo", 2),
        ("(?i)^[a-z]*A*b", 2),
        (r"^\w+\d+x", 2),
        ("^a*a*a*b", 3),
        ("(a*)(a*)(a*)b", 4),
        ("^(x+x+){2}y", 4),
    ],
)
def test_how_the_time_of_a_pattern_grows(pattern: str, power: int) -> None:
    assert growth(pattern) == power


@pytest.mark.parametrize(
    "pattern",
    [
        *("(a+)+b", "(a|aa)+", "(?:a|b)*", "(?:ab){3,}", "((a)b)*", "(a{1,30}){1,30}"),
        *(
            "(?=a)b",
            "(?<!a)b",
            r"(a)\1",
            "(?>a+)b",
            "(?x)a b",
            "[a[b]]",
            "[a-z&&[^b]]",
            r"\v+",
            "(",
            "a{2"[:2] + "(",
        ),
    ],
)
def test_what_may_take_endless_time_or_is_not_known_is_not_judged(pattern: str) -> None:
    with pytest.raises(NotJudged):
        growth(pattern)


@pytest.mark.parametrize(
    ("pattern", "power"),
    [("a%", 1), ("%a", 1), ("%a%", 1), ("a%b", 1), ("%%a%%", 1), ("%a%b", 2), ("%a%b%", 2), (r"%a\%b", 1)],
)
def test_how_the_time_of_like_grows(pattern: str, power: int) -> None:
    assert like_growth(pattern, "\\") == power
