"""Templates are made with the Node that calve comes with: jsii warns of others at its end, below the summary of the tests."""

import os

from cli.embedded.runtimes import node

os.environ["JSII_NODE"] = node()
