"""The real CDK CLI, deploying the stacks of stacks/app.py: into the AWS emulator, or into the account of the environment."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from calve.errors import Fatal
from cli.embedded import aws, runtimes
from cli.embedded.layout import CHECKOUT, Layout, project_root
from cli.embedded.processes import child
from cli.embedded.stack import Stack, environment
from cli.progress import Progress, Task

Outputs = dict[str, dict[str, str]]
"""Stack -> output -> value."""

TOOLKIT = "CDKToolkit"
"""The stack of `cdk bootstrap`."""
NOISE = re.compile(r"(\S+: )?(start|success): |Bundling asset |Hold on while ")
EVENT = re.compile(
    r"^(?P<stack>\S+) \| +(?P<done>\d+)(?:/(?P<total>\d+))? \| [^|]+ \| (?P<state>\w+) +\| (?P<type>\S+) +\| (?P<what>.+)$"
)
SHOWN_LINES = 30


@dataclass(frozen=True, slots=True)
class App:
    """The stacks of one configuration on a running embedded stack.

    Without one: in the AWS account of the environment, which somebody has bootstrapped, in `region`.
    """

    stack: Stack | None
    config: Path
    env: str | None = None
    context: dict[str, str] = field(default_factory=dict)
    region: str | None = None
    title: str = "deploying"

    @property
    def layout(self) -> Layout:
        return Layout(self.stack.root if self.stack else project_root())

    @property
    def log(self) -> Path:
        """All that the CLI has said."""
        return self.layout.logs / "cdk.log"

    def compare(self, progress: Progress, *, change_sets: bool) -> list[str]:
        """Synthesize; the lines that say what a deploy would change. change_sets: CloudFormation computes it."""
        how = [] if change_sets else ["--no-change-set"]
        return self.run("comparing with AWS", progress, ["diff", *self.arguments(), *how])

    def synthesize(self, progress: Progress) -> Path:
        """The folder of the templates and of all files that they name."""
        self.run("synthesizing", progress, ["synth", "--all", "--quiet", *self.arguments()])
        return self._made

    def deploy(self, progress: Progress, *, compared: bool = False) -> Outputs:
        """Deploy all stacks; their outputs. compared: the templates that `compare` has just made."""
        self.prepare(progress)
        file = self.folder / "outputs.json"
        file.unlink(missing_ok=True)
        app = ["--app", str(self._made)] if compared else self.arguments()
        arguments = ["deploy", "--all", *app, "--require-approval", "never"]
        arguments += ["--concurrency", "4"]  # the CLI asks after a stack every 5 s only
        self.run(self.title, progress, [*arguments, "--outputs-file", str(file)])
        return json.loads(file.read_text()) if file.exists() else {}

    def prepare(self, progress: Progress) -> None:
        """Bootstrap the emulator's account if nobody has."""
        if self.stack:
            made = aws.client("cloudformation", self.stack.aws_endpoint).describe_stacks()["Stacks"]
            if all(each["StackName"] != TOOLKIT for each in made):
                self.bootstrap(progress, aws.ACCOUNT, self.stack.region)

    def bootstrap(self, progress: Progress, account: str, region: str) -> None:
        """Make the stack that the CDK needs in each account and region."""
        self.run("bootstrapping", progress, ["bootstrap", f"aws://{account}/{region}", "--app", ""])

    @property
    def folder(self) -> Path:
        """Of this configuration alone: two may be deployed at the same time."""
        key = hashlib.sha256(f"{self.config.resolve()} {self.env}".encode()).hexdigest()[:12]
        return self.layout.deploy / key

    @property
    def _made(self) -> Path:
        return self.folder / "cdk.out"

    def destroy(self, progress: Progress) -> None:
        """Delete the stacks; data stays, by their policies."""
        self.run("destroying", progress, ["destroy", "--all", *self.arguments(), "--force"])

    def arguments(self) -> list[str]:
        # The app is ours and works in the user's home; only the CLI, which would read a profile there, does not.
        home = shlex.quote(os.environ.get("HOME", ""))
        python, sources = shlex.quote(sys.executable), shlex.quote(str(CHECKOUT))
        app = f"HOME={home} PYTHONPATH={sources} {python} -m stacks.app"
        context = {"config": str(self.config.resolve())}
        if self.stack:
            servers = {"kafka": self.stack.bootstrap_servers, "registry": self.stack.registry_url}
            context |= {"lambda_architecture": "host"} | servers
        context |= self.context
        if self.env:
            context["env"] = self.env
        pairs = [word for key, value in context.items() for word in ("-c", f"{key}={value}")]
        return ["--app", app, "--output", str(self._made), *pairs]

    def run(self, title: str, progress: Progress, arguments: list[str]) -> list[str]:
        """Run the CLI; return its output without events and noise."""
        runtimes.install_cdk(self.layout, progress)
        log = self.log
        for folder in (log.parent, self.folder):
            folder.mkdir(parents=True, exist_ok=True)
        cli = str(runtimes.cdk().folder / "node_modules" / "aws-cdk" / "bin" / "cdk")
        command = [runtimes.node(), cli, *arguments, "--ci", "--no-notices", "--no-version-reporting"]
        command += [] if arguments[0] == "diff" else ["--progress", "events"]
        with (
            progress.task(title) as task,
            log.open("a") as output,
            child(
                command,
                environment=self.environment(),
                folder=self.folder,
                errors=subprocess.STDOUT,
            ) as process,
        ):
            heard = _Said(task)
            for line in process.stdout or ():
                output.write(line)
                heard.hear(line.rstrip())
            if code := process.wait():
                task.end("fail", f"exit code {code}")
        if code:
            shown = "\n".join(f"  {line}" for line in heard.lines[-SHOWN_LINES:])
            raise Fatal(f"cdk {arguments[0]} failed\n{shown}", fix=f"read {log}")
        return heard.lines

    def environment(self) -> dict[str, str]:
        """The embedded stack's alone, if there is one: no profile and no CLI setting that the user has for real accounts."""
        if self.stack:
            home = self.folder / "home"
            home.mkdir(parents=True, exist_ok=True)
            of_stack = {k: v for k, v in environment(self.stack).items() if not k.startswith("CDK_")}
            given = of_stack | {"HOME": str(home)}
        else:
            regions = ("AWS_REGION", "AWS_DEFAULT_REGION") if self.region else ()
            given = {**os.environ, **dict.fromkeys(regions, str(self.region))}
        return given | {
            "PATH": runtimes.search_path(),
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "CDK_DISABLE_VERSION_CHECK": "true",
            "NO_COLOR": "1",
        }


@dataclass(slots=True)
class _Said:
    """The CLI's output: events become progress, the rest is kept."""

    task: Task
    lines: list[str] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)

    def hear(self, line: str) -> None:
        event = EVENT.match(line)
        if event is None:
            if line.strip() and not NOISE.match(line):
                self.lines.append(line)
            return
        if "FAILED" in event["state"]:
            self.lines.append(f"{event['stack']}: {event['type']} {event['what']}")
        self.done[event["stack"]] = int(event["done"])
        self.totals[event["stack"]] = int(event["total"] or 0)
        total = sum(self.totals.values()) if all(self.totals.values()) else None
        self.task.update(sum(self.done.values()), total=total, note=f"{event['stack']}: {event['type']}")
