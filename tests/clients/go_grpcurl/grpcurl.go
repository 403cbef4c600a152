//go:build tools

// Package grpcurl names the program that `go build` makes from this module.
package grpcurl

import _ "github.com/fullstorydev/grpcurl/cmd/grpcurl"
