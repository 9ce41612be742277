"""CloudWatch's metric filters, as far as the stacks use them.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/FilterAndPatternSyntax.html
"""

import json
import re
from fnmatch import fnmatchcase


def metrics(filters, line):
    """(namespace, metric, dimensions) -> value, of all filters that a log line passes."""
    found = {}
    for each in filters:
        if matches(each["FilterPattern"], line):
            (made,) = each["MetricTransformations"]
            dimensions = tuple(
                (one["Key"], str(selected(one["Value"], line))) for one in made.get("Dimensions", [])
            )
            found[made["MetricNamespace"], made["MetricName"], dimensions] = selected(
                made["MetricValue"], line
            )
    return found


def selected(value, line):
    return json.loads(line)[value.removeprefix("$.")] if value.startswith("$.") else float(value)


def matches(pattern, line):
    if not pattern.startswith("{"):
        terms = re.findall(r'"((?:\\.|[^"\\])*)"', pattern)
        assert terms
        return all(term.replace('\\"', '"') in line for term in terms)
    event = json.loads(line)

    def compared(found):
        key, operator, value = found.groups()
        actual = event.get(key)
        if operator == ">":
            return str(isinstance(actual, int | float) and actual > float(value))
        return str(actual is not None and fnmatchcase(str(actual), value.strip('"')))

    logic = re.sub(r'\$\.(\w+) (=|>) ("[^"]*"|\d+)', compared, pattern.strip("{} "))
    assert re.fullmatch(r"(True|False|&&|\|\||[() ])+", logic), logic
    return eval(logic.replace("&&", "and").replace("||", "or"))
