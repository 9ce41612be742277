"""The workloads by name."""

from __future__ import annotations

from bench.workloads.nested import ORDERS, ORDERS_JSON, ORDERS_PROTOBUF, WIDE
from bench.workloads.trades import TRADES, TRADES_JSON, TRADES_PROTOBUF
from bench.workloads.workload import Workload

WORKLOADS: dict[str, Workload] = {
    each.name: each
    for each in (TRADES, ORDERS, WIDE, TRADES_JSON, ORDERS_JSON, TRADES_PROTOBUF, ORDERS_PROTOBUF)
}
