"""The code of a function: `calve`, the function's own package and its locked dependencies.

No Docker: pip downloads the wheels of the target platform. The user's cache keeps them as a zip, by a hash of all inputs.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import (
    AssetHashType,
    BundlingOptions,
    BundlingOutput,
    DockerImage,
    ILocalBundling,
    Stack,
    aws_lambda,
)
from constructs import Construct

from calve.errors import ConfigError, Fatal
from stacks.base.downloads import downloads

ROOT = Path(__file__).parents[2]
PLATFORMS = {
    "arm64": ("manylinux2014_aarch64", "manylinux_2_28_aarch64"),
    "x86_64": ("manylinux2014_x86_64", "manylinux_2_28_x86_64"),
}
MACHINES = {"aarch64": "arm64", "arm64": "arm64", "x86_64": "x86_64", "AMD64": "x86_64"}
# The runtime has boto3. pyarrow.lib links libarrow_substrait, so that one stays.
PRUNED = (
    "boto3*", "botocore*", "s3transfer*", "hive_metastore*", "bin",
    "pyarrow/*flight*", "pyarrow/*_azurefs*", "pyarrow/*_gcsfs*", "pyarrow/*_hdfs*", "pyarrow/*_orc*",
    "pyarrow/tests", "pyarrow/include", "pyarrow/src", "pyarrow/**/*.pyx", "pyarrow/**/*.pxd", "pyarrow/**/*.pxi",
    "pyarrow/libarrow_python.so", "pyarrow/libarrow_python.so.*.*", "**/tests", "**/__pycache__",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Runtime:
    """The platform of the functions. `native`: use wheels of this machine, for an emulator that runs functions on it."""

    python: str = "3.13"
    architecture: str = "arm64"
    native: bool = False

    @classmethod
    def read(cls, python: str | None, architecture: str | None) -> Runtime:
        """Parse two context values; `host` means this machine. Raises ConfigError: unknown architecture."""
        if architecture == "host":
            here = MACHINES.get(platform.machine(), "x86_64")
            return cls(python or f"3.{sys.version_info.minor}", here, native=True)
        if architecture is not None and architecture not in PLATFORMS:
            raise ConfigError(
                f'lambda_architecture "{architecture}" is not known', fix="use arm64, x86_64 or host"
            )
        return cls(python or cls().python, architecture or cls().architecture)

    @property
    def lambda_runtime(self) -> aws_lambda.Runtime:
        return aws_lambda.Runtime(f"python{self.python}", aws_lambda.RuntimeFamily.PYTHON)

    @property
    def lambda_architecture(self) -> aws_lambda.Architecture:
        arm = self.architecture == "arm64"
        return aws_lambda.Architecture.ARM_64 if arm else aws_lambda.Architecture.X86_64


def function_code(scope: Construct, name: str, runtime: Runtime) -> aws_lambda.Code:
    """The code of `lambdas/<name>` as an asset. Raises Fatal: pip could not install the dependencies."""
    return aws_lambda.Code.from_asset(str(ROOT / "lambdas" / name), **bundle_of(name, runtime).options(scope))


def bundle_of(name: str, runtime: Runtime) -> Bundle:
    """A function's files: the core without its settings (they need pydantic), the shared modules, and its folder."""
    core = (file for file in (ROOT / "calve").rglob("*.py") if "settings" not in file.relative_to(ROOT).parts)
    own = (
        file
        for file in (ROOT / "lambdas" / name).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and file.stem != "requirements"
    )
    files = [*sorted(core), *sorted((ROOT / "lambdas").glob("*.py")), *sorted(own)]
    return Bundle(ROOT / "lambdas" / name / "requirements.txt", runtime, PRUNED, files)


@jsii.implements(ILocalBundling)
class Bundle:
    """The files of an asset: the packages of a requirements file, without those that match `pruned`, and `sources` of ours."""

    def __init__(
        self, requirements: Path, runtime: Runtime, pruned: Sequence[str], sources: Sequence[Path] = ()
    ) -> None:
        self.requirements, self.sources = requirements, sources
        self._runtime, self._pruned = runtime, pruned
        wanted = (requirements.read_text(), *pruned, repr(runtime))
        self._packages_hash = hashlib.sha256("\0".join(wanted).encode()).hexdigest()

    def options(self, scope: Construct) -> dict[str, Any]:
        """How the CDK makes the asset. Raises Fatal: pip could not install the packages."""
        if Stack.of(scope).bundling_required:
            self._packages()  # here, because an error inside the CDK's callback would lose its type
        return {
            "asset_hash": self.hash(),
            "asset_hash_type": AssetHashType.CUSTOM,
            "bundling": BundlingOptions(
                image=DockerImage.from_registry("unused"), local=self, output_type=BundlingOutput.ARCHIVED
            ),
        }

    def try_bundle(self, output_dir: str, *_: object, **__: object) -> bool:
        """Called by the CDK if the asset is not in cdk.out yet. One zip: the CDK would compress all packages at each deploy."""
        made = Path(output_dir) / "bundle.zip"
        shutil.copyfile(self._packages(), made)
        with zipfile.ZipFile(made, "a", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for file in self.sources:
                archive.write(file, file.relative_to(ROOT))
        return True

    def hash(self) -> str:
        """A hash of all inputs, known before anything is installed."""
        if not self.sources:
            return self._packages_hash
        digest = hashlib.sha256(self._packages_hash.encode())
        for file in self.sources:
            digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
        return digest.hexdigest()

    def _packages(self) -> Path:
        """The zip of installed and pruned packages; made if it is missing. Raises Fatal: pip could not install them."""
        cache = downloads() / "functions"
        found = cache / f"{self._packages_hash[:32]}.zip"
        if not found.is_file():
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache) as made:
                installed = Path(made) / "installed"
                self._install(installed)
                for path in [path for pattern in self._pruned for path in installed.glob(pattern)]:
                    if path.is_dir():
                        shutil.rmtree(path, ignore_errors=True)
                    else:
                        path.unlink(missing_ok=True)
                shutil.make_archive(str(installed), "zip", installed)
                installed.with_suffix(".zip").replace(found)  # another synth may have been faster
        return found

    def _install(self, target: Path) -> None:
        locked = ["--only-binary=:all:", "--require-hashes", "--no-deps", "-r", str(self.requirements)]
        quietly = ["--disable-pip-version-check", "--quiet", "--no-compile"]
        command = [sys.executable, "-m", "pip", "install", *quietly, *locked, "--target", str(target)]
        if not self._runtime.native:
            command += ["--implementation", "cp", "--python-version", self._runtime.python]
            for tag in PLATFORMS[self._runtime.architecture]:
                command += ["--platform", tag]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["pip said nothing"]
            raise Fatal(
                f"the packages of {self.requirements.relative_to(ROOT)} could not be installed: {last[0]}",
                fix="check the network and pip (python3 -m pip --version), then synthesize again",
            )
