"""Alarms of exports, their mails and their links."""

from __future__ import annotations

from calve.metrics.metric import BOUNCES, UNDELIVERED
from calve.metrics.of_functions import EXPORT_INCOMPLETE, LINK_FAULTS
from stacks.alarms.board import Board, Says, measured
from stacks.export_mails import failures
from stacks.exports import ExportsStack


def of_exports(board: Board, exports: ExportsStack) -> None:
    """Files that are late or not there, mails that do not arrive, links that do not open."""
    board.errors(
        "export-errors",
        exports.writer.function,
        Says("A run of the export function failed; it is tried twice more.", "export-errors"),
    )
    board.dropped(
        "export-not-started",
        exports.schedules.group,
        Says("A schedule could not start its export.", "export-not-started"),
    )
    for export in board.deployment.exports:
        board.alarm(
            f"{export.name}-late",
            measured(EXPORT_INCOMPLETE, export=export.name, function=exports.writer.name),
            Says(
                f"{export.name} was written before its window was complete: {export.source} lags.",
                "EXPORT-late",
            ),
        )
    _of_mails(board, exports)
    board.alarm(
        "export-link-faults",
        measured(LINK_FAULTS, deployment=board.deployment.name),
        Says("A link was refused since a system did not answer.", "export-link-faults"),
    )
    board.mail_on(
        "ExportFailed",
        failures(board.deployment.name),
        Says("The export <name> has failed: <reason>.", "EXPORT-failed"),
        about="An export was given up",
        paths={"name": "$.detail.export.name", "reason": "$.detail.reason"},
    )


def _of_mails(board: Board, exports: ExportsStack) -> None:
    board.errors(
        "export-mail-errors",
        exports.mails.function.function,
        Says("A file was written, and a mail about it was not sent.", "export-mail-errors"),
    )
    for name, topic in exports.mails.topics.items():
        board.alarm(
            f"{name}-mail-undelivered",
            measured(UNDELIVERED, TopicName=topic.topic_name),
            Says(f"A mail about {name} did not reach a recipient.", "EXPORT-mail-undelivered"),
        )
    if any(export.channel == "ses" for export in board.deployment.exports):
        board.alarm(
            "export-mail-bounced",
            measured(BOUNCES),
            Says("A mail by SES came back.", "export-mail-bounced"),
        )
