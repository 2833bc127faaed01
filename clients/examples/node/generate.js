// Streams an answer, and carries it on where its stream breaks:
//
//   node generate.js PROMPT [HOST:PORT ...]
//
// This is all that a client in any language has to do for it: count epochs, remember what it has
// received, and go on by Resume where the session is stored, else by Generate with `received`.

import { fileURLToPath } from 'node:url';
import { setTimeout as pause } from 'node:timers/promises';
import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';
import { explain } from './errors.js';

const MAX_BROKEN = 12; // calls in a row that brought nothing
const PAUSE_MS = 250;
const DEADLINE_MS = 60_000;
const NOT_STORED = ['NO_STORE', 'STORE_UNAVAILABLE', 'SESSION_NOT_FOUND'];

const { specmesh } = grpc.loadPackageDefinition(
  protoLoader.loadSync('specmesh/v1/generation.proto', {
    includeDirs: [fileURLToPath(new URL('../../../protos', import.meta.url))],
    keepCase: true,
    longs: Number, // seeds are below 2**53
    enums: String,
    defaults: true,
  }),
);

const [prompt = 'def fibonacci(n):', ...given] = process.argv.slice(2);
const clients = (given.length ? given : ['127.0.0.1:50051']).map(
  (target) => new specmesh.v1.GenerationService(target, grpc.credentials.createInsecure()),
);
const request = {
  text: prompt,
  sampling: { temperature: 0.8, seed: 7 },
  stopping: { max_tokens: 64 },
};

let started; // what the latest stream told at its beginning
let stored = false;
let epoch = 0;
let broken = 0;
const received = { token_ids: [], unchecked: [] };

function open(client) {
  epoch += 1;
  const options = { deadline: Date.now() + DEADLINE_MS };
  if (!started) return client.Generate({ ...request, epoch }, options);
  const { session_id, resume_token, strategy, seed, model_fingerprint } = started;
  if (stored) return client.Resume({ session_id, resume_token, epoch, received }, options);
  return client.Generate(
    {
      ...request,
      sampling: { ...request.sampling, seed },
      speculation: { strategy },
      model_fingerprint,
      epoch,
      received,
    },
    options,
  );
}

// Reads one stream; returns its `finished`.
async function read(call) {
  for await (const { event } of call) {
    if (event.started) {
      started = event.started;
      stored = started.resumable;
    } else if (event.chunk) {
      broken = 0;
      stored ||= event.chunk.resumable;
      event.chunk.kinds.forEach((kind, index) => {
        if (kind === 'TOKEN_KIND_UNCHECKED') received.unchecked.push(received.token_ids.length + index);
      });
      received.token_ids.push(...event.chunk.token_ids);
      process.stdout.write(event.chunk.text);
    } else if (event.finished) {
      process.stdout.write(event.finished.text);
      return event.finished;
    }
  }
  throw Object.assign(new Error('the stream ended too soon'), { code: grpc.status.UNAVAILABLE });
}

// Whether to call again after an error, and when.
async function mayGoOn(error) {
  const { reason, retryMs } = explain(error);
  if (stored && NOT_STORED.includes(reason)) {
    stored = false;
    return true;
  }
  const { UNAVAILABLE, RESOURCE_EXHAUSTED, INTERNAL, UNKNOWN } = grpc.status;
  const mayPass = [UNAVAILABLE, RESOURCE_EXHAUSTED].includes(error.code);
  const brokenConnection = [INTERNAL, UNKNOWN].includes(error.code) && !reason; // by a proxy
  broken += 1;
  if (broken > MAX_BROKEN || !(mayPass || brokenConnection)) return false;
  await pause(retryMs ?? PAUSE_MS);
  return true;
}

for (let turn = 0; ; turn += 1) {
  try {
    const { finish_reason, stats } = await read(open(clients[turn % clients.length]));
    console.error(
      `\n${started.strategy}, seed ${started.seed}: ${stats.num_output_tokens} tokens, ` +
        `${stats.num_verify_calls} verify calls, ended by ${finish_reason}`,
    );
    break;
  } catch (error) {
    if (!(await mayGoOn(error))) {
      console.error(`\n${grpc.status[error.code]} ${explain(error).reason}: ${error.details ?? error.message}`);
      process.exitCode = 1;
      break;
    }
  }
}
clients.forEach((client) => client.close());
