// Streams an answer, and resumes it if its stream breaks:
//
//   node generate.js PROMPT [HOST:PORT ...]
//
// A client in any language has to do this for it: count epochs, remember what it has received, leave
// an orchestrator that has fallen silent, and continue by Resume if the session is stored, or else
// by Generate with `received`.

import { fileURLToPath } from 'node:url';
import { setTimeout as pause } from 'node:timers/promises';
import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';
import { explain } from './errors.js';

const MAX_BROKEN = 12; // calls in a row that received nothing
const PAUSE_MS = 250;
const DEADLINE_MS = 60_000;
const PATIENCE_MS = 15_000; // for the first event of a call; without heartbeats, for each event
const NOT_STORED = ['NO_STORE', 'STORE_UNAVAILABLE', 'SESSION_NOT_FOUND'];

const { specmesh } = grpc.loadPackageDefinition(
  protoLoader.loadSync('specmesh/v1/generation.proto', {
    includeDirs: [fileURLToPath(new URL('../../../protos', import.meta.url))],
    keepCase: true,
    longs: Number, // exact, since seeds are below 2**53
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

let started; // the `started` event of the latest stream
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

// Reads one stream and returns its `finished` event.
async function read(call) {
  let fellSilent = false;
  const leave = () => {
    fellSilent = true;
    call.cancel();
  };
  let silence = setTimeout(leave, PATIENCE_MS);
  try {
    for await (const { event } of call) {
      const finished = take(event);
      if (finished) return finished;
      clearTimeout(silence);
      silence = setTimeout(leave, 4 * started.heartbeat_ms || PATIENCE_MS);
    }
  } catch (error) {
    throw fellSilent ? broke('the orchestrator has fallen silent') : error;
  } finally {
    clearTimeout(silence);
  }
  throw broke('the stream ended too soon');
}

const broke = (message) => Object.assign(new Error(message), { code: grpc.status.UNAVAILABLE });

// Remembers the data of an event and writes its text; returns `finished` if the event has it.
function take({ started: begun, chunk, finished }) {
  if (begun) {
    started = begun;
    stored = started.resumable;
    received.prompt_digest = started.prompt_digest;
    received.max_tokens = started.max_tokens;
  } else if (chunk) {
    broken = 0;
    stored = chunk.resumable;
    chunk.kinds.forEach((kind, index) => {
      if (kind === 'TOKEN_KIND_UNCHECKED') received.unchecked.push(received.token_ids.length + index);
    });
    received.token_ids.push(...chunk.token_ids);
    process.stdout.write(chunk.text);
  } else if (finished) {
    process.stdout.write(finished.text);
  }
  return finished;
}

// Decides whether to retry after an error, and when.
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
  const waitMs = retryMs ?? PAUSE_MS;
  console.error(`\n${describe(error)}; again in ${waitMs / 1e3} s`);
  await pause(waitMs);
  return true;
}

function describe(error) {
  const { reason } = explain(error);
  return `${grpc.status[error.code]}${reason && ` ${reason}`}: ${error.details ?? error.message}`;
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
      console.error(`\n${describe(error)}`);
      process.exitCode = 1;
      break;
    }
  }
}
clients.forEach((client) => client.close());
