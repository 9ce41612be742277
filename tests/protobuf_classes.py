"""Classes of Protobuf messages, made by protoc while a test runs."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from cli.verify.formats.protobuf import CONFLUENT, known_files


def descriptors(files: dict[str, str]) -> list[descriptor_pb2.FileDescriptorProto]:
    """The files and all that they import, each after those that it imports itself.

    Raises:
        ValueError: protoc refuses them.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (CONFLUENT | files).items():
            target = Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        result = Path(folder, "result")
        folders = [f"-I{each}" for each in (folder, *known_files())]
        command = ["protoc", *folders, "--include_imports"]
        if protoc.main([*command, f"--descriptor_set_out={result}", *files]):
            raise ValueError("protoc refuses it")
        return list(descriptor_pb2.FileDescriptorSet.FromString(result.read_bytes()).file)


def message_class(text: str, name: str, **references: str) -> Any:
    """The class of a message of a .proto text; `references` are files by their names, with `_` for a dot."""
    return _message_class(text, name, tuple(sorted(references.items())))


@cache
def _message_class(text: str, name: str, references: tuple[tuple[str, str], ...]) -> Any:
    pool = descriptor_pool.DescriptorPool()
    others = {each.replace("_proto", ".proto"): source for each, source in references}
    for file in descriptors({"test.proto": text, **others}):
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))
