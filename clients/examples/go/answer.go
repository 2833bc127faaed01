package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	specmeshv1 "specmesh.dev/go/specmesh/v1"
)

// patience is the longest wait for the first event of a call, and for each event of a stream
// without heartbeats.
const patience = 15 * time.Second

// answer is the state that a client keeps, so that any orchestrator can continue the answer.
type answer struct {
	request   *specmeshv1.GenerateRequest
	epoch     uint32                        // of the latest call
	started   *specmeshv1.GenerationStarted // of the latest stream that began
	stored    bool                          // whether Resume can continue it
	tokenIDs  []uint32
	unchecked []uint32 // positions in tokenIDs
	finished  *specmeshv1.GenerationFinished
}

// read makes the next call, and prints the received text until the answer is complete.
func (a *answer) read(ctx context.Context, client specmeshv1.GenerationServiceClient) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	receive, err := a.open(ctx, client)
	if err != nil {
		return err
	}
	silence := time.AfterFunc(patience, leave)
	for a.finished == nil {
		event, err := receive()
		if fellSilent := !silence.Stop(); fellSilent {
			return status.Error(codes.Unavailable, "the orchestrator has fallen silent")
		}
		if errors.Is(err, io.EOF) {
			return status.Error(codes.Unavailable, "the stream ended too soon")
		}
		if err != nil {
			return err
		}
		fmt.Print(a.take(event))
		silence.Reset(a.longestSilence())
	}
	return nil
}

// open starts the first stream, or one that continues after the received tokens.
func (a *answer) open(
	ctx context.Context, client specmeshv1.GenerationServiceClient,
) (func() (*specmeshv1.GenerationEvent, error), error) {
	a.epoch++
	received := &specmeshv1.Received{
		TokenIds:     a.tokenIDs,
		Unchecked:    a.unchecked,
		PromptDigest: a.started.GetPromptDigest(),
		MaxTokens:    a.started.GetMaxTokens(),
	}
	if a.stored {
		return events[*specmeshv1.ResumeResponse](client.Resume(ctx, &specmeshv1.ResumeRequest{
			SessionId:   a.started.SessionId,
			ResumeToken: a.started.ResumeToken,
			Epoch:       a.epoch,
			Received:    received,
		}))
	}
	request := proto.Clone(a.request).(*specmeshv1.GenerateRequest)
	request.Epoch = proto.Uint32(a.epoch)
	if a.started != nil {
		request.Sampling.Seed = proto.Uint64(a.started.Seed)
		request.Speculation = &specmeshv1.SpeculationOptions{Strategy: a.started.Strategy}
		request.ModelFingerprint = a.started.ModelFingerprint
		request.Received = received
	}
	return events[*specmeshv1.GenerateResponse](client.Generate(ctx, request))
}

// events unifies the streams of Generate and Resume, whose responses differ only in name.
func events[R interface {
	GetEvent() *specmeshv1.GenerationEvent
}](
	stream interface{ Recv() (R, error) }, err error,
) (func() (*specmeshv1.GenerationEvent, error), error) {
	receive := func() (*specmeshv1.GenerationEvent, error) {
		response, err := stream.Recv()
		return response.GetEvent(), err
	}
	return receive, err
}

// take stores the data of an event, and returns its text.
func (a *answer) take(event *specmeshv1.GenerationEvent) string {
	switch kind := event.Kind.(type) {
	case *specmeshv1.GenerationEvent_Started:
		a.started = kind.Started
		a.stored = a.started.Resumable
	case *specmeshv1.GenerationEvent_Chunk:
		a.stored = kind.Chunk.Resumable
		for index, tokenKind := range kind.Chunk.Kinds {
			if tokenKind == specmeshv1.TokenKind_TOKEN_KIND_UNCHECKED {
				a.unchecked = append(a.unchecked, uint32(len(a.tokenIDs)+index))
			}
		}
		a.tokenIDs = append(a.tokenIDs, kind.Chunk.TokenIds...)
		return kind.Chunk.Text
	case *specmeshv1.GenerationEvent_Finished:
		a.finished = kind.Finished
		return a.finished.Text
	}
	return ""
}

// longestSilence returns the longest silence of an open stream whose orchestrator is alive.
func (a *answer) longestSilence() time.Duration {
	if heartbeat := a.started.GetHeartbeatMs(); heartbeat > 0 {
		return 4 * time.Duration(heartbeat) * time.Millisecond
	}
	return patience
}

// isNotStored tells whether a call failed only because the session is not in the store; the next
// call then continues without it.
func (a *answer) isNotStored(failed failure) bool {
	switch failed.reason {
	case "NO_STORE", "STORE_UNAVAILABLE", "SESSION_NOT_FOUND":
		had := a.stored
		a.stored = false
		return had
	}
	return false
}
