"""What a check came to, what all of it costs, and the page that says both."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Literal

from botocore.exceptions import BotoCoreError, ClientError

from calve.config.deployment import Deployment
from calve.errors import CalveError
from cli.console import duration
from cli.look.cost.measured import run_of
from cli.look.cost.model import HOURS, Load, bill, rates
from cli.look.doctor.deployment import UNKNOWN
from cli.prove.scene import Scene
from lambdas.aws import code_of
from lambdas.doctor.lake import DENIED

State = Literal["proved", "failed", "not checked"]


class NotCheckedError(CalveError):
    """The check cannot be judged here."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The outcome of one check, and what was seen."""

    check: str
    state: State
    said: str
    seconds: float = 0.0


Check = Callable[[Scene], str]
"""Returns what it saw. Raises NotCheckedError if it cannot judge, and CalveError if it saw something else."""


def judge(name: str, check: Check, scene: Scene) -> Evidence:
    """One check. Nothing but an interruption ends the others: this deployment is there only once."""
    began = datetime.now(UTC)
    state: State = "failed"
    try:
        state, said = "proved", check(scene)
    except NotCheckedError as error:
        state, said = "not checked", error.message
    except CalveError as error:
        said = error.message
    except ClientError as error:
        code = code_of(error)
        if code in (*DENIED, *UNKNOWN):
            state = "not checked"
        said = f"{error.operation_name} is answered with {code}"
    except BotoCoreError as error:
        state, said = "not checked", f"AWS does not answer: {type(error).__name__}"
    except Exception as error:  # noqa: BLE001 a fault of the check must not take the evidence of the others
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"the check itself broke: {type(error).__name__} in line {place.lineno} of {place.name}"
    return Evidence(name, state, said, (datetime.now(UTC) - began).total_seconds())


@dataclass(frozen=True, slots=True)
class Price:
    """One part, in US dollars, for some hours."""

    part: str
    usd: float


def price(deployment: Deployment, hours: float) -> list[Price]:
    """What a deployment without a load costs: AWS bills all its parts by the second or the hour."""
    lines = bill(deployment, Load(topic_mb_s=0.0), rates()).lines
    found = [Price(each.part, each.configured * hours / HOURS) for each in lines]
    return [each for each in found if each.usd]


def spent(scene: Scene) -> list[Price]:
    """The same until now, with the workers of Glue by its own list of runs, as long as there is one."""
    now = datetime.now(UTC)
    hours = (now - scene.began).total_seconds() / 3600
    runs = scene.client("glue").get_job_runs(JobName=scene.job_name)["JobRuns"]
    dpu_hours = sum(run_of(each, now).dpu_hours for each in runs)
    glue = Price(f"Glue, {dpu_hours:.2f} DPU-hours", dpu_hours * rates()["glue_dpu_hour"])
    return [glue, *(each for each in price(scene.deployment, hours) if not each.part.startswith("Glue job"))]


def counted(evidence: Sequence[Evidence]) -> str:
    states = [each.state for each in evidence]
    parts = {state: states.count(state) for state in ("proved", "failed", "not checked")}
    return ", ".join(f"{count} {state}" for state, count in parts.items())


def page(scene: Scene, evidence: Sequence[Evidence], cost: Sequence[Price]) -> str:
    """The report in Markdown, without the account's number."""
    where = "the embedded AWS emulator" if scene.stack else "an AWS account"
    ended = datetime.now(UTC)
    facts = {
        "deployment": scene.name,
        "where": f"{where}, {scene.account.region}",
        "calve": version("calve"),
        "began": f"{scene.began:%Y-%m-%d %H:%M} UTC",
        "lasted": duration((ended - scene.began).total_seconds()),
        "records": f"{sum(plan.count for plans in scene.plans for plan in plans):,} in {len(scene.plans)} topics",
    }
    lines = [f"# calve prove: {counted(evidence)}", "", "| | |", "| --- | --- |"]
    lines += [f"| {name} | {fact} |" for name, fact in facts.items()]
    lines += ["", "| check | state | evidence | took |", "| --- | --- | --- | --- |"]
    for each in evidence:
        said = " ".join(each.said.split()).replace("|", "\\|")
        lines.append(f"| {each.check} | {each.state} | {said} | {duration(each.seconds)} |")
    if scene.stack:
        lines += ["", "It cost nothing. An emulator proves nothing about AWS."]
    elif cost:
        total = sum(each.usd for each in cost)
        lines += ["", f"About {total:.2f} USD, by list prices of {rates().region}.", ""]
        lines += ["| part | USD |", "| --- | --- |"]
        lines += [f"| {each.part} | {each.usd:.3f} |" for each in cost]
    return masked("\n".join(lines) + "\n", scene)


def masked(text: str, scene: Scene) -> str:
    """Without the account's number and the brokers' names on the network."""
    for broker in scene.deployment.jobs[0].settings.kafka.bootstrap_servers.split(","):
        host = broker.strip().rpartition(":")[0]
        if "." in host:  # a word alone tells nobody where it is
            text = re.sub(rf"{re.escape(host)}(:\d+)?", "<broker>", text)
    return text.replace(scene.number, "<account>")
