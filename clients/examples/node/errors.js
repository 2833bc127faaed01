// Reads the details of a failed call's status (protos/specmesh/v1/errors.proto).

import protobuf from 'protobufjs';

const rpc = protobuf.parse(`
  syntax = "proto3";
  package google.rpc;
  message Detail { string type_url = 1; bytes value = 2; }
  message Status { int32 code = 1; string message = 2; repeated Detail details = 3; }
  message ErrorInfo { string reason = 1; string domain = 2; map<string, string> metadata = 3; }
  message Duration { int64 seconds = 1; int32 nanos = 2; }
  message RetryInfo { Duration retry_delay = 1; }
`, { keepCase: true }).root.lookup('google.rpc');

// Returns the reason, by which programs decide ('' if there is none), its values, and the retry delay.
export function explain(error) {
  const explained = { reason: '', metadata: {}, retryMs: undefined };
  const [packed] = error.metadata?.get('grpc-status-details-bin') ?? [];
  if (!packed) return explained;
  for (const { type_url, value } of rpc.Status.decode(packed).details) {
    if (type_url.endsWith('/google.rpc.ErrorInfo')) {
      const { reason, domain, metadata } = rpc.ErrorInfo.decode(value);
      if (domain === 'specmesh.dev') Object.assign(explained, { reason, metadata });
    } else if (type_url.endsWith('/google.rpc.RetryInfo')) {
      const { seconds, nanos } = rpc.RetryInfo.decode(value).retry_delay;
      explained.retryMs = Number(seconds) * 1e3 + nanos / 1e6;
    }
  }
  return explained;
}
