// Streams an answer, and resumes it if its stream breaks:
//
//	generate PROMPT [HOST:PORT ...]
//
// A client in any language has to do this for it: count epochs, remember what it has received, leave
// an orchestrator that has fallen silent, and continue by Resume if the session is stored, or else
// by Generate with `received`. README.md tells how to build it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	specmeshv1 "specmesh.dev/go/specmesh/v1"
)

const (
	deadline  = time.Minute // for the whole answer, however many calls it takes
	maxBroken = 12          // calls in a row that received nothing
	pause     = 250 * time.Millisecond
)

func main() {
	prompt, targets := "def fibonacci(n):", []string{"127.0.0.1:50051"}
	if len(os.Args) > 1 {
		prompt = os.Args[1]
	}
	if len(os.Args) > 2 {
		targets = os.Args[2:]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()

	a := &answer{request: request(prompt)}
	if err := a.stream(ctx, targets); err != nil {
		fmt.Fprintf(os.Stderr, "\n%v\n", explain(err))
		os.Exit(1)
	}
	stats := a.finished.Stats
	fmt.Fprintf(os.Stderr, "\n%s, seed %d: %d tokens, %d verify calls, ended by %v\n",
		a.started.Strategy, a.started.Seed,
		stats.NumOutputTokens, stats.NumVerifyCalls, a.finished.FinishReason)
}

func request(prompt string) *specmeshv1.GenerateRequest {
	return &specmeshv1.GenerateRequest{
		Prompt: &specmeshv1.GenerateRequest_Text{Text: prompt},
		Sampling: &specmeshv1.SamplingParameters{
			Temperature: proto.Float32(0.8),
			Seed:        proto.Uint64(7),
		},
		Stopping: &specmeshv1.StoppingCriteria{MaxTokens: proto.Uint32(64)},
	}
}

// stream prints the answer as it arrives, calling one target after the other until it is complete.
func (a *answer) stream(ctx context.Context, targets []string) error {
	clients, err := connect(targets)
	if err != nil {
		return err
	}
	for turn, broken := 0, 0; ; turn++ {
		had := len(a.tokenIDs)
		err := a.read(ctx, clients[turn%len(clients)])
		if err == nil {
			return nil
		}
		failed := explain(err)
		if a.isNotStored(failed) {
			continue
		}
		if len(a.tokenIDs) > had {
			broken = 0
		}
		broken++
		wait, again := failed.retry()
		if !again || broken > maxBroken {
			return err
		}
		fmt.Fprintf(os.Stderr, "\n%v; again in %g s\n", failed, wait.Seconds())
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// connect makes a client for each target; the first call opens its connection.
func connect(targets []string) ([]specmeshv1.GenerationServiceClient, error) {
	clients := make([]specmeshv1.GenerationServiceClient, len(targets))
	for index, target := range targets {
		// Newer versions of gRPC have NewClient and insecure.NewCredentials, and keep these.
		connection, err := grpc.Dial(target, grpc.WithInsecure())
		if err != nil {
			return nil, err
		}
		clients[index] = specmeshv1.NewGenerationServiceClient(connection)
	}
	return clients, nil
}
