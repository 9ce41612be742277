"""A cluster that cannot be there is noticed before anything is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from calve.config.job import Kafka
from calve.errors import ConfigError, Fatal
from glue_jobs.kafka.cluster import Cluster


def test_servers_without_an_address_end_the_job_at_its_start() -> None:
    with pytest.raises(Fatal, match="no name of a server can be resolved") as error:
        Cluster(Kafka("kafka-1.calve.invalid:9092,kafka-2.calve.invalid:9092"))
    assert error.value.fix == "check kafka.bootstrap_servers in calve.yaml"


def test_a_broken_certificate_is_told_as_one(tmp_path: Path) -> None:
    authorities = tmp_path / "ca.pem"
    authorities.write_text("-----BEGIN CERTIFICATE-----\nbroken\n-----END CERTIFICATE-----\n")
    with pytest.raises(ConfigError, match=r"certificates or the key of kafka\.auth cannot be used"):
        Cluster(Kafka("localhost:9092", "tls", tls=True, ca_file=str(authorities)))
