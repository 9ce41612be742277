"""`calve prove`: deploy a throw-away deployment, check all that it does, destroy it, and write down what was seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from botocore.exceptions import BotoCoreError, ClientError

from calve.config.deployment import Deployment
from calve.errors import CalveError, ConfigError
from calve.registry.registry import open_registry
from calve.settings import read_source
from cli.account import Account, outputs
from cli.config import DEFAULT_CONFIG, Common, embedded_stack, found
from cli.console import Console
from cli.embedded.cdk import TOOLKIT
from cli.embedded.layout import project_root
from cli.embedded.processes import termination_as_exit
from cli.embedded.stack import current
from cli.kafka import Cluster
from cli.prove import checks, watching
from cli.prove.report import Check, Evidence, Price, counted, judge, masked, page, price, spent
from cli.prove.scene import Note, Scene, configuration, folder_of, forget, held, left, new_name, nothing_left

HOURS = 1.5
"""A deploy and a destroy of 15 minutes each, waits for alarms and metrics, and some room."""
NOBODY = "nobody@example.com"
CHECKS: dict[str, Check] = {
    "the job acknowledges": checks.acknowledged,
    "doctor": checks.doctor,
    "all records are read": checks.caught_up,
    "rows and dead letters": checks.rows,
    "rows by Athena": checks.athena,
    "verify": checks.verified,
    "log groups": watching.log_groups,
    "log lines": watching.log_lines,
    "metric filters": watching.metric_filters,
    "metrics": watching.metric_values,
    "mail": watching.mail,
    "download": watching.download,
    "key rotation": watching.rotation,
    "alarm": watching.alarm,
    "watchdog": checks.watchdog,
}
DEPLOYED, DESTROYED = "deploy", "nothing is left"

KafkaOption = Annotated[
    str | None, typer.Option(help="Brokers without a login, instead of `kafka` of calve.yaml.")
]
RegistryOption = Annotated[
    str | None, typer.Option(help="URL of the schema registry, instead of `registry` of calve.yaml.")
]
MailOption = Annotated[
    str, typer.Option(help="The address for the export's mail, and first for a mail to confirm that.")
]
ReportOption = Annotated[
    Path | None,
    typer.Option(
        help="Where to write the report; else docs/proof/NAME.md, of the emulator .calve/prove/NAME.md."
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before it spends; for CI.")]
CleanOption = Annotated[
    bool, typer.Option("--clean", help="Only destroy what earlier runs have left behind.")
]


def prove(
    kafka: KafkaOption = None,
    registry: RegistryOption = None,
    mail: MailOption = NOBODY,
    report: ReportOption = None,
    *,
    given: Common,
    yes: YesOption = False,
    clean: CleanOption = False,
) -> None:
    """Prove calve in your AWS account: deploy it under a throw-away name, check it, destroy it.

    It takes Kafka and the registry from calve.yaml, and makes two topics there. It asks before it spends. Ctrl-C destroys what
    was deployed. The report names each check with its evidence, and what could not be checked. Exits with 1 where one failed.

    Examples:
      calve prove --mail you@example.com
      calve prove --kafka broker:9092 --registry http://registry:8081 --yes
      calve prove --clean
    """
    console = given.console
    unfinished = left()
    for name, note in unfinished.items():
        _clean(name, note, console, all_of_them=clean)
    if clean:
        console.say("all of it is gone" if unfinished else "nothing was left")
        return
    scene = _prepared(given, kafka, registry, mail)
    try:
        _ask(scene, yes=yes)
    except BaseException:
        forget(scene.name)
        raise
    with held(scene.name):
        evidence, cost = _run(scene)
    folder = folder_of("") if scene.stack else project_root() / "docs" / "proof"
    place = report or folder / f"{scene.name}.md"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(page(scene, evidence, cost), encoding="utf-8")
    _show(scene, evidence, place)
    if any(each.state == "failed" for each in evidence):
        raise CalveError(f"not all is proved: {counted(evidence)}", fix=f"read {place}")


def _prepared(given: Common, kafka: str | None, registry: str | None, mail: str) -> Scene:
    """The scene with its folder, after a look at all that it needs. Nothing is made in the account."""
    name, file = new_name(), found(given.config)
    values: dict[str, Any] = {}
    if file.exists() or given.config != DEFAULT_CONFIG:
        values = dict(read_source(file, given.env).values)
    values |= {"kafka": {"bootstrap_servers": kafka}} if kafka else {}
    values |= {"registry": {"url": registry}} if registry else {}
    if not (values.get("kafka") and values.get("registry")) and embedded_stack() is None:
        fix = "--kafka HOST:9092 --registry URL, or name both in calve.yaml; for the emulator: calve up"
        raise ConfigError("no Kafka, or no schema registry, is named", fix=fix)
    folder = folder_of(name)
    folder.mkdir(parents=True)
    try:
        (folder / "calve.yaml").write_text(configuration(name, values, file.parent, mail))
        scene = Scene.of(name, given.console)
        _refuse(scene.deployment, scene.account, scene.number, here=bool(scene.stack))
    except BaseException:
        forget(name)
        raise
    return scene


def _refuse(deployment: Deployment, account: Account, number: str, *, here: bool) -> None:
    """Raise the error of whatever is missing: what a deploy would only find after minutes."""
    if deployment.msk and deployment.msk.arn is None:
        fix = "name brokers that this machine reaches, too: --kafka, or `kafka` in calve.yaml"
        raise ConfigError(
            "records cannot be produced into a cluster that the stacks make: it has no way in", fix=fix
        )
    if not here:
        fix = f"npx cdk bootstrap aws://{number}/{account.region}"
        outputs(account, TOOLKIT, fix=fix)
    settings = deployment.jobs[0].settings
    Cluster(settings.kafka, account.region).topic_names()
    if settings.registry:
        open_registry(settings.registry).versions("calve-prove")


def _ask(scene: Scene, *, yes: bool) -> None:
    console = scene.console
    if scene.stack:
        console.say(f"{scene.name} will be deployed into the embedded emulator. That costs nothing.")
        return
    parts = price(scene.deployment, HOURS)
    total = sum(each.usd for each in parts)
    where = f"{scene.account.region} of account {scene.number}"
    console.table("cost", [asdict(each) for each in parts], title=f"US dollars, {HOURS:g} h")
    console.say(
        f"{scene.name} will be deployed into {where}: about {total:.2f} USD, and {total / HOURS:.2f} per hour more."
    )
    console.consent("Deploy, check and destroy it?", yes=yes, fix="calve prove --yes")


def _run(scene: Scene) -> tuple[list[Evidence], list[Price]]:
    """All evidence, and the cost. Whatever happens, the deployment is destroyed."""
    scene.note()
    evidence: list[Evidence] = []
    cost: list[Price] = []
    try:
        with termination_as_exit():
            for each in _evidence(scene):
                evidence.append(each)
                scene.console.event(each.state, check=each.check, evidence=masked(each.said, scene))
            if not scene.stack and scene.outputs:
                with suppress(BotoCoreError, ClientError):  # the report is worth more than its price
                    cost = spent(scene)
    except (KeyboardInterrupt, SystemExit):
        scene.console.event(
            "interrupted: destroying what was deployed; once more leaves it to `calve prove --clean`"
        )
        raise
    finally:
        evidence.append(_destroyed(scene))
    return evidence, cost


def _evidence(scene: Scene) -> Iterator[Evidence]:
    console = scene.console
    console.heading("Deploying")

    def deploy(scene: Scene) -> str:
        scene.produce(0)
        scene.outputs = scene.app.deploy(console.progress())
        watching.subscribe(scene)
        scene.produce(1)
        return f"{len(scene.outputs)} stacks: {', '.join(scene.outputs)}"

    deployed = judge(DEPLOYED, deploy, scene)
    yield deployed
    console.heading("Checking")
    for name, check in CHECKS.items():
        if deployed.state == "proved":
            yield judge(name, check, scene)
        else:
            yield Evidence(name, "not checked", "the deploy failed")


def _destroyed(scene: Scene) -> Evidence:
    scene.console.heading("Destroying")

    def destroy(scene: Scene) -> str:
        scene.destroy()
        return nothing_left(scene)

    found = judge(DESTROYED, destroy, scene)
    if found.state == "proved":
        forget(scene.name)
    scene.console.event(found.state, check=found.check, evidence=masked(found.said, scene))
    return found


def _clean(name: str, note: Note, console: Console, *, all_of_them: bool) -> None:
    """Destroy a deployment that an earlier run left behind. One of another account, or of a run in progress, stays.

    all_of_them: raise ConfigError if it is in another account or region.
    """
    here = current(project_root())
    if note.endpoint and (here is None or here.aws_endpoint != note.endpoint):
        forget(name)  # the emulator has gone, and everything with it
        return
    with held(name) as free:
        if not free:
            console.event("another run is in progress", name=name)
            return
        scene = Scene.of(name, console)
        if (scene.number, scene.account.region) != (note.account, note.region):
            where = f"account {note.account}, region {note.region}"
            fix = f"name a profile of {where}: calve prove --clean --profile NAME"
            if all_of_them:
                raise ConfigError(f"{name} was left elsewhere", fix=fix)
            console.event("left elsewhere by an earlier run", name=name, fix=fix)
            return
        console.event("left by an earlier run", name=name)
        if (found := _destroyed(scene)).state != "proved":
            raise CalveError(f"{name} is not gone: {found.said}", fix="mend that, then: calve prove --clean")


def _show(scene: Scene, evidence: list[Evidence], place: Path) -> None:
    console = scene.console
    console.heading(counted(evidence))
    rows = [
        {"check": each.check, "state": each.state, "evidence": masked(each.said, scene)} for each in evidence
    ]
    if console.is_terminal:  # elsewhere each has been said
        console.table("evidence", rows, title="")
    console.say(f"The report: {place}")
    console.document({"deployment": scene.name, "report": str(place), "evidence": rows})
