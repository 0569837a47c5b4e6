"""A collector for tests: receives OTLP over HTTP and writes each span as a line of JSON.

It decodes requests by the official protobuf definitions and rejects everything else.

    receiver.py FILE    prints its port, and appends spans to FILE until it is killed
"""

import http.server
import json
import sys

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


def attributes(pairs):
    """Returns attributes as a map from keys to values."""
    return {pair.key: next(iter(MessageToDict(pair.value).values()), None) for pair in pairs}


def describe(span, resource, scope):
    return {
        "trace": span.trace_id.hex(),
        "span": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "name": span.name,
        "kind": span.kind,
        "start": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "state": span.trace_state,
        "attributes": attributes(span.attributes),
        "events": [{"name": event.name, "attributes": attributes(event.attributes)} for event in span.events],
        "links": [link.span_id.hex() for link in span.links],
        "status": span.status.code,
        "resource": attributes(resource.attributes),
        "scope": scope.name,
    }


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        is_otlp = self.path == "/v1/traces" and self.headers["content-type"] == "application/x-protobuf"
        if not is_otlp:
            return self.answer(415, b"")
        request = ExportTraceServiceRequest.FromString(body)
        with open(sys.argv[1], "a", encoding="utf-8") as file:
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        line = json.dumps(describe(span, resource.resource, scope.scope))
                        file.write(line + "\n")
        self.answer(200, ExportTraceServiceResponse().SerializeToString())

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_port, flush=True)
server.serve_forever()
