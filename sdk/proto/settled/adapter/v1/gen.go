// Package adapterv1 is the wire contract between the daemon and an adapter,
// generated from adapter.proto. Within this major version the contract only
// grows: no number is used again, no field changes its meaning, and a field
// that is absent must be safe.
//
// To generate it again install protoc with its well-known types (Debian:
// protobuf-compiler and libprotobuf-dev) and run "go generate" here. The two
// plugins are built into a directory that is removed afterwards, so that
// nothing of the machine decides what is generated.
package adapterv1

//go:generate sh -ec "b=$(mktemp -d); trap 'rm -rf $DOLLAR{b}' EXIT; GOBIN=$DOLLAR{b} go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12; GOBIN=$DOLLAR{b} go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2; PATH=$DOLLAR{b}:$DOLLAR{PATH} protoc -I ../../.. -I /usr/include --go_out=../../.. --go_opt=paths=source_relative --go-grpc_out=../../.. --go-grpc_opt=paths=source_relative settled/adapter/v1/adapter.proto"
