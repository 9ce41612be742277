import hashlib
import json
import os
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from aws_cdk import App, Stack

from calve.config.job import Job
from calve.errors import ConfigError
from calve.outputs.announcement import OF_TABLES
from glue_jobs import ingest, maintain
from lambdas.function import from_variables
from lambdas.job_control.watchdog import ENDED, Environment
from stacks.base.bundling import ROOT, Runtime
from stacks.base.roles import Lake
from stacks.jobs import ingest_role, maintenance
from stacks.jobs.ingest_job import JobSecurity
from stacks.jobs.ingest_role import CODE, secret_statements
from stacks.jobs.jars import pinned
from stacks.jobs.job_code import COLUMNAR, ICEBERG, LOGIN, JobCode, JobSettings, job_jars
from tests.standins.hostile_glue.words import words_of_spark_submit
from tests.synth.conftest import text
from tests.synth.deployments import job as a_job
from tests.synth.test_lake import listed, statements


@pytest.fixture
def jobs(synthesized):
    return {each["Name"]: each for each in synthesized.find("trading-ingest", "AWS::Glue::Job").values()}


def test_a_continuous_job_runs_for_ever_in_its_shape(jobs):
    job = jobs["trading-main"]
    assert (job["GlueVersion"], job["WorkerType"], job["NumberOfWorkers"]) == ("6.0", "G.1X", 10)
    assert job["Command"]["Name"] == "gluestreaming"
    assert job["MaintenanceWindow"] == "Sun:3"
    assert (job["Timeout"], jobs["trading-nightly"]["Timeout"]) == (10_079, 10_079)
    assert job["DefaultArguments"]["--restart-at"] == "Sun:3"  # with a timeout Glue itself restarts nothing
    assert "--restart-at" not in jobs["trading-nightly"]["DefaultArguments"]
    assert job["ExecutionProperty"] == {"MaxConcurrentRuns": 1}
    assert job["DefaultArguments"]["--enable-auto-scaling"] == "true"
    assert "--enable-auto-scaling" not in jobs["trading-nightly"]["DefaultArguments"]


def test_a_job_is_told_what_only_the_deploy_knows(jobs):
    arguments = jobs["trading-main"]["DefaultArguments"]
    bucket = "trading-lake-<AccountId>-<Region>"
    assert text(arguments["--warehouse"]) == f"s3://{bucket}"
    assert text(arguments["--control"]) == f"s3://{bucket}/_calve/jobs/main.json"
    conf = dict(each.split("=", 1) for each in text(arguments["--conf"]).split(" --conf "))
    assert conf["spark.sql.catalog.lake.warehouse"] == f"s3://{bucket}"
    assert conf["spark.sql.catalog.lake.client.region"] == "<Region>"
    assert not any("extraJavaOptions" in each for each in conf)
    assert "--bootstrap-servers" not in arguments
    names = [each.rpartition("/")[2] for each in text(arguments["--extra-files"]).split(",")]
    assert names == [arguments["--settings-file"], arguments["--packages-file"]]


def test_a_deployed_job_announces_and_may_send_nothing_else(synthesized, jobs):
    assert {each["DefaultArguments"]["--announce"] for each in jobs.values()} == {"true"}
    found = statements(synthesized.templates["trading-ingest"])
    sending = [each for each in found if "events:PutEvents" in each["Action"]]
    assert len(sending) == len(jobs)
    for each in sending:
        assert each["Action"] == ["events:PutEvents"]
        assert [text(one).rpartition(":")[2] for one in each["Resource"]] == ["event-bus/default"]
        assert each["Condition"] == {
            "StringEquals": {"events:source": "calve", "events:detail-type": list(OF_TABLES)}
        }


def test_a_script_takes_every_argument_of_its_definition(synthesized):
    for name, template in synthesized.templates.items():
        parser = maintain if name.endswith("-maintenance") else ingest
        for resource in template["Resources"].values():
            if resource["Type"] == "AWS::Glue::Job":
                arguments = resource["Properties"]["DefaultArguments"] | {"--settings-file": os.devnull}
                words = [word for pair in arguments.items() for word in map(text, pair)]
                with pytest.raises(
                    ConfigError, match="the settings cannot be used"
                ):  # and not: does not take
                    parser._read(words)


