"""The stand-in as a process of its own: `python -m tests.standins.snowflake`, until it is stopped."""

from __future__ import annotations

import argparse
import signal

from cli.embedded import aws
from tests.standins.snowflake.account import Account
from tests.standins.snowflake.reach import Reach
from tests.standins.snowflake.server import Api, serving

parser = argparse.ArgumentParser(prog="python -m tests.standins.snowflake", description=__doc__)
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--aws", required=True, help="the emulator, in which the lake is")
parser.add_argument("--account", required=True)
parser.add_argument("--user", required=True, help="an administrator that is there from the beginning")
parser.add_argument("--public-key", required=True, help="that user's, in base64")
options = parser.parse_args()

account = Account(options.account, Reach(lambda service: aws.client(service, options.aws), region=aws.REGION))
account.add_administrator(options.user, options.public_key)
with serving(Api(account), port=options.port):
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
