"""gRPC services and their callers, made from the descriptors of generated messages.

A descriptor holds names, messages and streams of every method, so no generated stubs are needed.
"""

from types import SimpleNamespace
from typing import Any

import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass


def handler(
    servicer: object, service: ServiceDescriptor, *, name: str = ""
) -> grpc.GenericRpcHandler:
    """A service whose methods are those of ``servicer`` with the same names.

    Args:
        name: of the service, where it is served in another API version with equal messages.
    """
    methods = {each.name: _method(getattr(servicer, each.name), each) for each in service.methods}
    return grpc.method_handlers_generic_handler(name or service.full_name, methods)


def _method(function: Any, method: MethodDescriptor) -> "grpc.RpcMethodHandler[Any, Any]":
    make = (
        grpc.unary_stream_rpc_method_handler
        if method.server_streaming
        else grpc.unary_unary_rpc_method_handler
    )
    return make(
        function,
        request_deserializer=GetMessageClass(method.input_type).FromString,
        response_serializer=GetMessageClass(method.output_type).SerializeToString,
    )


def caller(channel: grpc.aio.Channel, service: ServiceDescriptor, *, name: str = "") -> Any:
    """An object with one function for each method of a service.

    Args:
        name: as in :func:`handler`.
    """
    calls = SimpleNamespace()
    for method in service.methods:
        call = channel.unary_stream if method.server_streaming else channel.unary_unary
        function = call(
            f"/{name or service.full_name}/{method.name}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        setattr(calls, method.name, function)
    return calls