GLUE_WORDS = {
    *("additional-python-modules", "auto-scale-within-microbatch", "class", "conf", "continuous-log-conversionPattern"),
    *("continuous-log-logGroup", "continuous-log-logStreamPrefix", "custom-logGroup-prefix", "custom-logStream-prefix"),
    *("customer-driver-env-vars", "customer-executor-env-vars", "datalake-formats", "debug", "disable-proxy"),
    *("disable-proxy-v2", "enable-auto-scaling", "enable-continuous-cloudwatch-log", "enable-continuous-log-filter"),
    *("enable-glue-datacatalog", "enable-job-insights", "enable-lakeformation-fine-grained-access", "enable-metrics"),
    *("enable-observability-metrics", "enable-rename-algorithm-v2", "enable-s3-parquet-optimized-committer"),
    *("enable-spark-ui", "encryption-type", "endpoint", "executor-cores", "extra-files", "extra-jars", "extra-py-files"),
    *("job-bookmark-from", "job-bookmark-option", "job-bookmark-to", "job-language", "mode", "python-modules-installer-option"),
    *("scriptLocation", "spark-event-logs-path", "use-postgres-driver", "user-jars-first", "write-shuffle-files-to-s3"),
    *("write-shuffle-spills-to-s3", "TempDir", "RedshiftTempDir", "JOB_NAME", "JOB_ID", "JOB_RUN_ID", "SECURITY_CONFIGURATION"),
}  # fmt: skip
"""Job parameters of Glue (docs.aws.amazon.com/glue/latest/dg/aws-glue-programming-etl-glue-arguments.html), and those it adds."""
MEANT = {
    *("--conf", "--custom-logGroup-prefix", "--enable-auto-scaling", "--enable-metrics", "--extra-files", "--extra-jars"),
    *("--extra-py-files", "--job-bookmark-option", "--user-jars-first"),
}  # fmt: skip
"""Arguments that are for Glue."""


def test_no_argument_of_a_script_is_a_word_of_the_launcher_or_of_glue(synthesized):
    taken = words_of_spark_submit()
    assert {"--packages", "--conf", "--jars", "--name"} < taken
    taken |= {f"--{each}" for each in GLUE_WORDS}
    for stack in ("trading-ingest", "trading-maintenance", "streams-ingest", "guest-ingest"):
        for job in synthesized.find(stack, "AWS::Glue::Job").values():
            assert {*job["DefaultArguments"]} & taken <= MEANT
            assert not {*job["DefaultArguments"]} - taken & MEANT


def test_jobs_run_the_iceberg_that_is_pinned_and_not_amazons(synthesized):
    files = json.loads((synthesized.folder / "trading-ingest.assets.json").read_text())["files"]
    for stack in ("trading-ingest", "trading-maintenance"):
        for job in synthesized.find(stack, "AWS::Glue::Job").values():
            arguments = job["DefaultArguments"]
            assert "--datalake-formats" not in arguments
            assert arguments["--user-jars-first"] == "true"
            ids = [Path(each).stem for each in text(arguments["--extra-jars"]).split(",")]
            shipped = [synthesized.folder / files[id]["source"]["path"] for id in ids]
            assert [each.read_text() for each in shipped] == [LOGIN, *ICEBERG]


def test_the_iceberg_that_jobs_get_is_the_one_of_the_lock():
    locked = {Path(jar.file).name: jar.sha256 for jar in pinned() if jar.artifact in ICEBERG}
    found = {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in job_jars(ICEBERG)}
    assert found == locked
    assert len(found) == 2


def test_an_emulator_brings_its_own_iceberg():
    stack = Stack(App(context={"aws:cdk:bundling-stacks": []}), "s")
    assert len(JobCode(stack, "Code", runtime=Runtime.read(None, "host")).jars) == 1


def test_a_run_of_the_release_before_still_reads_its_code_while_the_stack_is_updated(synthesized):
    old = "arn:<Partition>:s3:::cdk-hnb659fds-assets-<AccountId>-<Region>/calve/trading/0123.zip"
    for stack in ("trading-ingest", "trading-maintenance"):
        for job in synthesized.find(stack, "AWS::Glue::Job").values():
            role = job["Role"]["Fn::GetAtt"][0]
            policies = [
                each
                for each in synthesized.find(stack, "AWS::IAM::Policy").values()
                if {"Ref": role} in each["Roles"]
            ]
            read = [
                text(resource)
                for policy in policies
                for each in policy["PolicyDocument"]["Statement"]
                if "s3:GetObject" in listed(each["Action"]) and each["Effect"] == "Allow"
                for resource in listed(each["Resource"])
            ]
            assert any(fnmatchcase(old, each) for each in read)
            assert not any(fnmatchcase(old.replace("calve/trading/", "calve/other/"), each) for each in read)
            files = text(job["DefaultArguments"]["--extra-py-files"])
            assert "/calve/trading/" in files


