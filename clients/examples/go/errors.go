package main

import (
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	specmeshv1 "specmesh.dev/go/specmesh/v1"
)

// failure is the error of a failed call.
type failure struct {
	code       codes.Code
	reason     string // of ErrorReason, by which to decide; empty if something between failed
	message    string // for people
	retryAfter time.Duration
}

// explain reads a status and its details, whose types are in google/rpc/error_details.proto.
func explain(err error) failure {
	of := status.Convert(err)
	failed := failure{code: of.Code(), message: of.Message()}
	for _, detail := range of.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetDomain() == "specmesh.dev" {
				failed.reason = detail.GetReason()
			}
		case *errdetails.RetryInfo:
			failed.retryAfter = detail.GetRetryDelay().AsDuration()
		}
	}
	return failed
}

func (f failure) String() string {
	if f.reason == "" {
		return fmt.Sprintf("%v: %s", f.code, f.message)
	}
	return fmt.Sprintf("%v %s: %s", f.code, f.reason, f.message)
}

// retry tells whether to retry the call, and after which delay.
func (f failure) retry() (time.Duration, bool) {
	switch f.advice() {
	case specmeshv1.Retry_RETRY_ELSEWHERE:
		return pause, true
	case specmeshv1.Retry_RETRY_LATER:
		return f.retryAfter, true
	}
	return 0, false
}

// advice returns the rule that errors.proto declares for the reason, or else for the status.
func (f failure) advice() specmeshv1.Retry {
	name := protoreflect.Name("ERROR_REASON_" + f.reason)
	if reason := specmeshv1.ErrorReason(0).Descriptor().Values().ByName(name); reason != nil {
		traits := proto.GetExtension(reason.Options(), specmeshv1.E_Error)
		return traits.(*specmeshv1.ErrorTraits).Retry
	}
	switch {
	case f.retryAfter > 0:
		return specmeshv1.Retry_RETRY_LATER
	case f.code == codes.Unavailable:
		return specmeshv1.Retry_RETRY_ELSEWHERE
	case f.reason == "" && (f.code == codes.Internal || f.code == codes.Unknown):
		return specmeshv1.Retry_RETRY_ELSEWHERE
	}
	return specmeshv1.Retry_RETRY_NEVER
}
