"""Another reader of Protobuf, against which tests hold the machine: numpy reads a field of all messages at a time."""