def test_no_package_index_and_no_secret_is_in_the_arguments(jobs):
    for job in jobs.values():
        assert "--additional-python-modules" not in job["DefaultArguments"]
        assert "password" not in json.dumps(job).replace("secret|password", "").lower()


def test_a_job_brings_what_the_columnar_engine_needs_as_the_lock_has_it():
    def pins(file: Path) -> set[str]:
        return {line.removesuffix(" \\") for line in file.read_text().splitlines() if "==" in line}

    assert pins(COLUMNAR.requirements) <= pins(ROOT / "requirements.txt")
    assert {each.split("==")[0] for each in pins(COLUMNAR.requirements)} == {
        *("cramjam", "google-crc32c", "kafka-python", "llvmlite", "numba", "pyroaring")
    }


def test_an_emulator_runs_jobs_on_this_machine_which_has_them():
    stack = Stack(App(context={"aws:cdk:bundling-stacks": []}), "s")
    assert JobCode(stack, "Code", runtime=Runtime.read(None, "host")).columnar is None


def test_the_hand_over_waits_for_the_job_it_hands_over(synthesized, jobs):
    resources = synthesized.templates["trading-ingest"]["Resources"]
    overs = [each for each in resources.values() if each["Type"] == "Custom::CalveHandOver"]
    assert {each["Properties"]["JobName"] for each in overs} == set(jobs)
    for each in overs:
        (job,) = [id for id in each["DependsOn"] if resources[id]["Type"] == "AWS::Glue::Job"]
        arguments = resources[job]["Properties"]["DefaultArguments"]
        assert arguments["--generation"] == each["Properties"]["Generation"]
        assert (
            each["Properties"]["Continuous"] == str(each["Properties"]["JobName"] == "trading-main").lower()
        )


def test_a_scheduled_start_drains(synthesized, jobs):
    schedule = synthesized.one("trading-ingest", "AWS::Scheduler::Schedule")
    assert schedule["ScheduleExpression"] == "rate(6 hours)"
    assert text(schedule["Target"]["Arn"]).endswith(":function:trading-start")
    assert json.loads(schedule["Target"]["Input"]) == {"job": "trading-nightly"}
    assert jobs["trading-nightly"]["DefaultArguments"]["--drain"] == "true"
    assert "--drain" not in jobs["trading-main"]["DefaultArguments"]


def test_of_the_lake_a_job_reads_nothing_that_glue_would_run(synthesized):
    for stack in ("trading-ingest", "trading-maintenance"):
        denied = [each for each in statements(synthesized.templates[stack]) if each["Effect"] == "Deny"]
        assert len(denied) == 2
        for each in denied:
            assert each["Action"] == ["s3:GetObject"]
            assert {text(one) for one in each["Resource"]} == {
                f"arn:<Partition>:s3:::trading-lake-<AccountId>-<Region>/*{end}" for end in CODE
            }


def test_the_watchdog_looks_after_continuous_jobs_alone(synthesized):
    rule = synthesized.one("trading-ingest", "AWS::Events::Rule")
    ends = ["SUCCEEDED", "FAILED", "TIMEOUT", "ERROR", "EXPIRED", "STOPPED"]
    assert {*ends} == ENDED
    assert rule["EventPattern"]["detail"] == {"jobName": ["trading-main"], "state": ends}
    functions = synthesized.find("trading-ingest", "AWS::Lambda::Function").values()
    by_handler = {each["Handler"].removeprefix("lambdas.job_control.handler."): each for each in functions}
    assert by_handler["handle"]["Timeout"] == 900
    environment = from_variables(Environment, by_handler["watchdog"]["Environment"]["Variables"])
    assert environment.continuous_jobs == {"trading-main"}
    assert (environment.restarts, environment.schedule_group) == (5, "trading-jobs")


def test_a_job_is_started_again_by_the_watchdog_alone(jobs):
    for job in jobs.values():
        assert (job["MaxRetries"], job["ExecutionProperty"]) == (0, {"MaxConcurrentRuns": 1})


def encryption(synthesized, deployment):
    made = synthesized.one(f"{deployment}-ingest", "AWS::Glue::SecurityConfiguration")
    return made["EncryptionConfiguration"]


