"""Project folders of their own, whose embedded stacks may be started beside others."""

from __future__ import annotations

from pathlib import Path

from cli.embedded.layout import Layout

DOWNLOADS = ("jars", "aws-venv", "cdk")


def project(folder: Path, downloads_of: Path) -> Path:
    """Make the folder a project that has what another one has downloaded."""
    there, here = Layout(downloads_of).state, Layout(folder).state
    here.mkdir(parents=True)
    for name in DOWNLOADS:
        (here / name).symlink_to(there / name)
    return folder
