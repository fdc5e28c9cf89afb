"""The hooks of this package."""

from recordpublisher import hookimpl

from .sqs import SqsQueue


@hookimpl
def recordpublisher_register_publishers(registry):
    registry.add("SQS", SqsQueue)