@pytest.mark.parametrize("deployment", ["trading", "guest"])
def test_a_security_configuration_leaves_the_names_of_log_groups_as_glue_documents_them(
    synthesized, deployment
):
    found = encryption(synthesized, deployment)
    assert found["CloudWatchEncryption"] == {"CloudWatchEncryptionMode": "DISABLED"}
    assert found["JobBookmarksEncryption"] == {"JobBookmarksEncryptionMode": "DISABLED"}
    groups = synthesized.find(f"{deployment}-ingest", "AWS::Logs::LogGroup").values()
    keys = {each["LogGroupName"]: "KmsKeyId" in each for each in groups if "LogGroupName" in each}
    for job in synthesized.find(f"{deployment}-ingest", "AWS::Glue::Job").values():
        prefix = job["DefaultArguments"]["--custom-logGroup-prefix"]
        for stream in ("output", "error"):
            assert keys[f"{prefix}/{stream}"] is (deployment == "trading")  # guest's key is imported


def test_files_of_glue_are_encrypted_by_the_lakes_key(synthesized):
    assert encryption(synthesized, "trading")["S3Encryptions"][0]["S3EncryptionMode"] == "SSE-KMS"


def test_a_security_configuration_of_other_content_has_another_name(synthesized):
    lake = Lake("d", "b", "", "d", per_cluster=False, key_arn="arn:1", key_made=True)
    names = [
        JobSecurity(Stack(App(), f"s{n}"), "Security", name="d", lake=each).name
        for n, each in enumerate((lake, replace(lake, key_made=False), replace(lake, key_arn="arn:2")))
    ]
    assert names[0] == names[1] != names[2]
    for stack in ("trading-ingest", "trading-maintenance"):
        for job in synthesized.find(stack, "AWS::Glue::Job").values():
            made = synthesized.one("trading-ingest", "AWS::Glue::SecurityConfiguration")
            assert job["SecurityConfiguration"] == made["Name"]


CHANGES = {"glue:CreateDatabase", "glue:CreateTable", "glue:UpdateTable", "s3:PutObject", "s3:DeleteObject"}


@pytest.mark.parametrize(
    ("clusters", "tables", "files"),
    [
        (("lkc-1", "lkc-2"), {"table/lkc-1/*", "table/lkc-2/*"}, {"b/lkc-1/*", "b/lkc-2/*"}),
        ((), {"table/*/*"}, {"b/*"}),
    ],
)
def test_jobs_of_named_clusters_write_into_their_databases_alone(clusters, tables, files):
    lake = Lake("d", "b", "", "", per_cluster=True, key_arn=None, key_made=False, clusters=clusters)
    for of in (ingest_role.lake_statements(lake, "main"), maintenance.lake_statements(lake)):
        written = [each for one in of if CHANGES & {*one.actions} for each in one.resources]
        assert {each.rpartition(":")[2] for each in written if ":table/" in each} == tables
        places = {each.rpartition(":")[2] for each in written if ":s3:" in each}
        assert {each for each in places if "_calve/" not in each and "exports/" not in each} == files


def test_a_run_of_the_release_before_still_writes_its_log_while_the_stack_is_updated(synthesized):
    resources = [
        text(resource)
        for each in statements(synthesized.templates["trading-ingest"])
        if "logs:PutLogEvents" in each["Action"]
        for resource in each["Resource"]
    ]
    old = "/calve/trading/main/trading-role/trading-ingest-mainRole/output:log-stream:jr_1"
    allowed = f"arn:aws:logs:{{}}:{{}}:log-group:{old}"
    assert any(
        fnmatchcase(allowed.format("<Region>", "<AccountId>"), each.replace("<Partition>", "aws"))
        for each in resources
    )


def test_the_security_configuration_goes_with_its_stack(synthesized):
    resources = synthesized.templates["trading-ingest"]["Resources"].values()
    (found,) = [each for each in resources if each["Type"] == "AWS::Glue::SecurityConfiguration"]
    assert found.get("DeletionPolicy", "Delete") == "Delete"


def topics_read(synthesized, deployment):
    """The last parts of the ARNs of topics that the main job may read."""
    (policy,) = [
        each
        for id, each in synthesized.find(f"{deployment}-ingest", "AWS::IAM::Policy").items()
        if id.startswith("mainRole")
    ]
    return [
        text(resource).rpartition(":")[2]
        for each in policy["PolicyDocument"]["Statement"]
        if "kafka-cluster:ReadData" in each["Action"]
        for resource in listed(each["Resource"])
    ]


