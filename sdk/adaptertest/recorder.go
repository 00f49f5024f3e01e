package adaptertest

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// maxRecord bounds what is kept of all answers together.
const maxRecord = 64 << 20

// recorder keeps every answer of the adapter as it came over the wire, before
// the host's side redacts it: the search for secrets is in what was said.
type recorder struct {
	grpc.ClientConnInterface
	k *kit
}

// Invoke records the reply.
func (r *recorder) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	err := r.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	if m, ok := reply.(proto.Message); ok && err == nil {
		if raw, err := proto.Marshal(m); err == nil { // bytes fields as they are, not in base64
			r.k.record(method, raw)
		}
		if raw, err := protojson.Marshal(m); err == nil {
			r.k.record(method, raw)
		}
	}
	if err != nil {
		r.k.record(method, []byte(err.Error()))
	}
	return err
}

func (k *kit) record(method string, raw []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.said.Len() < maxRecord {
		k.said.WriteString(method + " ")
		k.said.Write(raw)
		k.said.WriteByte('\n')
	}
}