def test_a_job_reads_the_topics_of_its_cluster_and_no_others(synthesized):
    assert topics_read(synthesized, "guest") == [
        "topic/company/11111111-2222-3333-4444-555555555555-1/orders"
    ]


def test_of_an_expression_a_job_reads_what_begins_as_it_does(synthesized):
    assert topics_read(synthesized, "shop") == [
        "topic/shop/*/*",  # (eu|us)-.* begins with nothing that is plain to see
        "topic/shop/*/orders",
        "topic/shop/*/shop.*",
    ]


def test_a_job_reads_its_registry_of_glue_and_no_other_and_changes_nothing_there(synthesized):
    found = {
        tuple(listed(each["Action"])): [text(resource) for resource in listed(each["Resource"])]
        for each in statements(synthesized.templates["guest-ingest"])
        if any("Schema" in action or "Registr" in action for action in listed(each["Action"]))
    }
    prefix = "arn:<Partition>:glue:eu-central-1:<AccountId>"
    assert found == {
        ("glue:GetSchema", "glue:ListSchemas"): [
            f"{prefix}:registry/company",
            f"{prefix}:schema/company/*",
        ],
        ("glue:GetSchemaVersion",): ["*"],
    }
    for name in ("trading-ingest", "streams-ingest"):
        assert "glue:GetSchema" not in str(synthesized.templates[name])


def test_jobs_of_a_made_cluster_learn_its_servers_and_stand_in_its_network(synthesized):
    job = synthesized.one("streams-ingest", "AWS::Glue::Job")
    assert "streams-kafka" in text(job["DefaultArguments"]["--bootstrap-servers"])
    assert job["Connections"] == {"Connections": ["streams"]}
    assert synthesized.one("streams-kafka", "AWS::MSK::ServerlessCluster")["ClientAuthentication"] == {
        "Sasl": {"Iam": {"Enabled": True}}
    }
    endpoints = synthesized.find("streams-kafka", "AWS::EC2::VPCEndpoint").values()
    kinds = [each.get("VpcEndpointType") for each in endpoints]
    assert kinds.count("Gateway") == 1
    assert not synthesized.find("streams-kafka", "AWS::EC2::NatGateway")


def test_an_existing_network_is_only_used(synthesized):
    kinds = {each["Type"] for each in synthesized.templates["guest-kafka"]["Resources"].values()}
    assert not {kind for kind in kinds if kind.startswith("AWS::EC2::")}


def test_a_job_that_asks_no_registry_is_shipped_without_one(tmp_path):
    without = replace(a_job("main", "logs"), registry=None)
    app = App(outdir=str(tmp_path))
    shipped = JobSettings(Stack(app, "Alone"), "Settings", job=without)
    app.synth()
    (file,) = tmp_path.glob("asset.*.json")
    assert Job.from_json(file.read_text()) == without
    assert shipped.file_name in file.name
    (statement,) = secret_statements(without)
    assert "registry" not in str(statement)


def test_a_job_may_look_into_stored_exports_and_delete_them_but_write_none(synthesized):
    found = [
        set(each["Action"])
        for each in statements(synthesized.templates["trading-ingest"])
        if any(text(resource).endswith("/exports/*") for resource in each["Resource"])
    ]
    assert found == [{"s3:GetObject", "s3:DeleteObject"}] * 2  # the one of each job


def test_a_deploy_waits_for_the_word_of_each_continuous_job_after_its_hand_over(synthesized):
    resources = synthesized.templates["trading-ingest"]["Resources"]
    (waits,) = [each for each in resources.values() if each["Type"] == "Custom::CalveAcknowledgement"]
    handed = {id: each for id, each in resources.items() if each["Type"] == "Custom::CalveHandOver"}
    (main,) = [id for id, each in handed.items() if each["Properties"]["JobName"] == "trading-main"]
    assert main in waits["DependsOn"]
    same = {"JobName", "Generation", "ControlBucket"}
    assert all(waits["Properties"][name] == handed[main]["Properties"][name] for name in same)
    assert waits["Properties"]["ServiceToken"] != handed[main]["Properties"]["ServiceToken"]
    assert text(waits["Properties"]["StatusKey"]) == "_calve/status/trading/main.json"
    assert len(handed) == 2  # that of the scheduled job is not awaited
